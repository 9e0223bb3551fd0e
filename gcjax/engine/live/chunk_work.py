"""The work on chunks: a worker computes them in order, against its own clock, until a deadline.

Letters: K chunks a worker holds, L blocks of the gradient.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax.engine.live.deadlines import RECENT, SLACK
from gcjax.engine.messages import gradient_blocks
from gcjax.tasks.base import Task

STEP = 0.002
"""Seconds: a paced worker sleeps in steps, so that a process that is stopped loses that time, as if it had computed."""


class ChunkGradients(NamedTuple):
    """What a worker keeps until the progress of all is known, and with it the coefficients.

    Attributes:
      gradients: float[1, K, L, ceil(d / L)], one chunk gradient a slot.
      losses: float[1, K].
    """

    gradients: jax.Array
    losses: jax.Array


class Clock(NamedTuple):
    """A clock that only goes forward.

    Attributes:
      now: seconds since whenever.
      sleep: waits so many seconds.
    """

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def empty_slots(params: Any, load: int, num_blocks: int, loss_dtype: Any) -> ChunkGradients:
    """Room for the chunk gradients of one worker, on the device of its parameters."""
    shape = jax.eval_shape(lambda p: gradient_blocks(p, num_blocks), params)
    slots = ChunkGradients(jnp.zeros((1, load, *shape.shape), shape.dtype), jnp.zeros((1, load), loss_dtype))
    return jax.device_put(slots, jax.tree.leaves(params)[0].sharding)


def chunk_gradient(task: Task, num_blocks: int) -> Callable[..., ChunkGradients]:
    """The compiled `(slots, params, data, rng_key, slot, chunk, round) -> slots` with a chunk's gradient in its slot.

    Batch and key of a chunk are those of `gcjax.engine.run` for the same key. `slots` is donated.
    """

    @partial(jax.jit, donate_argnums=0)
    def gradient(
        slots: ChunkGradients,
        params: Any,
        data: Any,
        rng_key: jax.Array,
        slot: jax.Array,
        chunk: jax.Array,
        round: jax.Array,
    ) -> ChunkGradients:
        batch = task.chunk_batch(data, rng_key, chunk, round)
        key = jax.random.fold_in(jax.random.fold_in(rng_key, chunk), round)
        value, gradient = jax.value_and_grad(task.loss)(params, batch, key)
        return ChunkGradients(
            slots.gradients.at[0, slot].set(gradient_blocks(gradient, num_blocks)),
            slots.losses.at[0, slot].set(value),
        )

    return gradient


def work_until(
    run_chunk: Callable[[int], None],
    slots: range,
    recent: list[float],
    *,
    deadline: float,
    min_chunks: int = 1,
    min_seconds: float = 0.0,
    clock: Clock | None = None,
) -> list[float]:
    """Works through slots until the deadline, and returns the seconds of each chunk that was done.

    A chunk cannot be interrupted, so it is started only if it is expected to be finished in time, or late by at most a
    tenth of itself: if it takes as long as the median of the latest ones. The tenth lets a worker of just the speed
    that the deadline was made for finish its load, whatever falls in between two chunks.

    Args:
      run_chunk: `(slot)`: computes a chunk and returns when it is done.
      slots: those still to be done in this round.
      recent: seconds of earlier chunks of this worker.
      deadline: when to stop, on this worker's clock.
      min_chunks: the chunks to do in any case. With 1 in every round, a worker that has recovered is noticed.
      min_seconds: what a chunk takes at least, unless the process is stopped meanwhile; the rest is slept.
      clock: this worker's; the monotonic one by default.
    """
    clock = clock or Clock()
    done: list[float] = []
    for slot in slots:
        start_time = clock.now()
        if len(done) >= min_chunks and start_time + (1 - SLACK) * _expected(recent + done) > deadline:
            break
        run_chunk(slot)
        _pause(min_seconds - (clock.now() - start_time), clock)
        done.append(clock.now() - start_time)
    return done


def _pause(seconds: float, clock: Clock) -> None:
    while seconds > 0:
        start_time = clock.now()
        clock.sleep(min(seconds, STEP))
        seconds -= min(clock.now() - start_time, 2 * STEP)


def _expected(seconds: list[float]) -> float:
    """What the next chunk takes, as far as one knows; 0 if nothing is known."""
    return statistics.median(seconds[-RECENT:]) if seconds else 0.0
