"""Models whose times are independent, by maximum likelihood: the families, with a factor or a delay a worker.

Letters: T steps, W workers.
"""

from collections.abc import Iterator

import numpy as np

from gcjax.stragglers.traces.fitting.calls import call
from gcjax.stragglers.traces.fitting.candidates import Candidate
from gcjax.stragglers.traces.fitting.families import FAMILIES, Family, log_density, maximum_likelihood

_TINY = 1e-9  # relative to a delay


def seconds_and_weights(seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The times, with 1 for those that are NaN (not measured), and their weights: 0 for these, 1 for all others."""
    is_measured = ~np.isnan(seconds)
    return np.where(is_measured, seconds, 1.0), is_measured.astype(np.float64)


def candidates(seconds: np.ndarray) -> Iterator[Candidate]:
    """All models of independent times, fitted to float64[T, W] finite seconds above 0, NaN where not measured."""
    for family in FAMILIES.values():
        yield _pooled_candidate(family, seconds)
        if seconds.shape[1] > 1:
            yield _scaled_candidate(family, seconds)
    if seconds.shape[1] > 1:
        yield _delayed_candidate(seconds)


def _pooled_candidate(family: Family, seconds: np.ndarray) -> Candidate:
    """The model with one distribution for all workers, which are one group of times [T W, 1]."""
    seconds_or_one, weights = seconds_and_weights(seconds.reshape(-1, 1))
    (scale,), shape = maximum_likelihood(family, seconds_or_one, weights)
    return Candidate(
        family.call(scale, shape), 1 + family.num_shapes, lambda times: log_density(family, times, scale, shape)
    )


def _scaled_candidate(family: Family, seconds: np.ndarray) -> Candidate:
    """The model with one distribution, times a factor of each worker; the median factor is 1.

    Each column of `seconds float64[T, W]` is a group with a scale of its own.
    """
    scale_of_worker, shape = maximum_likelihood(family, *seconds_and_weights(seconds))
    median_scale = np.median(scale_of_worker)
    model = call("scaled", model=family.call(median_scale, shape), factor=scale_of_worker / median_scale)
    num_parameters = len(scale_of_worker) + family.num_shapes
    return Candidate(model, num_parameters, lambda times: log_density(family, times, scale_of_worker, shape))


def _delayed_candidate(seconds: np.ndarray) -> Candidate:
    """The model with exponential times of one mean, after a delay of each worker: its shortest time.

    A worker without a measured time has the median delay of the others. The mean is above 0 even of equal times.
    """
    delays = np.where(np.isnan(seconds), np.inf, seconds).min(axis=0)
    delays = np.where(np.isinf(delays), np.median(delays[np.isfinite(delays)]), delays)
    mean = max(float(np.nanmean(seconds - delays)), _TINY * float(delays.mean()))
    model = call("delayed", model=call("exponential", mean=mean), seconds=delays)

    def log_likelihood(times: np.ndarray) -> np.ndarray:
        """float64[T, W]: the log-likelihood of each time; -inf before the delay, NaN where not measured.

        The delays are a little less, so that no shortest time is below its delay by rounding.
        """
        return log_density(FAMILIES["exponential"], times - delays * (1 - _TINY), scale=mean, shape=np.nan)

    return Candidate(model, len(delays) + 1, log_likelihood)
