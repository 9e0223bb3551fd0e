"""The events of a record, in order: what trace validation and figures of time look at.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from gcjax.protocols.conformance.committed_units import CommittedUnits, committed_units, last_arrival, on_host
from gcjax.protocols.conformance.structure import ROUNDING
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


def events(schedule: Schedule, kinds: Collection[str] = KINDS, *, begins_before_commits: bool = False) -> Events:
    """The events of a run in the order in which they can have happened.

    That is the order of time; at one moment the order of the commits, what is in a commit before it, and what was read
    at a version before the commit that replaces it. Where the order is open still, units are in order.

    Args:
      schedule: of one run, not of a batch.
      kinds: which events there are to be, of `KINDS`: COMMIT, or what a worker does (BEGIN, STEP, UNIT, ...).
      begins_before_commits: whether who begins at the moment of a commit, with the version that it replaces, has begun
        before it; else only where that, or a unit of no length, shows it.

    Raises:
      ValueError: if it is of a batch, or has numbers that no worker or unit of it has.
    """
    record = on_host(schedule)
    # Where messages count, work is what a code has made of them, and no stretch of units.
    committed = committed_units(record, commits_all_units=MESSAGE not in kinds)
    columns_functions = {
        COMMIT: _commit_columns,
        STEP: _step_columns,
        UNIT: _unit_arrival_columns,
        SEND: _send_columns,
        MESSAGE: _message_arrival_columns,
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
        columns_by_kind[BEGIN], begin_positions = _begin_columns(
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

Columns = dict[str, Any]
"""By the names of `Event`, with the time, whether it is late, and what decides the order at one moment."""


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
    return {
        "time": record.time[:num_commits],
        "worker": committed.lowest_worker,
        "unit": record.unit[:num_commits].max(axis=1, initial=0).astype(np.int32),
        "commit": np.arange(num_commits, dtype=np.int32),
        "size": committed.num_units,
        "group": committed.lowest_worker,
        "max_units_in_next_commit": max_units_in_next_commit,
        "num_unused_messages": num_unused_messages(record, committed),
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
    return {
        **_unit_columns(record, committed),
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
    return columns["version"] > np.searchsorted(record.time, start * (1 + ROUNDING), side="right")


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


def _message_arrival_columns(record: Schedule, committed: CommittedUnits) -> Columns:
    """The events in which a message arrives at the server."""
    columns = _message_columns(record, committed)
    return {**columns, "time": record.finish[columns["unit"], columns["worker"]]}


def _begin_columns(
    record: Schedule,
    committed: CommittedUnits,
    event_order: np.ndarray,
    columns_by_kind: dict[str, Columns],
    *,
    before_commits: bool,
) -> tuple[Columns, np.ndarray]:
    """The begins of the work of messages, as columns; and int[begins], the position of the event after each.

    A worker begins when it has started the first unit of the message, and its last message has arrived: computing may
    have gone on before. What arrives at this moment comes before it, but not the commit that replaces the version that
    it has read.

    Args:
      record: the record in numpy arrays.
      committed: the units in commits; those of a message lie next to each other.
      event_order: the order of all other events.
      columns_by_kind: the columns of the other events, which are numbered through.
      before_commits: `begins_before_commits` of `events`.
    """
    first_row = np.flatnonzero(committed.is_first_of_message)  # the rows of the first and the last unit of each message
    last_row = np.append(first_row[1:], committed.unit.size)[: first_row.size] - 1  # none if there are no messages
    worker, unit, commit = committed.worker[first_row], committed.unit[first_row], committed.commit[first_row]
    version = np.asarray(record.read[committed.unit[last_row], committed.worker[last_row]])  # for the last unit
    last_message, start = last_arrival(record, worker, unit), record.start[unit, worker]
    time = np.where(last_message <= start * (1 + ROUNDING), start, last_message)
    begins = {
        "kind": KINDS.index(BEGIN),
        "time": time,
        "worker": worker,
        "unit": unit,
        "commit": commit,
        "version": version,
        "size": committed.num_workers[commit],
        "group": committed.lowest_worker[commit],
        "column": committed.column[first_row],
        "waited": time > last_message * (1 + ROUNDING),
        "is_premature": version > np.searchsorted(record.time, time, side="right"),
    }
    is_ambiguous = time == _ambiguous_begin_times(record, committed)[version.clip(0, record.time.size)]
    is_ambiguous |= _is_replaced_at_moment(record, time, version, also_made=not before_commits)
    position = _begin_positions(time, version, is_ambiguous, record.time.size + 1, event_order, columns_by_kind)
    follows_commit = _may_follow_commit_before(record, committed, first_row, time, version)
    # At the very moment of the commit before, the version that it replaces can only have been read before it.
    follows_commit &= ~(is_ambiguous & (version == committed.commit[first_row - 1]))
    return begins, _clipped_to_own_pushes(position, committed, first_row, event_order, columns_by_kind, follows_commit)


def _may_follow_commit_before(
    record: Schedule, committed: CommittedUnits, first_row: np.ndarray, begin_time: np.ndarray, version: np.ndarray
) -> np.ndarray:
    """bool[begins]: whether each begin can be after the commit that its worker's push before it is in.

    It can if it is at the time of that commit or later, or has read a newer version than the commit replaces. Otherwise
    the server has waited for more. The entry of a worker's first begin means nothing (row -1 is the last).

    Args:
      record: the record in numpy arrays.
      committed: the units in commits, by worker and unit.
      first_row: the first unit of each begin, as an index into `committed`.
      begin_time: float[begins] seconds.
      version: int32[begins], that is read.
    """
    commit_before = committed.commit[first_row - 1]
    return (version > commit_before) | (begin_time >= np.asarray(record.time)[commit_before])


def _begin_positions(
    begin_time: np.ndarray,
    version: np.ndarray,
    is_ambiguous: np.ndarray,
    num_versions: int,
    event_order: np.ndarray,
    columns_by_kind: dict[str, Columns],
) -> np.ndarray:
    """int[begins]: the position, in the order of the other events, of the event that each begin comes before.

    At one moment a begin is after what arrives, unless it is ambiguous: then the version read decides.

    Args:
      begin_time: float[begins] seconds.
      version: int32[begins], that is read.
      is_ambiguous: bool[begins], where the begin is at the very time of the commit that replaces its version.
      num_versions: E + 1.
      event_order: the order of the other events.
      columns_by_kind: the columns of the other events.
    """
    event_time = np.concatenate([columns["time"] for columns in columns_by_kind.values()])[event_order]
    position = np.searchsorted(event_time, begin_time, side="right")
    ambiguous = np.flatnonzero(is_ambiguous)
    if ambiguous.size:
        commit_of_event = np.concatenate([columns["commit_order"] for columns in columns_by_kind.values()])[event_order]
        # Within a moment events are in the order of their commits: the begin comes before those of commit `version`.
        first_at_moment, first_of_begin = (
            np.searchsorted(event_time, x, side="left") for x in (event_time, begin_time[ambiguous])
        )
        place_in_order = first_at_moment * (num_versions + 1) + commit_of_event  # commits are at most E
        position[ambiguous] = np.searchsorted(place_in_order, first_of_begin * (num_versions + 1) + version[ambiguous])
    return position


def _is_replaced_at_moment(
    record: Schedule, begin_time: np.ndarray, version: np.ndarray, *, also_made: bool
) -> np.ndarray:
    """bool[begins]: whether the `version` int32[begins] that a begin has read was replaced at its moment.

    `also_made`: whether it must have been made at this moment, too.
    """
    num_commits = record.time.size
    made, replaced = (version - 1).clip(0, num_commits - 1), version.clip(0, num_commits - 1)  # the numbers of commits
    is_replaced = (version < num_commits) & (record.time[replaced] == begin_time)
    return is_replaced & ((version > 0) & (record.time[made] == begin_time) if also_made else True)


def _ambiguous_begin_times(record: Schedule, committed: CommittedUnits) -> np.ndarray:
    """float[E + 1] seconds: for each version, the time of the commit after it, where that time alone gives no order.

    That is where the commit, or one after it at the same moment, has a unit of no length, which was begun at this very
    moment: other workers may then have begun before the commit or after it. Elsewhere inf, since those who begin at the
    moment of a commit do so after it.

    Args:
      record: the record in numpy arrays; unit n of worker w begins at `record.start[n, w]`, commit e is at
        `record.time[e]`.
      committed: the units that are in commits.
    """
    begins_at_commit = record.start[committed.unit, committed.worker] >= record.time[committed.commit]
    commit_time = record.time[: committed.lowest_worker.size]
    # Of the commits of one moment, the last that has such a unit: it leaves those before it open, too.
    moments, moment_of_commit = np.unique(commit_time, return_inverse=True)
    last_of_moment = np.full(moments.size, -1)
    commit = committed.commit[begins_at_commit]
    np.maximum.at(last_of_moment, moment_of_commit[commit], commit)
    is_open = np.arange(commit_time.size) <= last_of_moment[moment_of_commit]
    replacement_time = np.full(record.time.size + 1, np.inf)
    replacement_time[: commit_time.size][is_open] = commit_time[is_open]  # commit e replaces version e
    return replacement_time


def _clipped_to_own_pushes(
    begin_position: np.ndarray,
    committed: CommittedUnits,
    first_row: np.ndarray,
    event_order: np.ndarray,
    columns_by_kind: dict[str, Columns],
    follows_commit: np.ndarray,
) -> np.ndarray:
    """int[begins]: the positions of begins, each after the worker's push before it and not after its own push.

    The push before is here the event of its last unit, the own push that of its first: that the unit has arrived (UNIT)
    or, where there are no such events, been computed (STEP), or else the commit that it is in. If the commit of the
    push before is the very next event, the begin is also after this, where `follows_commit` says that it can be.

    Args:
      begin_position: the positions so far, that is the position of the event that each begin comes before.
      committed: the units in commits, by worker and unit; events of units are in the same order, one for each.
      first_row: the first unit of each begin, as an index into `committed`.
      event_order: the numbers of the other events in their order.
      columns_by_kind: the columns of the other events; the events are numbered through over the kinds.
      follows_commit: bool[begins], of `_may_follow_commit_before`.
    """
    position_of_event = np.empty_like(event_order)  # by the number of the event
    position_of_event[event_order] = np.arange(event_order.size)
    num_events = [columns["time"].size for columns in columns_by_kind.values()]
    first_event_of_kind = dict(zip(columns_by_kind, np.cumsum([0, *num_events]), strict=False))
    push_kind = next((kind for kind in (UNIT, STEP) if kind in columns_by_kind), None)
    if push_kind is not None:
        first_push = first_event_of_kind[push_kind]
        push_position = position_of_event[first_push : first_push + committed.unit.size]
    else:  # commits only: each is the push of one worker
        push_position = position_of_event[first_event_of_kind[COMMIT] + committed.commit]
    # That of the row before; of row -1, the last, for row 0, which is a first begin: see `has_pushed_before`.
    previous_position = push_position[first_row - 1]
    if COMMIT in columns_by_kind:
        position_of_its_commit = position_of_event[first_event_of_kind[COMMIT] + committed.commit[first_row - 1]]
        commit_follows = (position_of_its_commit == previous_position + 1) & follows_commit
        previous_position = previous_position + commit_follows
    is_same_worker = committed.worker[first_row[1:]] == committed.worker[first_row[:-1]]
    has_pushed_before = np.append(False, is_same_worker)[: first_row.size]
    min_position = np.where(has_pushed_before, previous_position + 1, 0)
    return np.minimum(np.maximum(begin_position, min_position), push_position[first_row])
