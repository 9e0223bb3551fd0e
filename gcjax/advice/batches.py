"""How a trace is given to the program of a scheme: in batches of blocks, each between steps that do not count.

Letters: T steps of the trace, W workers, N chunks, E commits, C contributions to a commit.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.advice import blocks
from gcjax.advice.base import Scheme
from gcjax.advice.windows import ramp_units
from gcjax.protocols.base import Protocol, code_of_messages
from gcjax.protocols.compiled_schedules import shapes_of_schedule
from gcjax.protocols.simulation.rules import Rule
from gcjax.stragglers.network import Network

_MAX_ENTRIES = 4_000_000  # of an array [T, W] or [E, C] of all blocks at once; there are some 25 of them
_MAX_ENTRIES_OF_BLOCK = 40_000_000
_LARGE = 1_000_000_000  # entries that an array [T W, W] of all blocks would have, from which on its size is looked at
_COOLDOWN_STEPS = 16  # enough for a turn of four steps of a worker that is four times slower


def units_of_measured_step(scheme: Scheme, num_workers: int) -> tuple[int, float]:
    """Of one measured step: how many units of the scheme it is, and which share of its seconds each of them takes.

    With a code the units are chunks, those of a worker's round; their shares add up to more than 1 if chunks are
    computed more than once.
    """
    code = code_of_messages(scheme.protocol)
    if code is None:
        return scheme.units_per_step, 1 / scheme.units_per_step
    # A measured step is on 1/W of the data, a chunk is 1/N of them.
    return scheme.protocol.round_units, num_workers / code.assignment.num_chunks


def num_warmup_steps(scheme: Scheme, num_workers: int, block_steps: int) -> int:
    """The steps that are simulated before a block; none where everybody begins anew at every commit.

    But as many as the scheme says, and half a ramp of the window at least, if it says a number. Where a code's rounds
    overlap they are twice as many as are under way at a time, or more.
    """
    begins_anew = _all_begin_anew_at_commits(scheme.protocol, num_workers)
    if begins_anew and scheme.warmup_steps == 0:
        return 0
    least_steps = _half_a_ramp_in_steps(scheme, num_workers, block_steps)
    if not begins_anew:
        least_steps = max(block_steps, least_steps, 2 * _rounds_under_way(scheme.protocol, num_workers))
    return max(scheme.warmup_steps, least_steps)


def num_cooldown_steps(scheme: Scheme, num_workers: int, block_steps: int) -> int:
    """The steps that are simulated behind a block, so that its units come into commits; none if none are before it."""
    if num_warmup_steps(scheme, num_workers, block_steps) == 0:
        return 0
    units_per_step, _ = units_of_measured_step(scheme, num_workers)
    late_steps = max(
        _COOLDOWN_STEPS,
        2 * scheme.protocol.round_units // units_per_step,
        _rounds_under_way(scheme.protocol, num_workers),
    )
    return _half_a_ramp_in_steps(scheme, num_workers, block_steps) + late_steps


def _rounds_under_way(protocol: Protocol, num_workers: int) -> int:
    """Of a code whose rounds overlap, how many are under way at a time; 0 without one, or where that is not known."""
    if code_of_messages(protocol) is None or protocol.max_staleness is None:
        return 0
    most = protocol.max_staleness(num_workers)
    return int(most) + 1 if np.isfinite(most) else 0


def _half_a_ramp_in_steps(scheme: Scheme, num_workers: int, block_steps: int) -> int:
    """The steps of half a ramp of the window (`gcjax.advice.windows`), rounded up."""
    units_per_step, _ = units_of_measured_step(scheme, num_workers)
    return -(-ramp_units(block_steps * units_per_step, scheme.protocol.round_units) // (2 * units_per_step))


def _all_begin_anew_at_commits(protocol: Protocol, num_workers: int) -> bool:
    """Whether nobody goes on at a commit with work on older parameters.

    Where all that a commit takes is of the newest ones, that is so unless the server turns messages of older ones away,
    as in Rennala SGD: then they were worked on meanwhile.
    """
    if protocol.max_staleness is None or protocol.max_staleness(num_workers) > 0:
        return False
    try:
        rule = None if protocol.rule is None else protocol.rule(num_workers)
    except ValueError:  # it is not served; those that are not and have no staleness make rounds
        return True
    return rule is None or rule.accepts is Rule._field_defaults["accepts"]


class Batches(NamedTuple):
    """How the blocks of a trace are given to the program of a scheme.

    Attributes:
      units_per_step: units of a measured step.
      unit_share: of the seconds of a measured step that a unit takes.
      warmup_steps: those simulated before each block.
      cooldown_steps: those simulated behind it.
      steps_of_blocks: int64[blocks, steps], the steps of each block, between these.
      blocks_per_batch: blocks that are simulated at once.
    """

    units_per_step: int
    unit_share: float
    warmup_steps: int
    cooldown_steps: int
    steps_of_blocks: np.ndarray
    blocks_per_batch: int


def batches_of_blocks(
    scheme: Scheme, trace_shape: tuple[int, ...], first_step_of_block: np.ndarray, block_steps: int
) -> Batches:
    """How a trace, T steps of W workers, is given to the program of a scheme.

    Args:
      scheme: what is simulated.
      trace_shape: T, W.
      first_step_of_block: int64[blocks].
      block_steps: their length.

    Raises:
      ValueError: if the schedule of a block would be too large.
    """
    (num_steps, num_workers), num_blocks = trace_shape, len(first_step_of_block)
    units_per_step, unit_share = units_of_measured_step(scheme, num_workers)
    warmup_steps = num_warmup_steps(scheme, num_workers, block_steps)
    cooldown_steps = num_cooldown_steps(scheme, num_workers, block_steps)
    steps_of_blocks = blocks.steps_of_blocks(
        first_step_of_block, num_steps, warmup_steps=warmup_steps, block_steps=block_steps,
        cooldown_steps=cooldown_steps,
    )  # fmt: skip
    entries = _entries_of_block(scheme.protocol, steps_of_blocks.shape[1] * units_per_step, num_workers, num_blocks)
    if entries > _MAX_ENTRIES_OF_BLOCK:
        raise ValueError(
            f"the record of {num_workers} workers in a block of {block_steps} steps may have at most "
            f"{_MAX_ENTRIES_OF_BLOCK // 1_000_000} million entries, and would have {entries // 1_000_000}. "
            "Take shorter blocks, or fewer workers."
        )
    blocks_per_batch = min(num_blocks, max(1, _MAX_ENTRIES // entries))
    return Batches(units_per_step, unit_share, warmup_steps, cooldown_steps, steps_of_blocks, blocks_per_batch)


def _entries_of_block(protocol: Protocol, num_units: int, num_workers: int, num_blocks: int) -> int:
    """The entries of the largest array in the schedule of a block of `num_units` units of each worker."""
    num_units_of_all = num_units * num_workers
    if num_blocks * num_units_of_all * num_workers < _LARGE:  # a commit for each unit, of all workers
        return num_units_of_all
    durations = jax.ShapeDtypeStruct((num_units, num_workers), jnp.float32)
    return max(array.size for array in shapes_of_schedule(protocol.schedule, durations, Network()))
