"""What must hold of every schedule, whatever the protocol; checked whenever a protocol is used outside of `jit`.

These are rules about one schedule alone, cheap enough to be checked always. What a protocol promises beyond them is
said by its specification (`gcjax.protocols.check`), and `gcjax.testing.check_protocol` tries many durations.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit, B commits of a block.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate

if TYPE_CHECKING:
    from gcjax.protocols.base import Protocol
    from gcjax.protocols.schedule import Schedule

INDICES = ("worker", "unit", "work")
TIMES = ("start", "compute_start", "compute_end", "send_start", "finish")
ROUNDING = 1e-5  # by which sums of the same times, or of weights, may differ
SHORT = 32  # units of a contribution up to which they are marked place by place
BLOCK = 1 << 15  # contributions that are looked at at once: they stay in the cache


def check_shapes(schedule: "Schedule", shape: tuple[int, ...]) -> None:
    """Raises an error if the arrays of a schedule have not the shapes and types that they must have; also under `jit`.

    Args:
      schedule: what a protocol has made of durations.
      shape: of these durations, [T, W].
    """
    rows = np.shape(schedule.worker)
    if len(rows) != 2:
        _wrong("worker", schedule.worker, "int32[E, C], one row a commit")
    number = f"E={rows[0]}, C={rows[1]} as in worker"
    for name in INDICES:
        if np.shape(getattr(schedule, name)) != rows or not _is(schedule, name, jnp.integer):
            _wrong(name, getattr(schedule, name), f"int32[E, C] with {number}")
    if np.shape(schedule.weight) != rows or not _is(schedule, "weight", jnp.floating):
        _wrong("weight", schedule.weight, f"float[E, C] with {number}")
    if np.shape(schedule.time) != rows[:1] or not _is(schedule, "time", jnp.floating):
        _wrong("time", schedule.time, f"float[E] with {number}")
    for name in TIMES:
        if np.shape(getattr(schedule, name)) != shape or not _is(schedule, name, jnp.floating):
            _wrong(name, getattr(schedule, name), f"float[T, W] with T={shape[0]}, W={shape[1]} as in the durations")
    if np.shape(schedule.read) != shape or not _is(schedule, "read", jnp.integer):
        _wrong("read", schedule.read, f"int32[T, W] with T={shape[0]}, W={shape[1]} as in the durations")
    if np.shape(schedule.horizon) != () or not _is(schedule, "horizon", jnp.floating):
        _wrong("horizon", schedule.horizon, "float[]")


def _is(schedule: "Schedule", name: str, kind: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(getattr(schedule, name)), kind)


def _wrong(name: str, value: Any, wanted: str) -> NoReturn:
    got = f"{jnp.result_type(value)}{list(np.shape(value))}"
    raise ValueError(f"{name} of a schedule must be {wanted}; got {got}. Correct the protocol's schedule.")


def check_resolution(schedule: "Schedule", durations: Any) -> None:
    """Raises an error if the last commit is so late that a typical unit added to its time would leave it as it is.

    Commits of several units would then happen at one moment, in an order that is not that of the durations. A number of
    32 bits has 24 digits in base 2: with units of 1 s this is so from 2^24 s on, 1.7e7 s.

    Args:
      schedule: that a protocol has made.
      durations: float[T, W] seconds; their median is the typical unit. What is being traced passes.
    """
    if any(_validate.is_traced(x) for x in (schedule.time, durations)):
        return
    seconds, time = np.asarray(durations), np.asarray(schedule.time)
    last, real = time.max(initial=0, where=np.isfinite(time)), (seconds > 0) & np.isfinite(seconds)
    step = np.spacing(last)
    if step / 2 < seconds.min(initial=np.inf, where=real) or step / 2 < np.median(seconds[real]):
        return
    wider = "Set jax_enable_x64 and pass durations of float64, or sample" if time.dtype != np.float64 else "Sample"
    raise ValueError(
        f"commits must be in order of time; {time.dtype} cannot tell times near {last:g} s apart that differ by less "
        f"than {step:g} s, and half of the units take {np.median(seconds[real]):g} s or less. {wider} fewer units."
    )


def check_structure(schedule: "Schedule", protocol: "Protocol | None" = None) -> None:
    """Raises an error if a schedule, or one of a batch, breaks a rule that all keep; passes what is being traced.

    Commits are in order of time; they use units that there are, each once, when they have arrived, on versions that
    were there; weights add up to a mean at most; the times of a unit follow each other.

    Args:
      schedule: of one run, or of a batch.
      protocol: that it is of. Without it, what depends on the protocol is left out: whether a unit is in two
        commits, the bound of the weights, and that there is work in every contribution.

    Raises:
      ValueError: that says the rule, the value, and where it is.
    """
    if any(_validate.is_traced(x) for x in schedule):
        return
    host: Any = jax.tree.map(np.asarray, schedule)
    if host.time.ndim == 1:
        return _check_one(host, protocol)
    for index in np.ndindex(host.time.shape[:-1]):
        _check_one(host._make(x[index] for x in host), protocol)


def _check_one(schedule: "Schedule", protocol: "Protocol | None") -> None:
    number = _check_commits(schedule)
    _check_units(schedule)
    used = _Used(schedule)
    plain = protocol is not None and protocol.code is None
    for block in _blocks(schedule, number):
        _check_indices(block, schedule, protocol)
        _check_weights(block, protocol)
        if plain:
            last = _index(block.unit + (block.work - 1), block.worker, schedule)
            _check_arrivals(block, schedule, last)
            used.add(block, last)
    if plain:
        used.check(number)
    else:
        _check_done(schedule, number)


def _check_commits(schedule: "Schedule") -> int:
    """The number of commits that happen."""
    time, horizon = schedule.time, float(schedule.horizon)
    if not (time >= 0).all():
        e = int(np.argmin(time >= 0))
        _broken("the time of a commit must be at least 0 seconds, and inf if there is none", f"{time[e]:g}", e)
    if not (time[1:] >= time[:-1]).all():
        e = 1 + int(np.argmin(time[1:] >= time[:-1]))
        _broken("commits must be in order of time", f"{time[e]:g} s, and the one before {time[e - 1]:g} s", e)
    number = int(np.searchsorted(time, time.dtype.type(np.inf)))
    if number and not _before(time[number - 1], schedule.horizon):
        value = f"{time[number - 1]:g} s, and the horizon is {horizon:g} s"
        _broken("commits must not happen after the horizon, when units run out", value, number - 1)
    rest = schedule.worker[number:]
    if rest.size and rest.max() >= 0:
        e, c = np.argwhere(rest >= 0)[0]
        _broken("a commit that does not happen has no contributions (-1)", f"worker {rest[e, c]}", number + e, c)
    return number


def _check_units(schedule: "Schedule") -> None:
    """The times of every unit follow each other; inf, from where something does not happen."""
    start = schedule.start
    if not (start >= 0).all():
        n, w = np.argwhere(~(start >= 0))[0]
        _broken_unit("start must be at least 0 seconds, and inf if the unit never begins", f"{start[n, w]:g}", n, w)
    for before, after in pairwise(("start", "compute_start", "compute_end", "finish")):
        _check_order(schedule, before, after)
    if schedule.send_start is not schedule.compute_end:
        _check_order(schedule, "compute_end", "send_start")
        _check_order(schedule, "send_start", "finish")


def _check_order(schedule: "Schedule", before: str, after: str) -> None:
    early, late = getattr(schedule, before), getattr(schedule, after)
    fits = early <= late
    if not fits.all() and before in ("compute_start", "send_start"):
        fits |= early == early.dtype.type(np.inf)  # cut off before it computes, or ended without a message of its own
    if not fits.all():
        fits |= _before(early, late)
    if not fits.all():
        n, w = np.argwhere(~fits)[0]
        value = f"{before} {early[n, w]:g} s and {after} {late[n, w]:g} s"
        _broken_unit(f"{before} must not come after {after}", value, n, w)


class _Block(NamedTuple):
    """Some of the commits, from `first` on; arrays [B, C], or of those that have a contribution if `filled` says so."""

    first: int
    filled: np.ndarray | None
    row: np.ndarray
    worker: np.ndarray
    unit: np.ndarray
    version: np.ndarray
    work: np.ndarray
    weight: np.ndarray
    time: np.ndarray


def _blocks(schedule: "Schedule", number: int) -> Iterator[_Block]:
    """The commits that happen."""
    columns = max(schedule.worker.shape[1], 1)
    size = max(BLOCK // columns, 1)
    rows = np.arange(size, dtype=np.int32)[:, None]
    fields = tuple(getattr(schedule, name) for name in ("worker", "unit", "version", "work", "weight"))
    for first in range(0, number, size):
        part = slice(first, min(first + size, number))
        worker, *others = (x[part] for x in fields)
        row, time = rows[: part.stop - first], np.asarray(schedule.time)[part, None]
        filled = None
        if worker.min(initial=0) < 0:
            filled = worker != -1
            row, time = (np.broadcast_to(x, worker.shape)[filled] for x in (row, time))
            worker, *others = (x[filled] for x in (worker, *others))
        unit, version, work, weight = others
        yield _Block(first, filled, row, worker, unit, version, work, weight, time)


def _check_indices(block: _Block, schedule: "Schedule", protocol: "Protocol | None") -> None:
    num_units, num_workers = schedule.start.shape
    code = None if protocol is None else protocol.code
    least = 0 if protocol is None or code is not None else 1
    _within(block, "worker", num_workers - 1, "workers must be 0, ..., {most}, and -1 where there is no contribution")
    _within(block, "unit", num_units - 1, "units must be among the sampled ones, 0, ..., {most}")
    if (block.version - block.row).max(initial=0) > block.first or block.version.min(initial=0) < 0:
        _first(
            block, (block.version > block.first + block.row) | (block.version < 0), "version",
            "a contribution cannot read a version that is made later; commit e can read the versions 0 to e",
        )  # fmt: skip
    if block.work.min(initial=least) < least:
        _first(block, block.work < least, "work", f"there must be {least} units of work or more in a contribution")
    if code is not None:
        if schedule.worker.shape[1] != code.assignment.num_workers:
            raise ValueError(
                f"a commit of a code has one contribution for each of its {code.assignment.num_workers} workers; this "
                f"schedule has room for {schedule.worker.shape[1]}. Correct the protocol's schedule."
            )
        loads = np.broadcast_to(code.assignment.loads, (block.filled or block.work).shape)
        loads = loads if block.filled is None else loads[block.filled]
        if not (block.work <= loads).all():
            _first(block, block.work > loads, "work", "no worker can finish more chunks than the code gives it")
    elif protocol is not None and not (block.unit + block.work <= num_units).all():
        rule = f"the last unit of a contribution must be among the {num_units} sampled ones"
        _first(block, block.unit + block.work > num_units, "unit", rule)


def _check_weights(block: _Block, protocol: "Protocol | None") -> None:
    weight = block.weight
    if not (weight.min(initial=0) >= 0 and weight.max(initial=0) < np.inf):
        _first(block, ~((weight >= 0) & (weight < np.inf)), "weight", "weights must be finite and at least 0")
    if protocol is None or protocol.max_weight is None:
        return
    if protocol.code is not None:
        number = protocol.code.assignment.num_chunks
        if weight.max(initial=0) * number > protocol.max_weight * (1 + ROUNDING):
            bad = weight * number > protocol.max_weight * (1 + ROUNDING)
            rule = (
                f"a code decodes the sum over {number} chunks, so a weight must be at most {protocol.max_weight:g} / "
                f"{number} (for another one, say Protocol(..., max_weight=...))"
            )
            _first(block, bad, "weight", rule)
        return
    bound = protocol.max_weight * (1 if protocol.local is None else protocol.local.passes)
    if block.filled is None:
        total = weight[:, 0] if weight.shape[1] == 1 else weight.sum(axis=1)
    else:
        total = np.bincount(block.row, weight)
    if total.size and total.max() > bound * (1 + ROUNDING):
        e = int(np.argmax(total > bound * (1 + ROUNDING)))
        rule = (
            f"the weights of a commit must add up to {bound:g} at most, since it applies a weighted mean (for more, "
            "say Protocol(..., max_weight=...))"
        )
        _broken(rule, f"{total[e]:g}", block.first + e)


def _check_arrivals(block: _Block, schedule: "Schedule", last: np.ndarray) -> None:
    """What a commit uses has arrived; `last` are the places of the last units."""
    num_workers = schedule.start.shape[1]
    arrival = np.take(schedule.finish.reshape(-1), last, mode="clip")  # which looks at no bounds
    if (arrival <= block.time).all():
        return
    bad = ~_before(arrival, block.time)
    if bad.any():
        i = np.flatnonzero(bad.ravel())[0]
        time = np.broadcast_to(block.time, bad.shape).ravel()[i]
        value = f"{time:g} s, and unit {last.ravel()[i] // num_workers} of worker {block.worker.ravel()[i]} has arrived"
        e, c = _place(block, i)
        _broken("a commit must not come before what it uses", f"{value} at {arrival.ravel()[i]:g} s", e, c)


class _Used:
    """Which units are in commits, each in one at most; what is known of the indices already holds."""

    def __init__(self, schedule: "Schedule"):
        self.schedule = schedule
        self.marked: np.ndarray | None = None
        self.count = 0

    def add(self, block: _Block, last: np.ndarray) -> None:
        """Marks the units of the contributions of a block, whose last ones have these places."""
        if self.marked is None:
            self.marked = np.zeros(self.schedule.start.size, bool)
        self.marked[last] = True
        for offset in range(1, min(int(block.work.max(initial=1)), SHORT)):
            longer = last if block.work.min() > offset else last[block.work > offset]
            self.marked[longer - offset * self.schedule.start.shape[1]] = True
        if block.work.max(initial=1) > SHORT:
            owner, offsets = _owners(block.work.ravel())
            self.marked[last.ravel()[owner] - offsets * self.schedule.start.shape[1]] = True
        self.count += int(block.work.sum(dtype=np.int64))

    def check(self, number: int) -> None:
        """Raises an error if a unit was marked twice."""
        if self.marked is not None and np.count_nonzero(self.marked) != self.count:
            _used_again(self.schedule, number)


def _owners(work: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For all units of contributions: the contribution, and how many units come behind it there."""
    owner = np.repeat(np.arange(work.size), work)
    return owner, np.arange(owner.size) - np.repeat(np.cumsum(work) - work, work)


def _used_again(schedule: "Schedule", number: int) -> NoReturn:
    """Says which unit is used again, and where."""
    worker, unit, work = (getattr(schedule, name)[:number].reshape(-1) for name in ("worker", "unit", "work"))
    rows = np.flatnonzero(worker != -1)
    owner, offset = _owners(work[rows])
    worker, unit = worker[rows][owner], unit[rows][owner] + offset
    index = _index(unit, worker, schedule)
    order = np.argsort(index, kind="stable")
    again = order[1:][index[order[1:]] == index[order[:-1]]].min()
    e, c = divmod(int(rows[owner[again]]), schedule.worker.shape[1])
    _broken("a unit can be used once only", f"unit {unit[again]} of worker {worker[again]} again", e, c)


def _check_done(schedule: "Schedule", number: int) -> None:
    """Nobody is said to have done more, up to any commit, than the units that have ended by then."""
    worker, work = schedule.worker[:number].reshape(-1), schedule.work[:number].reshape(-1)
    rows = np.flatnonzero((worker >= 0) & (work > 0))
    rows = rows[np.argsort(worker[rows], kind="stable")]
    worker, work = worker[rows], work[rows]
    new = np.append(True, worker[1:] != worker[:-1])[: worker.size]
    total = np.cumsum(work, dtype=np.int64)
    total = total - np.maximum.accumulate(np.where(new, total - work, 0))
    num_units, columns = schedule.start.shape[0], schedule.worker.shape[1]
    finish = np.sort(schedule.finish, axis=0)
    ended = np.where(total <= num_units, finish[(total - 1).clip(0, num_units - 1), worker], np.inf)
    time = schedule.time[rows // columns]
    bad = ~_before(ended, time)
    if bad.any():
        i = np.flatnonzero(bad)[np.argmin(rows[bad])]
        have = int((schedule.finish[:, worker[i]] <= time[i]).sum())
        value = f"{total[i]} units of worker {worker[i]} at {time[i]:g} s, when {have} have ended"
        e, c = divmod(int(rows[i]), columns)
        _broken("commits must not use more units of a worker than have ended by then", value, e, c)


def _index(unit: np.ndarray, worker: np.ndarray, schedule: "Schedule") -> np.ndarray:
    """The place of units in an array [T, W] that is laid out flat."""
    small = schedule.start.size < 1 << 31
    return unit * (np.int32 if small else np.int64)(schedule.start.shape[1]) + worker


def _before(early: Any, late: Any) -> Any:
    """Whether times follow each other, up to rounding."""
    return (early <= late) | (early <= late * (1 + ROUNDING))


def _within(block: _Block, name: str, most: int, rule: str) -> None:
    values = getattr(block, name)
    if values.min(initial=0) < 0 or values.max(initial=0) > most:
        _first(block, (values < 0) | (values > most), name, rule.format(most=most))


def _place(block: _Block, index: int) -> tuple[int, int]:
    """The commit and the contribution of an entry of a block."""
    if block.filled is not None:
        index = int(np.flatnonzero(block.filled)[index])
    columns = (block.worker if block.filled is None else block.filled).shape[1]
    return block.first + index // columns, index % columns


def _first(block: _Block, bad: np.ndarray, name: str, rule: str) -> NoReturn:
    index = int(np.flatnonzero(bad)[0])
    _broken(rule, f"{name} {getattr(block, name).ravel()[index]:g}", *_place(block, index))


def _broken(rule: str, value: str, commit: int, contribution: int | None = None) -> NoReturn:
    where = f"commit {commit}" if contribution is None else f"commit {commit}, contribution {contribution}"
    raise ValueError(f"{rule}; {where} has {value}. Correct the protocol's schedule.")


def _broken_unit(rule: str, value: str, unit: int, worker: int) -> NoReturn:
    raise ValueError(f"{rule}; unit {unit} of worker {worker} has {value}. Correct the protocol's schedule.")
