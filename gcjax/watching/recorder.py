"""What happens beside the training loop: threads that see when steps are done, and that write and share it."""

import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from gcjax.watching.pulse import Pulse
from gcjax.watching.timeline import Row, Timeline

_clock = time.perf_counter


class Recorder:
    """Waits for what steps return on a thread of its own, so that the loop goes on, and gives their rows."""

    def __init__(self, *, waits: bool) -> None:
        """Starts the threads; `waits` as in `Timeline`."""
        self._pulse = Pulse(_clock)
        self._timeline = Timeline(self._pulse.stalled, waits=waits)
        self._events: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._rows: list[Row] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="gcjax-watch-ends", daemon=True)
        self._pulse.start()
        self._thread.start()

    def local(self, markers: Sequence[Any]) -> None:
        """The local part of a step has returned these."""
        self._events.put((None, 0.0, markers, _clock()))

    def step(self, unit: int, called: float, markers: Sequence[Any]) -> None:
        """A step that was called then has returned these."""
        self._events.put((unit, called, markers, _clock()))

    def fail(self) -> None:
        """A step has raised an error."""
        self._events.put((None, 0.0, None, 0.0))

    def rows(self) -> list[Row]:
        """The rows since the last call."""
        with self._lock:
            rows, self._rows = self._rows, []
        return rows

    def stop(self, timeout: float) -> None:
        """Waits so many seconds at most for the steps that are under way, and ends the threads."""
        self._events.put(None)
        self._thread.join(timeout)
        self._pulse.stop()

    def _run(self) -> None:
        while (event := self._events.get()) is not None:
            unit, called, markers, returned = event
            end = None if markers is None else _end(markers, returned)
            del event, markers  # the arrays must not be held while nothing happens
            if end is None:
                self._timeline.lose()
            elif unit is None:
                self._timeline.local(end)
            elif row := self._timeline.step(unit, called, end):
                with self._lock:
                    self._rows.append(row)


def _end(markers: Sequence[Any], returned: float) -> float | None:
    """When all arrays are there; what has none was done when it returned; None if that cannot be known."""
    if not markers:
        return returned
    try:
        for marker in markers:
            marker.block_until_ready()
    except Exception:  # donated to the next step, or the step failed: whoever uses its results gets the error
        return None
    return _clock()


class Periodic:
    """Calls a function again and again on a thread of its own, and once more at the end."""

    def __init__(self, function: Callable[[], None], seconds: float) -> None:
        """Starts the thread; so many seconds between calls."""
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
        while not self._is_over.wait(self._seconds):
            try:
                self._function()
            except Exception as error:  # a full disk, or a report of the user's: the training goes on
                self._complain(f"{type(error).__name__}: {error}")

    def _complain(self, problem: str) -> None:
        """Prints a problem to stderr, once."""
        if problem not in self._problems:
            self._problems.add(problem)
            print(f"gcjax: the record of gcjax.watch is not whole: {problem}", file=sys.stderr)
