"""Models that have no likelihood of measured times, with the values that come nearest.

Letters: T steps, W workers.
"""

from collections.abc import Iterator

import numpy as np

from gcjax.stragglers.traces.fitting.calls import call
from gcjax.stragglers.traces.fitting.candidates import Candidate
from gcjax.stragglers.traces.fitting.expectation import medians
from gcjax.stragglers.traces.fitting.families import FAMILIES, log_density, maximum_likelihood


def candidates(seconds: np.ndarray) -> Iterator[Candidate]:
    """Models in which a worker takes one time, from float64[T, W] finite seconds above 0, NaN where not measured."""
    median_of_worker = medians(seconds)
    note = "each worker takes one time: no density; the median of each worker"
    yield Candidate(call("constant", seconds=median_of_worker), len(median_of_worker), None, note)
    if len(median_of_worker) > 1:
        yield _worker_speeds(median_of_worker)


def _worker_speeds(median_of_worker: np.ndarray) -> Candidate:
    """The likeliest family of the workers' times float64[W]."""
    medians_as_column = median_of_worker[:, None]
    scale_and_shape_of_family = {
        name: maximum_likelihood(family, medians_as_column, np.ones_like(medians_as_column))
        for name, family in FAMILIES.items()
    }
    name = max(
        scale_and_shape_of_family,
        key=lambda name: float(log_density(FAMILIES[name], medians_as_column, *scale_and_shape_of_family[name]).sum()),
    )
    (scale,), shape = scale_and_shape_of_family[name]
    model = call("worker_speeds", model=FAMILIES[name].call(scale, shape))
    note = "each worker takes one time: no density; the likeliest family of the workers' medians"
    return Candidate(model, 1 + FAMILIES[name].num_shapes, None, note)
