"""Clocks: monotonic ones, which do not jump, and the difference between two of them."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

Clock = Callable[[], float]
"""Seconds since some moment."""


class EventClock:
    """The clock of a record: each event is later than the one before, also in the type of the record's times."""

    def __init__(self, clock: Clock = time.monotonic, *, begin: float = 0.0) -> None:
        """Shows `begin` seconds now."""
        self._clock = clock
        self._dtype = np.dtype(jnp.result_type(float)).type
        self.restart(begin)

    def restart(self, begin: float = 0.0) -> None:
        """Shows `begin` seconds from now on, whatever it has shown before."""
        self._offset = begin - self._clock()
        self._last_event_time = self._dtype(begin)

    def now(self) -> float:
        """Seconds, as the clock of the machine says."""
        return self._clock() + self._offset

    def machine_time(self) -> float:
        """Seconds by the clock of the machine itself, which shows the same for any other `EventClock` of it."""
        return self._clock()

    def from_machine_time(self, seconds: Any) -> Any:
        """Seconds by this clock, of times by the clock of the machine: a number, or NumPy's array of several."""
        return (seconds if isinstance(seconds, int | float) else np.asarray(seconds)) + self._offset

    def in_order(self, machine_times: Sequence[float], earliest: float, latest: float) -> list[float]:
        """Seconds by this clock, of times by the clock of the machine that are to be in order and in these limits.

        Those that are not are moved by the least. In plain numbers: they are few, and this is asked for at each push.
        """
        times, last_time = [], -math.inf
        for seconds in machine_times:
            last_time = max(last_time, min(max(seconds + self._offset, earliest), latest))
            times.append(last_time)
        return times

    def next_event_time(self) -> float:
        """The seconds of an event that happens now: by this clock, and in its dtype later than the event before."""
        seconds = self._dtype(self.now())
        if seconds <= self._last_event_time:
            seconds = np.nextafter(self._last_event_time, self._dtype(np.inf))
        self._last_event_time = seconds
        return float(seconds)


def clock_offset(exchanges: list[tuple[float, float, float]]) -> float:
    """Seconds to add to our clock to get theirs, by the exchange that took the shortest (Cristian 1989).

    Their clock is taken to have said its time in the middle of it.

    Args:
      exchanges: of each, in seconds, when the question left by our clock, what their clock said when they answered, and
        when the answer had come by our clock.
    """
    sent, theirs, received = min(exchanges, key=lambda times: times[2] - times[0])
    return theirs - (sent + received) / 2
