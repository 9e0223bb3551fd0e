"""Models that have no likelihood of measured times, with the values that come nearest.

Letters: T steps, W workers.
"""

from collections.abc import Iterator

import numpy as np

from gcjax.stragglers.traces.fitting.calls import call
from gcjax.stragglers.traces.fitting.candidates import Candidate
from gcjax.stragglers.traces.fitting.expectation import worker_medians
from gcjax.stragglers.traces.fitting.families import FAMILIES, Family, log_density, maximum_likelihood


def candidates(seconds: np.ndarray) -> Iterator[Candidate]:
    """Models in which a worker takes one time, from float64[T, W] finite seconds above 0, NaN where not measured."""
    median_of_worker = worker_medians(seconds)
    note = "each worker takes one time: no density; the median of each worker"
    model = call("constant", seconds=median_of_worker)
    yield Candidate(model, num_parameters=len(median_of_worker), log_likelihood=None, note=note)
    if len(median_of_worker) > 1:
        yield _worker_speeds_candidate(median_of_worker)


def _worker_speeds_candidate(median_of_worker: np.ndarray) -> Candidate:
    """The model in which each worker draws its seconds once, from the family that is likeliest for these float64[W]."""
    one_group = median_of_worker[:, None]  # [W, 1]
    equal_weights = np.ones_like(one_group)
    family_fits = [(family, *maximum_likelihood(family, one_group, equal_weights)) for family in FAMILIES.values()]

    def log_likelihood(family_fit: tuple[Family, np.ndarray, float]) -> float:
        """That of the medians, for (a family, its scale float64[1], its shape)."""
        family, scale, shape = family_fit
        return float(log_density(family, one_group, scale, shape).sum())

    family, (scale,), shape = max(family_fits, key=log_likelihood)
    model = call("worker_speeds", model=family.call(scale, shape))
    note = "each worker takes one time: no density; the likeliest family of the workers' medians"
    return Candidate(model, 1 + family.num_shapes, log_likelihood=None, note=note)
