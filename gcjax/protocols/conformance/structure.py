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
_ROUNDING_OF_WEIGHTS = 1e-5  # the share by which their sums may differ
_ROUNDING_STEPS = 84  # of the type of the times, by which sums of the same times may differ: 1e-5 in float32
BLOCK_SIZE = 1 << 15  # contributions that are looked at together: they stay in the cache


def check_shapes(schedule: "Schedule", shape: tuple[int, ...]) -> None:
    """Raises an error if the arrays of a schedule have not the shapes and types that they must have; also under `jit`.

    Args:
      schedule: what a protocol has made of durations.
      shape: of these durations, [T, W].
    """
    contribution_shape = np.shape(schedule.worker)
    if len(contribution_shape) != 2:
        _raise_wrong_array("worker", schedule.worker, "int32[E, C], one row a commit")
    commit_sizes = f" with E={contribution_shape[0]}, C={contribution_shape[1]} as in worker"
    unit_sizes = f" with T={shape[0]}, W={shape[1]} as in the durations"
    shape_of_axes = {
        "[E, C]": (contribution_shape, commit_sizes),
        "[E]": (contribution_shape[:1], commit_sizes),
        "[T, W]": (shape, unit_sizes),
        "[]": ((), ""),
    }
    for name, (dtype, axes) in ARRAYS.items():
        value, (expected_shape, sizes_in_words) = getattr(schedule, name), shape_of_axes[axes]
        if np.shape(value) != expected_shape or not jnp.issubdtype(jnp.result_type(value), TYPES[dtype]):
            _raise_wrong_array(name, value, dtype + axes + sizes_in_words)


def _raise_wrong_array(name: str, value: Any, required: str) -> NoReturn:
    """Raises the error that a field of a schedule has not the type and shape that is expected."""
    type_and_shape = f"{jnp.result_type(value)}{list(np.shape(value))}"
    raise ValueError(f"{name} of a schedule must be {required}; got {type_and_shape}. Correct the protocol's schedule.")


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
    step = np.spacing(last_time)  # to the next number of this type
    invisible = step / 2  # adding less changes nothing
    if invisible < seconds.min(initial=np.inf, where=takes_time) or invisible < np.median(seconds[takes_time]):
        return
    typical_seconds = np.median(seconds[takes_time])
    advice = "Set jax_enable_x64 and pass durations of float64, or sample" if time.dtype != np.float64 else "Sample"
    raise ValueError(
        f"commits must be in order of time; {time.dtype} cannot tell times near {last_time:g} s apart that differ by "
        f"less than {step:g} s, and half of the units take {typical_seconds:g} s or less. {advice} fewer units."
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
    check_times_of_units(schedule)
    contributions_are_units = protocol is not None and protocol.code is None
    num_checked, num_used = schedule.start.size if contributions_are_units else 0, 0
    is_used = np.zeros(num_checked, bool)  # all units [T, W], flat
    for block in _blocks(schedule, num_commits, BLOCK_SIZE):
        _check_indices(block, schedule, protocol)
        _check_weights(block, protocol, schedule.worker.shape[1], schedule.start.shape[1])
        if contributions_are_units:
            unit_index, contribution = block.unit_indices(schedule.start.shape[1])
            _check_arrivals(block, schedule, unit_index, contribution)
            is_used[unit_index] = True
            num_used += unit_index.size
    if not contributions_are_units:
        check_work_done(schedule, num_commits)
    elif np.count_nonzero(is_used) != num_used:  # more uses than units that are used
        _raise_used_twice(schedule, num_commits)


def _check_commits(schedule: "Schedule") -> int:
    """The number of commits that happen, that is whose time is finite.

    Raises an error unless times are in order, none is after the horizon, and only these commits have contributions.
    """
    time, horizon = schedule.time, float(schedule.horizon)
    if np.isnan(horizon):
        hint = "Raise num_contributions or num_commits of event_schedule."
        if not np.isfinite(time).any():
            hint = (
                "There is no commit, and more messages wait for one than num_contributions: either `commits` of the "
                "rule never becomes true, or num_contributions is too small."
            )
        raise ValueError(
            "a schedule must have room for all its commits and their messages; this one has not (its horizon is NaN). "
            + hint
        )
    if not (time >= 0).all():
        commit = int(np.argmin(time >= 0))
        rule = "the time of a commit must be at least 0 seconds, and inf if there is none"
        _raise_broken_commit(rule, f"{time[commit]:g}", commit)
    if not (time[1:] >= time[:-1]).all():
        commit = 1 + int(np.argmin(time[1:] >= time[:-1]))
        value = f"{time[commit]:g} s, and the one before {time[commit - 1]:g} s"
        _raise_broken_commit("commits must be in order of time", value, commit)
    num_commits = int(np.isfinite(time).sum())
    if num_commits and not _is_not_later(time[num_commits - 1], schedule.horizon):
        value = f"{time[num_commits - 1]:g} s, and the horizon is {horizon:g} s"
        _raise_broken_commit("commits must not happen after the horizon, when units run out", value, num_commits - 1)
    unused = schedule.worker[num_commits:]
    if unused.size and unused.max() >= 0:
        commit, contribution = np.argwhere(unused >= 0)[0]
        value = f"worker {unused[commit, contribution]}"
        rule = "a commit that does not happen has no contributions (-1)"
        _raise_broken_commit(rule, value, num_commits + commit, contribution)
    return num_commits


def check_times_of_units(schedule: "Schedule") -> None:
    """Raises an error unless the times of every unit follow each other; they are inf for what does not happen."""
    start = schedule.start
    if not (start >= 0).all():
        unit, worker = np.argwhere(~(start >= 0))[0]
        rule = "start must be at least 0 seconds, and inf if the unit never begins"
        _raise_broken_unit(rule, f"{start[unit, worker]:g}", unit, worker)
    ordered_fields = list(pairwise(("start", "compute_start", "compute_end", "finish")))
    sends_after_computing = schedule.send_start is not schedule.compute_end  # not if one array is both
    if sends_after_computing:
        ordered_fields += [("compute_end", "send_start"), ("send_start", "finish")]
    for earlier_field, later_field in ordered_fields:
        earlier_time, later_time = getattr(schedule, earlier_field), getattr(schedule, later_field)
        is_in_order = earlier_time <= later_time
        if not is_in_order.all() and earlier_field in ("compute_start", "send_start"):
            # Cut off before it computes, so that it never ends; or without a message of its own.
            never_happens = np.isposinf(earlier_time)
            is_in_order |= never_happens & (np.isposinf(schedule.finish) | (earlier_field == "send_start"))
        if not is_in_order.all() and not (is_in_order := is_in_order | _is_not_later(earlier_time, later_time)).all():
            unit, worker = np.argwhere(~is_in_order)[0]
            value = f"{earlier_field} {earlier_time[unit, worker]:g} s and {later_field} {later_time[unit, worker]:g} s"
            _raise_broken_unit(f"{earlier_field} must not come after {later_field}", value, unit, worker)


class _Block(NamedTuple):
    """The contributions to some of the commits, in a row; arrays [contributions].

    `commit` and `column` are where each stands in the schedule's arrays [E, C], and `time` is that of its commit.
    """

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
            _raise_broken_commit(rule, f"{name} {getattr(self, name)[index]:g}", self.commit[index], self.column[index])

    def unit_indices(self, num_workers: int) -> tuple[np.ndarray, np.ndarray]:
        """int[units] both: the units of all contributions, one after the other, and the contribution that each is in.

        Units are indices into a flat array [T, W], W = `num_workers`.
        """
        first_index = self.unit * np.int64(num_workers) + self.worker  # of each contribution
        contribution = np.arange(self.work.size, dtype=np.int32)
        if (self.work == 1).all():
            return first_index, contribution
        contribution = np.repeat(contribution, self.work)
        num_units_before = np.repeat(np.cumsum(self.work) - self.work, self.work)
        offset_from_first = np.arange(contribution.size) - num_units_before  # 0, ..., work - 1
        return first_index[contribution] + offset_from_first * num_workers, contribution


def _blocks(schedule: "Schedule", num_commits: int, size: int) -> Iterator[_Block]:
    """The contributions (worker is not -1) to the first `num_commits` commits, whole ones in blocks of about `size`."""
    num_columns = max(schedule.worker.shape[1], 1)  # C
    commits_in_block = max(size // num_columns, 1)
    block_shape = min(commits_in_block, num_commits), num_columns
    commit_in_block, column_in_commit = (x.ravel() for x in np.indices(block_shape, np.int32))
    fields = ("worker", "unit", "version", "work", "weight")
    contribution_arrays = [getattr(schedule, name) for name in fields]  # once: the version is computed
    for first_commit in range(0, num_commits, commits_in_block):
        commits = slice(first_commit, min(first_commit + commits_in_block, num_commits))
        worker, unit, version, work, weight = (x[commits].reshape(-1) for x in contribution_arrays)
        time = np.repeat(np.asarray(schedule.time)[commits], num_columns)
        commit, column = first_commit + commit_in_block[: worker.size], column_in_commit[: worker.size]
        block = _Block(worker, unit, version, work, weight, time, commit, column)
        is_contribution = worker != -1
        yield block if is_contribution.all() else _Block(*(x[is_contribution] for x in block))


def _check_indices(block: _Block, schedule: "Schedule", protocol: "Protocol | None") -> None:
    """Raises an error unless workers, units, versions and work are in range; work 0 is for codes only."""
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
        if protocol.local is not None and protocol.local.single_steps:
            block.require(work == 1, "work", "a contribution is one unit if the protocol says LocalWork.single_steps")


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
        block.require(weight * num_chunks <= protocol.max_weight * (1 + _ROUNDING_OF_WEIGHTS), "weight", rule)
        return
    num_own = 1 if protocol.local is None else protocol.local.max_contributions  # contributions of one worker
    max_sum = protocol.max_weight * (num_own if num_own == 1 else max(num_own, num_columns // num_workers))
    max_rounded_sum = max_sum * (1 + _ROUNDING_OF_WEIGHTS)
    if num_columns * weight.max() <= max_rounded_sum:  # then no commit can be above: the sums are not needed
        return
    weight_sum = np.bincount(block.commit - block.commit[0], weight)  # of each commit of the block
    if weight_sum.max() > max_rounded_sum:
        index = int(np.argmax(weight_sum > max_rounded_sum))
        rule = (
            f"the weights of a commit must add up to {max_sum:g} at most, since it applies a weighted mean (for more, "
            "say Protocol(..., max_weight=...))"
        )
        _raise_broken_commit(rule, f"{weight_sum[index]:g}", block.commit[0] + index)


def _check_arrivals(block: _Block, schedule: "Schedule", unit_index: np.ndarray, contribution: np.ndarray) -> None:
    """Raises an error unless the units of each contribution have arrived, or ended, by the time of its commit.

    `unit_index int[units]` are these units, as indices into a flat array [T, W], and `contribution int[units]` says
    which each is in.
    """
    arrival_time = np.take(schedule.finish, unit_index, mode="clip")  # in range, as `_check_indices` has seen
    commit_time = block.time if contribution.size == block.time.size else block.time[contribution]
    is_in_time = arrival_time <= commit_time
    if not is_in_time.all() and not (is_in_time := _is_not_later(arrival_time, commit_time)).all():
        late = int(np.argmin(is_in_time))
        unit, worker = divmod(int(unit_index[late]), schedule.start.shape[1])
        value = f"{commit_time[late]:g} s, and unit {unit} of worker {worker} has arrived at {arrival_time[late]:g} s"
        rule = "a commit must not come before what it uses"
        _raise_broken_commit(rule, value, block.commit[contribution[late]], block.column[contribution[late]])


def _raise_used_twice(schedule: "Schedule", num_commits: int) -> NoReturn:
    """Raises the error that a unit is used twice; it names the first use of a unit that was used before."""
    (block,) = _blocks(schedule, num_commits, schedule.worker.size)  # all contributions in one block
    unit_index, contribution = block.unit_indices(schedule.start.shape[1])
    by_unit = np.argsort(unit_index, kind="stable")  # equal units lie next to each other, the earlier use first
    is_repeated = unit_index[by_unit[1:]] == unit_index[by_unit[:-1]]
    second_use = by_unit[1:][is_repeated].min()
    unit, worker = divmod(int(unit_index[second_use]), schedule.start.shape[1])
    value = f"unit {unit} of worker {worker} again"
    commit, column = block.commit[contribution[second_use]], block.column[contribution[second_use]]
    _raise_broken_commit("a unit can be used once only", value, commit, column)


def check_work_done(schedule: "Schedule", num_commits: int) -> None:
    """Raises an error if, up to some commit, more units of a worker are used (any ones) than have ended by then."""
    for block in _blocks(schedule, num_commits, schedule.worker.size):  # one of all contributions
        by_worker = np.argsort(block.worker, kind="stable")  # by worker, and then by commit
        worker, work, time = block.worker[by_worker], block.work[by_worker], block.time[by_worker]
        num_used_by_all = np.cumsum(work, dtype=np.int64)  # up to each contribution
        is_first_of_worker = np.diff(worker, prepend=-1) != 0
        num_used_by_others = np.maximum.accumulate(np.where(is_first_of_worker, num_used_by_all - work, 0))
        num_used = num_used_by_all - num_used_by_others  # of the contribution's own worker
        num_units = schedule.start.shape[0]
        sorted_finish = np.sort(schedule.finish, axis=0)
        # When so many units of the worker have ended, whichever these are.
        finish_of_last = sorted_finish[(num_used - 1).clip(0, num_units - 1), worker]  # any if there is no work yet
        enough_ended = np.where(num_used <= num_units, finish_of_last, np.inf)
        uses_too_many = (work > 0) & ~_is_not_later(enough_ended, time)
        if uses_too_many.any():
            first_in_commit_order = np.argmin(by_worker[uses_too_many])
            violation = np.flatnonzero(uses_too_many)[first_in_commit_order]
            num_ended = int((schedule.finish[:, worker[violation]] <= time[violation]).sum())
            value = (
                f"{num_used[violation]} units of worker {worker[violation]} at {time[violation]:g} s, when {num_ended} "
                "have ended"
            )
            rule = "commits must not use more units of a worker than have ended by then"
            _raise_broken_commit(rule, value, block.commit[by_worker[violation]], block.column[by_worker[violation]])


def latest_equal(time: Any) -> Any:
    """The latest time, in seconds like `time`, which rounding may have made of it: a sum of the same durations.

    A share of it that follows from its type: 1e-5 of a float32, 2e-14 of a float64, as a live run writes down.
    """
    return time * (1 + _ROUNDING_STEPS * np.finfo(np.result_type(time, np.float32)).eps)


def _is_not_later(early: Any, late: Any) -> Any:
    """bool, like the times: whether `early` is at most `late`, up to rounding."""
    return (early <= late) | (early <= latest_equal(late))


def _raise_broken_commit(rule: str, value: str, commit: int, contribution: int | None = None) -> NoReturn:
    """Raises the error that a commit, or a contribution to it, breaks a rule with this value."""
    where = f"commit {commit}" if contribution is None else f"commit {commit}, contribution {contribution}"
    raise ValueError(f"{rule}; {where} has {value}. Correct the protocol's schedule.")


def _raise_broken_unit(rule: str, value: str, unit: int, worker: int) -> NoReturn:
    """Raises the error that a unit of a worker breaks a rule with this value."""
    raise ValueError(f"{rule}; unit {unit} of worker {worker} has {value}. Correct the protocol's schedule.")
