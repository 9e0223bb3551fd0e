"""A schedule as a history: what the workers and the server did, one step after the other.

A history has the states of a specification (`gcjax.algebra.specifications`), so that what ran can be held against what
was promised. Only work that is in a commit counts: what was cancelled, or is pending at the end, changed nothing.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit, X events, B events of a block.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from gcjax.protocols.schedule import Schedule

BEGIN, PUSH, COMMIT = range(3)
BLOCK = 1 << 20  # numbers in an array of a block, more or less
ROUNDING = 1e-5  # by which sums of times may differ
FIELDS = {
    "version": "int32[B], the commits so far",
    "start": "int32[B], the version with which the round has begun: the newest one",
    "length": "int32[B], the most units of a worker in the commit that comes next",
    "clock": "int32[B, W], the units that each worker has pushed",
    "work": "int32[B, W], those of them that are not in a commit yet",
    "read": "int32[B, W], the version that each worker has read last",
    "seen": "int32[B, W], up to which clock a worker has seen everybody's units in what it has read",
    "busy": "int32[B, W], whether a worker is between reading and pushing",
    "granted": "int32[B, W], zeros: what a protocol keeps in mind is not in a schedule",
    "free": "int32[B, W], zeros, likewise",
}
"""What is known of a protocol after each event, by the names of the fields of a specification's state."""

Fields = dict[str, np.ndarray]


class Host(NamedTuple):
    """What is needed of a `Schedule`, on the host."""

    time: np.ndarray
    worker: np.ndarray
    unit: np.ndarray
    version: np.ndarray
    work: np.ndarray
    start: np.ndarray
    send_start: np.ndarray
    finish: np.ndarray


class History(NamedTuple):
    """The events of a run; arrays [X].

    Attributes:
      kind: BEGIN (a worker reads, or goes on with what it has), PUSH (a unit arrives) or COMMIT.
      worker: int32, who; W for the server.
      number: int32, the version read, or the commit that the unit is in, or that is made.
      unit: int32, the unit; the commit that is made.
      time: float seconds.
      num_workers: W.
      floor: int32[E + 1], how many units of everybody each version contains.
      commits: bool, whether it makes a commit.
      late: bool, of a PUSH: whether the commit it is in was made before it had arrived; of a BEGIN: whether the version
        read had not been made.
      length: int32[E], the most units of a worker in each commit.
      taken: int32[E + 1], how many units are in earlier commits, for each commit.
      taker: int32[units in commits], their workers, by commit.
    """

    kind: np.ndarray
    worker: np.ndarray
    number: np.ndarray
    unit: np.ndarray
    time: np.ndarray
    num_workers: int
    floor: np.ndarray
    commits: np.ndarray
    late: np.ndarray
    length: np.ndarray
    taken: np.ndarray
    taker: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """Of the kinds."""
        return "begin", "push", "commit"


class _Units(NamedTuple):
    """The units that are in a commit, one entry each."""

    commit: np.ndarray
    worker: np.ndarray
    unit: np.ndarray
    version: np.ndarray
    arrival: np.ndarray
    first: np.ndarray  # of the message that carries it, among the units in commits


def history(schedule: Schedule) -> History:
    """The history of a run.

    Args:
      schedule: of one run, not of a batch.

    Raises:
      ValueError: if it is of a batch.
    """
    host = on_host(schedule)
    units, num_workers = _units(host), host.start.shape[1]
    made = np.flatnonzero(np.isfinite(host.time)).astype(np.int32)
    times = np.concatenate([units.arrival, host.time[made]])
    commit = np.concatenate([units.commit, made])
    kind = np.repeat([PUSH, COMMIT], [units.commit.size, made.size])
    worker = np.concatenate([units.worker, np.full(made.size, num_workers)])
    unit = np.concatenate([units.unit, made])
    order = np.lexsort((unit, worker, kind, commit, times))
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    at, begins = _begins(host, units, times[order], place, units.commit.size)
    keys = np.concatenate([np.arange(order.size), at - 0.5])
    both = np.argsort(keys, kind="stable")

    def mixed(of_events: np.ndarray, of_begins: np.ndarray) -> np.ndarray:
        return np.concatenate([of_events[order], of_begins])[both]

    number = mixed(commit, begins.version).astype(np.int32)
    none = np.zeros(at.size, bool)
    backwards = np.append(False, np.diff(host.time[made]) < 0)
    late = np.concatenate([units.arrival > host.time[units.commit], backwards])
    kinds = mixed(kind, np.full(at.size, BEGIN))
    early = (kinds == BEGIN) & (number > np.cumsum(kinds == COMMIT))
    return History(
        kinds,
        mixed(worker, begins.worker).astype(np.int32),
        number,
        mixed(unit, begins.unit).astype(np.int32),
        mixed(times, begins.arrival),
        num_workers,
        _floor(units, num_workers, made.size),
        mixed(kind == COMMIT, none),
        mixed(late, none) | early,
        _length(units, num_workers, made.size),
        np.append(0, np.cumsum(np.bincount(units.commit, minlength=made.size))),
        units.worker[np.argsort(units.commit, kind="stable")],
    )


def together(found: History) -> History:
    """With each commit as part of the push that completes it, for protocols in which the server takes no own steps."""
    pushes = np.flatnonzero(found.kind == PUSH)
    commits = np.zeros_like(found.commits)
    last = np.full(found.taken.size - 1, -1)
    np.maximum.at(last, found.number[pushes], pushes)
    commits[last[last >= 0]] = True
    kept = found.kind != COMMIT
    fields = ("kind", "worker", "number", "unit", "time", "late")
    return found._replace(commits=commits[kept], **{name: getattr(found, name)[kept] for name in fields})


def on_host(schedule: Schedule) -> Host:
    """What is needed of a schedule, on the host.

    Raises:
      ValueError: if it is of a batch, or is no schedule at all.
    """
    if np.ndim(schedule.time) != 1:
        raise ValueError(
            f"a history is of one run; this schedule is of a batch, its times have shape {np.shape(schedule.time)}. "
            "Take one of it with jax.tree.map(lambda x: x[i], schedule)."
        )
    host = Host(*(np.asarray(getattr(schedule, name)) for name in Host._fields))
    used = (host.worker >= 0) & np.isfinite(host.time)[:, None]
    num_units, num_workers = host.start.shape
    right = {
        "times must be numbers": not np.isnan(host.time).any(),
        f"workers must be below {num_workers}": (host.worker < num_workers).all(),
        f"units must be among the {num_units} sampled ones": (
            ~used | ((host.unit >= 0) & (host.unit < num_units))
        ).all(),
    }
    for rule, holds in right.items():
        if not holds:
            raise ValueError(f"{rule} in a schedule; in this one they do otherwise. Correct the protocol's schedule.")
    return host


def slots(counts: np.ndarray) -> np.ndarray:
    """0, ..., n - 1 for each count n, one after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _units(schedule: Host) -> _Units:
    """All units in commits, by worker and unit."""
    used = (schedule.worker >= 0) & (schedule.work > 0) & np.isfinite(schedule.time)[:, None]
    commit = np.broadcast_to(np.arange(schedule.time.size, dtype=np.int32)[:, None], used.shape)[used]
    worker, first, version, count = (x[used] for x in (schedule.worker, schedule.unit, schedule.version, schedule.work))
    rows = np.repeat(np.arange(commit.size), count)
    offset = slots(count)
    commit, worker, version, unit = commit[rows], worker[rows], version[rows], first[rows] + offset
    if unit.size and unit.max() >= schedule.start.shape[0]:
        raise ValueError(
            f"contributions must consist of the {schedule.start.shape[0]} sampled units; one has unit {unit.max()}. "
            "Correct the protocol's schedule."
        )
    # A message carries its unit and those before it that were not sent by themselves. What no message of the commit
    # carries is known without one, as the progress of a coded round is.
    sent = np.isfinite(schedule.send_start)
    num_units = sent.shape[0]
    places = np.where(sent, np.arange(num_units)[:, None], num_units)
    carried = np.minimum.accumulate(places[::-1], axis=0)[::-1]
    last = carried[unit, worker]
    owner = np.full((num_units + 1, sent.shape[1]), -1, np.int32)
    owner[unit, worker] = commit
    known = owner[last, worker] != commit
    arrival = schedule.finish[np.where(known, unit, last), worker]
    arrival = np.where(
        arrival <= schedule.time[commit] * (1 + ROUNDING), np.minimum(arrival, schedule.time[commit]), arrival
    )
    last = np.where(known, num_units + commit, last)
    order = np.lexsort((unit, worker))
    commit, worker, unit, version, arrival, last = (x[order] for x in (commit, worker, unit, version, arrival, last))
    new = np.append(True, (worker[1:] != worker[:-1]) | (last[1:] != last[:-1])) if unit.size else np.zeros(0, bool)
    return _Units(commit, worker, unit, version, arrival, np.maximum.accumulate(np.where(new, np.arange(unit.size), 0)))


def _begins(
    schedule: Host, units: _Units, times: np.ndarray, place: np.ndarray, num_pushes: int
) -> tuple[np.ndarray, _Units]:
    """Before which event each message begins, and what is known of its reading.

    What arrives at the moment of reading has arrived before it, except the worker's own push, and the commit after the
    version read.
    """
    new = units.first == np.arange(units.first.size)
    first = np.flatnonzero(new)
    last = np.append(first[1:], new.size) - 1 if first.size else first
    worker, unit, version = units.worker[first], units.unit[first], units.version[last]
    start = schedule.start[unit, worker]
    same = np.append(False, worker[1:] == worker[:-1]) if first.size else np.zeros(0, bool)
    before = np.where(same, np.append(0.0, units.arrival[first][:-1])[: first.size], 0.0)
    overlaps = start < before  # computing went on while the last push was under way
    begin = np.maximum(start, before)
    at = np.searchsorted(times, begin, side="right")
    newer = np.append(schedule.time, np.inf)[version.clip(0)]  # when the version was replaced
    replaced = np.append(place[num_pushes:], times.size)[version.clip(0, place.size - num_pushes)]
    at = np.where(overlaps | (newer == begin), np.minimum(at, replaced), at)
    at = np.minimum(at, place[first])
    return at, units._replace(
        commit=units.commit[first], worker=worker, unit=unit, version=version, arrival=begin, first=first
    )


def _floor(units: _Units, num_workers: int, num_commits: int) -> np.ndarray:
    """int32[E + 1]: the clock of the slowest in each version."""
    starts = np.searchsorted(units.worker, np.arange(num_workers))
    counts = np.diff(np.append(starts, units.worker.size))
    least = int(counts.min(initial=0)) if num_workers else 0
    if not least:
        return np.zeros(num_commits + 1, np.int32)
    table = units.commit[starts[None] + np.arange(least)[:, None]]  # [least, W], the commit of everybody's n-th unit
    by_all = np.maximum.accumulate(table.max(axis=1))
    return np.searchsorted(by_all, np.arange(num_commits + 1), side="left").astype(np.int32)


def _length(units: _Units, num_workers: int, num_commits: int) -> np.ndarray:
    """int32[E], the most units of a worker in each commit."""
    new = np.flatnonzero(np.diff(units.commit, prepend=-1) | np.diff(units.worker, prepend=-1))
    counts = np.diff(np.append(new, units.commit.size))
    length = np.zeros(max(num_commits, 1), np.int32)
    np.maximum.at(length, units.commit[new], counts)
    return length


def blocks(found: History, initial: Fields) -> Iterator[tuple[slice, Fields]]:
    """The states after the events, a block of events after the other.

    Args:
      found: the history.
      initial: the fields asked for, before the first event; arrays [1] or [1, W].
    """
    return in_blocks(found.kind.size, found.num_workers, initial, lambda part, last: _after(found, part, last))


def in_blocks(
    number: int, num_workers: int, initial: Fields, after: Callable[[slice, Fields], Fields]
) -> Iterator[tuple[slice, Fields]]:
    """So many events, in blocks that are not too large.

    Args:
      number: of the events.
      num_workers: W.
      initial: the fields before the first event; arrays [1] or [1, W].
      after: `(part, last) -> fields` after each event of a part, if the last ones before it are these.
    """
    size, last = max(BLOCK // num_workers, 1), initial
    for begin in range(0, number, size):
        part = slice(begin, min(begin + size, number))
        found = after(part, last)
        yield part, found
        last = {name: x[-1:] for name, x in found.items()}


def _after(found: History, part: slice, last: Fields) -> Fields:
    """The fields after each event of a part, if the last ones before it are these."""
    kind, worker, number, commits = (x[part] for x in (found.kind, found.worker, found.number, found.commits))
    rows, pushes, begins = np.arange(kind.size), kind == PUSH, kind == BEGIN
    after = {name: np.broadcast_to(x, (kind.size, *x.shape[1:])) for name, x in last.items()}

    def latest(of: np.ndarray) -> np.ndarray:
        wrote = np.full((kind.size, found.num_workers), -1, np.int32)
        wrote[rows[of], worker[of]] = rows[of]
        return np.maximum.accumulate(wrote, axis=0)

    for name in ("version", "start"):
        if name in last:
            after[name] = last[name] + np.cumsum(commits, dtype=np.int32)
    step = np.zeros((kind.size, found.num_workers), np.int32)
    step[rows[pushes], worker[pushes]] = 1
    if "clock" in last:
        after["clock"] = last["clock"] + np.cumsum(step, axis=0, dtype=np.int32)
    if "work" in last:
        step[rows[commits]] -= _takes(found, number[commits])
        after["work"] = last["work"] + np.cumsum(step, axis=0, dtype=np.int32)
    for name, values in (("read", number), ("seen", found.floor[number.clip(0, found.floor.size - 1)])):
        if name in last:
            at = latest(begins)
            after[name] = np.where(at >= 0, values[at.clip(0)], last[name])
    if "busy" in last:
        at = latest(begins | pushes)
        after["busy"] = np.where(at >= 0, begins[at.clip(0)], last["busy"]).astype(np.int32)
    if "length" in last:
        after["length"] = found.length[after["version"].clip(max=found.length.size - 1)]
    return after


def _takes(found: History, commits: np.ndarray) -> np.ndarray:
    """int32[n, W]: how many units of each worker are in each of these commits."""
    counts = found.taken[commits + 1] - found.taken[commits]
    rows = np.repeat(np.arange(commits.size), counts)
    offset = slots(counts)
    takes = np.zeros((commits.size, found.num_workers), np.int32)
    np.add.at(takes, (rows, found.taker[found.taken[commits][rows] + offset]), 1)
    return takes
