"""How slow each worker is between its changes, relative to the others.

Letters: T steps, W workers.
"""

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
      first: the index of the first step.
      last: that of the last step, which belongs to it.
      ratio: the median over its steps of the time over the step's median.
      is_slow: whether more of its times are above their step's median than chance explains (a sign test).
    """

    worker: int | None
    first: int
    last: int
    ratio: float
    is_slow: bool


def levels(times: StepTimes) -> list[Level]:
    """The levels of all workers, one worker after the other, each in the order of steps."""
    relative = relative_log_times(times)
    all_changes = change_points(relative)
    num_workers = len(all_changes)
    return [
        level
        for worker, changes in enumerate(all_changes)
        for level in _levels(relative[:, worker], worker, changes, num_workers)
    ]


def shared_levels(times: StepTimes) -> list[Level]:
    """The levels of the steps' medians, which all workers share."""
    relative = log_ratio(times.median, float(np.median(times.median)))
    return list(_levels(relative, None, change_points(relative[:, None])[0], 1))


def _levels(relative: np.ndarray, worker: int | None, changes: list[int], num_workers: int) -> Iterator[Level]:
    """The levels of one worker, from the logarithms float64[T] of its relative times and the steps of its changes."""
    steps = np.flatnonzero(~np.isnan(relative))
    for part in np.split(steps, np.searchsorted(steps, changes)) if steps.size else ():
        values = relative[part]
        is_slow = _sign_test(values) <= SIGNIFICANCE / num_workers
        yield Level(worker, int(part[0]), int(part[-1]), float(np.exp(np.median(values))), bool(is_slow))


def _sign_test(values: np.ndarray) -> float:
    """The probability that at least so many of independent values are above zero if zero is their median."""
    from scipy.special import bdtrc  # here, since `import gcjax` is to be quick

    num_above = int((values > 0).sum())
    return float(bdtrc(num_above - 1, len(values), 0.5)) if num_above else 1.0
