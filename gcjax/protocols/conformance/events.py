"""The events of a record, in order: what trace validation and figures of time look at.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from gcjax.protocols.conformance.committed_units import CommittedUnits, committed_units, last_arrival, on_host
from gcjax.protocols.conformance.structure import ROUNDING
from gcjax.protocols.schedule import Schedule
from gcjax.specifications.events import BEGIN, COMMIT, KINDS, MESSAGE, SEND, STEP, UNIT, Event


class Events(NamedTuple):
    """The events of a run; arrays [events].

    Attributes:
      event: what happens.
      time: float seconds.
      late: bool, whether it uses what was not there yet: a unit that arrives after its commit, a version that is read
        before it is made, a commit before the one in front of it.
      num_workers: W.
      absent: bool, whether it is of a turn in which the worker did not take part, or left; None where all always do.
      unit: int32, the units where those in `event` are without the lost ones; None if they are the same.
    """

    event: Event
    time: np.ndarray
    late: np.ndarray
    num_workers: int
    absent: np.ndarray | None = None
    unit: np.ndarray | None = None


def events(schedule: Schedule, kinds: Collection[str] = KINDS) -> Events:
    """The events of a run in the order in which they can have happened.

    That is the order of time; at one moment the order of the commits, what is in a commit before it, and what was read
    at a version before the commit that replaces it. Where the order is open still, units are in order.

    Args:
      schedule: of one run, not of a batch.
      kinds: which events there are to be.

    Raises:
      ValueError: if it is of a batch, or its numbers are none of workers and units.
    """
    host = on_host(schedule)
    # Where messages count, work is what a code has made of them, and no stretch of units.
    units = committed_units(host, whole=MESSAGE not in kinds)
    columns_of = {
        COMMIT: _commit_columns,
        STEP: _step_columns,
        UNIT: _unit_arrival_columns,
        SEND: _send_columns,
        MESSAGE: _message_arrival_columns,
    }
    parts = {kind: columns(host, units) for kind, columns in columns_of.items() if kind in kinds}
    parts = {kind: {"kind": KINDS.index(kind), **columns} for kind, columns in parts.items()}
    order = _time_order([_complete_columns(columns, ("time", *_KEYS)) for columns in parts.values()], host)
    if BEGIN in kinds:
        parts[BEGIN], place = _begin_columns(host, units, order, parts)
        order = _order_with_inserted(order, place)
    names = (*Event._fields, "time", "late")
    filled = [_complete_columns(columns, names) for columns in parts.values()]
    columns = {name: np.concatenate([part[name] for part in filled])[order] for name in names}
    return Events(Event(*(columns[n] for n in Event._fields)), columns["time"], columns["late"], host.start.shape[1])


_KEYS = ("commit_order", "order", "kind", "worker")
_TYPES: dict[str, Any] = {"time": np.float64, "late": bool, "waited": bool}

Columns = dict[str, Any]
"""By the names of `Event`, with the time, whether it is late, and what decides the order at one moment."""


def _complete_columns(columns: Columns, names: Collection[str]) -> dict[str, np.ndarray]:
    """The columns with these names, an entry for each event: 0 where a column is missing, a single number repeated."""
    num_events = columns["time"].size
    arrays = {name: np.asarray(columns.get(name, 0)) for name in names}
    return {
        name: np.broadcast_to(x if x.ndim else x.astype(_TYPES.get(name, np.int32)), (num_events,))
        for name, x in arrays.items()
    }


def _time_order(parts: list[dict[str, np.ndarray]], host: Schedule) -> np.ndarray:
    """The order of events by time, and at one moment by the columns `_KEYS`, the first of them first.

    Args:
      parts: the columns of the events, by name; numbered through over all parts.
      host: the record, whose sizes bound the keys.
    """
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    num_units, num_workers = host.start.shape
    sizes = {"commit_order": host.time.size + 1, "order": num_units + 1, "kind": len(KINDS), "worker": num_workers}
    if np.prod(list(sizes.values()), dtype=float) < 2.0**62:  # all keys fit into one number, which sorts faster
        key = np.zeros(columns["time"].size, np.int64)
        for name in _KEYS:
            key = key * sizes[name] + columns[name]
        return np.lexsort((key, columns["time"]))
    return np.lexsort([columns[name] for name in (*_KEYS[::-1], "time")])


def _order_with_inserted(order: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The order with new events put in: the i-th new one, before the event that is now in `place[i]`.

    Args:
      order: int[n], the numbers 0, ..., n - 1 of the old events, in their order.
      place: int[m], from 0 to n; the new events get the numbers n, ..., n + m - 1.

    Returns:
      int[n + m].
    """
    by_place = np.argsort(place, kind="stable")
    new_place = place[by_place] + np.arange(place.size)  # moved on by the new ones in front
    is_old = np.ones(order.size + place.size, bool)
    is_old[new_place] = False
    new_order = np.empty(is_old.size, order.dtype)
    new_order[new_place], new_order[is_old] = order.size + by_place, order
    return new_order


def _commit_columns(host: Schedule, units: CommittedUnits) -> Columns:
    """The events of commits, one each; at one moment they come after all units."""
    num_commits = units.label.size
    return {
        "time": host.time[:num_commits],
        "worker": units.label,
        "unit": host.unit[:num_commits].max(axis=1, initial=0).astype(np.int32),
        "commit": np.arange(num_commits, dtype=np.int32),
        "size": units.size,
        "group": units.label,
        "length": np.append(units.max_work, np.int32(-1))[1:],  # of the next commit; -1 behind the last one
        "missing": _num_unused_messages(host, units),
        "late": np.bincount(units.commit, units.late, num_commits) > 0,
        "commit_order": np.arange(num_commits, dtype=np.int32),
        "order": host.start.shape[0],  # behind the numbers of all units
    }


def _num_unused_messages(host: Schedule, units: CommittedUnits) -> np.ndarray:
    """int32[E]: the messages that have arrived between the commit before and this one, and are in no commit."""
    time = host.time[: units.label.size]
    is_unused = np.isfinite(host.send_start) & (host.finish <= time.max(initial=-np.inf))  # [T, W]
    is_unused[units.unit, units.worker] = False
    next_commit = np.searchsorted(time, host.finish[is_unused])
    return np.bincount(next_commit, minlength=time.size).astype(np.int32)


def _unit_columns(host: Schedule, units: CommittedUnits) -> Columns:
    """The columns of an event for each unit in a commit, but for the time of the event."""
    version = host.read[units.unit, units.worker]
    columns = {"worker": units.worker, "unit": units.unit, "commit": units.commit, "order": units.unit}
    return {**columns, "version": version, "group": units.label[units.commit]}


def _unit_arrival_columns(host: Schedule, units: CommittedUnits) -> Columns:
    """The events in which a unit arrives, that is the message that carries it; before its commit."""
    return {**_unit_columns(host, units), "time": units.arrival, "late": units.late, "commit_order": units.commit}


def _step_columns(host: Schedule, units: CommittedUnits) -> Columns:
    """The events in which a unit has been computed; before the commit that replaces the version that it read."""
    columns, finish = _unit_columns(host, units), np.asarray(host.finish)
    late = ~np.isfinite(finish[units.unit, units.worker])
    time = host.compute_end[units.unit, units.worker]
    return {**columns, "time": time, "late": late, "commit_order": columns["version"]}


def _message_columns(host: Schedule, units: CommittedUnits) -> Columns:
    """The columns, but for the time, of the messages that have arrived up to the last commit; commit -1: in none."""
    last_commit = host.time[: units.label.size].max(initial=-np.inf)
    is_message = np.isfinite(host.send_start) & (host.finish <= last_commit)
    unit, worker = (x.astype(np.int32) for x in np.nonzero(is_message))
    commit_of = np.full(host.start.shape, -1, np.int32)  # [T, W]
    commit_of[units.unit, units.worker] = units.commit
    version, commit = host.read[unit, worker], commit_of[unit, worker]
    group = np.append(units.label, np.int32(-1))[commit]  # commit -1 gets the last entry, -1
    columns = {"worker": worker, "unit": unit, "commit": commit, "order": unit}
    return {**columns, "version": version, "group": group, "commit_order": version}


def _send_columns(host: Schedule, units: CommittedUnits) -> Columns:
    """The events in which workers begin to send a message."""
    columns = _message_columns(host, units)
    return {**columns, "time": host.send_start[columns["unit"], columns["worker"]]}


def _message_arrival_columns(host: Schedule, units: CommittedUnits) -> Columns:
    """The events in which a message arrives at the server."""
    columns = _message_columns(host, units)
    return {**columns, "time": host.finish[columns["unit"], columns["worker"]]}


def _begin_columns(
    host: Schedule, units: CommittedUnits, order: np.ndarray, parts: dict[str, Columns]
) -> tuple[Columns, np.ndarray]:
    """The events in which a worker begins the work of a message, and the place of the event that each comes before.

    A worker begins when it has started the first unit of the message, and its last message has arrived: computing may
    have gone on before. What arrives at this moment comes before it, but not the commit that replaces the version that
    it has read.

    Args:
      host: the record in numpy arrays.
      units: the units in commits; those of a message lie next to each other.
      order: the order of all other events.
      parts: the columns of the other events, by kind; their events are numbered through.
    """
    first = np.flatnonzero(units.first)  # the first and the last unit of each message
    last = np.append(first[1:], units.unit.size)[: first.size] - 1
    worker, unit, version = units.worker[first], units.unit[first], host.read[units.unit[last], units.worker[last]]
    commit, last_message = units.commit[first], last_arrival(host, worker, unit)
    time = np.maximum(host.start[unit, worker], last_message)
    begins = {
        "kind": KINDS.index(BEGIN),
        "time": time,
        "worker": worker,
        "unit": unit,
        "commit": commit,
        "version": version,
        "size": units.workers[commit],
        "group": units.label[commit],
        "waited": time > last_message * (1 + ROUNDING),
        "late": version > np.searchsorted(host.time, time, side="right"),
    }
    times = np.concatenate([part["time"] for part in parts.values()])[order]
    place = np.searchsorted(times, time, side="right")
    tied = np.flatnonzero(_replacement_times(host, units)[version.clip(0, host.time.size)] == time)
    if tied.size:
        commits = np.concatenate([part["commit_order"] for part in parts.values()])[order]
        first_event = np.full(host.time.size + 1, order.size)  # of each commit
        first_event[commits[::-1]] = np.arange(order.size)[::-1]  # backwards: the first is written last
        first_at_moment = np.searchsorted(times, time[tied], side="left")
        place[tied] = np.maximum(first_event[version[tied].clip(0)], first_at_moment)
    return begins, _clipped_to_own_pushes(place, units, first, order, parts)


def _replacement_times(host: Schedule, units: CommittedUnits) -> np.ndarray:
    """float[E + 1] seconds: for each version, the time of the commit after it, where that time alone gives no order.

    That is where the commit has a unit of no length, which was begun at the very moment of the commit: other workers
    may then have begun before the commit or after it. Elsewhere inf, since those who begin at the moment of a commit do
    so after it.

    Args:
      host: the record in numpy arrays; unit n of worker w begins at `host.start[n, w]`, commit e is at `host.time[e]`.
      units: the units that are in commits.
    """
    begins_at_commit = host.start[units.unit, units.worker] >= host.time[units.commit]
    commit = units.commit[begins_at_commit]
    replacement_time = np.full(host.time.size + 1, np.inf)
    replacement_time[commit] = host.time[commit]  # commit e replaces version e
    return replacement_time


def _clipped_to_own_pushes(
    begin_place: np.ndarray, units: CommittedUnits, first: np.ndarray, order: np.ndarray, parts: dict[str, Columns]
) -> np.ndarray:
    """The places of begins, each after the worker's push before it and not after its own push.

    Where the commit that the push before completes comes next, the begin is also after this commit.

    Args:
      begin_place: the places so far, that is the place of the event that each begin comes before.
      units: the units in commits, by worker and unit.
      first: the first unit of each begin, as an index into `units`.
      order: the numbers of the other events in their order.
      parts: the columns of the other events, by kind; the events are numbered through over the kinds.
    """
    place = np.empty_like(order)  # of each event, by its number
    place[order] = np.arange(order.size)
    first_number = dict(zip(parts, np.cumsum([0, *(part["time"].size for part in parts.values())]), strict=False))
    push_kind = next((kind for kind in (UNIT, STEP) if kind in parts), None)
    if push_kind is not None:
        push_place = place[first_number[push_kind] : first_number[push_kind] + units.unit.size]
    else:  # commits only: each is the push of one worker
        push_place = place[first_number[COMMIT] + units.commit]
    last_push = push_place[first - 1]
    if COMMIT in parts:
        last_push = last_push + (place[first_number[COMMIT] + units.commit[first - 1]] == last_push + 1)
    same_worker = np.append(False, units.worker[first[1:]] == units.worker[first[:-1]])[: first.size]
    return np.minimum(np.maximum(begin_place, np.where(same_worker, last_push + 1, 0)), push_place[first])
