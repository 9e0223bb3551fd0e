"""All processes as one of them knows them: their rows step by step, and who is slow.

Letters: W workers (processes).
"""

import threading

import numpy as np

from gcjax.watching.detection import Detector, Verdict
from gcjax.watching.joining import empty_rows, steps_of
from gcjax.watching.reports import Report

PATIENCE = 3
"""A process counts as silent after so many intervals of `every` seconds in which others had news and it had none."""


class Group:
    """Takes rows in any order, and judges each step when all processes have a row for it, or are silent."""

    def __init__(self, num_workers: int) -> None:
        """Starts without rows, for W = `num_workers` processes; one is silent after `PATIENCE` intervals unheard."""
        self._waiting_rows = empty_rows()  # of steps that are not judged yet
        self._last_step_of_worker = np.full(num_workers, -1)  # the last step of each process
        self._intervals_unheard = np.zeros(num_workers, np.int64)
        self._is_heard = np.zeros(num_workers, bool)  # in this interval
        self._last_judged_step = -1
        self._detector = Detector(num_workers)
        self._last_silent: tuple[int, ...] = ()  # as in the last report
        # Worker -> whether it was called persistent, and critical.
        self._levels_of_named: dict[int, tuple[bool, bool]] = {}
        self._lock = threading.Lock()

    def add(self, rows: np.ndarray, *, ends_interval: bool = False) -> list[Report]:
        """Takes rows; who has any is not silent.

        Args:
          rows: float64[rows, 7], the worker and `COLUMNS`.
          ends_interval: whether the interval of `every` seconds ends here: who has had no rows in it, while others had,
            was unheard once more. Otherwise nobody becomes silent.

        Returns:
          What was known at each step at which a process was newly named, or as worse than before, or no longer; and, if
          an interval ends, what is known now, if other processes are silent than at the end of the last one.
        """
        with self._lock:
            rows = rows[rows[:, 0] < len(self._last_step_of_worker)]  # others are of no process of this run
            worker = rows[:, 0].astype(np.int64)  # int64[rows]; column 1 has the numbers of the steps
            np.maximum.at(self._last_step_of_worker, worker, rows[:, 1].astype(np.int64))
            self._is_heard[worker] = True
            self._intervals_unheard[worker] = 0
            if ends_interval:
                if self._is_heard.any():
                    self._intervals_unheard += ~self._is_heard
                self._is_heard[:] = False
            self._waiting_rows = np.concatenate([self._waiting_rows, rows[rows[:, 1] > self._last_judged_step]])
            changes = self._judge_complete_steps()
            report = self._report(self._last_judged_step, self._detector.num_steps, self._detector.verdicts)
            if ends_interval and report.silent != self._last_silent:
                self._last_silent = report.silent
                changes.append(report)
            return changes

    def report(self) -> Report:
        """What is known now."""
        with self._lock:
            return self._report(self._last_judged_step, self._detector.num_steps, self._detector.verdicts)

    def is_complete(self) -> bool:
        """Whether all processes that are not silent have come equally far."""
        with self._lock:
            return len(np.unique(self._last_step_of_worker[self._intervals_unheard < PATIENCE])) <= 1

    def _judge_complete_steps(self) -> list[Report]:
        """Gives all complete steps, of all who are not silent, to the detector; returns the reports on changes.

        A change is that another process is named, or one as worse than before, or no longer.
        """
        # The step that all have reached who are not silent; any step if all are silent.
        is_silent = self._intervals_unheard >= PATIENCE
        last_common_step = self._last_step_of_worker[~is_silent].min(initial=np.iinfo(np.int64).max)
        is_ready = self._waiting_rows[:, 1] <= last_common_step
        if not is_ready.any():
            return []
        num_steps = self._detector.num_steps
        steps = steps_of(self._waiting_rows[is_ready], len(self._last_step_of_worker))
        self._waiting_rows, self._last_judged_step = self._waiting_rows[~is_ready], int(steps.numbers[-1])
        changes = []
        for position, verdicts in self._detector.add(steps):
            if self._has_changed(verdicts):
                changes.append(self._report(int(steps.numbers[position]), num_steps + position + 1, verdicts))
        return changes

    def _has_changed(self, verdicts: dict[int, Verdict]) -> bool:
        """Whether `verdicts`, by worker, name other processes than those of the last call, or one as worse.

        As long as a process is named, the worst that was said of it stays.
        """
        levels_before = self._levels_of_named
        self._levels_of_named = {}
        for worker, verdict in verdicts.items():
            was_persistent, was_critical = levels_before.get(worker, (False, False))
            self._levels_of_named[worker] = (
                was_persistent or verdict.is_persistent,
                was_critical or verdict.is_critical,
            )
        return self._levels_of_named != levels_before

    def _report(self, step: int, num_steps: int, verdicts: dict[int, Verdict]) -> Report:
        """The report on all up to step number `step`, the `num_steps`-th that is known."""
        return Report(
            step=step,
            num_steps=num_steps,
            num_workers=len(self._last_step_of_worker),
            silent=tuple(np.flatnonzero(self._intervals_unheard >= PATIENCE).tolist()),
            iteration_seconds=self._detector.iteration_seconds,
            slow=tuple(verdicts.values()),
        )
