"""What happens beside the training loop: threads that see when steps are done, and that write and share it."""

import math
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from gcjax.watching.outputs import Outputs
from gcjax.watching.pulse import Pulse
from gcjax.watching.timeline import COLUMNS, Event, measured_rows

_clock = time.perf_counter

MAX_PAUSE, PAUSE_SHARE = 2e-3, 0.1
"""Seconds, and share of the time from step to step, for which the thread looks away at most when a step has ended."""

Entry = tuple[int | None, float, Outputs | None, Any, Sequence[Any], float]
"""What has returned: the number of the step (None for a local part), when it was called, how to wait for it, what it
returned, the copies that were made of that, and when it returned."""

FAILURE: Entry = (-1, math.nan, None, None, (), math.nan)
"""A step has raised an error."""


class Recorder:
    """Waits for what steps return on a thread of its own, so that the loop goes on, and notes when it is there.

    When a step has ended the thread sleeps for a moment. In a loop that goes on at once it then does not wake up just
    when the next step is called, where both would want the interpreter's lock. A step that ends in this moment is
    recorded as ending after it.

    Attributes:
      put: takes an `Entry`; all that the loop's thread has to do.
    """

    def __init__(self, *, waits: bool) -> None:
        """Starts the threads; `waits`: whether a step waits for other processes."""
        self._waits = waits
        self._pulse = Pulse(_clock)
        self._queue: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self.put = self._queue.put
        self._events: list[Event] = []
        self._last_end = math.nan  # the time at which the last step ended of which `rows` has told
        self._thread = threading.Thread(target=self._run, name="gcjax-watch-ends", daemon=True)
        self._pulse.start()
        self._thread.start()

    def rows(self) -> np.ndarray:
        """float64[rows, 6], the `COLUMNS`: what was measured of the steps that have ended since the last call."""
        events = self._events[:]
        if not events:
            return np.empty((0, len(COLUMNS)))
        del self._events[: len(events)]
        stalls = self._pulse.stalls(self._last_end)
        has_accelerator = jax.default_backend() != "cpu"
        rows = measured_rows(events, self._last_end, stalls, waits=self._waits, has_accelerator=has_accelerator)
        self._last_end = events[-1].end  # seconds; NaN if it is not known
        return rows

    def stop(self, timeout: float) -> None:
        """Waits so many seconds at most for the steps that are under way, and ends the threads."""
        self._queue.put(None)
        self._thread.join(timeout)
        self._pulse.stop()

    def _run(self) -> None:
        """Waits for the end of each `Entry` that is put, and adds an `Event` for each step, until `None` is put.

        An entry without a step number is a local part, of the step whose entry follows. If the end of that part is not
        known, the step must not be counted, and gets NaN as the time of its call.
        """
        # Of the step under way: the end of its last local part, and whether there is one whose end is not known.
        local_end, is_local_end_lost = math.nan, False
        last_call_time = -math.inf
        while (entry := self._queue.get()) is not None:
            step_number, call_time, outputs, output, copies, return_time = entry
            end = _end_time(outputs, output, copies, return_time)
            del entry, output, copies  # the arrays must not be held while nothing happens
            if step_number is None:
                local_end, is_local_end_lost = end, math.isnan(end)
            else:
                counted_call_time = math.nan if is_local_end_lost else call_time
                self._events.append(Event(step_number, counted_call_time, return_time, local_end, end))
                has_local_part = is_local_end_lost or not math.isnan(local_end)
                local_end, is_local_end_lost = math.nan, False
                if not has_local_part and self._queue.empty():  # a local part may end soon, which must not be missed
                    time.sleep(_pause(call_time - last_call_time))
                last_call_time = call_time


def _pause(step_seconds: float) -> float:
    """Seconds that the thread sleeps after a step, if so many passed between its call and that of the one before."""
    return min(MAX_PAUSE, PAUSE_SHARE * step_seconds) if 0 < step_seconds < math.inf else 0.0


def _end_time(outputs: Outputs | None, output: Any, copies: Sequence[Any], return_time: float) -> float:
    """Seconds of the clock, when all of an output is there; waits for it.

    `return_time` if it has no arrays: it was done when it was returned. NaN if the time is not known, as of a failure.
    """
    if outputs is None:
        return math.nan
    try:
        has_waited = outputs.wait(output, copies)
        return _clock() if has_waited else return_time
    except Exception:  # donated to the next step, or it failed: whoever uses the results gets the error
        return math.nan


class Periodic:
    """Calls a function again and again on a thread of its own; what it raises is said, and ends nothing."""

    def __init__(self, function: Callable[[], None], seconds: float) -> None:
        """Starts a thread that calls the function, with so many seconds between calls."""
        self._function, self._seconds = function, seconds
        self._is_over = threading.Event()
        self._problems: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="gcjax-watch-share", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Waits so many seconds at most for a call that is under way; no call comes after that."""
        self._is_over.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        """Calls the function again and again, until `stop`; the first time after so many seconds."""
        while not self._is_over.wait(self._seconds):
            self.attempt(self._function)

    def attempt(self, function: Callable[[], None]) -> None:
        """Calls a function; what it raises is printed to stderr, once."""
        try:
            function()
        except Exception as error:  # a full disk, or a report of the user's: the training goes on
            problem = f"{type(error).__name__}: {error}"
            if problem not in self._problems:
                self._problems.add(problem)
                print(f"gcjax: the record of gcjax.watch is not whole: {problem}", file=sys.stderr)
