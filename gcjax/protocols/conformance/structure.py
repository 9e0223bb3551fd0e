"""What must hold of every schedule, whatever the protocol; checked whenever a protocol is used outside of `jit`.

These are rules about one schedule alone, cheap enough to be checked always. What a protocol promises beyond them is
said by its specification (`gcjax.protocols.check`), and `gcjax.testing.check_protocol` tries many durations.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit.
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
TYPES = {"int32": jnp.integer, "float": jnp.floating}
ARRAYS = {
    **dict.fromkeys(INDICES, ("int32", "[E, C]")),
    "weight": ("float", "[E, C]"),
    "time": ("float", "[E]"),
    **dict.fromkeys(TIMES, ("float", "[T, W]")),
    "read": ("int32", "[T, W]"),
    "horizon": ("float", "[]"),
}
ROUNDING = 1e-5  # by which sums of the same times, or of weights, may differ
BLOCK_SIZE = 1 << 15  # contributions that are looked at together: they stay in the cache


def check_shapes(schedule: "Schedule", shape: tuple[int, ...]) -> None:
    """Raises an error if the arrays of a schedule have not the shapes and types that they must have; also under `jit`.

    Args:
      schedule: what a protocol has made of durations.
      shape: of these durations, [T, W].
    """
    rows = np.shape(schedule.worker)
    if len(rows) != 2:
        _wrong_array("worker", schedule.worker, "int32[E, C], one row a commit")
    commits, units = (
        f" with E={rows[0]}, C={rows[1]} as in worker",
        f" with T={shape[0]}, W={shape[1]} as in the durations",
    )
    shapes = {"[E, C]": (rows, commits), "[E]": (rows[:1], commits), "[T, W]": (shape, units), "[]": ((), "")}
    for name, (dtype, letters) in ARRAYS.items():
        value, (expected, sizes) = getattr(schedule, name), shapes[letters]
        if np.shape(value) != expected or not jnp.issubdtype(jnp.result_type(value), TYPES[dtype]):
            _wrong_array(name, value, dtype + letters + sizes)


def _wrong_array(name: str, value: Any, expected: str) -> NoReturn:
    """Raises the error that a field of a schedule has not the type and shape that is expected."""
    got = f"{jnp.result_type(value)}{list(np.shape(value))}"
    raise ValueError(f"{name} of a schedule must be {expected}; got {got}. Correct the protocol's schedule.")


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
    last_time, takes_time = time.max(initial=0, where=np.isfinite(time)), (seconds > 0) & np.isfinite(seconds)
    step = np.spacing(last_time)  # to the next number of this type; adding less than half of it changes nothing
    if step / 2 < seconds.min(initial=np.inf, where=takes_time) or step / 2 < np.median(seconds[takes_time]):
        return
    typical = np.median(seconds[takes_time])
    wider = "Set jax_enable_x64 and pass durations of float64, or sample" if time.dtype != np.float64 else "Sample"
    raise ValueError(
        f"commits must be in order of time; {time.dtype} cannot tell times near {last_time:g} s apart that differ by "
        f"less than {step:g} s, and half of the units take {typical:g} s or less. {wider} fewer units."
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
    for index in np.ndindex(host.time.shape[:-1]):
        _check_run(host._make(x[index] for x in host), protocol)


def _check_run(schedule: "Schedule", protocol: "Protocol | None") -> None:
    """Raises an error if the schedule of one run, in numpy arrays, breaks a rule of `check_structure`.

    Contributions are looked at block by block. Where the protocol is known to have no code, a contribution is a
    stretch of units: each must have arrived, and be used once. Otherwise units are only counted, worker by worker.
    """
    num_commits = _check_commits(schedule)
    _check_times_of_units(schedule)
    has_units = protocol is not None and protocol.code is None
    is_used, num_used = np.zeros(schedule.start.size if has_units else 0, bool), 0  # of all units [T, W], flat
    for block in _blocks(schedule, num_commits, BLOCK_SIZE):
        _check_indices(block, schedule, protocol)
        _check_weights(block, protocol, schedule.worker.shape[1], schedule.start.shape[1])
        if has_units:
            last_index = block.last_indices(schedule)
            _check_arrivals(block, schedule, last_index)
            index, _ = block.unit_indices(schedule, last_index)
            is_used[index] = True
            num_used += index.size
    if not has_units:
        _check_work_done(schedule, num_commits)
    elif np.count_nonzero(is_used) != num_used:  # more uses than units that are used
        _raise_used_twice(schedule, num_commits)


def _check_commits(schedule: "Schedule") -> int:
    """The number of commits that happen, that is whose time is finite.

    Raises an error unless times are in order, none is after the horizon, and only these commits have contributions.
    """
    time, horizon = schedule.time, float(schedule.horizon)
    if np.isnan(horizon):
        raise ValueError(
            "a schedule must have room for all its commits and their messages; this one has not (its horizon is NaN). "
            "Raise num_contributions or num_commits of event_schedule."
        )
    if not (time >= 0).all():
        e = int(np.argmin(time >= 0))
        _broken("the time of a commit must be at least 0 seconds, and inf if there is none", f"{time[e]:g}", e)
    if not (time[1:] >= time[:-1]).all():
        e = 1 + int(np.argmin(time[1:] >= time[:-1]))
        _broken("commits must be in order of time", f"{time[e]:g} s, and the one before {time[e - 1]:g} s", e)
    num_commits = int(np.isfinite(time).sum())
    if num_commits and not _is_up_to(time[num_commits - 1], schedule.horizon):
        value = f"{time[num_commits - 1]:g} s, and the horizon is {horizon:g} s"
        _broken("commits must not happen after the horizon, when units run out", value, num_commits - 1)
    unused = schedule.worker[num_commits:]
    if unused.size and unused.max() >= 0:
        e, c = np.argwhere(unused >= 0)[0]
        _broken("a commit that does not happen has no contributions (-1)", f"worker {unused[e, c]}", num_commits + e, c)
    return num_commits


def _check_times_of_units(schedule: "Schedule") -> None:
    """Raises an error unless the times of every unit follow each other; they are inf for what does not happen."""
    start = schedule.start
    if not (start >= 0).all():
        n, w = np.argwhere(~(start >= 0))[0]
        rule = "start must be at least 0 seconds, and inf if the unit never begins"
        _broken_unit(rule, f"{start[n, w]:g}", n, w)
    pairs = list(pairwise(("start", "compute_start", "compute_end", "finish")))
    if schedule.send_start is not schedule.compute_end:
        pairs += [("compute_end", "send_start"), ("send_start", "finish")]
    for first, second in pairs:
        early, late = getattr(schedule, first), getattr(schedule, second)
        holds = early <= late
        if not holds.all() and first in ("compute_start", "send_start"):
            holds |= np.isposinf(early)  # cut off before it computes, or ended without a message of its own
        if not holds.all() and not (holds := holds | _is_up_to(early, late)).all():
            n, w = np.argwhere(~holds)[0]
            value = f"{first} {early[n, w]:g} s and {second} {late[n, w]:g} s"
            _broken_unit(f"{first} must not come after {second}", value, n, w)


class _Block(NamedTuple):
    """The contributions to some of the commits, in a row; arrays [contributions]. `time` is that of the commit."""

    worker: np.ndarray
    unit: np.ndarray
    version: np.ndarray
    work: np.ndarray
    weight: np.ndarray
    time: np.ndarray
    commit: np.ndarray
    column: np.ndarray

    def require(self, holds: np.ndarray, name: str, rule: str) -> None:
        """Raises an error that shows this field of the first contribution for which the rule does not hold."""
        if not holds.all():
            index = int(np.argmin(holds))
            _broken(rule, f"{name} {getattr(self, name)[index]:g}", self.commit[index], self.column[index])

    def last_indices(self, schedule: "Schedule") -> np.ndarray:
        """int64[contributions]: the last unit of each contribution, as an index into a flat array [T, W]."""
        return (self.unit + self.work - 1) * np.int64(schedule.start.shape[1]) + self.worker

    def unit_indices(self, schedule: "Schedule", last_index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The units of all contributions, one after the other, and the contribution that each is in.

        Units are indices into a flat array [T, W], from `last_index`, the last units of the contributions, backwards.
        """
        contribution = np.arange(self.work.size, dtype=np.int32)
        if (self.work == 1).all():
            return last_index, contribution
        contribution = np.repeat(contribution, self.work)
        offset = np.arange(contribution.size) - np.repeat(np.cumsum(self.work) - 1, self.work)  # -(work - 1), ..., 0
        return last_index[contribution] + offset * schedule.start.shape[1], contribution


def _blocks(schedule: "Schedule", num_commits: int, size: int) -> Iterator[_Block]:
    """The contributions to the first `num_commits` commits, in blocks of about `size`; a commit is in one block."""
    num_columns = max(schedule.worker.shape[1], 1)  # C
    commits_in_block = max(size // num_columns, 1)
    row, column = (x.ravel() for x in np.indices((min(commits_in_block, num_commits), num_columns), np.int32))
    arrays = [getattr(schedule, name) for name in _Block._fields[:5]]  # once: the version is computed
    for first in range(0, num_commits, commits_in_block):
        rows = slice(first, min(first + commits_in_block, num_commits))
        worker, unit, version, work, weight = (x[rows].reshape(-1) for x in arrays)
        time = np.repeat(np.asarray(schedule.time)[rows], num_columns)
        block = _Block(
            worker=worker,
            unit=unit,
            version=version,
            work=work,
            weight=weight,
            time=time,
            commit=first + row[: worker.size],
            column=column[: worker.size],
        )
        is_used = worker != -1
        yield block if is_used.all() else _Block(*(x[is_used] for x in block))


def _check_indices(block: _Block, schedule: "Schedule", protocol: "Protocol | None") -> None:
    """Raises an error unless workers, units, versions and work of these contributions are in their ranges."""
    num_units, num_workers = schedule.start.shape
    code = None if protocol is None else protocol.code
    min_work = 0 if protocol is None or code is not None else 1
    worker, unit, version, work = block.worker, block.unit, block.version, block.work
    rule = f"workers must be 0, ..., {num_workers - 1}, and -1 where there is no contribution"
    block.require((worker >= 0) & (worker < num_workers), "worker", rule)
    rule = f"units must be among the sampled ones, 0, ..., {num_units - 1}"
    block.require((unit >= 0) & (unit < num_units), "unit", rule)
    rule = "a contribution cannot read a version that is made later; commit e can read the versions 0 to e"
    block.require((version >= 0) & (version <= block.commit), "version", rule)
    block.require(work >= min_work, "work", f"there must be {min_work} units of work or more in a contribution")
    if code is not None:
        columns = schedule.worker.shape[1]
        if columns != code.assignment.num_workers:
            raise ValueError(
                f"a commit of a code has one contribution for each of its {code.assignment.num_workers} workers; this "
                f"schedule has room for {columns}. Correct the protocol's schedule."
            )
        loads = np.broadcast_to(code.assignment.loads, (columns,))[block.column]
        block.require(work <= loads, "work", "no worker can finish more chunks than the code gives it")
    elif protocol is not None:
        rule = f"the last unit of a contribution must be among the {num_units} sampled ones"
        block.require(unit + work <= num_units, "unit", rule)


def _check_weights(block: _Block, protocol: "Protocol | None", num_columns: int, num_workers: int) -> None:
    """Raises an error unless weights are finite, and at most what the protocol says; C is `num_columns`.

    Where a worker can have several contributions in a commit, it can have more in a record of a run in which it has
    left and come back, with room for these.
    """
    weight = block.weight
    block.require((weight >= 0) & (weight < np.inf), "weight", "weights must be finite and at least 0")
    if protocol is None or protocol.max_weight is None or not weight.size:
        return
    if protocol.code is not None:
        num_chunks = protocol.code.assignment.num_chunks
        rule = (
            f"a code decodes the sum over {num_chunks} chunks, so a weight must be at most {protocol.max_weight:g} / "
            f"{num_chunks} (for another one, say Protocol(..., max_weight=...))"
        )
        block.require(weight * num_chunks <= protocol.max_weight * (1 + ROUNDING), "weight", rule)
        return
    passes = 1 if protocol.local is None else protocol.local.passes
    bound = protocol.max_weight * (passes if passes == 1 else max(passes, num_columns // num_workers))
    if num_columns * weight.max() <= bound * (1 + ROUNDING):  # then no commit can be above: the sums are not needed
        return
    weight_sum = np.bincount(block.commit - block.commit[0], weight)  # of each commit of the block
    if weight_sum.max() > bound * (1 + ROUNDING):
        index = int(np.argmax(weight_sum > bound * (1 + ROUNDING)))
        rule = (
            f"the weights of a commit must add up to {bound:g} at most, since it applies a weighted mean (for more, "
            "say Protocol(..., max_weight=...))"
        )
        _broken(rule, f"{weight_sum[index]:g}", block.commit[0] + index)


def _check_arrivals(block: _Block, schedule: "Schedule", last_index: np.ndarray) -> None:
    """Raises an error unless the last unit of each contribution arrives by the time of its commit.

    `last_index int[contributions]` are these units, as indices into a flat array [T, W].
    """
    arrival = np.take(schedule.finish, last_index, mode="clip")
    holds = arrival <= block.time
    if not holds.all() and not (holds := _is_up_to(arrival, block.time)).all():
        i = int(np.argmin(holds))
        unit = last_index[i] // schedule.start.shape[1]
        value = f"{block.time[i]:g} s, and unit {unit} of worker {block.worker[i]} has arrived at {arrival[i]:g} s"
        _broken("a commit must not come before what it uses", value, block.commit[i], block.column[i])


def _raise_used_twice(schedule: "Schedule", num_commits: int) -> NoReturn:
    """Raises the error that a unit is used twice; it names the first use of a unit that was used before."""
    (block,) = _blocks(schedule, num_commits, schedule.worker.size)  # all contributions in one block
    index, contribution = block.unit_indices(schedule, block.last_indices(schedule))
    order = np.argsort(index, kind="stable")  # equal units lie next to each other, the earlier use first
    second_use = order[1:][index[order[1:]] == index[order[:-1]]].min()
    unit, worker = divmod(int(index[second_use]), schedule.start.shape[1])
    value = f"unit {unit} of worker {worker} again"
    c = contribution[second_use]
    _broken("a unit can be used once only", value, block.commit[c], block.column[c])


def _check_work_done(schedule: "Schedule", num_commits: int) -> None:
    """Raises an error if, up to some commit, more units of a worker are used than have ended by then."""
    for block in _blocks(schedule, num_commits, schedule.worker.size):
        order = np.argsort(block.worker, kind="stable")  # by worker, and then by commit
        worker, work, time = block.worker[order], block.work[order], block.time[order]
        num_used = np.cumsum(work, dtype=np.int64)  # up to each contribution, of all workers; then of its own alone
        num_used -= np.maximum.accumulate(np.where(np.diff(worker, prepend=-1) != 0, num_used - work, 0))
        num_units = schedule.start.shape[0]
        finish = np.sort(schedule.finish, axis=0)
        # When so many units of the worker have ended, whichever these are.
        ended = np.where(num_used <= num_units, finish[(num_used - 1).clip(0, num_units - 1), worker], np.inf)
        uses_too_many = (work > 0) & ~_is_up_to(ended, time)
        if uses_too_many.any():
            i = np.flatnonzero(uses_too_many)[np.argmin(order[uses_too_many])]  # the first in the order of the commits
            num_ended = int((schedule.finish[:, worker[i]] <= time[i]).sum())
            value = f"{num_used[i]} units of worker {worker[i]} at {time[i]:g} s, when {num_ended} have ended"
            rule = "commits must not use more units of a worker than have ended by then"
            _broken(rule, value, block.commit[order[i]], block.column[order[i]])


def _is_up_to(early: Any, late: Any) -> Any:
    """bool, like the times: whether `early` is at most `late`, up to rounding."""
    return (early <= late) | (early <= late * (1 + ROUNDING))


def _broken(rule: str, value: str, commit: int, contribution: int | None = None) -> NoReturn:
    """Raises the error that a commit, or a contribution to it, breaks a rule with this value."""
    where = f"commit {commit}" if contribution is None else f"commit {commit}, contribution {contribution}"
    raise ValueError(f"{rule}; {where} has {value}. Correct the protocol's schedule.")


def _broken_unit(rule: str, value: str, unit: int, worker: int) -> NoReturn:
    """Raises the error that a unit of a worker breaks a rule with this value."""
    raise ValueError(f"{rule}; unit {unit} of worker {worker} has {value}. Correct the protocol's schedule.")
