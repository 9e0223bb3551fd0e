"""Failures by maximum likelihood: what takes inf. Who fails does not depend on the times of the others.

Letters: T steps, W workers.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from gcjax.stragglers.traces.fitting.calls import call
from gcjax.stragglers.traces.fitting.candidates import Candidate


class Failures(NamedTuple):
    """A model of failures.

    Attributes:
      name: of the factory that wraps a model of times.
      arguments: of it, but the model.
      num_parameters: numbers that were fitted.
      log_likelihood: `(seconds [T, W]) -> [T, W]`, of whether each unit failed; NaN where not measured.
    """

    name: str
    arguments: dict[str, Any]
    num_parameters: int
    log_likelihood: Callable[[np.ndarray], np.ndarray]

    def around(self, inner: Candidate) -> Candidate:
        """A model of the times, which has a density, of those that have not failed, with these failures."""
        log_likelihood_of_times = inner.log_likelihood
        assert log_likelihood_of_times is not None

        def log_likelihood(seconds: np.ndarray) -> np.ndarray:
            """Of whether each unit failed, and of its time if not."""
            finite_or_nan = np.where(np.isinf(seconds), np.nan, seconds)
            return self.log_likelihood(seconds) + np.where(np.isinf(seconds), 0, log_likelihood_of_times(finite_or_nan))

        return inner._replace(
            call=call(self.name, model=inner.call, **self.arguments),
            num_parameters=inner.num_parameters + self.num_parameters,
            log_likelihood=log_likelihood,
        )


def models(seconds: np.ndarray) -> list[Failures]:
    """All models of the failures in float64[T, W] seconds, the likeliest first; none if nobody failed."""
    if not np.isinf(seconds).any():
        return []
    all_failures = [_in_each_round(seconds), *_counted(seconds), *_for_good(seconds)]
    return sorted(all_failures, key=lambda failures: -float(np.nansum(failures.log_likelihood(seconds))))


def _failed_and_had_failed(seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float64[T, W] twice: 1 for a failed unit, NaN where not measured; and 1 for a worker that had failed before."""
    failed = np.where(np.isnan(seconds), np.nan, np.isinf(seconds))
    had_failed = np.maximum.accumulate(np.concatenate([np.zeros_like(failed[:1]), np.nan_to_num(failed)[:-1]]))
    return failed, had_failed


def _log_probability(probability: np.ndarray, failed: np.ndarray) -> np.ndarray:
    """The logarithm of the probability of what happened, if a unit fails with this one."""
    with np.errstate(divide="ignore"):
        return np.log(np.where(failed == 1, probability, np.where(failed == 0, 1 - probability, np.nan)))


def _in_each_round(seconds: np.ndarray) -> Failures:
    """Each unit fails with the same probability."""
    failed, _ = _failed_and_had_failed(seconds)
    probability = float(np.nanmean(failed))

    def log_likelihood(times: np.ndarray) -> np.ndarray:
        """Of whether each unit failed."""
        failed, _ = _failed_and_had_failed(times)
        return _log_probability(np.asarray(probability), failed)

    arguments = {"probability": probability, "forever": False}
    return Failures("failed_probability", arguments, num_parameters=1, log_likelihood=log_likelihood)


def _counted(seconds: np.ndarray) -> Iterator[Failures]:
    """In each round a number of workers between two bounds fail, any set as likely as any other.

    There is no such model where not all workers of a step were measured.
    """
    if np.isnan(seconds).any():
        return
    from scipy.special import gammaln

    num_failed_of_step, num_workers = np.isinf(seconds).sum(axis=1), seconds.shape[1]
    fewest, most = int(num_failed_of_step.min()), int(num_failed_of_step.max())

    def log_likelihood(times: np.ndarray) -> np.ndarray:
        """Of the set of each round, an equal part for each worker."""
        num_failed = np.isinf(times).sum(axis=1)
        log_num_sets = gammaln(num_workers + 1) - gammaln(num_failed + 1) - gammaln(num_workers - num_failed + 1)
        is_possible, log_num_counts = (num_failed >= fewest) & (num_failed <= most), np.log(most - fewest + 1)
        log_probability_of_set = np.where(is_possible, -log_num_counts - log_num_sets, -np.inf)
        equal_parts = (log_probability_of_set / num_workers)[:, None]
        return np.where(np.isnan(times), np.nan, equal_parts)

    arguments = {"count": fewest, "max_count": most, "forever": False}
    yield Failures("failed_count", arguments, num_parameters=2, log_likelihood=log_likelihood)


def _for_good(seconds: np.ndarray) -> Iterator[Failures]:
    """Failures that last; none if a worker came back."""
    failed, had_failed = _failed_and_had_failed(seconds)
    comes_back = (had_failed == 1) & (failed == 0)
    if comes_back.any():
        return
    fails_now = (failed == 1) & (had_failed == 0)
    yield _for_good_at_random(fails_now, can_fail=(had_failed == 0) & ~np.isnan(failed))
    yield _for_good_of_workers(fails_now)


def _for_good_at_random(fails_now: np.ndarray, can_fail: np.ndarray) -> Failures:
    """Every worker that has not failed does so with the same probability, the share of the units bool[T, W]."""
    hazard = float(fails_now.sum() / can_fail.sum())

    def log_likelihood(times: np.ndarray) -> np.ndarray:
        """Of whether each unit failed, given those before; a worker that has failed stays so."""
        failed, had_failed = _failed_and_had_failed(times)
        return _log_probability(np.where(had_failed == 1, 1.0, hazard), failed)

    arguments = {"probability": hazard, "forever": True}
    return Failures("failed_probability", arguments, num_parameters=1, log_likelihood=log_likelihood)


def _for_good_of_workers(fails_now: np.ndarray) -> Failures:
    """The workers of bool[T, W] fail, each at a step between the first and the last that is as likely as any other."""
    workers = np.flatnonzero(fails_now.any(axis=0))
    onsets = np.flatnonzero(fails_now.any(axis=1))
    first_onset, last_onset = int(onsets.min()), int(onsets.max())

    def log_likelihood(times: np.ndarray) -> np.ndarray:
        """Of whether each unit failed, given those before; a worker that has failed stays so."""
        failed, had_failed = _failed_and_had_failed(times)
        steps = np.arange(len(times))[:, None]
        num_onsets_left = np.maximum(last_onset - steps + 1, 1)
        hazards = np.where((steps >= first_onset) & (steps <= last_onset), 1 / num_onsets_left, 0)
        hazards = np.where(np.isin(np.arange(times.shape[1]), workers), hazards, 0)
        return _log_probability(np.where(had_failed == 1, 1.0, hazards), failed)

    arguments = {"workers": tuple(workers.tolist()), "forever": True, "onset": first_onset, "latest_onset": last_onset}
    return Failures("failed_workers", arguments, num_parameters=len(workers) + 2, log_likelihood=log_likelihood)
