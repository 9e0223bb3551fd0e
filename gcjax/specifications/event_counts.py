"""What has happened before each of some events, in numpy, for `Specification.replay`."""

import numpy as np

from gcjax.specifications.events import KINDS, Event


def rows_of_kind(events: Event, kind: str) -> np.ndarray:
    """int[...]: the indices of the events of this kind, ascending."""
    return np.flatnonzero(events.kind == KINDS.index(kind))


def next_of(rows: np.ndarray, event_rows: np.ndarray) -> np.ndarray:
    """int[event_rows]: the position in `rows` of the first that comes after each event, `rows.size` if none does.

    Both are ascending indices of events; a row does not come after an event of the same index.
    """
    num_events_before = np.searchsorted(event_rows, rows)  # [rows]
    return np.repeat(np.arange(rows.size + 1), np.diff(num_events_before, prepend=0, append=event_rows.size))


def num_before(rows: np.ndarray, event_rows: np.ndarray, worker: np.ndarray, num_workers: int) -> np.ndarray:
    """int32[rows, W]: how many of the events `event_rows`, of the workers `worker`, each has before each row.

    `rows` and `event_rows` are ascending indices of events; `next_of` gives the first of `rows` after each event.
    """
    # Counts of each row and worker are at row * W + worker; behind the last row is one for events after all rows.
    flat_index = next_of(rows, event_rows) * num_workers + worker
    num_between = np.bincount(flat_index, minlength=(rows.size + 1) * num_workers).reshape(-1, num_workers)
    return np.cumsum(num_between[:-1], axis=0, dtype=np.int32)


def last_before(rows: np.ndarray, event_rows: np.ndarray, worker: np.ndarray, num_workers: int) -> np.ndarray:
    """int[rows, W]: the last of the events `event_rows`, of the workers `worker`, before each row; -1 if there is none.

    `rows` and `event_rows` are ascending indices of events.
    """
    last_event = np.full((rows.size + 1, num_workers), -1)
    last_event[next_of(rows, event_rows), worker] = event_rows  # the last one is written last
    return np.maximum.accumulate(last_event[:-1], axis=0)


def latest_values(
    rows: np.ndarray, is_event: np.ndarray, worker: np.ndarray, values: np.ndarray, initial: np.ndarray
) -> np.ndarray:
    """int32[rows, W]: the value at each worker's last event before each row.

    Args:
      rows: ascending indices of events.
      is_event: bool[events], those that count.
      worker: int[events], whose they are.
      values: int[events].
      initial: int[W], what holds before a worker's first one.
    """
    event_rows = np.flatnonzero(is_event)
    last_event = last_before(rows, event_rows, worker[event_rows], initial.size)
    # An entry behind those of the events stands for none, -1.
    return np.where(last_event < 0, initial, np.append(values, 0)[last_event]).astype(np.int32)


def num_before_own_row(own_rows: np.ndarray, event_rows: np.ndarray, worker: np.ndarray, num_events: int) -> np.ndarray:
    """int32[rows, W]: how many of the events `event_rows`, of the workers `worker`, each has before its own rows.

    Args:
      own_rows: int[rows, W], indices of events, below `num_events`; where they are negative it has none before.
      event_rows: int[...], ascending indices of events.
      worker: int[...], whose they are.
      num_events: of the trace.
    """
    # All events of one worker come before those of the next: at worker * num_events + row.
    sorted_flat_rows = np.sort(worker * np.int64(num_events) + event_rows)
    first_flat_row = np.arange(own_rows.shape[1]) * np.int64(num_events)
    num_of_own_and_lower = np.searchsorted(sorted_flat_rows, first_flat_row + own_rows.clip(0))
    return (num_of_own_and_lower - np.searchsorted(sorted_flat_rows, first_flat_row)).astype(np.int32)


def is_first_after(is_event: np.ndarray, is_other: np.ndarray, key: np.ndarray, has_other: np.ndarray) -> np.ndarray:
    """bool[events]: whether an event of `is_event` is the first one with its key since one of `is_other` with that key.

    Args:
      is_event: bool[events].
      is_other: bool[events], none of them in `is_event`.
      key: int[events].
      has_other: bool[keys], whether one of the others with this key came just before the first event of all.
    """
    rows = np.flatnonzero(is_event | is_other)
    by_key = rows[np.argsort(key[rows], kind="stable")]
    is_first_of_key = np.diff(key[by_key], prepend=-1) != 0
    follows_other = np.where(is_first_of_key, has_other[key[by_key]], np.roll(is_other[by_key], 1))
    result = np.zeros(is_event.size, bool)
    result[by_key] = is_event[by_key] & follows_other
    return result
