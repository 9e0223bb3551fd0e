"""The history of groups that push on their own: units of the members, and pushes and reads of the groups' servers.

The states are those of `gcjax.algebra.specifications.groups`: what belongs to a group has its entry at its lowest
worker, and so has its server. A worker on its own is a group of one.

Letters: W workers, E commits, C contributions to a commit, X events, B events of a block.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from gcjax.protocols.history import ROUNDING, Fields, Host, in_blocks, on_host, slots
from gcjax.protocols.schedule import Schedule

UNIT, PUSH, READ = range(3)


class GroupHistory(NamedTuple):
    """The events of a run; arrays [X].

    Attributes:
      kind: UNIT of a worker, PUSH or READ of a group's server.
      worker: int32, the component: the worker, or W + the lowest worker of the group.
      unit: int32, the unit; the commit of a PUSH, and of a READ the one that the group pushed before (with an exchange:
        pushes next; -1 if there is none).
      time: float seconds.
      late: bool, of a PUSH: whether something in it had not arrived.
      num_workers: W.
      exchanges: whether groups read just before they push.
      member: bool[E, W], whose units are in a commit.
      label: int32[E], the lowest of them.
      version: int32[E, W], which version each worker reads in the READ of this commit.
      group: int32[E, W], and to which group it belongs from then on.
      level: int32[X], how often groups have been halved.
    """

    kind: np.ndarray
    worker: np.ndarray
    unit: np.ndarray
    time: np.ndarray
    late: np.ndarray
    num_workers: int
    exchanges: bool
    member: np.ndarray
    label: np.ndarray
    version: np.ndarray
    group: np.ndarray
    level: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """Of the kinds."""
        return "unit", "push", "read"


class _Work(NamedTuple):
    """Who did what for each commit; arrays [E, W]."""

    member: np.ndarray
    unit: np.ndarray
    steps: np.ndarray
    version: np.ndarray


def group_history(schedule: Schedule, levels: np.ndarray, *, exchanges: bool) -> GroupHistory:
    """The history of a run.

    Args:
      schedule: of one run.
      levels: int[levels, W], the group of each worker when groups have been halved so often.
      exchanges: whether groups read just before they push, not after.
    """
    host = on_host(schedule)
    done, num_workers = _work(host), host.start.shape[1]
    number = len(done.member)
    time, label = host.time[:number], np.argmax(done.member, axis=1).astype(np.int32)
    follows = _following(done.member)
    if exchanges:
        version, group = done.version, np.broadcast_to(np.arange(num_workers, dtype=np.int32), done.version.shape)
        reads = np.arange(number)
        last = (done.unit + done.steps - 1).max(axis=1, initial=0)
        asked = host.send_start[last, label]
    else:
        version, group = _next(done, follows, label)
        reads = np.flatnonzero((done.member & (follows < number)).any(axis=1))
        first = np.where(done.member & (follows < number), follows, number - 1)[reads]
        begins = host.start[done.unit[first, np.arange(num_workers)], np.arange(num_workers)]
        asked = np.min(np.where(done.member[reads] & (follows[reads] < number), begins, np.inf), axis=1)
    commit, worker = np.nonzero(done.member)
    counts = done.steps[commit, worker]
    units = np.repeat(done.unit[commit, worker], counts) + slots(counts)
    finish = host.finish[(done.unit + done.steps - 1).clip(0), np.arange(num_workers)]
    late = (np.where(done.member, finish, 0) > time[:, None] * (1 + ROUNDING)).any(axis=1)
    at = _read_places(time, version[reads], done.member[reads], asked)
    at = np.minimum(at, reads if exchanges else np.where(done.member, follows, number).min(axis=1)[reads])
    by_commit = np.repeat(commit, counts)
    if exchanges:  # a worker on its own reads when its units are done
        place = at[by_commit]
    else:
        place = by_commit
    # In one place: reads of those that have pushed, units, reads before a push, the push itself.
    keys = (
        np.concatenate([place, np.arange(number), at]),
        np.repeat([1, 3, 2 if exchanges else 0], [units.size, number, reads.size]),
    )
    owner = np.repeat(worker, counts)
    rank = np.concatenate([units - done.unit[by_commit, owner], np.zeros(number + reads.size, int)])
    of = np.concatenate([by_commit, np.arange(number), reads])
    order = np.lexsort((rank, of, keys[1], keys[0]))
    kind = np.repeat(np.asarray([UNIT, PUSH, READ]), [units.size, number, reads.size])[order]
    who = np.concatenate([owner, num_workers + label, num_workers + label[reads]])[order].astype(np.int32)
    what = np.concatenate([units, np.arange(number), reads])[order].astype(np.int32)
    when = np.concatenate([np.minimum(finish[by_commit, owner], time[by_commit]), time, asked])[order]
    lates = np.concatenate([np.zeros(units.size, bool), late, np.zeros(reads.size, bool)])[order]
    level = _levels(kind, what, done.member, group, levels)
    columns = kind, who, what, when, lates, num_workers, exchanges, done.member, label, version, group, level
    found = GroupHistory(*columns)
    return found if exchanges else _with_first_read(found, done, levels[0])


def _with_first_read(found: GroupHistory, done: _Work, group: np.ndarray) -> GroupHistory:
    """All begin with version 0: that somebody's first units are on another one is a READ out of turn, at the begin."""
    first = np.cumsum(done.member, axis=0) * done.member == 1
    wrong = (first & (done.version != 0)).any(axis=0)
    if not wrong.any():
        return found
    leader, version = np.argmax(wrong), np.where(first, done.version, 0).sum(axis=0)
    who = found.num_workers + leader
    event: dict[str, Any] = {"kind": READ, "worker": who, "unit": -1, "time": 0, "late": False, "level": 0}
    row: dict[str, Any] = {"member": wrong, "label": leader, "version": version, "group": group}  # of commit -1

    def joined(name: str) -> Any:
        old = getattr(found, name)
        parts = ([event[name]], old) if name in event else (old, np.asarray(row[name])[None])
        return np.concatenate(parts).astype(old.dtype)

    return found._replace(**{name: joined(name) for name in (*event, *row)})


def _work(host: Host) -> _Work:
    """The units of each worker in each commit."""
    number, num_workers = int(np.isfinite(host.time).sum()), host.start.shape[1]
    worker, work = host.worker[:number], host.work[:number]
    row, column = np.nonzero((worker >= 0) & (work > 0))
    place = row, worker[row, column]

    def spread(values: np.ndarray) -> np.ndarray:
        found = np.zeros((number, num_workers), np.int32)
        found[place] = values[row, column]
        return found

    member = np.zeros((number, num_workers), bool)
    member[place] = True
    return _Work(member, spread(host.unit[:number]), spread(work), spread(host.version[:number]))


def _following(member: np.ndarray) -> np.ndarray:
    """int[E, W]: the next commit that each worker is in; E if there is none."""
    number = len(member)
    places = np.where(member, np.arange(number)[:, None], number)
    latest = np.minimum.accumulate(places[::-1], axis=0)[::-1]
    return np.concatenate([latest[1:], np.full((1, member.shape[1]), number)]) if number else latest


def _next(done: _Work, follows: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int32[E, W] each: the version read after a push, and the group from then on.

    Of members that are in no later commit, nothing is known but that they are not in the groups of the others.
    """
    number, everybody = len(label), np.arange(done.member.shape[1])
    known = done.member & (follows < number)
    following = follows.clip(max=max(number - 1, 0))
    version = np.where(known, done.version[following, everybody], -1)
    version = np.where(known, version, version.max(axis=1, initial=-1, keepdims=True))
    group = np.where(known, label[following], -1)
    rest = done.member & ~known
    group = np.where(rest, np.argmax(rest, axis=1)[:, None], group)
    return version.astype(np.int32), group.astype(np.int32)


def _read_places(time: np.ndarray, version: np.ndarray, member: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """int[reads]: how many pushes come before each read.

    Those up to its moment do; of those at its moment, as many as the version says.
    """
    at = np.searchsorted(time, asked, side="right")
    newest = np.max(np.where(member, version, 0), axis=1, initial=0)
    replaced = np.append(time, np.inf)[newest.clip(0, time.size)]
    return np.where(replaced == asked, np.minimum(at, newest), at)


def _levels(
    kind: np.ndarray, what: np.ndarray, member: np.ndarray, group: np.ndarray, levels: np.ndarray
) -> np.ndarray:
    """int32[X]: the least level, never falling, that gives the groups that were read into; it rises with a push."""
    if len(levels) == 1 or not kind.size:
        return np.zeros(kind.size, np.int32)
    same = ((group[:, None] == levels[None]) | ~member[:, None]).all(axis=2)  # [E, levels]
    least = np.where(kind == READ, np.argmax(same, axis=1)[what * (kind == READ)], 0)
    segment = np.cumsum(kind == PUSH)
    most = np.zeros(segment[-1] + 1, np.int32)
    np.maximum.at(most, segment, least)
    return np.maximum.accumulate(most)[segment].astype(np.int32)


def group_blocks(found: GroupHistory, initial: Fields) -> Iterator[tuple[slice, Fields]]:
    """The states after the events, a block of events after the other.

    Args:
      found: the history.
      initial: all fields before the first event; arrays [1] or [1, W].
    """
    return in_blocks(found.kind.size, found.num_workers, initial, lambda part, last: _after(found, part, last))


def _after(found: GroupHistory, part: slice, last: Fields) -> Fields:
    kind, worker, what = found.kind[part], found.worker[part], found.unit[part]
    shape, rows = (kind.size, found.num_workers), np.arange(kind.size)
    units, pushes, reads = (kind == k for k in (UNIT, PUSH, READ))
    done, pushed = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    done[rows[units], worker[units]] = 1
    pushed[rows[pushes], worker[pushes] - found.num_workers] = 1
    mine = np.zeros(shape, bool)
    mine[reads] = found.member[what[reads]]
    commit = np.where(reads, what, 0)
    latest_read = _latest(mine)
    own = np.cumsum(pushed, axis=0, dtype=np.int32)
    every = np.cumsum(pushes, dtype=np.int32)
    group = _written(latest_read, found.group[commit], last["group"])
    since = (every[:, None] - own) - _at(latest_read, every[:, None] - own)
    others = np.where(latest_read < 0, last["others"], 0) + since
    leads = group == np.arange(found.num_workers)
    if found.exchanges:
        reset, stages = _latest(pushed > 0), mine
    else:
        reset, stages = latest_read, pushed > 0
    both = _latest(mine | (pushed > 0))
    counted = np.cumsum(done, axis=0, dtype=np.int32)
    return {
        "version": last["version"] + every,
        "group": group,
        "work": np.where(reset < 0, last["work"], 0) + counted - _at(reset, counted),
        "read": _written(latest_read, found.version[commit], last["read"]),
        "others": np.where(leads, others, last["others"] * 0),
        "stage": _written(both, stages.astype(np.int32), last["stage"]),
        "level": found.level[part],
    }


def _latest(where: np.ndarray) -> np.ndarray:
    """int[B, W]: the last row up to each at which something is written; -1 if none."""
    return np.maximum.accumulate(np.where(where, np.arange(len(where))[:, None], -1), axis=0)


def _at(row: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values of these rows; 0 where there is none."""
    return np.where(row >= 0, np.take_along_axis(values, row.clip(0), axis=0), 0)


def _written(row: np.ndarray, values: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The values that were written last; those from before where none was."""
    return np.where(row >= 0, np.take_along_axis(values, row.clip(0), axis=0), before)
