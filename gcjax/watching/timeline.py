"""From when a process called its steps and when they were done, to seconds of each step.

Times are those of one clock of the process; clocks of different processes are never compared. All leave a collective
together, so the end of a step is the common zero from which each measures when it is ready for the next one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

COLUMNS = ("unit", "seconds", "communication", "interval", "host", "stalled")
"""What a process measured of a step; in seconds, NaN where not known.

`unit` is the number of the step; `interval` from the end of the step before to the end of this one; `seconds` from the
end of the step before to the end of the last local part, or the interval where none is marked; `communication` the rest
of the interval, NaN where none is marked; `host` what of the interval was before the step was called, when the device
had nothing to do, NaN for steps that wait for no other process; `stalled` what of the interval the whole process stood
still after the call, where that holds up the step: an accelerator goes on with what it has been given.
"""


class Event(NamedTuple):
    """A step; times are seconds of the process's clock.

    Attributes:
      step_number: its number.
      call_time: when it was called; NaN if it must not be counted.
      return_time: when the call returned.
      local_end: when its last local part ended; NaN if none is marked.
      end: when it ended; NaN if that is not known.
    """

    step_number: int
    call_time: float
    return_time: float
    local_end: float
    end: float


def measured_rows(
    events: Sequence[Event],
    begin: float,
    stalls: Sequence[tuple[float, float]],
    *,
    waits: bool,
    has_accelerator: bool = False,
) -> np.ndarray:
    """What was measured of some steps; nothing of one if it is not known when it or the one before ended.

    Args:
      events: of some steps, in their order; times are seconds.
      begin: when the step before them ended; NaN if that is not known.
      stalls: (begin, end) of each time in which the process stood still.
      waits: whether a step waits for other processes.
      has_accelerator: whether something else than the process computes, and goes on when that stands still.

    Returns:
      float64[rows, 6] with the columns `COLUMNS`.
    """
    # float64[events] each, with NaN as `Event` says; it goes over to all that is computed from it.
    step_numbers, call_time, return_time, local_end, end = np.asarray(events, np.float64).reshape(-1, 5).T
    begin_times = np.concatenate([[begin], end[:-1]])
    interval = end - begin_times
    is_marked = ~np.isnan(local_end)
    seconds = np.where(is_marked, np.clip(local_end - begin_times, 0.0, interval), interval)
    host_seconds = np.clip(call_time - begin_times, 0.0, interval)
    # A stall counts from the call to the end of the step, or to the return where an accelerator goes on.
    stall_from = np.maximum(call_time, begin_times)
    stall_until = np.minimum(end, return_time) if has_accelerator else end
    stalled_seconds = np.zeros(len(step_numbers))
    for start, stop in stalls:
        stalled_seconds += np.clip(np.minimum(stall_until, stop) - np.maximum(stall_from, start), 0.0, None)
    communication = np.where(is_marked, interval - seconds, np.nan)
    host_seconds = host_seconds if waits else np.full_like(host_seconds, np.nan)
    columns = [step_numbers, seconds, communication, interval, host_seconds, stalled_seconds]
    is_known = ~np.isnan(interval) & ~np.isnan(call_time)
    return np.column_stack(columns)[is_known]
