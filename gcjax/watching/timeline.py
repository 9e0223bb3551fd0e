"""From when a process called its steps and when they were done, to seconds of each step.

Times are those of one clock of the process; clocks of different processes are never compared. All leave a collective
together, so the end of a step is the common zero from which each measures when it is ready for the next one.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

COLUMNS = ("worker", "unit", "seconds", "communication", "interval", "host", "stalled")
"""The columns of the file of a process."""


class Row(NamedTuple):
    """What a process measured of a step; in seconds, NaN where not known.

    Attributes:
      unit: the number of the step.
      seconds: from the end of the step before to the end of the last local part; the interval where none is marked.
      communication: the rest of the interval; NaN where no local part is marked.
      interval: from the end of the step before to the end of this one.
      host: of the interval, before the step was called: the device had nothing to do. NaN for steps that wait for no
        other process.
      stalled: of the interval after the call, what the whole process stood still.
    """

    unit: int
    seconds: float
    communication: float
    interval: float
    host: float
    stalled: float

    def text(self, worker: int) -> str:
        """The row as a line of a CSV file, to a tenth of a microsecond; empty cells where not known."""
        cells = ["" if math.isnan(value) else f"{value:.7f}" for value in self[1:]]
        return ",".join([str(worker), str(self.unit), *cells]) + "\n"


class Timeline:
    """Takes the events of a process in their order, and gives the row of each step.

    The first step has no row: it compiles, and nothing is known of when it could have begun.
    """

    def __init__(self, stalled: Callable[[float, float], float], *, waits: bool) -> None:
        """Starts before the first step.

        Args:
          stalled: `(begin, end) -> seconds` that the process stood still in between.
          waits: whether a step waits for other processes.
        """
        self._stalled, self._waits = stalled, waits
        self._begin: float | None = None  # the end of the step before
        self._local_end: float | None = None

    def local(self, end: float) -> None:
        """A local part of the step that is under way is done."""
        self._local_end = end

    def lose(self) -> None:
        """It is not known when the step ended; so the next one has no row."""
        self._begin = self._local_end = None

    def step(self, unit: int, called: float, end: float) -> Row | None:
        """The row of a step that was called and has ended at these times."""
        begin, local_end = self._begin, self._local_end
        self._begin, self._local_end = end, None
        if begin is None:
            return None
        interval = max(end - begin, 0.0)
        host = _between(called - begin, interval) if self._waits else math.nan
        stalled = _between(self._stalled(max(called, begin), end), interval)
        if local_end is None:
            return Row(unit, interval, math.nan, interval, host, stalled)
        seconds = _between(local_end - begin, interval)
        return Row(unit, seconds, interval - seconds, interval, host, stalled)


def _between(seconds: float, interval: float) -> float:
    """The seconds, within 0 and the interval."""
    return min(max(seconds, 0.0), interval)
