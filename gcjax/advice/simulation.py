"""What a scheme does with each block of a trace: one compiled program a scheme, for all blocks at once.

A measured step is one BSP step of a worker's share, 1/W of the examples of a step. Without a code a unit of work is
that share, or an equal part of it; with a code of N chunks a unit is a chunk, W/N of the measured step, and the K
chunks of a worker in a round all are of one step. An effective step is the use of as much work as BSP uses in one: W
shares, or N different chunks. Where messages are made of gradients that workers keep (`LocalWork.message_code`), a
worker computes one chunk a step, and a commit uses all N chunks although it brings W new gradients at most: a gradient
is used in up to K commits.

Letters: T steps of the trace, or units of a block, W workers, N chunks, K chunks that a worker holds, E commits,
C contributions to a commit, M messages a worker.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import compiler_options
from gcjax.advice import blocks
from gcjax.advice.base import Scheme
from gcjax.advice.batches import batches_of_blocks
from gcjax.advice.windows import WholeRounds, Window, smooth_window, whole_rounds
from gcjax.codes.base import GradientCode
from gcjax.protocols.base import Protocol, code_of_messages
from gcjax.protocols.compiled_schedules import on_cpu
from gcjax.protocols.schedule import Schedule
from gcjax.stragglers.network import Network

_FEW_TIMES = 10_000
"""A trace of so few times is simulated in less time than the programs take to compile."""
_COMPILED_IN_ONE_THREAD = {"xla_cpu_parallel_codegen_split_count": 1}
"""Of XLA's compiler, since several programs are compiled at once."""


class BlockSums(NamedTuple):
    """What adds up over blocks, float[blocks] each, of JAX or NumPy; in the window of each block.

    Attributes:
      seconds: of the block.
      effective_steps: the work that was used, over what BSP uses in a step.
      computing_seconds: of all workers.
      staleness_sum: over contributions; of gradients that workers keep, over all in the messages.
      contributions: to commits; of gradients that workers keep, all in the messages.
      max_staleness: the largest; it does not add up.
      computed_units: and parts of those that were cut off.
      contributed_units: those in commits.
      used_units: those in commits, where each chunk counts once a commit, and no unit twice.
      messages: of all workers, in full gradients.
      uneven_commits: commits that are not the same work of each worker.
    """

    seconds: Any
    effective_steps: Any
    computing_seconds: Any
    staleness_sum: Any
    contributions: Any
    max_staleness: Any
    computed_units: Any
    contributed_units: Any
    used_units: Any
    messages: Any
    uneven_commits: Any


def has_uneven_commits(scheme: Scheme, seconds: np.ndarray, block_steps: int) -> bool:
    """Whether, if one worker is fast, a commit of a protocol without a code has not the same work of everybody.

    It is tried on equal times of which those of one worker are shortened. Their shape is that of the trace,
    `seconds float64[T, W]`, so that the same compiled program answers.
    """
    seconds_with_fast_worker = np.broadcast_to(np.median(seconds), seconds.shape).copy()
    seconds_with_fast_worker[:, 0] *= 0.3
    sums = block_sums(scheme, seconds_with_fast_worker, blocks.first_steps(len(seconds), block_steps), block_steps)
    return bool(sums.uneven_commits.any())


def lowered_program(
    scheme: Scheme, trace_shape: tuple[int, ...], first_step_of_block: np.ndarray, block_steps: int
) -> jax.stages.Lowered:
    """The program that `block_sums` runs for a trace of this shape, [T, W]; it is compiled only once.

    Raises:
      ValueError: if the scheme cannot be scheduled with so many workers.
    """
    units_per_step, _, warmup_steps, cooldown_steps, steps_of_blocks, blocks_per_batch = batches_of_blocks(
        scheme, trace_shape, first_step_of_block, block_steps
    )
    durations = jax.ShapeDtypeStruct(
        (blocks_per_batch, steps_of_blocks.shape[1] * units_per_step, trace_shape[1]), jnp.float32
    )
    return _program(trace_shape).lower(scheme.protocol, units_per_step, warmup_steps, cooldown_steps, durations)


def block_sums(scheme: Scheme, seconds: np.ndarray, first_step_of_block: np.ndarray, block_steps: int) -> BlockSums:
    """The sums over each block, from the scheme's schedules.

    Args:
      scheme: what is simulated.
      seconds: float64[T, W] of the trace.
      first_step_of_block: int64[blocks], the first step of each block.
      block_steps: their length.
    """
    units_per_step, unit_share, warmup_steps, cooldown_steps, steps_of_blocks, blocks_per_batch = batches_of_blocks(
        scheme, seconds.shape, first_step_of_block, block_steps
    )
    num_blocks = len(steps_of_blocks)
    # The first blocks fill up the last batch; what they give there is cut off in the end.
    padded_steps_of_blocks = np.concatenate([steps_of_blocks, steps_of_blocks[: -num_blocks % blocks_per_batch]])
    batch_sums = []  # of each batch of blocks, sums float[blocks_per_batch]
    for steps_of_batch in padded_steps_of_blocks.reshape(-1, blocks_per_batch, steps_of_blocks.shape[1]):
        durations = np.repeat(seconds[steps_of_batch] * unit_share, units_per_step, axis=1).astype(np.float32)
        # float32[blocks_per_batch, units, W]; `unit_share` is the share of a step's seconds that a unit takes.
        arrays = on_cpu((jnp.asarray(durations),))
        sums = _program(seconds.shape)(scheme.protocol, units_per_step, warmup_steps, cooldown_steps, *arrays)
        batch_sums.append(jax.device_get(sums))
    fields = zip(*batch_sums, strict=True)
    return BlockSums(*(np.concatenate(sums_of_batches)[:num_blocks].astype(np.float64) for sums_of_batches in fields))


def _program(trace_shape: tuple[int, ...]) -> Any:
    """`_sums_of_blocks`, to be compiled for each scheme and shape of durations; for a trace of this shape, [T, W]."""
    return _program_with_options(run_briefly=math.prod(trace_shape) <= _FEW_TIMES)


@functools.cache
def _program_with_options(*, run_briefly: bool) -> Any:
    """`_sums_of_blocks`, compiled with little effort if it will `run_briefly`."""
    options = _COMPILED_IN_ONE_THREAD | compiler_options.small_operations(run_briefly=run_briefly)
    return jax.jit(_sums_of_blocks, static_argnums=(0, 1, 2, 3), compiler_options=options)


def _sums_of_blocks(
    protocol: Protocol, units_per_step: int, warmup_steps: int, cooldown_steps: int, durations: jax.Array
) -> BlockSums:
    """The sums of blocks whose units take `durations float[blocks, T, W]`.

    Of the steps the first `warmup_steps` are before the block, and the last `cooldown_steps` behind it.
    """

    def sums_of_block(durations_of_block: jax.Array) -> BlockSums:
        """The sums of one block, warm-up first, whose units take `float[T, W]` seconds."""
        schedule = protocol.schedule(durations_of_block, Network())
        window: Window | WholeRounds = whole_rounds(schedule)  # which moments count, and how much
        if warmup_steps > 0:
            window = smooth_window(
                schedule,
                warmup_units=warmup_steps * units_per_step,
                block_units=len(durations_of_block) - (warmup_steps + cooldown_steps) * units_per_step,
                round_units=protocol.round_units,
            )
        return _sums_of_schedule(protocol, schedule, durations_of_block, units_per_step, window)

    return jax.vmap(sums_of_block)(durations)


class _Use(NamedTuple):
    """What each commit applies, float[E] or int[E] each.

    Attributes:
      units: different chunks, or units where there is no code.
      contributions: the gradients or changes that it is made of.
      staleness_sum: over these.
      max_staleness: the largest of these; 0 if there are none.
      messages: for it, in full gradients; None where a message is a unit with a time of sending.
    """

    units: jax.Array
    contributions: jax.Array
    staleness_sum: jax.Array
    max_staleness: jax.Array
    messages: jax.Array | None


def _use_of_commits(protocol: Protocol, schedule: Schedule) -> _Use:
    """What each commit of a schedule applies; without a code each unit of work counts, with one each chunk once."""
    if protocol.local is not None and protocol.local.message_code is not None:
        return _use_of_kept_gradients(protocol, protocol.local.message_code, schedule)
    work = schedule.work.clip(0)  # [E, C]; -1 pads
    units, messages = work.sum(axis=1), None
    if protocol.code is not None:
        units, messages = _used_chunks_and_messages(protocol, protocol.code, work)
    is_contribution = (schedule.worker >= 0) & (work > 0)
    staleness = jnp.where(is_contribution, schedule.staleness, 0)
    return _Use(units, is_contribution.sum(axis=1), staleness.sum(axis=1), staleness.max(axis=1), messages)


def _use_of_kept_gradients(protocol: Protocol, code: GradientCode, schedule: Schedule) -> _Use:
    """What commits apply whose messages have the last gradients on all K chunks: of the versions of the last K rounds.

    A worker whose message is in time has a contribution to the commit, that of its unit of this round; in
    `schedule.worker int[E, C]` -1 pads. Each of its K gradients counts as a contribution, and is 0 to K - 1 rounds old.
    """
    assert protocol.local is not None
    num_workers, num_chunks, load = code.assignment.num_workers, code.assignment.num_chunks, code.assignment.load
    is_in_time = jax.vmap(  # bool[E, W]; padding gets the number W, which is none, and is dropped
        lambda worker: (
            jnp.zeros(num_workers, bool).at[jnp.where(worker >= 0, worker, num_workers)].set(True, mode="drop")
        )
    )(schedule.worker)
    contributions = is_in_time.sum(axis=1) * load
    chunks = jnp.asarray(code.assignment.chunks)  # [W, K], all of them there
    is_chunk_used = jax.vmap(  # bool[E, N]
        lambda in_time: jnp.zeros(num_chunks, bool).at[chunks].max(in_time[:, None])
    )(is_in_time)
    units = is_chunk_used.sum(axis=1)
    if protocol.waits_for_exact_sum:
        units = jnp.where(contributions > 0, num_chunks, 0)
    commit, rounds_ago = jnp.arange(schedule.time.size, dtype=jnp.int32), jnp.arange(load, dtype=jnp.int32)
    staleness = jnp.minimum(rounds_ago[None], commit[:, None])  # [E, K], of each message; none before version 0
    return _Use(
        units=units,
        contributions=contributions,
        staleness_sum=is_in_time.sum(axis=1) * staleness.sum(axis=1),
        max_staleness=jnp.where(contributions > 0, staleness.max(axis=1), 0),
        messages=None,
    )


def _sums_of_schedule(
    protocol: Protocol, schedule: Schedule, durations: jax.Array, units_per_step: int, window: Window | WholeRounds
) -> BlockSums:
    """The sums of one schedule of units that take `durations float[T, W]`; moments count by their weight in the window.

    A unit that is cut off counts as the part of it that was computed. Times in the schedule are inf for what never is.
    """
    num_workers, code = durations.shape[1], code_of_messages(protocol)
    unit_weight = _weight_of_units(schedule, window)  # float[T, W], from 0 to 1
    commit_weight = _weight_of_commits(schedule, window, unit_weight)  # float[E], from 0 to 1
    use = _use_of_commits(protocol, schedule)  # [E] each; messages None where each message sent counts by itself
    contributed_units = jnp.sum(commit_weight * schedule.work.clip(0).sum(axis=1))
    applied_units = jnp.sum(commit_weight * use.units)
    is_sent = jnp.isfinite(schedule.send_start)
    messages = (
        jnp.sum(jnp.where(is_sent, unit_weight, 0)) if use.messages is None else jnp.sum(commit_weight * use.messages)
    )
    computing_seconds = window.weighted_seconds(schedule.compute_start, schedule.compute_end)  # [T, W]
    computed_shares = _weight_while_computed(schedule, window) * _computed_share_of_units(schedule, durations)
    # What BSP uses in a step.
    used_units_per_step = num_workers * units_per_step if code is None else code.assignment.num_chunks
    return BlockSums(
        seconds=window.seconds,
        effective_steps=applied_units / used_units_per_step,
        computing_seconds=computing_seconds.sum(),
        staleness_sum=jnp.sum(commit_weight * use.staleness_sum),
        contributions=jnp.sum(commit_weight * use.contributions),
        max_staleness=jnp.max(jnp.where(commit_weight > 0, use.max_staleness, 0)),
        computed_units=computed_shares.sum(),
        contributed_units=contributed_units,
        used_units=jnp.minimum(applied_units, contributed_units),
        messages=messages,
        uneven_commits=jnp.sum((commit_weight > 0) & ~_is_same_work_of_all(schedule, num_workers)),
    )


def _weight_of_units(schedule: Schedule, window: Window | WholeRounds) -> jax.Array:
    """float[T, W]: how much each unit, and what is sent at its end, counts: the mean weight while it was computed.

    Where all begin anew at commits the window is of whole rounds, and what counts is when its message has arrived.
    """
    return (
        window.weight(schedule.finish) if isinstance(window, WholeRounds) else _weight_while_computed(schedule, window)
    )


def _weight_while_computed(schedule: Schedule, window: Window | WholeRounds) -> jax.Array:
    """float[T, W]: the mean weight while each unit was computed, also one that is cut off; 0 if it never is."""
    start, end = schedule.compute_start, schedule.compute_end  # inf for units that never are
    has_length = jnp.isfinite(end) & (end > start)
    length = jnp.where(has_length, end - start, 1)
    return jnp.where(has_length, window.weighted_seconds(start, end) / length, window.weight(end))


def _computed_share_of_units(schedule: Schedule, durations: jax.Array) -> jax.Array:
    """float[T, W]: how much of each unit was computed; less than 1 where it was cut off.

    Not by the times where it was not cut off: of a short unit they say little, late in a run.
    """
    start, end = schedule.compute_start, schedule.compute_end
    is_part = jnp.isinf(schedule.finish) & jnp.isfinite(end) & (durations > 0)
    computed_seconds = jnp.where(is_part, end - start, 0)
    return jnp.where(is_part, (computed_seconds / jnp.where(is_part, durations, 1)).clip(0, 1), 1)


def _weight_of_commits(schedule: Schedule, window: Window | WholeRounds, weight_of_unit: jax.Array) -> jax.Array:
    """float[E]: how much each commit counts: as its units do on average, by `weight_of_unit float[T, W]`.

    So no more work counts as used than was computed in the window, wherever in it the commits are. Where all begin anew
    at commits, a commit counts if it is in the window.
    """
    weight_at_commit = window.weight(schedule.time)
    if isinstance(window, WholeRounds):
        return weight_at_commit
    no_weight = jnp.zeros_like(weight_of_unit[:1])
    weight_before_unit = jnp.concatenate([no_weight, jnp.cumsum(weight_of_unit, axis=0)])  # [T + 1, W]
    worker, work = schedule.worker.clip(0), schedule.work.clip(0)  # int[E, C]; -1 pads
    weight_of_contribution = (
        weight_before_unit[schedule.unit + work, worker] - weight_before_unit[schedule.unit, worker]
    )
    num_units = work.sum(axis=1)
    mean_weight = jnp.sum(jnp.where(work > 0, weight_of_contribution, 0), axis=1) / num_units.clip(1)
    return jnp.where(jnp.isfinite(schedule.time), jnp.where(num_units > 0, mean_weight, weight_at_commit), 0)


def _is_same_work_of_all(schedule: Schedule, num_workers: int) -> jax.Array:
    """bool[E]: whether a commit has one contribution of each worker, all of as many units (`work`); worker -1 pads."""
    if schedule.worker.shape[1] < num_workers:  # no commit has room for all; else the arrays below would be larger
        return jnp.zeros(schedule.time.shape, bool)
    worker_or_dropped = jnp.where(schedule.worker >= 0, schedule.worker, num_workers)  # int[E, C]; W is no worker
    num_contributions_of_worker = jax.vmap(  # int[E, W]
        lambda workers_of_commit: jnp.zeros(num_workers, jnp.int32).at[workers_of_commit].add(1, mode="drop")
    )(worker_or_dropped)
    largest_work = schedule.work.max(axis=1, keepdims=True)
    has_equal_work = ((schedule.work == largest_work) | (schedule.worker < 0)).all(axis=1)
    return (num_contributions_of_worker == 1).all(axis=1) & has_equal_work


def _used_chunks_and_messages(protocol: Protocol, code: GradientCode, work: jax.Array) -> tuple[jax.Array, jax.Array]:
    """float[E] each: the chunks that each commit has at least once, and the messages for it, in full gradients.

    `work`: int32[E, C], the chunks that each worker has done, in the order of its load; C = W. Only chunks of workers
    that have sent a message count; a round that waits for the exact sum has all N.
    """
    is_message_sent = jax.vmap(code.sent)(work)  # bool[E, C, M]
    messages = is_message_sent.sum(axis=(1, 2)) / code.num_blocks
    if protocol.waits_for_exact_sum:
        return jnp.full(work.shape[0], float(code.assignment.num_chunks)), messages
    position_in_load = jnp.arange(code.assignment.load)
    is_computed = (position_in_load < work[..., None]) & (code.assignment.chunks >= 0)  # [E, C, K]; -1 is no chunk
    is_chunk_sent = is_computed & is_message_sent.any(axis=2)[..., None]
    chunks = jnp.asarray(code.assignment.chunks.clip(0))  # [W, K]: here C = W
    is_chunk_used = jax.vmap(  # bool[E, N]
        lambda is_sent: jnp.zeros(code.assignment.num_chunks, bool).at[chunks].max(is_sent)
    )(is_chunk_sent)
    return is_chunk_used.sum(axis=1), messages
