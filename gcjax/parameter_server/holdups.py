"""Workers that were held up as a whole, for example suspended: their signs of life did not come either.

Letters: T units of a worker, W workers.
"""

import numpy as np

from gcjax.parameter_server.message_times import MessageTimes
from gcjax.protocols.schedule import Schedule


def held_seconds(durations: np.ndarray, schedule: Schedule, signs: MessageTimes) -> np.ndarray | None:
    """float64[T, W] seconds of the units in which their worker was held up; None if nobody gave signs of life.

    That is by how much a unit took longer than the worker's median, if that is more than a unit takes and the worker
    gave no sign of life for as much longer than usual. What is shorter than the time between two signs does not show.

    Args:
      durations: float64[T, W] seconds; NaN where there are none.
      schedule: the record, in NumPy arrays.
      signs: of life.
    """
    if not signs.kind.size:
        return None
    times = [np.sort(signs.sent[signs.worker == worker]) for worker in range(durations.shape[1])]
    usual = float(np.median(np.concatenate([np.diff(own, prepend=0.0) for own in times])))
    medians = np.nanmedian(durations, axis=0)
    with np.errstate(invalid="ignore"):
        excess = durations - medians
    is_long = np.isfinite(excess) & (excess > medians)
    end = np.maximum(schedule.compute_end, schedule.finish)
    held = np.zeros_like(durations)
    for unit, worker in np.argwhere(is_long):
        # From when everybody begins to the end of the run.
        own = np.concatenate([[0.0], times[worker], [schedule.horizon]])
        is_silent = np.diff(own) > usual + medians[worker]
        meets = (own[:-1] < end[unit, worker]) & (own[1:] > schedule.start[unit, worker])
        held[unit, worker] = excess[unit, worker] if (is_silent & meets).any() else 0.0
    return held
