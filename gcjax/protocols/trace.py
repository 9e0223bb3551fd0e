"""The events of a record, in order: what trace validation and figures of time look at.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit, P units in commits, X events.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from gcjax.algebra.specifications.events import BEGIN, COMMIT, KINDS, MESSAGE, SEND, STEP, UNIT, Event
from gcjax.protocols.schedule import Schedule
from gcjax.protocols.structure import ROUNDING


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


class _Units(NamedTuple):
    """The units that are in commits, by worker and unit; arrays [P], and what is known of commits; arrays [E]."""

    commit: np.ndarray
    worker: np.ndarray
    unit: np.ndarray
    arrival: np.ndarray
    late: np.ndarray  # bool: it arrives after the commit, or was computed on another version than its contribution
    first: np.ndarray  # bool: the first one of its message
    label: np.ndarray  # the lowest worker
    size: np.ndarray  # the units
    workers: np.ndarray  # the workers
    most: np.ndarray  # the most units of a worker


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
    units = _units(host, whole=MESSAGE not in kinds)
    parts = [_commits(host, units), _arrivals(host, units)]
    if STEP in kinds:
        parts.append(_steps(host, units))
    if SEND in kinds or MESSAGE in kinds:
        parts += _messages(host, units, kinds)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    keys = (columns["worker"], columns["kind"], columns["order"], columns["commit_order"], columns["time"])
    order = np.lexsort(keys)
    columns = {name: x[order] for name, x in columns.items()}
    if BEGIN in kinds:
        columns = _with_begins(columns, host, units, order)
    if COMMIT not in kinds or UNIT not in kinds:
        chosen = np.isin(columns["kind"], [KINDS.index(kind) for kind in kinds])
        columns = {name: x[chosen] for name, x in columns.items()}
    event = Event(*(columns[name] for name in Event._fields))
    return Events(event, columns["time"], columns["late"], host.start.shape[1])


def on_host(schedule: Schedule) -> Schedule:
    """The record of a run as numpy arrays, if its numbers are what they must be.

    Raises:
      ValueError: if it is of a batch, or one of its numbers cannot be.
    """
    if np.ndim(schedule.time) != 1:
        raise ValueError(
            f"a history is of one run; this schedule is of a batch, its times have shape {np.shape(schedule.time)}. "
            "Take one of it with jax.tree.map(lambda x: x[i], schedule)."
        )
    host = Schedule(*(np.asarray(x) for x in schedule))  # type: ignore[arg-type]
    used = (host.worker >= 0) & np.isfinite(host.time)[:, None]
    num_units, num_workers = host.start.shape
    rules = {
        "times must be numbers": not np.isnan(host.time).any(),
        f"workers must be below {num_workers}": (host.worker < num_workers).all(),
        f"units must be among the {num_units} sampled ones": (
            ~used | ((host.unit >= 0) & (host.unit < num_units))
        ).all(),
    }
    for rule, holds in rules.items():
        if not holds:
            raise ValueError(f"{rule} in a schedule; in this one they do otherwise. Correct the protocol's schedule.")
    return host


def _units(host: Schedule, *, whole: bool) -> _Units:
    """The units in commits, when they arrive, and in which messages; only the first of each contribution if not all."""
    number = int(np.isfinite(host.time).sum())
    num_units = host.start.shape[0]
    row, column = np.nonzero((host.worker[:number] >= 0) & (host.work[:number] > 0))
    worker, first, work = (np.asarray(x)[row, column] for x in (host.worker, host.unit, host.work))
    count = work if whole else np.ones_like(work)
    owner = np.repeat(np.arange(row.size, dtype=np.int32), count)
    commit, worker = row[owner].astype(np.int32), worker[owner]
    unit = first[owner] + (np.arange(owner.size, dtype=np.int32) - np.repeat(np.cumsum(count) - count, count))
    if unit.size and unit.max() >= num_units:
        raise ValueError(
            f"contributions must consist of the {num_units} sampled units; one has unit {unit.max()}. Correct the "
            "protocol's schedule."
        )
    order = np.argsort(worker.astype(np.int64) * num_units + unit, kind="stable")
    commit, worker, unit, start = commit[order], worker[order], unit[order].astype(np.int32), first[owner][order]
    arrival, message = _arrival(host, commit, worker, unit)
    rounded = (arrival > host.time[commit]) & (arrival <= host.time[commit] * (1 + ROUNDING))
    arrival = np.where(rounded, host.time[commit], arrival)
    late = ((arrival > host.time[commit]) | (host.read[unit, worker] != host.read[start, worker])) & whole
    label = np.zeros(number, np.int32)
    label[commit[::-1]] = worker[::-1]  # the lowest one is written last
    change = (worker[1:] != worker[:-1]) | (message[1:] != message[:-1])
    size = np.bincount(row, work, number).astype(np.int32)
    runs = np.flatnonzero(np.append(True, (np.diff(worker) != 0) | (np.diff(commit) != 0))[: unit.size])
    workers = np.bincount(commit[runs], minlength=number).astype(np.int32)
    most = np.zeros(number, np.int32)
    np.maximum.at(most, commit[runs], np.diff(np.append(runs, unit.size)).astype(np.int32))
    return _Units(commit, worker, unit, arrival, late, np.append(True, change)[: unit.size], label, size, workers, most)


def _arrival(host: Schedule, commit: np.ndarray, worker: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When units have arrived, and a number for the message that carries each; arrays [P].

    A message carries its unit and those before it that are in the same commit. What none of the commit carries is known
    without one, as the progress of a coded round is.
    """
    num_units, num_workers = host.start.shape
    places = np.where(np.isfinite(host.send_start), np.arange(num_units, dtype=np.int32)[:, None], num_units)
    carrier = np.minimum.accumulate(places[::-1], axis=0)[::-1][unit, worker]
    commit_of = np.full((num_units + 1, num_workers), -1, np.int32)
    commit_of[unit, worker] = commit
    known = commit_of[carrier, worker] != commit
    finish = np.asarray(host.finish)
    return finish[np.where(known, unit, carrier), worker], np.where(known, num_units + commit, carrier)


def _columns(number: int, kind: str, **given: Any) -> dict[str, np.ndarray]:
    """The columns of so many events of a kind."""
    names = (*Event._fields, "time", "late", "commit_order", "order")
    given["kind"] = KINDS.index(kind)
    types = {"time": given["time"].dtype, "late": bool, "waited": bool}
    return {n: np.broadcast_to(np.asarray(given.get(n, 0), types.get(n, np.int32)), (number,)) for n in names}


def _commits(host: Schedule, units: _Units) -> dict[str, np.ndarray]:
    number = units.label.size
    time = host.time[:number]
    return _columns(
        number,
        COMMIT,
        worker=units.label,
        unit=host.unit[:number].max(axis=1, initial=0),
        commit=np.arange(number),
        size=units.size,
        group=units.label,
        length=np.append(units.most, -1)[1:],
        time=time,
        late=np.append(False, time[1:] < time[:-1])[:number] | (np.bincount(units.commit, units.late, number) > 0),
        commit_order=np.arange(number),
        order=host.start.shape[0],
    )


def _arrivals(host: Schedule, units: _Units) -> dict[str, np.ndarray]:
    return _columns(
        units.unit.size,
        UNIT,
        worker=units.worker,
        unit=units.unit,
        commit=units.commit,
        version=host.read[units.unit, units.worker],
        group=units.label[units.commit],
        time=units.arrival,
        late=units.late,
        commit_order=units.commit,
        order=units.unit,
    )


def _steps(host: Schedule, units: _Units) -> dict[str, np.ndarray]:
    read = host.read[units.unit, units.worker]
    return _columns(
        units.unit.size,
        STEP,
        worker=units.worker,
        unit=units.unit,
        commit=units.commit,
        version=read,
        group=units.label[units.commit],
        time=host.compute_end[units.unit, units.worker],
        late=~np.isfinite(host.finish[units.unit, units.worker]),
        commit_order=read,
        order=units.unit,
    )


def _messages(host: Schedule, units: _Units, kinds: Collection[str]) -> list[dict[str, np.ndarray]]:
    """The messages that have arrived up to the last commit."""
    end = host.time[: units.label.size].max(initial=-np.inf)
    unit, worker = np.nonzero(np.isfinite(host.send_start) & (host.finish <= end))
    commit_of = np.full(host.start.shape, -1, np.int32)
    commit_of[units.unit, units.worker] = units.commit
    read, commit = host.read[unit, worker], commit_of[unit, worker]
    given = {"worker": worker, "unit": unit, "commit": commit, "version": read, "commit_order": read, "order": unit}
    given["group"] = np.append(units.label, -1)[commit]
    times = {SEND: host.send_start[unit, worker], MESSAGE: host.finish[unit, worker]}
    return [_columns(unit.size, kind, **given, time=times[kind]) for kind in times if kind in kinds]


def _last_arrival(host: Schedule, worker: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """When the last message of a worker before a unit has arrived; 0 if there is none."""
    rows = np.arange(1, host.start.shape[0] + 1, dtype=np.int32)[:, None]
    last = np.maximum.accumulate(np.where(np.isfinite(host.send_start), rows, 0), axis=0)
    row = np.where(unit > 0, last[unit - 1, worker], 0)
    return np.where(row > 0, host.finish[row - 1, worker], 0)


def _with_begins(
    columns: dict[str, np.ndarray], host: Schedule, units: _Units, order: np.ndarray
) -> dict[str, np.ndarray]:
    """The events with those of beginning among them.

    A worker begins when it has started the first unit, and its last message has arrived: computing may have gone on
    before. What arrives at this moment comes before it, except what comes after the version that it has read.
    """
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    place_of_commit, place_of_unit = place[: units.label.size], place[units.label.size :]
    first = np.flatnonzero(units.first)
    last = np.append(first[1:], units.unit.size)[: first.size] - 1
    worker, unit, version = units.worker[first], units.unit[first], host.read[units.unit[last], units.worker[last]]
    follows = np.append(False, worker[1:] == worker[:-1])[: first.size]
    before = _last_arrival(host, worker, unit)
    time = np.maximum(host.start[unit, worker], before)
    at = np.searchsorted(columns["time"], time, side="right")
    # All that arrives at a moment does so before anybody begins, but for units that are begun at it. So if the version
    # is replaced at this moment with such a unit, only what is not in that commit comes before.
    instant = units.commit[host.start[units.unit, units.worker] >= host.time[units.commit]]
    replaced = np.full(host.time.size + 1, np.inf)
    replaced[instant] = host.time[instant]
    tied = np.flatnonzero(replaced[version.clip(0, host.time.size)] == time)
    since = np.full(host.time.size + 1, order.size)
    since[columns["commit_order"][::-1]] = np.arange(order.size)[::-1]  # the first event of each commit
    moment = np.searchsorted(columns["time"], time[tied], side="left")
    at[tied] = np.maximum(since[version[tied].clip(0)], moment)
    pushed = place_of_unit[first - 1]
    pushed = pushed + (place_of_commit[units.commit[first - 1]] == pushed + 1)  # with the commit that it completes
    at = np.maximum(at, np.where(follows, pushed + 1, 0))
    at = np.minimum(at, place_of_unit[first])
    begins = _columns(
        first.size,
        BEGIN,
        worker=worker,
        unit=unit,
        commit=units.commit[first],
        version=version,
        size=units.workers[units.commit[first]],
        group=units.label[units.commit[first]],
        waited=time > before * (1 + ROUNDING),
        time=time,
    )
    inserted = np.argsort(at, kind="stable")
    is_begin = np.zeros(order.size + first.size, bool)
    is_begin[at[inserted] + np.arange(first.size)] = True
    mixed = {}
    for name, values in columns.items():
        mixed[name] = np.empty(is_begin.size, values.dtype)
        mixed[name][is_begin], mixed[name][~is_begin] = begins[name][inserted], values
    made = np.cumsum(mixed["kind"] == KINDS.index(COMMIT))
    mixed["late"] |= is_begin & (mixed["version"] > made)
    return mixed
