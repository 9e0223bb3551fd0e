"""Clocks: monotonic ones, which do not jump, and the difference between two of them."""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

Clock = Callable[[], float]
"""Seconds since some moment."""


LARGEST_LEAD = 0.1
"""Seconds that events may be ahead of the clock without a warning."""


class EventClock:
    """The clock of a record: each event is later than the one before, also in the type of the record's times.

    If events come faster than that type tells times apart, as after hours in float32, they run ahead of the clock, and
    there is a warning once.
    """

    def __init__(self, clock: Clock = time.monotonic, *, begin: float = 0.0) -> None:
        """Shows `begin` seconds now."""
        self._clock = clock
        self._dtype = np.dtype(jnp.result_type(float)).type
        self.restart(begin)

    def restart(self, begin: float = 0.0) -> None:
        """Shows `begin` seconds from now on, whatever it has shown before."""
        self._offset = begin - self._clock()
        self._last_event_time = self._dtype(begin)
        self._has_warned = False

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
        now = self.now()
        seconds = self._dtype(now)
        if seconds <= self._last_event_time:
            seconds = np.nextafter(self._last_event_time, self._dtype(np.inf))
            if not self._has_warned and seconds - now > LARGEST_LEAD:
                self._has_warned = True
                warnings.warn(
                    f"after {now:,.0f} s the record's times, {seconds.dtype}, are {np.spacing(seconds):.2g} s apart, "
                    f"and events come faster: their times are {seconds - now:.2g} s ahead of the clock, and alarms "
                    "come too early. Start server and workers with JAX_ENABLE_X64=true.",
                    stacklevel=2,
                )
        self._last_event_time = seconds
        return float(seconds)


def clock_offset(exchanges: list[tuple[float, float, float]]) -> float:
    """Seconds to add to our clock to get theirs, by the exchange that took the shortest (Cristian 1989).

    Their clock is taken to have said its time in the middle of it.

    Args:
      exchanges: of each, in seconds, when the question left by our clock, what their clock said when they answered, and
        when the answer had come by our clock.
    """
    send_time, their_time, receive_time = min(exchanges, key=lambda exchange: exchange[2] - exchange[0])
    return their_time - (send_time + receive_time) / 2
