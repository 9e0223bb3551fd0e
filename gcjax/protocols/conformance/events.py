"""The events of a record, in order: what trace validation and figures of time look at.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gcjax.protocols.conformance.begins import Columns, begin_columns
from gcjax.protocols.conformance.committed_units import CommittedUnits, committed_units, on_host, time_of_version
from gcjax.protocols.conformance.structure import latest_equal
from gcjax.protocols.conformance.unused_messages import num_skipped_messages, num_unused_messages
from gcjax.protocols.schedule import Schedule
from gcjax.specifications.events import BEGIN, COMMIT, KINDS, MESSAGE, SEND, STEP, UNIT, Event


class Events(NamedTuple):
    """The events of a run; arrays [events].

    Attributes:
      event: what happens.
      time: float seconds.
      is_premature: bool, whether it uses what was not there yet: a unit that arrives after its commit, a version that
        is read before it is made, a commit before the one in front of it; or a unit that is in another commit already.
      num_workers: W.
      is_absent: bool, whether it is of a turn in which the worker did not take part, or left; None where all always do.
      recorded_unit: int32, the units in the record, where those in `event` are without the lost ones; None if they are
        the same.
    """

    event: Event
    time: np.ndarray
    is_premature: np.ndarray
    num_workers: int
    is_absent: np.ndarray | None = None
    recorded_unit: np.ndarray | None = None


def events(
    schedule: Schedule,
    kinds: Collection[str] = KINDS,
    *,
    begins_before_commits: bool = False,
    only_counts_units: bool = False,
) -> Events:
    """The events of a run in the order in which they can have happened.

    That is the order of time; at one moment the order of the commits, what is in a commit before it, and what was read
    at a version before the commit that replaces it. Where the order is open still, units are in order.

    Args:
      schedule: of one run, not of a batch.
      kinds: which events there are to be, of `KINDS`: COMMIT, or what a worker does (BEGIN, STEP, UNIT, ...).
      begins_before_commits: whether who begins at the moment of a commit, with the version that it replaces, has begun
        before it; else only where that, or a unit of no length, shows it.
      only_counts_units: whether the work of a contribution is how many units of a worker count, which need not be those
        from its `unit` on; otherwise it stands for these.

    Raises:
      ValueError: if it is of a batch, or has numbers that no worker or unit of it has.
    """
    record = on_host(schedule)
    committed = committed_units(record, commits_all_units=not only_counts_units)
    columns_functions: dict[str, Callable[[Schedule, CommittedUnits], Columns]] = {
        COMMIT: _commit_columns,
        STEP: _step_columns,
        UNIT: _unit_arrival_columns,
        SEND: _send_columns if MESSAGE in kinds else _exchange_columns,
        MESSAGE: partial(_message_arrival_columns, only_counts_units),
    }
    columns_by_kind: dict[str, Columns] = {
        kind: {"kind": KINDS.index(kind), **columns_of(record, committed)}
        for kind, columns_of in columns_functions.items()
        if kind in kinds
    }
    if SEND not in kinds:  # where a message is sent its worker reads, and otherwise when a unit starts
        for columns in (columns_by_kind[kind] for kind in (STEP, MESSAGE) if kind in kinds):
            columns["is_premature"] = columns.get("is_premature", False) | _is_read_early(record, columns)
    sort_keys = [_complete_columns(columns, ("time", *_TIE_BREAKERS)) for columns in columns_by_kind.values()]
    event_order = _time_order(sort_keys, record)
    if BEGIN in kinds:
        columns_by_kind[BEGIN], begin_positions = begin_columns(
            record, committed, event_order, columns_by_kind, before_commits=begins_before_commits
        )
        event_order = _order_with_inserted(event_order, begin_positions)
    names = (*Event._fields, "time", "is_premature")
    complete = [_complete_columns(columns, names) for columns in columns_by_kind.values()]
    in_order = {name: np.concatenate([columns[name] for columns in complete])[event_order] for name in names}
    event = Event(*(in_order[name] for name in Event._fields))
    return Events(event, in_order["time"], in_order["is_premature"], num_workers=record.start.shape[1])


_TIE_BREAKERS = ("commit_order", "unit_order", "kind", "worker")
"""The columns that decide the order of events at one moment, the first of them first."""
_TYPE_OF_NUMBER: dict[str, Any] = {"time": np.float64, "is_premature": bool, "waited": bool}
_MAX_KEYS = 2.0**62


def _complete_columns(columns: Columns, names: Collection[str]) -> dict[str, np.ndarray]:
    """The columns with these names, arrays [events]: 0 where a column is missing, a single number repeated."""
    num_events = columns["time"].size
    arrays = {name: np.asarray(columns.get(name, 0)) for name in names}
    typed = {name: x if x.ndim else x.astype(_TYPE_OF_NUMBER.get(name, np.int32)) for name, x in arrays.items()}
    return {name: np.broadcast_to(x, (num_events,)) for name, x in typed.items()}


def _time_order(sort_keys: list[dict[str, np.ndarray]], record: Schedule) -> np.ndarray:
    """int[n]: the numbers of the events in order of time, and at one moment by `_TIE_BREAKERS`.

    Args:
      sort_keys: of the events of each kind, the time and the tie breakers; events are numbered through over all kinds.
      record: the record, whose sizes bound the tie breakers.
    """
    columns = {name: np.concatenate([keys[name] for keys in sort_keys]) for name in sort_keys[0]}
    num_units, num_workers = record.start.shape
    num_commits, num_kinds = record.time.size, len(KINDS)
    num_values = {
        "commit_order": num_commits + 1,
        "unit_order": num_units + 1,
        "kind": num_kinds,
        "worker": num_workers,
    }
    fits_one_integer = np.prod(list(num_values.values()), dtype=float) < _MAX_KEYS  # which sorts faster
    if fits_one_integer:
        tie_breaker = np.zeros(columns["time"].size, np.int64)
        for name in _TIE_BREAKERS:
            tie_breaker = tie_breaker * num_values[name] + columns[name]
        return np.lexsort((tie_breaker, columns["time"]))
    least_important_first = (*_TIE_BREAKERS[::-1], "time")
    return np.lexsort([columns[name] for name in least_important_first])


def _order_with_inserted(old_order: np.ndarray, position: np.ndarray) -> np.ndarray:
    """The order with new events put in: the i-th new one, before the event that is now in `position[i]`.

    Args:
      old_order: int[n], the numbers 0, ..., n - 1 of the old events, in their order.
      position: int[m], from 0 to n; the new events get the numbers n, ..., n + m - 1.

    Returns:
      int[n + m].
    """
    by_position = np.argsort(position, kind="stable")
    num_new_in_front = np.arange(position.size)
    new_position = position[by_position] + num_new_in_front
    is_old = np.ones(old_order.size + position.size, bool)
    is_old[new_position] = False
    new_order = np.empty(is_old.size, old_order.dtype)
    first_new_number = old_order.size
    new_order[new_position], new_order[is_old] = first_new_number + by_position, old_order
    return new_order


def _commit_columns(record: Schedule, committed: CommittedUnits) -> Columns:
    """The columns, as `Event` says, of commits: one event each, which comes after the units that are in it.

    A commit's worker is the lowest in it, which is also the number of its group; its unit is the first one of the
    newest contribution, the highest. "column" is the first of the record's C that the next commit uses, -1 if none.
    """
    num_commits = committed.lowest_worker.size
    max_units_in_next_commit = np.append(committed.max_work, np.int32(-1))[1:]  # of a worker; -1 behind the last commit
    num_unused, num_unused_at_end = num_unused_messages(record, committed)
    return {
        "time": record.time[:num_commits],
        "worker": committed.lowest_worker,
        "unit": record.unit[:num_commits].max(axis=1, initial=0).astype(np.int32),
        "commit": np.arange(num_commits, dtype=np.int32),
        "size": committed.num_units,
        "group": committed.lowest_worker,
        "max_units_in_next_commit": max_units_in_next_commit,
        "num_unused_messages": num_unused,
        "num_unused_at_end": num_unused_at_end,
        "num_skipped_messages": num_skipped_messages(record, committed),
        "column": np.append(committed.first_column, np.int32(-1))[1:],
        "is_premature": np.bincount(committed.commit, committed.is_late, num_commits) > 0,  # a unit in it is late
        "commit_order": np.arange(num_commits, dtype=np.int32),
        "unit_order": record.start.shape[0],  # T for all, behind the numbers of all units
    }


def _unit_columns(record: Schedule, committed: CommittedUnits) -> Columns:
    """The columns of an event for each unit in a commit, without its time; group: the lowest worker in the commit."""
    version = record.read[committed.unit, committed.worker]
    return {
        "worker": committed.worker,
        "unit": committed.unit,
        "commit": committed.commit,
        "unit_order": committed.unit,
        "version": version,
        "group": committed.lowest_worker[committed.commit],
    }


def _unit_arrival_columns(record: Schedule, committed: CommittedUnits) -> Columns:
    """The columns of units that arrive, by the message that carries them, before their commit, or else premature."""
    is_alone = committed.num_units[committed.commit] == 1  # in its commit, and stands for it
    num_unused, num_unused_at_end = (
        np.where(is_alone, of_commit[committed.commit], np.int32(0))
        for of_commit in num_unused_messages(record, committed)
    )
    return {
        **_unit_columns(record, committed),
        "num_unused_messages": num_unused,
        "num_unused_at_end": num_unused_at_end,
        "time": committed.arrival,
        "is_premature": committed.is_late,
        "commit_order": committed.commit,
    }


def _step_columns(record: Schedule, committed: CommittedUnits) -> Columns:
    """The columns of units that have been computed, before the commit `version`, which replaces the one they read.

    They are premature if they never end: what was cut off has an end of computing, too.
    """
    columns, finish = _unit_columns(record, committed), np.asarray(record.finish)
    never_ends = ~np.isfinite(finish[committed.unit, committed.worker])
    time = record.compute_end[committed.unit, committed.worker]
    return {**columns, "time": time, "is_premature": never_ends, "commit_order": columns["version"]}


def _is_read_early(record: Schedule, columns: Columns) -> np.ndarray:
    """bool[events]: whether the event's unit started with a version that was not there yet."""
    start = record.start[columns["unit"], columns["worker"]]
    return time_of_version(record, columns["version"]) > latest_equal(start)


def _message_columns(record: Schedule, committed: CommittedUnits) -> Columns:
    """The columns, but for the time, of the messages that have arrived up to the last commit; commit -1: in none."""
    num_commits = committed.lowest_worker.size  # what has read the version of the last one can be in none of them
    last_commit_time = record.time[:num_commits].max(initial=-np.inf)
    is_message = np.isfinite(record.send_start) & (record.finish <= last_commit_time) & (record.read < num_commits)
    unit, worker = (x.astype(np.int32) for x in np.nonzero(is_message))
    commit_of_unit = np.full(record.start.shape, -1, np.int32)  # [T, W]
    commit_of_unit[committed.unit, committed.worker] = committed.commit
    version, commit = record.read[unit, worker], commit_of_unit[unit, worker]
    group_of_commit = np.append(committed.lowest_worker, np.int32(-1))  # the last entry, -1, is for commit -1
    group = group_of_commit[commit]
    columns = {"worker": worker, "unit": unit, "commit": commit, "unit_order": unit}
    return {**columns, "version": version, "group": group, "commit_order": version}


def _send_columns(record: Schedule, committed: CommittedUnits) -> Columns:
    """The events in which workers begin to send a message."""
    columns = _message_columns(record, committed)
    return {**columns, "time": record.send_start[columns["unit"], columns["worker"]]}


def _exchange_columns(record: Schedule, committed: CommittedUnits) -> Columns:
    """As `_send_columns`, of messages that each have a commit of their own.

    One in no commit that arrives at the moment of the last commit is left out: the record ends before its commit.
    """
    columns = _send_columns(record, committed)
    last_commit_time = record.time[: committed.lowest_worker.size].max(initial=-np.inf)
    arrives_at_end = record.finish[columns["unit"], columns["worker"]] == last_commit_time
    is_left_out = arrives_at_end & (columns["commit"] < 0)
    return {name: x[~is_left_out] for name, x in columns.items()}


def _message_arrival_columns(only_counts_units: bool, record: Schedule, committed: CommittedUnits) -> Columns:
    """The events in which a message arrives at the server; `only_counts_units` is that of `events`."""
    columns = _message_columns(record, committed)
    place = columns["unit"], columns["worker"]
    stretch = np.full(record.start.shape, -1, np.int32)  # [T, W]: what each unit must have in common with the next one
    if only_counts_units:
        is_cut_off = np.isfinite(record.start) & ~np.isfinite(record.finish)
        stretch[~is_cut_off] = 0
    else:
        stretch[committed.unit, committed.worker] = committed.commit
    return {**columns, "size": _num_units_in_row(stretch)[place], "time": record.finish[place]}


def _num_units_in_row(stretch: np.ndarray) -> np.ndarray:
    """int32[T, W]: how many units up to each one, one after the other, have its number, `stretch int32[T, W]`.

    It is 0 for the number -1, which stands for none.
    """
    unit = np.arange(stretch.shape[0], dtype=np.int32)[:, None]
    is_first = np.diff(stretch, axis=0, prepend=np.int32(-1)) != 0
    first_unit = np.maximum.accumulate(np.where(is_first, unit, 0), axis=0)  # of the row that each unit is in
    return np.where(stretch >= 0, unit - first_unit + 1, 0).astype(np.int32)
