"""The events of a record, in order: what trace validation and figures of time look at.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit, P units in commits, X events.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from gcjax.protocols.conformance.committed_units import CommittedUnits, committed_units, last_arrival, on_host
from gcjax.protocols.conformance.structure import ROUNDING
from gcjax.protocols.schedule import Schedule
from gcjax.specifications.events import BEGIN, COMMIT, KINDS, MESSAGE, SEND, STEP, UNIT, Event


class Events(NamedTuple):
    """The events of a run; arrays [X].

    Attributes:
      event: what happens.
      time: float seconds.
      late: bool, whether it uses what was not there yet: a unit that arrives after its commit, a version that is read
        before it is made, a commit before the one in front of it.
      num_workers: W.
    """

    event: Event
    time: np.ndarray
    late: np.ndarray
    num_workers: int


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
    makers = {COMMIT: _commits, STEP: _steps, UNIT: _arrivals, SEND: _sent, MESSAGE: _arrived}
    parts = {kind: make(host, units) for kind, make in makers.items() if kind in kinds}
    parts = {kind: {"kind": KINDS.index(kind), **columns} for kind, columns in parts.items()}
    order = _time_order([_complete_columns(columns, ("time", *_KEYS)) for columns in parts.values()], host)
    if BEGIN in kinds:
        parts[BEGIN], at = _begins(host, units, order, parts)
        order = _order_with_inserted(order, at)
    names = (*Event._fields, "time", "late")
    filled = [_complete_columns(columns, names) for columns in parts.values()]
    columns = {name: np.concatenate([part[name] for part in filled])[order] for name in names}
    return Events(Event(*(columns[n] for n in Event._fields)), columns["time"], columns["late"], host.start.shape[1])


_KEYS = ("commit_order", "order", "kind", "worker")
_TYPES: dict[str, Any] = {"time": np.float64, "late": bool, "waited": bool}

Columns = dict[str, Any]
"""By the names of `Event`, with the time, whether it is late, and what decides the order at one moment."""


def _complete_columns(columns: Columns, names: Collection[str]) -> dict[str, np.ndarray]:
    """All these columns of a part, with zeros where nothing is said."""
    number = columns["time"].size
    given = {name: np.asarray(columns.get(name, 0)) for name in names}
    return {
        name: np.broadcast_to(x if x.ndim else x.astype(_TYPES.get(name, np.int32)), (number,))
        for name, x in given.items()
    }


def _time_order(parts: list[dict[str, np.ndarray]], host: Schedule) -> np.ndarray:
    """The order of events by time, and then by the keys."""
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    sizes = {"commit_order": host.time.size + 1, "order": host.start.shape[0] + 1, "kind": len(KINDS)}
    key = np.zeros(columns["time"].size, np.int64)  # one number of all, unless there are too many
    if np.prod([*sizes.values(), host.start.shape[1]], dtype=float) < 2.0**62:
        for name in _KEYS:
            key = key * sizes.get(name, host.start.shape[1]) + columns[name]
        return np.lexsort((key, columns["time"]))
    return np.lexsort([columns[name] for name in (*_KEYS[::-1], "time")])


def _order_with_inserted(order: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The order in which more events, numbered on, come before these places of the others."""
    by_place = np.argsort(at, kind="stable")
    places = at[by_place] + np.arange(at.size)
    other = np.ones(order.size + at.size, bool)
    other[places] = False
    joined = np.empty(other.size, order.dtype)
    joined[places], joined[other] = order.size + by_place, order
    return joined


def _commits(host: Schedule, units: CommittedUnits) -> Columns:
    number = units.label.size
    return {
        "time": host.time[:number],
        "worker": units.label,
        "unit": host.unit[:number].max(axis=1, initial=0).astype(np.int32),
        "commit": np.arange(number, dtype=np.int32),
        "size": units.size,
        "group": units.label,
        "length": np.append(units.max_work, np.int32(-1))[1:],
        "missing": _num_unused_messages(host, units),
        "late": np.bincount(units.commit, units.late, number) > 0,
        "commit_order": np.arange(number, dtype=np.int32),
        "order": host.start.shape[0],
    }


def _num_unused_messages(host: Schedule, units: CommittedUnits) -> np.ndarray:
    """int32[E]: the messages that have arrived since the commit before, and are in none."""
    time = host.time[: units.label.size]
    lost = np.isfinite(host.send_start) & (host.finish <= time.max(initial=-np.inf))
    lost[units.unit, units.worker] = False
    return np.bincount(np.searchsorted(time, host.finish[lost]), minlength=time.size).astype(np.int32)


def _unit_columns(host: Schedule, units: CommittedUnits) -> Columns:
    version = host.read[units.unit, units.worker]
    given = {"worker": units.worker, "unit": units.unit, "commit": units.commit, "order": units.unit}
    return {**given, "version": version, "group": units.label[units.commit]}


def _arrivals(host: Schedule, units: CommittedUnits) -> Columns:
    return {**_unit_columns(host, units), "time": units.arrival, "late": units.late, "commit_order": units.commit}


def _steps(host: Schedule, units: CommittedUnits) -> Columns:
    columns, finish = _unit_columns(host, units), np.asarray(host.finish)
    late = ~np.isfinite(finish[units.unit, units.worker])
    time = host.compute_end[units.unit, units.worker]
    return {**columns, "time": time, "late": late, "commit_order": columns["version"]}


def _message_columns(host: Schedule, units: CommittedUnits) -> Columns:
    """Those that have arrived up to the last commit."""
    end = host.time[: units.label.size].max(initial=-np.inf)
    unit, worker = (x.astype(np.int32) for x in np.nonzero(np.isfinite(host.send_start) & (host.finish <= end)))
    commit_of = np.full(host.start.shape, -1, np.int32)
    commit_of[units.unit, units.worker] = units.commit
    read, commit = host.read[unit, worker], commit_of[unit, worker]
    group = np.append(units.label, np.int32(-1))[commit]
    given = {"worker": worker, "unit": unit, "commit": commit, "order": unit}
    return {**given, "version": read, "group": group, "commit_order": read}


def _sent(host: Schedule, units: CommittedUnits) -> Columns:
    columns = _message_columns(host, units)
    return {**columns, "time": host.send_start[columns["unit"], columns["worker"]]}


def _arrived(host: Schedule, units: CommittedUnits) -> Columns:
    columns = _message_columns(host, units)
    return {**columns, "time": host.finish[columns["unit"], columns["worker"]]}


def _begins(
    host: Schedule, units: CommittedUnits, order: np.ndarray, parts: dict[str, Columns]
) -> tuple[Columns, np.ndarray]:
    """The events of beginning, and before which of the others, in their order, each comes.

    A worker begins when it has started the first unit, and its last message has arrived: computing may have gone on
    before. What arrives at this moment comes before it, except what comes after the version that it has read.
    """
    first = np.flatnonzero(units.first)
    last = np.append(first[1:], units.unit.size)[: first.size] - 1
    worker, unit, version = units.worker[first], units.unit[first], host.read[units.unit[last], units.worker[last]]
    commit, before = units.commit[first], last_arrival(host, worker, unit)
    time = np.maximum(host.start[unit, worker], before)
    begins = {
        "kind": KINDS.index(BEGIN),
        "time": time,
        "worker": worker,
        "unit": unit,
        "commit": commit,
        "version": version,
        "size": units.workers[commit],
        "group": units.label[commit],
        "waited": time > before * (1 + ROUNDING),
        "late": version > np.searchsorted(host.time, time, side="right"),
    }
    times = np.concatenate([part["time"] for part in parts.values()])[order]
    at = np.searchsorted(times, time, side="right")
    tied = np.flatnonzero(_replacement_times(host, units)[version.clip(0, host.time.size)] == time)
    if tied.size:
        commits = np.concatenate([part["commit_order"] for part in parts.values()])[order]
        since = np.full(host.time.size + 1, order.size)
        since[commits[::-1]] = np.arange(order.size)[::-1]  # the first event of each commit
        moment = np.searchsorted(times, time[tied], side="left")
        at[tied] = np.maximum(since[version[tied].clip(0)], moment)
    return begins, _clipped_to_own_pushes(at, units, first, order, parts)


def _replacement_times(host: Schedule, units: CommittedUnits) -> np.ndarray:
    """float[E + 1]: when each version was replaced, if that was with a unit begun at this moment; otherwise inf.

    All that arrives at a moment does so before anybody begins, but for units that are begun at it.
    """
    instant = units.commit[host.start[units.unit, units.worker] >= host.time[units.commit]]
    replaced = np.full(host.time.size + 1, np.inf)
    replaced[instant] = host.time[instant]
    return replaced


def _clipped_to_own_pushes(
    at: np.ndarray, units: CommittedUnits, first: np.ndarray, order: np.ndarray, parts: dict[str, Columns]
) -> np.ndarray:
    """The places of begins, not before the worker's last push, with the commit that it completes, nor after the next.

    Args:
      at: the places so far.
      units: those in commits.
      first: which of them the begins are of.
      order: of the other events.
      parts: their columns, by their kind, in which they are numbered.
    """
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    starts = dict(zip(parts, np.cumsum([0, *(part["time"].size for part in parts.values())]), strict=False))
    own = next((kind for kind in (UNIT, STEP) if kind in parts), None)
    if own is not None:
        own_place = place[starts[own] : starts[own] + units.unit.size]
    else:  # commits only: each is the push of one worker
        own_place = place[starts[COMMIT] + units.commit]
    pushed = own_place[first - 1]
    if COMMIT in parts:
        pushed = pushed + (place[starts[COMMIT] + units.commit[first - 1]] == pushed + 1)
    follows = np.append(False, units.worker[first[1:]] == units.worker[first[:-1]])[: first.size]
    return np.minimum(np.maximum(at, np.where(follows, pushed + 1, 0)), own_place[first])
