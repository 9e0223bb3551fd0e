"""Iterations of workers that wait for their neighbours, and for nobody else: there is no server.

Letters: T units sampled per worker, W workers.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.protocols.schedule import Schedule, Timeline, record
from gcjax.stragglers.network import Network


class Exchange(NamedTuple):
    """What the workers send each other after an iteration.

    Attributes:
      hears: bool[W, W], whether worker w (row) waits for what worker v (column) sends.
      sent: float[W], how often each sends its parameters.
      received: float[W], how often each receives some.
    """

    hears: jax.Array
    sent: jax.Array
    received: jax.Array


def exchange_of(hears: np.ndarray) -> Callable[[jax.Array], Exchange]:
    """The pure function `iteration -> Exchange` where each sends to each that hears it, bool[turns, W, W] by turns."""
    hears = hears & ~np.eye(hears.shape[1], dtype=bool)

    def exchange(iteration: jax.Array) -> Exchange:
        """Who hears whom after an iteration, and the messages: one for each neighbour."""
        hears_now = jnp.asarray(hears)[iteration % len(hears)]
        return Exchange(hears_now, sent=hears_now.sum(axis=0), received=hears_now.sum(axis=1))

    return exchange


def copies_sent(exchange: Callable[[jax.Array], Exchange], schedule: Schedule) -> jax.Array:
    """float[T, W]: the copies of its parameters that each worker sends after each iteration."""
    iterations = jnp.arange(schedule.start.shape[0], dtype=jnp.int32)
    return jax.vmap(lambda iteration: exchange(iteration).sent)(iterations).astype(schedule.start.dtype)


def neighbour_iterations(exchange: Callable[[jax.Array], Exchange], durations: jax.Array, network: Network) -> Schedule:
    """The schedule of iterations after each of which a worker waits for those whom it hears.

    With F[t, v] the time at which v has sent what it has after iteration t to all who hear it, worker w begins
    iteration t + 1 at `max(F[t, w], max_v F[t, v])` over the v that it hears, and computes when it has received theirs.
    Commit t is when all have sent; by then workers can be iterations ahead. What a worker has read is the number of
    commits that have happened when it begins.

    A worker's link carries one copy of the parameters to, and one from, each neighbour: `latency + sent * upload` and
    `latency + received * download`. The link and the time of a server play no part.

    Args:
      exchange: pure function of an iteration, int32[].
      durations: float[T, W] seconds.
      network: the time of messages.
    """
    num_units, num_workers = durations.shape
    dtype = durations.dtype
    latency, upload, download = (
        jnp.broadcast_to(jnp.asarray(x, dtype), (num_workers,))
        for x in (network.latency, network.upload, network.download)
    )

    def message_seconds(copies: jax.Array, seconds: jax.Array) -> jax.Array:
        """float[W]: the seconds of so many copies, of `seconds` each; none without any."""
        return jnp.where(copies > 0, latency + copies.astype(dtype) * seconds, 0)

    def step(
        state: tuple[jax.Array, jax.Array], iteration_and_seconds: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, ...]]:
        """One iteration, whose number and seconds `[W]` are given; all times `[W]`.

        The state: when each begins it, and how long it then receives.
        """
        (start, receive_seconds), (iteration, seconds) = state, iteration_and_seconds
        now = exchange(iteration)
        compute_start = start + receive_seconds
        compute_end = compute_start + seconds
        finish = compute_end + message_seconds(now.sent, upload)
        last_heard = jnp.max(jnp.where(now.hears, finish, 0), axis=1)
        next_state = jnp.maximum(finish, last_heard), message_seconds(now.received, download)
        return next_state, (start, compute_start, compute_end, finish)

    nothing = jnp.zeros(num_workers, dtype)  # all begin with the same parameters, and receive none
    iterations = jnp.arange(num_units, dtype=jnp.int32)
    (next_start, _), times = jax.lax.scan(step, (nothing, nothing), (iterations, durations))
    start, compute_start, compute_end, finish = times
    time, horizon = finish.max(axis=1), next_start.min()
    num_commits_before = jnp.searchsorted(time, start.ravel(), side="right").reshape(start.shape).astype(jnp.int32)
    read = jnp.minimum(num_commits_before, iterations[:, None])  # where iterations take no time
    return record(
        Timeline(
            start=start,
            compute_start=compute_start,
            compute_end=compute_end,
            send_start=compute_end,
            finish=finish,
            horizon=horizon,
        ),
        time=jnp.where(time <= horizon, time, jnp.inf),
        worker=jnp.broadcast_to(jnp.arange(num_workers, dtype=jnp.int32), durations.shape),
        unit=iterations[:, None],
        work=jnp.ones((), jnp.int32),
        weight=1.0 / num_workers,
        read=jnp.where(jnp.isfinite(start), read, -1),
    )
