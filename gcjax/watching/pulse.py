"""When the whole process stood still: suspended, swapped out, or kept from its processors."""

import threading
import time
from collections.abc import Callable

PERIOD = 0.01
"""Seconds from one beat to the next."""
TOLERANCE = 0.005
"""Seconds by which a beat may be late: as long as one thread may keep the others from running Python."""


class Pulse:
    """Beats that come late by more than `TOLERANCE` show that the process stood still."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Starts without beats; a clock in seconds."""
        self._clock = clock
        self._stalls: list[tuple[float, float]] = []  # (begin, end) seconds
        self._next_beat_time = float("inf")
        self._is_over = threading.Event()

    def start(self) -> None:
        """Beats on a thread of its own, until `stop`."""
        threading.Thread(target=self._run, name="gcjax-watch-pulse", daemon=True).start()

    def stop(self) -> None:
        """No more beats."""
        self._is_over.set()

    def _run(self) -> None:
        """Beats every `PERIOD` seconds, until `stop`."""
        while not self._is_over.is_set():
            self.expect()
            time.sleep(PERIOD)
            self.beat()

    def expect(self) -> None:
        """Notes that the next beat is due a period from now."""
        self._next_beat_time = self._clock() + PERIOD

    def beat(self) -> None:
        """Notes that a beat has come, and a stall from when it was due if it is late."""
        now = self._clock()
        if now - self._next_beat_time > TOLERANCE:
            self._stalls.append((self._next_beat_time, now))

    def stalls(self, since: float) -> list[tuple[float, float]]:
        """(begin, end) seconds of each time in which the process stood still; those before `since` are forgotten."""
        num_old = sum(stop < since for _, stop in self._stalls[:])  # of a copy, since the thread adds to the list
        del self._stalls[:num_old]
        return self._stalls[:]
