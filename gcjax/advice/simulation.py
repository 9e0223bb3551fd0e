"""What a scheme does with each block of a trace: one compiled program a scheme, for all blocks at once.

A measured step is one BSP step of a worker's share, 1/W of the examples of a step. Without a code a unit of work is
that share, or an equal part of it; with a code of N chunks a unit is a chunk, W/N of the measured step, and the K
chunks of a worker in a round all are of one step. An effective step is the use of as much work as BSP uses in one: W
shares, or N different chunks.

Letters: W workers, N chunks, K chunks that a worker holds, E commits, C contributions.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.advice import blocks
from gcjax.advice.base import Scheme
from gcjax.advice.windows import Window, smooth_window, whole_rounds
from gcjax.codes.base import GradientCode
from gcjax.protocols.base import Protocol
from gcjax.protocols.schedule import Schedule
from gcjax.stragglers.network import Network

_MAX_UNITS = 4_000_000  # simulated at once; a unit takes some 100 bytes
_COMPILER_OPTIONS = {"xla_backend_optimization_level": 1}
"""Programs are compiled in less time, and run as fast as with all optimisations."""


class BlockSums(NamedTuple):
    """What adds up over blocks, float[blocks] each, of JAX or NumPy; in the window of each block.

    Attributes:
      seconds: of the block.
      steps: effective ones.
      computing: seconds of all workers.
      staleness: summed over contributions.
      contributions: to commits.
      max_staleness: the largest; it does not add up.
      computed: units, and parts of those that were cut off.
      contributed: units in commits.
      used: units in commits, of which each chunk counts once.
      messages: of all workers, in full gradients.
      uneven_commits: commits that are not the same work of each worker.
    """

    seconds: Any
    steps: Any
    computing: Any
    staleness: Any
    contributions: Any
    max_staleness: Any
    computed: Any
    contributed: Any
    used: Any
    messages: Any
    uneven_commits: Any


def units(scheme: Scheme, num_workers: int) -> tuple[int, float]:
    """How many units of the scheme are of one measured step, and which part of its seconds each takes."""
    code = scheme.protocol.code
    if code is None:
        return scheme.units_per_step, 1 / scheme.units_per_step
    return scheme.protocol.round_units, num_workers / code.assignment.num_chunks


def run_in(scheme: Scheme, num_workers: int, block_steps: int) -> int:
    """Steps before a block; none where every commit begins anew from the newest parameters."""
    bound = scheme.protocol.max_staleness
    is_fresh = bound is not None and bound(num_workers) == 0
    return scheme.run_in if is_fresh else max(scheme.run_in, block_steps)


def leaves_out(scheme: Scheme, seconds: np.ndarray, block_steps: int) -> bool:
    """Whether a step of a protocol without a code lacks somebody, or has more of somebody, if one worker is fast.

    It is tried on times `float64[T, W]` of which those of one worker are shortened. The sizes are those of the trace,
    so that the same compiled program answers.
    """
    with_fast_worker = np.broadcast_to(np.median(seconds), seconds.shape).copy()
    with_fast_worker[:, 0] *= 0.3
    sums = block_sums(scheme, with_fast_worker, blocks.starts(len(seconds), block_steps), block_steps)
    return bool(sums.uneven_commits.any())


class _Batches(NamedTuple):
    """How the blocks of a trace are given to the program of a scheme.

    Attributes:
      units_per_step: units of a measured step.
      unit_share: of the seconds of a measured step that a unit takes.
      steps_before: of run-in before each block.
      rows: int64[blocks, steps], the steps of each block behind those of its run-in.
      num_at_once: blocks that are simulated at once.
    """

    units_per_step: int
    unit_share: float
    steps_before: int
    rows: np.ndarray
    num_at_once: int


def _batches(
    scheme: Scheme, trace_shape: tuple[int, ...], first_step_of_block: np.ndarray, block_steps: int
) -> _Batches:
    """How a trace, T steps of W workers, is given to the program of a scheme; see `block_sums`."""
    num_steps, num_workers = trace_shape
    units_per_step, unit_share = units(scheme, num_workers)
    steps_before = run_in(scheme, num_workers, block_steps)
    rows = blocks.rows(first_step_of_block, num_steps, run_in=steps_before, block_steps=block_steps)
    num_at_once = min(len(first_step_of_block), max(1, _MAX_UNITS // (rows.shape[1] * units_per_step * num_workers)))
    return _Batches(units_per_step, unit_share, steps_before, rows, num_at_once)


def lowered(
    scheme: Scheme, trace_shape: tuple[int, ...], first_step_of_block: np.ndarray, block_steps: int
) -> jax.stages.Lowered:
    """The program that `block_sums` runs for a trace of this shape; once it is compiled, that does not compile it.

    Args:
      scheme: what is simulated.
      trace_shape: T steps, W workers.
      first_step_of_block: int64[blocks], the first step of each block.
      block_steps: their length.

    Raises:
      ValueError: if the scheme cannot be scheduled with so many workers.
    """
    units_per_step, _, steps_before, rows, num_at_once = _batches(scheme, trace_shape, first_step_of_block, block_steps)
    durations = jax.ShapeDtypeStruct((num_at_once, rows.shape[1] * units_per_step, trace_shape[1]), jnp.float32)
    return _sums.lower(scheme.protocol, units_per_step, steps_before, durations)


def block_sums(scheme: Scheme, seconds: np.ndarray, first_step_of_block: np.ndarray, block_steps: int) -> BlockSums:
    """The sums over each block, from the scheme's schedules.

    Args:
      scheme: what is simulated.
      seconds: float64[T, W] of the trace.
      first_step_of_block: int64[blocks], the first step of each block.
      block_steps: their length.
    """
    units_per_step, unit_share, steps_before, rows, num_at_once = _batches(
        scheme, seconds.shape, first_step_of_block, block_steps
    )
    num_blocks = len(rows)
    padded = np.concatenate([rows, rows[: -num_blocks % num_at_once]])
    batch_sums = []
    for batch_rows in padded.reshape(-1, num_at_once, rows.shape[1]):
        durations = np.repeat(seconds[batch_rows] * unit_share, units_per_step, axis=1).astype(np.float32)
        batch_sums.append(jax.device_get(_sums(scheme.protocol, units_per_step, steps_before, jnp.asarray(durations))))
    fields = zip(*batch_sums, strict=True)
    return BlockSums(*(np.concatenate(of_batches)[:num_blocks].astype(np.float64) for of_batches in fields))


@partial(jax.jit, static_argnums=(0, 1, 2), compiler_options=_COMPILER_OPTIONS)
def _sums(protocol: Protocol, units_per_step: int, steps_before: int, durations: jax.Array) -> BlockSums:
    """The sums of blocks whose units take `durations float[blocks, T, W]`; `steps_before` steps are of run-in."""

    def of_block(block: jax.Array) -> BlockSums:
        """The sums of one block, `float[T, W]`."""
        schedule = protocol.schedule(block, Network())
        if steps_before == 0:
            window = whole_rounds(schedule)
        else:
            window = smooth_window(schedule, steps_before * units_per_step, block.shape[0], protocol.round_units)
        return _sums_of_schedule(protocol, schedule, block, units_per_step, window)

    return jax.vmap(of_block)(durations)


def _sums_of_schedule(
    protocol: Protocol, schedule: Schedule, durations: jax.Array, units_per_step: int, window: Window
) -> BlockSums:
    """The sums of one schedule, in a window."""
    num_workers, code = durations.shape[1], protocol.code
    weight = window.ramped_weight(schedule.time)  # float[E]
    work = schedule.work.clip(0)
    contributed = work.sum(axis=1)
    used_of_commit, sent = (contributed, None) if code is None else _coded_use(protocol, code, work)
    used = jnp.sum(weight * used_of_commit)
    is_sent = jnp.isfinite(schedule.send_start)
    messages = (
        jnp.sum(jnp.where(is_sent, window.ramped_weight(schedule.finish), 0))
        if sent is None
        else jnp.sum(weight * sent)
    )
    contribution_weight = weight[:, None] * ((schedule.worker >= 0) & (work > 0))
    staleness = jnp.arange(schedule.time.size, dtype=jnp.int32)[:, None] - schedule.version
    within = window.weighted_seconds(schedule.compute_start, schedule.compute_end)
    used_per_effective_step = num_workers * units_per_step if code is None else code.assignment.num_chunks
    return BlockSums(
        seconds=window.seconds,
        steps=used / used_per_effective_step,
        computing=within.sum(),
        staleness=jnp.sum(contribution_weight * staleness),
        contributions=contribution_weight.sum(),
        max_staleness=jnp.max(jnp.where(contribution_weight > 0, staleness, 0)),
        computed=jnp.sum(within / jnp.where(durations > 0, durations, 1)),
        contributed=jnp.sum(weight * contributed),
        used=used,
        messages=messages,
        uneven_commits=jnp.sum((weight > 0) & ~_is_same_work_of_all(schedule, num_workers)),
    )


def _is_same_work_of_all(schedule: Schedule, num_workers: int) -> jax.Array:
    """bool[E]: whether a commit has one contribution of each worker, all of as much work."""
    counts = jax.vmap(lambda worker: jnp.zeros(num_workers, jnp.int32).at[worker].add(1, mode="drop"))(
        jnp.where(schedule.worker >= 0, schedule.worker, num_workers)
    )
    most = schedule.work.max(axis=1, keepdims=True)
    is_even = ((schedule.work == most) | (schedule.worker < 0)).all(axis=1)
    return (counts == 1).all(axis=1) & is_even


def _coded_use(protocol: Protocol, code: GradientCode, work: jax.Array) -> tuple[jax.Array, jax.Array]:
    """float[E] each: the chunks that each commit has at least once, and the messages for it, in full gradients."""
    sent = jax.vmap(code.sent)(work)  # bool[E, C, M]
    messages = sent.sum(axis=(1, 2)) / code.num_blocks
    if protocol.specification is not None:  # every commit is exact
        return jnp.full(work.shape[0], float(code.assignment.num_chunks)), messages
    slot = jnp.arange(code.assignment.load)
    is_done = (slot < work[..., None]) & sent.any(axis=2)[..., None] & (code.assignment.chunks >= 0)  # [E, C, K]
    chunk = jnp.asarray(code.assignment.chunks.clip(0))
    covered = jax.vmap(lambda done: jnp.zeros(code.assignment.num_chunks, bool).at[chunk].max(done))(is_done)
    return covered.sum(axis=1), messages
