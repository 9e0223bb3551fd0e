"""Workers that were held up as a whole, for example suspended: their signs of life did not come either.

Letters: T units of a worker, W workers.
"""

import numpy as np

from gcjax.parameter_server.message_times import MessageTimes
from gcjax.protocols.schedule import Schedule


def held_up_seconds_of_units(durations: np.ndarray, schedule: Schedule, signs: MessageTimes) -> np.ndarray | None:
    """float64[T, W] seconds of the units in which their worker was held up; None if nobody gave signs of life.

    The seconds by which a unit took longer than the worker's median, if they are more than this median and the worker
    was meanwhile silent for longer than usual, by more than the median; else 0. Less than the time between two signs of
    life does not show.

    Args:
      durations: float64[T, W] seconds; NaN where there are none.
      schedule: the record, in NumPy arrays, with the times of each unit in seconds.
      signs: the signs of life, each with its worker and the seconds when it was sent.
    """
    if not signs.kind.size:
        return None
    sign_times = [np.sort(signs.sent[signs.worker == worker]) for worker in range(durations.shape[1])]
    usual_gap = float(np.median(np.concatenate([np.diff(times, prepend=0.0) for times in sign_times])))
    medians = np.nanmedian(durations, axis=0)  # float64[W]
    with np.errstate(invalid="ignore"):
        excess_seconds = durations - medians
    is_long = np.isfinite(excess_seconds) & (excess_seconds > medians)
    unit_end = np.maximum(schedule.compute_end, schedule.finish)  # [T, W], with the way of its push
    held_up_seconds = np.zeros_like(durations)
    for unit, worker in np.argwhere(is_long):
        # Seconds of the signs, from when everybody begins to the end of the run.
        times = np.concatenate([[0.0], sign_times[worker], [schedule.horizon]])
        is_silent = np.diff(times) > usual_gap + medians[worker]  # bool[gaps between signs], as the next one
        meets_unit = (times[:-1] < unit_end[unit, worker]) & (times[1:] > schedule.start[unit, worker])
        held_up_seconds[unit, worker] = excess_seconds[unit, worker] if (is_silent & meets_unit).any() else 0.0
    return held_up_seconds
