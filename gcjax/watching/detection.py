"""Who is slow, by the last `WINDOW` steps, in the way that `gcjax.watching` says.

Letters: T steps, W workers.
"""

from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.description.verdict import CRITICAL, WARNING
from gcjax.watching.joining import Steps

WINDOW = 20
"""The steps that are looked at together."""
LEAST_STEPS = 10
"""Nobody is named before so many steps."""
LONG_STEPS = 60
"""Who is named for so many steps without a break is no passing matter, also if only some steps are slow."""
LEAST_SECONDS = 0.001
"""Nobody is slow who is late by less; clocks and threads are not more exact."""


class Verdict(NamedTuple):
    """A process that is slow.

    Attributes:
      worker: its number.
      since: the first step in which it was slow.
      is_persistent: whether it was slow in more than half of the last steps, or has been named without a
        break since a slow step `LONG_STEPS` before.
      seconds: by which it is late in a slow step; the median.
      cost: the share of the iterations, in 0 to 1.
      is_critical: whether that is `CRITICAL` or more.
    """

    worker: int
    since: int
    is_persistent: bool
    seconds: float
    cost: float
    is_critical: bool


class Detector:
    """Takes the steps in their order, and knows who is slow now."""

    def __init__(self, num_workers: int) -> None:
        """Starts without steps."""
        self._step_numbers: np.ndarray = np.empty(0, np.int64)  # of the last WINDOW steps, as in the next two
        self._lateness: np.ndarray = np.empty((0, num_workers))  # seconds
        self._iteration_seconds: np.ndarray = np.empty(0)
        self.verdicts: dict[int, Verdict] = {}  # worker -> verdict, of those who are slow now
        self.num_steps = 0

    @property
    def iteration_seconds(self) -> float:
        """The median of the iterations in the window, in seconds; NaN before the first."""
        return float(np.median(self._iteration_seconds)) if len(self._iteration_seconds) else float("nan")

    def add(self, steps: Steps) -> list[tuple[int, dict[int, Verdict]]]:
        """Takes the next steps.

        Returns:
          For each step at which somebody is named, or was at the one before: its position among `steps`, and the
          verdicts on those who are slow then, by worker.
        """
        num_old = len(self._step_numbers)
        # float[steps, W] of the new steps, seconds behind the median; 0 for who is before it or has no row (NaN).
        lateness = np.nan_to_num(steps.compute - _low_medians(steps.compute)).clip(0.0)
        self._step_numbers = np.concatenate([self._step_numbers, steps.numbers])
        self._lateness = np.concatenate([self._lateness, lateness])
        self._iteration_seconds = np.concatenate([self._iteration_seconds, steps.iteration_seconds])
        # T steps from here on: those before, as windows reach back to them, and the new ones.
        iteration_seconds = self._iteration_seconds[:, None]  # [T, 1]
        # `WARNING` is a share of the iteration: here of one step's, below of the sum of a window's.
        is_slow = (self._lateness > WARNING * iteration_seconds) & (self._lateness > LEAST_SECONDS)  # bool[T, W]
        costs = _window_sums(self._lateness * is_slow) / _window_sums(iteration_seconds)  # float[T, W], as shares
        costs -= _low_medians(costs)  # less those of the median process: where all are late in turn, nobody is slow
        is_named = costs >= WARNING
        named_steps = []
        for position in range(num_old, len(self._step_numbers)):
            self.num_steps += 1
            workers = np.flatnonzero(is_named[position]).tolist() if self.num_steps >= LEAST_STEPS else []
            if workers or self.verdicts:
                verdicts = (self._verdict(worker, position, is_slow, costs) for worker in workers)
                self.verdicts = {verdict.worker: verdict for verdict in verdicts}
                named_steps.append((position - num_old, self.verdicts))
        self._step_numbers, self._lateness = self._step_numbers[-WINDOW:], self._lateness[-WINDOW:]
        self._iteration_seconds = self._iteration_seconds[-WINDOW:]
        return named_steps

    def _verdict(self, worker: int, position: int, is_slow: np.ndarray, costs: np.ndarray) -> Verdict:
        """The verdict on a worker that is named, by the window of steps whose last row is number `position`.

        `is_slow bool[T, W]`, `costs float[T, W]`: shares of the iterations.
        """
        window = slice(max(0, position + 1 - WINDOW), position + 1)  # the last `WINDOW` steps
        is_slow_in_window, verdict_before = is_slow[window, worker], self.verdicts.get(worker)
        since = verdict_before.since if verdict_before else int(self._step_numbers[window][is_slow_in_window.argmax()])
        num_named_steps = int(self._step_numbers[position]) - since
        return Verdict(
            worker=worker,
            since=since,
            is_persistent=bool(is_slow_in_window.mean() > 0.5) or num_named_steps >= LONG_STEPS,
            seconds=float(np.median(self._lateness[window, worker][is_slow_in_window])),
            cost=float(costs[position, worker]),
            is_critical=bool(costs[position, worker] >= CRITICAL),
        )


def _window_sums(values: np.ndarray) -> np.ndarray:
    """float64[T, ...]: for each row of an array [T, ...] the sum of the last `WINDOW` rows up to it, fewer at first."""
    totals = np.cumsum(values, axis=0, dtype=np.float64)
    totals[WINDOW:] -= totals[:-WINDOW].copy()  # a copy, as both overlap
    return totals


def _low_medians(values: np.ndarray) -> np.ndarray:
    """float64[T, 1]: the median of the values [T, W] of a row that are not NaN; of an even number the lower one.

    NaN if all are.
    """
    counts = (~np.isnan(values)).sum(axis=1)
    middle = ((counts - 1) // 2).clip(0)[:, None]
    return np.take_along_axis(np.sort(values, axis=1), middle, axis=1)  # NaN comes last
