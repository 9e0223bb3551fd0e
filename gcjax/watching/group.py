"""All processes as one of them knows them: their rows step by step, and who is slow."""

import threading

from gcjax.watching.detection import Detector
from gcjax.watching.joining import split
from gcjax.watching.reports import Report
from gcjax.watching.timeline import Row

PATIENCE = 3
"""A process counts as silent after so many times that others had news and it had none."""


class Group:
    """Takes rows in any order, and judges each step when all processes have a row for it, or are silent."""

    def __init__(self, num_workers: int) -> None:
        """Starts without rows, for W processes."""
        self._num_workers = num_workers
        self._rows: dict[int, dict[int, Row]] = {}  # of steps that are not judged yet
        self._last = dict.fromkeys(range(num_workers), -1)  # the last step of each process
        self._missed = dict.fromkeys(range(num_workers), 0)
        self._step, self._num_steps = -1, 0
        self._detector = Detector()
        self._named: dict[int, tuple[bool, bool]] = {}  # worker -> whether it was called persistent, and critical
        self._lock = threading.Lock()

    def add(self, entries: list[tuple[int, Row]]) -> list[Report]:
        """Takes (worker, row)s.

        Returns:
          What was known at each step at which a process was newly named, or as worse than before, or no longer.
        """
        changes = []
        with self._lock:
            for worker, row in entries:
                if row.unit > self._step and worker < self._num_workers:
                    self._rows.setdefault(row.unit, {})[worker] = row
                    self._last[worker] = max(self._last[worker], row.unit)
            self._count_missed({worker for worker, _ in entries})
            for unit in sorted(self._rows):
                if not all(self._last[worker] >= unit for worker in self._last if not self._is_silent(worker)):
                    break
                self._judge(unit)
                if self._has_changed():
                    changes.append(self._report())
        return changes

    def report(self) -> Report:
        """What is known now."""
        with self._lock:
            return self._report()

    def is_complete(self) -> bool:
        """Whether all processes that are not silent have come equally far."""
        with self._lock:
            return len({last for worker, last in self._last.items() if not self._is_silent(worker)}) <= 1

    def _has_changed(self) -> bool:
        """Whether somebody is named now as was not said yet, or nobody is any more who was."""
        old = self._named
        self._named = {}
        for worker, verdict in self._detector.verdicts.items():
            was_persistent, was_critical = old.get(worker, (False, False))
            self._named[worker] = (was_persistent or verdict.is_persistent, was_critical or verdict.is_critical)
        return self._named != old

    def _count_missed(self, heard: set[int]) -> None:
        """Counts for each process how often others had news since it had some."""
        for worker in self._missed if heard else ():
            self._missed[worker] = 0 if worker in heard else self._missed[worker] + 1

    def _is_silent(self, worker: int) -> bool:
        return self._missed[worker] >= PATIENCE

    def _judge(self, unit: int) -> None:
        """Gives the rows of a step to the detector."""
        rows = self._rows.pop(unit)
        compute, _, iteration = split([rows.get(worker) for worker in range(self._num_workers)])
        self._detector.add(unit, compute, iteration)
        self._step = unit
        self._num_steps += 1

    def _report(self) -> Report:
        return Report(
            step=self._step,
            num_steps=self._num_steps,
            num_workers=self._num_workers,
            silent=tuple(worker for worker in self._missed if self._is_silent(worker)),
            iteration=self._detector.iteration,
            slow=tuple(self._detector.verdicts.values()),
        )
