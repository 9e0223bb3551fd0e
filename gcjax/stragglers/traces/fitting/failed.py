"""Failures by maximum likelihood: what takes inf. Who fails does not depend on the times of the others.

Letters: T steps, W workers.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from gcjax.stragglers.traces.fitting.calls import call
from gcjax.stragglers.traces.fitting.candidates import Candidate, log_probability_of_indicators


class FailureModel(NamedTuple):
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

    def candidate_around(self, time_candidate: Candidate) -> Candidate:
        """`time_candidate`, a model of the times of units that have not failed, with these failures around it.

        It must have a density. Its note and the suffix of its name stay.
        """
        log_likelihood_of_times = time_candidate.log_likelihood
        assert log_likelihood_of_times is not None

        def log_likelihood(seconds: np.ndarray) -> np.ndarray:
            """float64[T, W]: the log-likelihood of whether each unit failed (inf), and of its time if not."""
            finite_or_nan = np.where(np.isinf(seconds), np.nan, seconds)
            return self.log_likelihood(seconds) + np.where(np.isinf(seconds), 0, log_likelihood_of_times(finite_or_nan))

        return time_candidate._replace(
            call=call(self.name, model=time_candidate.call, **self.arguments),
            num_parameters=time_candidate.num_parameters + self.num_parameters,
            log_likelihood=log_likelihood,
        )


def failure_models(seconds: np.ndarray) -> list[FailureModel]:
    """All models of the failures (inf) in float64[T, W] seconds, the likeliest first; none if nobody failed."""
    if not np.isinf(seconds).any():
        return []
    models = [_independent_failures(seconds), *_failed_counts_of_rounds(seconds), *_permanent_failures(seconds)]

    def total_log_likelihood(model: FailureModel) -> float:
        """The sum over all units that were measured; the others are NaN."""
        return float(np.nansum(model.log_likelihood(seconds)))

    return sorted(models, key=total_log_likelihood, reverse=True)


def _indicators_and_failed_before(seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether each unit failed, and whether its worker had failed before, float64[T, W] both.

    1 is yes, 0 is no; the first is NaN where not measured, which for the second is no failure.
    """
    failure_indicators = np.where(np.isnan(seconds), np.nan, np.isinf(seconds))
    has_failed_before = np.maximum.accumulate(
        np.concatenate([np.zeros_like(failure_indicators[:1]), np.nan_to_num(failure_indicators)[:-1]])
    )
    return failure_indicators, has_failed_before


def _independent_failures(seconds: np.ndarray) -> FailureModel:
    """The model in which each unit fails with the same probability, the share of the measured ones that did."""
    failure_indicators, _ = _indicators_and_failed_before(seconds)
    probability = float(np.nanmean(failure_indicators))

    def log_likelihood(times: np.ndarray) -> np.ndarray:
        """float64[T, W]: the log-likelihood of whether each unit failed."""
        failure_indicators, _ = _indicators_and_failed_before(times)
        return log_probability_of_indicators(failure_indicators, probability)

    arguments = {"probability": probability, "forever": False}
    return FailureModel("failed_probability", arguments, num_parameters=1, log_likelihood=log_likelihood)


def _failed_counts_of_rounds(seconds: np.ndarray) -> Iterator[FailureModel]:
    """The model in which in each round (a step) a number of workers fail, any set of them as likely as any other.

    The number is between the least and the most that failed in a step, each as likely as any other. There is no such
    model where not all workers of a step were measured.
    """
    if np.isnan(seconds).any():
        return
    from scipy.special import gammaln

    num_failed_of_step, num_workers = np.isinf(seconds).sum(axis=1), seconds.shape[1]
    min_failed, max_failed = int(num_failed_of_step.min()), int(num_failed_of_step.max())

    def log_likelihood(times: np.ndarray) -> np.ndarray:
        """float64[T, W]: the log-likelihood of who failed in each round, an equal part for each worker.

        How many fail is any number from `min_failed` to `max_failed`, and who they are any set of so many.
        """
        num_failed = np.isinf(times).sum(axis=1)
        log_num_sets = gammaln(num_workers + 1) - gammaln(num_failed + 1) - gammaln(num_workers - num_failed + 1)
        is_possible = (num_failed >= min_failed) & (num_failed <= max_failed)
        log_num_counts = np.log(max_failed - min_failed + 1)
        log_probability_of_set = np.where(is_possible, -log_num_counts - log_num_sets, -np.inf)
        equal_parts = (log_probability_of_set / num_workers)[:, None]
        return np.where(np.isnan(times), np.nan, equal_parts)

    arguments = {"count": min_failed, "max_count": max_failed, "forever": False}
    yield FailureModel("failed_count", arguments, num_parameters=2, log_likelihood=log_likelihood)


def anybody_comes_back(seconds: np.ndarray) -> bool:
    """Whether a worker has a time after it had failed, in `seconds float64[T, W]`."""
    failure_indicators, has_failed_before = _indicators_and_failed_before(seconds)
    return bool(((has_failed_before == 1) & (failure_indicators == 0)).any())


def _permanent_failures(seconds: np.ndarray) -> Iterator[FailureModel]:
    """The two models of failures that last, fitted to `seconds float64[T, W]`; none if a worker came back.

    In the one any worker can fail in any step, in the other only those that did, from the first failure to the last.
    """
    if anybody_comes_back(seconds):
        return
    # float64[T, W] both: 1 failed, 0 not, NaN not measured; 1 if the worker had failed in an earlier step, else 0.
    failure_indicators, has_failed_before = _indicators_and_failed_before(seconds)
    is_first_failed_unit = (failure_indicators == 1) & (has_failed_before == 0)
    yield _permanent_random_failures(
        is_first_failed_unit, is_at_risk=(has_failed_before == 0) & ~np.isnan(failure_indicators)
    )
    yield _permanent_failures_of_workers(is_first_failed_unit)


def _permanent_random_failures(is_first_failed_unit: np.ndarray, is_at_risk: np.ndarray) -> FailureModel:
    """The model in which every worker that has not failed does so in each step with one probability, and stays so.

    It is the share of first failures in the units at risk. Both are bool[T, W]; a unit at risk was measured, and its
    worker had not failed before.
    """
    hazard = float(is_first_failed_unit.sum() / is_at_risk.sum())

    def log_likelihood(times: np.ndarray) -> np.ndarray:
        """float64[T, W]: the log-likelihood of whether each unit failed; who has failed stays so."""
        failure_indicators, has_failed_before = _indicators_and_failed_before(times)
        return log_probability_of_indicators(failure_indicators, np.where(has_failed_before == 1, 1.0, hazard))

    arguments = {"probability": hazard, "forever": True}
    return FailureModel("failed_probability", arguments, num_parameters=1, log_likelihood=log_likelihood)


def _permanent_failures_of_workers(is_first_failed_unit: np.ndarray) -> FailureModel:
    """The model in which given workers fail for good: those that have a True in `is_first_failed_unit bool[T, W]`.

    Each does at a step between the first of these and the last, any as likely as any other.
    """
    workers = np.flatnonzero(is_first_failed_unit.any(axis=0))
    onsets = np.flatnonzero(is_first_failed_unit.any(axis=1))
    first_onset, last_onset = int(onsets.min()), int(onsets.max())

    def log_likelihood(times: np.ndarray) -> np.ndarray:
        """float64[T, W]: the log-likelihood of whether each unit failed; who has failed stays so.

        From `first_onset` on, one of the `workers` that has not failed does with probability 1 / (steps up to and with
        `last_onset`, this one among them); nobody else does.
        """
        failure_indicators, has_failed_before = _indicators_and_failed_before(times)
        steps = np.arange(len(times))[:, None]
        num_onsets_left = np.maximum(last_onset - steps + 1, 1)  # [T, 1]; later steps have no hazard
        hazards = np.where((steps >= first_onset) & (steps <= last_onset), 1 / num_onsets_left, 0)
        hazards = np.where(np.isin(np.arange(times.shape[1]), workers), hazards, 0)
        return log_probability_of_indicators(failure_indicators, np.where(has_failed_before == 1, 1.0, hazards))

    arguments = {"workers": tuple(workers.tolist()), "forever": True, "onset": first_onset, "latest_onset": last_onset}
    return FailureModel("failed_workers", arguments, num_parameters=len(workers) + 2, log_likelihood=log_likelihood)
