"""One worker's part of a live round: its chunks in order, against its own clock.

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
from gcjax.engine.messages import blocks
from gcjax.tasks.base import Task

STEP = 0.002
"""Seconds: a paced worker sleeps in steps, so that a process that is stopped loses that time, as if it had computed."""


class Kept(NamedTuple):
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


def empty(params: Any, load: int, num_blocks: int, loss_dtype: Any) -> Kept:
    """Room for the chunk gradients of one worker, on the device of its parameters."""
    shape = jax.eval_shape(lambda p: blocks(p, num_blocks), params)
    room = Kept(jnp.zeros((1, load, *shape.shape), shape.dtype), jnp.zeros((1, load), loss_dtype))
    return jax.device_put(room, jax.tree.leaves(params)[0].sharding)


def chunk_gradient(task: Task, num_blocks: int) -> Callable[..., Kept]:
    """The compiled `(kept, params, data, rng_key, slot, chunk, round) -> kept` with a chunk's gradient in its slot.

    Batch and key of a chunk are those of `gcjax.engine.run` for the same key. `kept` is donated.
    """

    @partial(jax.jit, donate_argnums=0)
    def gradient(
        kept: Kept, params: Any, data: Any, rng_key: jax.Array, slot: jax.Array, chunk: jax.Array, round: jax.Array
    ) -> Kept:
        batch = task.chunk_batch(data, rng_key, chunk, round)
        key = jax.random.fold_in(jax.random.fold_in(rng_key, chunk), round)
        value, gradient = jax.value_and_grad(task.loss)(params, batch, key)
        return Kept(
            kept.gradients.at[0, slot].set(blocks(gradient, num_blocks)),
            kept.losses.at[0, slot].set(value),
        )

    return gradient


def work(
    run_chunk: Callable[[int], None],
    slots: range,
    recent: list[float],
    *,
    until: float,
    at_least: int = 1,
    least_seconds: float = 0.0,
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
      until: the deadline, on this worker's clock.
      at_least: the chunks to do in any case. With 1 in every round, a worker that has recovered is noticed.
      least_seconds: what a chunk takes at least, unless the process is stopped meanwhile; the rest is slept.
      clock: this worker's; the monotonic one by default.
    """
    clock = clock or Clock()
    done: list[float] = []
    for slot in slots:
        begin = clock.now()
        if len(done) >= at_least and begin + (1 - SLACK) * _expected(recent + done) > until:
            break
        run_chunk(slot)
        _pause(least_seconds - (clock.now() - begin), clock)
        done.append(clock.now() - begin)
    return done


def _pause(seconds: float, clock: Clock) -> None:
    while seconds > 0:
        begin = clock.now()
        clock.sleep(min(seconds, STEP))
        seconds -= min(clock.now() - begin, 2 * STEP)


def _expected(seconds: list[float]) -> float:
    """What the next chunk takes, as far as one knows; 0 if nothing is known."""
    return statistics.median(seconds[-RECENT:]) if seconds else 0.0
