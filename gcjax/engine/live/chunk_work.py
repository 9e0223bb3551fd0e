"""The work on chunks: a worker computes them in order, against its own clock, until a deadline.

Letters: K chunks a worker holds, L blocks of the gradient, d parameters.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax.engine.gradients import RoundInputs, chunk_batch
from gcjax.engine.live.deadlines import RECENT_CHUNKS, TIME_MARGIN
from gcjax.engine.messages import gradient_blocks
from gcjax.tasks.base import Task

MAX_SLEEP = 0.002
"""Seconds: a throttled worker sleeps in short naps, so that while its process is stopped it gets no further."""


class ChunkGradients(NamedTuple):
    """The chunk gradients of a worker, kept until the progress of all is known, and with it the coefficients.

    Attributes:
      gradients: float[1, K, L, width], one chunk gradient a slot; the first axis is that of the workers.
      losses: float[1, K].
    """

    gradients: jax.Array
    losses: jax.Array


class Clock(NamedTuple):
    """A clock that only goes forward.

    Attributes:
      now: seconds since an arbitrary moment.
      sleep: waits so many seconds.
    """

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def zero_chunk_gradients(params: Any, load: int, num_blocks: int, loss_dtype: Any) -> ChunkGradients:
    """Zeros in the shapes of the K = `load` chunk gradients of one worker, on the device of its parameters."""
    # Shape and dtype of one gradient: float[L, width], cut into L = `num_blocks` blocks.
    blocks = jax.eval_shape(lambda p: gradient_blocks(p, num_blocks), params)
    zeros = ChunkGradients(jnp.zeros((1, load, *blocks.shape), blocks.dtype), jnp.zeros((1, load), loss_dtype))
    return jax.device_put(zeros, jax.tree.leaves(params)[0].sharding)


def compiled_chunk_gradient(task: Task, num_blocks: int) -> Callable[..., ChunkGradients]:
    """The compiled `(chunk_gradients, params, data, rng_key, slot, chunk, round) -> chunk_gradients` for one chunk.

    It returns them with the gradient and the loss of chunk number `chunk` in place `slot` of the worker's row.
    `chunk_gradients` is donated. Batch and key of a chunk are those of `gcjax.engine.run` for the same `rng_key`.
    """

    @partial(jax.jit, donate_argnums=0)
    def with_chunk_gradient(
        chunk_gradients: ChunkGradients,
        params: Any,
        data: Any,
        rng_key: jax.Array,
        slot: jax.Array,
        chunk: jax.Array,
        round: jax.Array,
    ) -> ChunkGradients:
        """The chunk gradients, [1, K, ...] of this worker, with gradient and loss of one chunk in place `slot`.

        A gradient is cut into `num_blocks` blocks. Slot, chunk and round are int32[].
        """
        batch, key = chunk_batch(task, RoundInputs(data, rng_key, round), chunk)
        loss, gradient = jax.value_and_grad(task.loss)(params, batch, key)
        own_row = 0  # the only one of this worker
        return ChunkGradients(
            gradients=chunk_gradients.gradients.at[own_row, slot].set(gradient_blocks(gradient, num_blocks)),
            losses=chunk_gradients.losses.at[own_row, slot].set(loss),
        )

    return with_chunk_gradient


def work_until(
    run_chunk: Callable[[int], None],
    slots: range,
    past_seconds: list[float],
    *,
    deadline: float,
    clock: Clock,
    min_chunks: int = 1,
    min_seconds: float = 0.0,
) -> list[float]:
    """Works through slots until the deadline, and returns the seconds of each chunk that was done.

    A chunk cannot be interrupted, so it is started only if it is expected to be finished in time, or late by at most a
    tenth of itself (`TIME_MARGIN`); it is expected to take as long as the median of the latest ones. The tenth lets a
    worker of just the speed that the deadline was made for finish its load, although some time passes between two
    chunks.

    Args:
      run_chunk: `(slot)`: computes a chunk and returns when it is done.
      slots: the places in the worker's row of the assignment whose chunks are still to be done in this round.
      past_seconds: what earlier chunks of this worker took, in the order in which they were done.
      deadline: when to stop, on this worker's clock.
      clock: this worker's.
      min_chunks: the chunks to do in any case. With 1 in every round, a worker that has recovered is noticed.
      min_seconds: what a chunk takes at least; the rest is slept. Time in which the process is stopped (SIGSTOP) does
        not count.
    """
    seconds_done: list[float] = []
    for slot in slots:
        start_time = clock.now()
        expected_end = start_time + (1 - TIME_MARGIN) * _expected_seconds(past_seconds + seconds_done)
        has_done_enough = len(seconds_done) >= min_chunks
        if has_done_enough and expected_end > deadline:
            break
        run_chunk(slot)
        seconds_so_far = clock.now() - start_time  # those of this chunk
        _pause(min_seconds - seconds_so_far, clock)
        seconds_done.append(clock.now() - start_time)
    return seconds_done


def _pause(seconds: float, clock: Clock) -> None:
    """Sleeps so long, in short naps; not at all if `seconds` is negative.

    A nap counts for at most twice its length: while the process is stopped (SIGSTOP), the pause does not go on, just as
    a computation would not.
    """
    seconds_left, max_counted_seconds = seconds, 2 * MAX_SLEEP
    while seconds_left > 0:
        start_time = clock.now()
        clock.sleep(min(seconds_left, MAX_SLEEP))
        seconds_left -= min(clock.now() - start_time, max_counted_seconds)


def _expected_seconds(past_seconds: list[float]) -> float:
    """What the next chunk is expected to take: the median of the latest ones; 0 before the first."""
    return statistics.median(past_seconds[-RECENT_CHUNKS:]) if past_seconds else 0.0
