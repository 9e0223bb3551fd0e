"""How slow each worker is between its changes, relative to the others.

Letters: T steps, W workers.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.description.changes import change_points
from gcjax.stragglers.traces.description.step_times import StepTimes, log_ratio, relative_log_times

SIGNIFICANCE = 0.01
"""The probability aimed at that any worker of a trace without differences is said to be persistently slow."""


class Level(NamedTuple):
    """A stretch of steps in which a worker's time over the step's median does not change.

    Attributes:
      worker: its number; None for all together, whose level is the step's median over that of all steps.
      first_row: the index of the first step.
      last_row: that of the last step, which belongs to it.
      median_ratio: the median over its steps of the time over the step's median.
      is_slow: whether more of its times are above their step's median than chance explains (a sign test).
    """

    worker: int | None
    first_row: int
    last_row: int
    median_ratio: float
    is_slow: bool


def least_steps(num_workers: int) -> int:
    """So many steps a trace must have for any worker to be told from chance: it must be slow in all of them then."""
    return math.ceil(math.log2(num_workers / SIGNIFICANCE))


def levels(times: StepTimes) -> list[Level]:
    """The levels of all workers, one worker after the other, each in the order of steps."""
    log_ratios = relative_log_times(times)  # [T, W]
    changes_by_worker = change_points(log_ratios)
    return [
        level
        for worker, changes in enumerate(changes_by_worker)
        for level in _levels_of_series(log_ratios[:, worker], worker, changes, num_series_tested=len(changes_by_worker))
    ]


def shared_levels(times: StepTimes) -> list[Level]:
    """The levels of the steps' medians, which all workers share (worker None), over the median of all steps."""
    log_ratios = log_ratio(times.step_median, float(np.median(times.step_median)))  # [T]
    (changes,) = change_points(log_ratios[:, None])
    return list(_levels_of_series(log_ratios, worker=None, changes=changes, num_series_tested=1))


def _levels_of_series(
    log_ratios: np.ndarray, worker: int | None, changes: list[int], num_series_tested: int
) -> Iterator[Level]:
    """The levels of a worker, or of the steps' medians if `worker` is None.

    They come from logarithms float64[T] of relative times, NaN where not measured; at each of `changes`, row numbers, a
    new level begins. `num_series_tested` are tested for being slow, each at so small a part of the significance.
    """
    measured_steps = np.flatnonzero(~np.isnan(log_ratios))
    if not measured_steps.size:
        return
    for level_steps in np.split(measured_steps, np.searchsorted(measured_steps, changes)):
        level_log_ratios = log_ratios[level_steps]
        median_ratio = float(np.exp(np.median(level_log_ratios)))
        is_slow = bool(_sign_test_p_value(level_log_ratios) <= SIGNIFICANCE / num_series_tested)
        yield Level(
            worker,
            first_row=int(level_steps[0]),
            last_row=int(level_steps[-1]),
            median_ratio=median_ratio,
            is_slow=is_slow,
        )


def _sign_test_p_value(log_ratios: np.ndarray) -> float:
    """The probability that as many of the values [n] as are above zero, or more, would be if zero was their median.

    Each is then above it with probability 1/2.
    """
    from scipy.special import bdtrc  # here, since `import gcjax` is to be quick

    num_above = int((log_ratios > 0).sum())
    if num_above == 0:
        return 1.0
    return float(bdtrc(num_above - 1, len(log_ratios), 0.5))  # of more than num_above - 1
