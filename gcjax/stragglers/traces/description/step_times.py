"""The times of a trace as everything that describes it wants them.

Letters: T steps with a time of some worker, W workers.
"""

from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.base import Trace


class StepTimes(NamedTuple):
    """The times of the steps that have any.

    Attributes:
      seconds: float64[T, W], NaN where not measured or failed.
      step_median: float64[T], over the workers of a step, of which there is a time.
      step_longest: float64[T], the longest time of a step.
      step_communication: float64[T], the shortest time of communicating and waiting of a step, 0 where none is known.
      steps: int64[T], the numbers of the steps.
    """

    seconds: np.ndarray
    step_median: np.ndarray
    step_longest: np.ndarray
    step_communication: np.ndarray
    steps: np.ndarray

    def of_steps(self, rows: np.ndarray) -> "StepTimes":
        """The times of some of the steps: bool[T]."""
        return StepTimes(*(values[rows] for values in self))


def step_times(trace: Trace) -> StepTimes:
    """The times of a trace; raises `ValueError` if it has none above 0."""
    has_finite_time = np.isfinite(trace.compute)
    step_has_time = has_finite_time.any(axis=1)
    if not step_has_time.any():
        raise ValueError("a trace that is described must have a finite time; all cells are empty or failed.")
    has_gaps = not has_finite_time.all()  # otherwise nothing is copied
    seconds = np.where(has_finite_time, trace.compute, np.nan)[step_has_time] if has_gaps else trace.compute
    step_longest = np.fmax.reduce(seconds, axis=1)
    if not step_longest.any():
        raise ValueError("a trace that is described must have a time above 0 s; all times are 0 s.")
    return StepTimes(
        seconds=seconds,
        step_median=median_of_rows(seconds),
        step_longest=step_longest,
        step_communication=_least_communication(trace)[step_has_time],
        steps=trace.steps[step_has_time],
    )


def _least_communication(trace: Trace) -> np.ndarray:
    """float64[all steps] seconds: the shortest time of communicating of each step, 0 where there is none."""
    if trace.communication is None:
        return np.zeros(len(trace.steps))
    shortest = np.fmin.reduce(trace.communication, axis=1)
    return np.where(np.isfinite(shortest), shortest, 0.0)


def median_of_rows(values: np.ndarray) -> np.ndarray:
    """float64[rows]: the median of each row of float64[rows, columns] without its NaNs; NaN of a row of NaNs."""
    if not np.isnan(values).any():
        return np.median(values, axis=1)
    sorted_rows = np.sort(values, axis=1)  # NaNs come last
    num_values = np.maximum(np.count_nonzero(~np.isnan(values), axis=1), 1)[:, None]
    # [rows, 1] both, and equal for an odd number of values.
    lower_middle = np.take_along_axis(sorted_rows, (num_values - 1) // 2, axis=1)
    upper_middle = np.take_along_axis(sorted_rows, num_values // 2, axis=1)
    return (lower_middle + upper_middle)[:, 0] / 2


def relative_log_times(times: StepTimes) -> np.ndarray:
    """float64[T, W]: logarithms of the times over their step's median; NaN where there is no time.

    A time below a millionth of the step's median, or above a million of them, counts as that; steps with a median of
    zero have none.
    """
    return log_ratio(times.seconds, times.step_median[:, None])


def log_ratio(seconds: np.ndarray, reference: np.ndarray | float) -> np.ndarray:
    """Logarithms of times over a reference, within a millionth and a million; NaN where that is zero."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = seconds / np.where(np.asarray(reference) > 0, reference, np.nan)
    return np.log(np.clip(ratio, 1e-6, 1e6))
