"""From what each process measured of itself to what each computed and waited.

Letters: T steps, W workers (processes).
"""

from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.base import Trace, trace_of_rows
from gcjax.watching.timeline import COLUMNS


class Steps(NamedTuple):
    """What the processes computed and waited in some steps.

    Attributes:
      numbers: int64[T], the numbers of the steps, increasing.
      compute: float64[T, W] seconds; NaN where a process has no row, as in the next one.
      communication: float64[T, W] seconds of communicating and waiting; NaN also where nobody is waited for.
      iteration_seconds: float64[T], from the end of the step before to the end of each.
    """

    numbers: np.ndarray
    compute: np.ndarray
    communication: np.ndarray
    iteration_seconds: np.ndarray


def empty_rows() -> np.ndarray:
    """float64[0, 7]: no rows."""
    return np.empty((0, 1 + len(COLUMNS)))


def steps_of(rows: np.ndarray, num_workers: int) -> Steps:
    """What the processes computed and waited, in seconds, of each step.

    A process that marks its local part knows both. For the others it is assumed that the step keeps all devices busy
    for the same time, so that who was late least waited most: the wait of a process is how much less it was late than
    the latest one. Steps that wait for no other process (`host` is NaN) are all computing.

    Args:
      rows: float64[rows, 7], the worker and `COLUMNS`; of several for one step of a worker the last counts.
      num_workers: W.
    """
    step_numbers = np.unique(rows[:, 1]).astype(np.int64)  # int64[T]
    worker, step_index = rows[:, 0].astype(np.int64), np.searchsorted(step_numbers, rows[:, 1])
    table = np.full((len(step_numbers), num_workers, len(COLUMNS) - 1), np.nan)
    table[step_index, worker] = rows[:, 2:]
    seconds, communication, interval, host_seconds, stalled_seconds = np.moveaxis(table, -1, 0)  # float[T, W] each
    lateness = np.minimum(host_seconds + stalled_seconds, interval)  # seconds; NaN for steps that wait for nobody
    latest = np.fmax.reduce(lateness, axis=1, keepdims=True)  # [T, 1], of those that are not NaN
    is_marked = ~np.isnan(communication)
    # Nobody waits for longer than from the end of the step before to the end of this one.
    wait_seconds = np.where(is_marked, communication, np.minimum(latest - lateness, interval))
    compute_seconds = np.where(is_marked, seconds, interval - np.nan_to_num(wait_seconds))
    return Steps(step_numbers, compute_seconds, wait_seconds, np.fmax.reduce(interval, axis=1))


def joined_trace(rows: np.ndarray) -> Trace:
    """The trace of float64[rows, 7], the worker and `COLUMNS`; of several for one step of a worker the last counts.

    Raises:
      ValueError: if there are no rows.
    """
    if not len(rows):
        raise ValueError("A trace must have rows; there are none yet.")
    # Only workers that have rows are in the trace, which counts them from 0 and keeps their numbers as names.
    worker_numbers, worker_index = np.unique(rows[:, 0].astype(np.int64), return_inverse=True)
    steps = steps_of(np.column_stack([worker_index, rows[:, 1:]]), len(worker_numbers))
    step, worker = np.nonzero(~np.isnan(steps.compute))
    has_communication = not np.isnan(steps.communication).all()
    return trace_of_rows(
        "gcjax.watch",
        worker,
        steps.numbers[step],
        steps.compute[step, worker],
        steps.communication[step, worker] if has_communication else None,
        workers=tuple(map(str, worker_numbers.tolist())),
    )
