"""From what each process measured of itself to what each computed and waited.

Letters: T steps, W workers (processes).
"""

from collections.abc import Iterable, Sequence

import numpy as np

from gcjax.stragglers.traces.base import Trace, of_rows
from gcjax.watching.timeline import Row


def split(rows: Sequence[Row | None]) -> tuple[np.ndarray, np.ndarray, float]:
    """What the processes computed and waited in one step.

    A process that marks its local part knows both. For the others it is assumed that the step keeps all devices busy
    for the same time, so that who was late least waited most: the wait of a process is how much less it was late than
    the latest one. Steps that wait for no other process (`host` is NaN) are all computing.

    Args:
      rows: of each worker; None where there is none.

    Returns:
      float64[W] seconds of computing, float64[W] of communicating and waiting (both NaN where there is no row), and the
      seconds of the iteration.
    """
    values = np.array([(np.nan,) * 5 if row is None else row[1:] for row in rows], np.float64)
    seconds, communication, interval, host, stalled = values.T
    late = np.minimum(host + stalled, interval)  # NaN for steps that wait for nobody
    is_marked = ~np.isnan(communication)
    latest = np.nanmax(late) if (~np.isnan(late)).any() else np.nan
    wait = np.where(is_marked, communication, np.minimum(latest - late, interval))
    compute = np.where(is_marked, seconds, interval - np.nan_to_num(wait))
    return compute, np.where(np.isnan(interval), np.nan, wait), float(np.nanmax(interval))


def joined(entries: Iterable[tuple[int, Row]]) -> Trace:
    """The trace of the rows of all processes, (worker, row); of several rows for one step of one the last counts.

    Raises:
      ValueError: if there are no rows.
    """
    steps: dict[int, dict[int, Row]] = {}
    for worker, row in entries:
        steps.setdefault(row.unit, {})[worker] = row
    if not steps:
        raise ValueError("A trace must have rows; there are none yet.")
    workers = sorted({worker for rows in steps.values() for worker in rows})
    units = sorted(steps)
    parts = [split([steps[unit].get(worker) for worker in workers]) for unit in units]
    compute, communication = (np.stack([part[i] for part in parts]) for i in range(2))
    has_row = np.array([[worker in steps[unit] for worker in workers] for unit in units])
    step, worker = np.nonzero(has_row)
    return of_rows(
        "gcjax.watch",
        worker,
        np.asarray(units, np.int64)[step],
        compute[has_row],
        None if np.isnan(communication).all() else communication[has_row],
        workers=tuple(map(str, workers)),
    )
