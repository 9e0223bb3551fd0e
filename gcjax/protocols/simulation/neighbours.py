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
      num_sent: float[W], how often each sends its parameters.
      num_received: float[W], how often each receives some.
      heard: int32[W, neighbours], whom each hears, with -1 behind the last; None where nobody has listed them.
      hearers: int32[W, neighbours], who hears each, likewise.
    """

    hears: jax.Array
    num_sent: jax.Array
    num_received: jax.Array
    heard: jax.Array | None = None
    hearers: jax.Array | None = None

    def of_heard(self, values: jax.Array) -> tuple[jax.Array, jax.Array]:
        """[W, n], the values `[W]` of those whom each hears; and bool[W, n], where that is somebody."""
        return _of_listed(values, self.hears, self.heard)

    def of_hearers(self, values: jax.Array) -> tuple[jax.Array, jax.Array]:
        """[W, n], the values `[W]` of those who hear each; and bool[W, n], where that is somebody."""
        return _of_listed(values, self.hears.T, self.hearers)


def _of_listed(values: jax.Array, is_neighbour: jax.Array, neighbours: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """[W, n], the values `[W]` of the neighbours of each worker, and bool[W, n], where there is one.

    They are looked up by `neighbours int32[W, n]`, with -1 behind the last; without these lists n is W, and where there
    is one says the matrix `is_neighbour bool[W, W]`.
    """
    if neighbours is None:
        return jnp.broadcast_to(values[None], is_neighbour.shape), is_neighbour
    return values[neighbours.clip(0)], neighbours >= 0


def _neighbour_lists(is_neighbour: np.ndarray) -> np.ndarray:
    """int32[turns, W, neighbours]: the neighbours of each worker in order, of bool[turns, W, W]; -1 behind the last."""
    degree = is_neighbour.sum(axis=2)
    order = np.argsort(~is_neighbour, axis=2, kind="stable")[:, :, : max(1, degree.max())]  # neighbours come first
    return np.where(np.arange(order.shape[2]) < degree[:, :, None], order, -1).astype(np.int32)


def exchange_of(hears: np.ndarray) -> Callable[[jax.Array], Exchange]:
    """The function `iteration -> Exchange`, by turns: w hears v, who sends to w, where `hears[turn, w, v]`."""
    hears = hears & ~np.eye(hears.shape[1], dtype=bool)
    # [turns, W]: one copy for each who hears a worker (rows), and one from each whom it hears (columns).
    num_sent, num_received = (hears.sum(axis=axis, dtype=np.int32) for axis in (1, 2))
    by_turns = hears, num_sent, num_received, _neighbour_lists(hears), _neighbour_lists(hears.swapaxes(1, 2))

    def exchange(iteration: jax.Array) -> Exchange:
        """Who hears whom after an iteration, int32[], and the messages: entry `turn` of the arrays [turns, ...]."""
        turn = iteration % len(hears)
        return Exchange(*(jnp.asarray(x)[turn] for x in by_turns))

    return exchange


def copies_sent(exchange: Callable[[jax.Array], Exchange], schedule: Schedule) -> jax.Array:
    """float[T, W]: the copies of its parameters that each worker sends after each iteration."""
    iterations = jnp.arange(schedule.start.shape[0], dtype=jnp.int32)
    # One by one, as for the schedule: under vmap some kinds of keys draw other neighbours.
    return jax.lax.map(lambda iteration: exchange(iteration).num_sent, iterations).astype(schedule.start.dtype)


def has_arrived(hears: jax.Array, finish: jax.Array, next_start: jax.Array) -> jax.Array:
    """bool[W, W]: whether worker w (row) has what it hears of worker v (column) when it begins its next iteration.

    Args:
      hears: bool[W, W], whether w hears v.
      finish: float[W] seconds, when each has sent.
      next_start: float[W] seconds, when each begins.
    """
    return hears & (finish[None] <= next_start[:, None])


def _time_enough_heard(exchange: Exchange, finish: jax.Array, num_backup: int) -> jax.Array:
    """float[W] seconds: when each has heard all whom it hears but the last `num_backup`; 0 if that is nobody.

    `finish float[W]` seconds is when each has sent what it has to all who hear it.
    """
    finish_of_heard, is_heard = exchange.of_heard(finish)
    if num_backup == 0:
        return jnp.max(jnp.where(is_heard, finish_of_heard, 0), axis=1)
    num_needed = is_heard.sum(axis=1) - min(num_backup, is_heard.shape[1])
    sorted_finish = jnp.sort(jnp.where(is_heard, finish_of_heard, jnp.inf), axis=1)
    last_needed = jnp.take_along_axis(sorted_finish, (num_needed - 1).clip(0)[:, None], axis=1)[:, 0]
    return jnp.where(num_needed > 0, last_needed, 0)


def _num_received(exchange: Exchange, finish: jax.Array, next_start: jax.Array) -> jax.Array:
    """int32[W]: how many of those whom each hears have sent, at `finish float[W]`, by its `next_start float[W]`."""
    finish_of_heard, is_heard = exchange.of_heard(finish)
    return (is_heard & (finish_of_heard <= next_start[:, None])).sum(axis=1)


def neighbour_iterations(
    exchange: Callable[[jax.Array], Exchange],
    durations: jax.Array,
    network: Network,
    *,
    num_backup: int = 0,
    max_gap: int | None = None,
) -> Schedule:
    """The schedule of iterations after each of which a worker waits for those whom it hears.

    With F[t, v] the time at which v has sent what it has after iteration t to all who hear it, worker w begins
    iteration t + 1 at `max(F[t, w], max_v F[t, v])` over the v that it hears, and computes when it has received theirs.
    Commit t is when all have sent; by then workers can be iterations ahead. What a worker has read is the number of
    commits that have happened when it begins.

    A worker's link carries one copy of the parameters to, and one from, each neighbour: `latency + num_sent * upload`
    and `latency + num_received * download`. The link and the time of a server play no part.

    Args:
      exchange: pure function of an iteration, int32[].
      durations: float[T, W] seconds.
      network: the time of messages.
      num_backup: b, of those whom it hears a worker waits for all but so many; what comes later is dropped.
      max_gap: an iteration t begins once those who hear the worker have begun t - max_gap; no bound if None.
    """
    num_units, num_workers = durations.shape
    dtype = durations.dtype
    if max_gap is not None:
        max_gap = min(max_gap, num_units)  # as many are no bound, and the last ones are kept
    latency, upload, download = (
        jnp.broadcast_to(jnp.asarray(x, dtype), (num_workers,))
        for x in (network.latency, network.upload, network.download)
    )

    def message_seconds(num_copies: jax.Array, seconds: jax.Array) -> jax.Array:
        """float[W]: the seconds of so many copies [W], of `seconds float[W]` each, and the latency; 0 for no copy."""
        return jnp.where(num_copies > 0, latency + num_copies.astype(dtype) * seconds, 0)

    def step(
        state: tuple[jax.Array, ...], iteration_and_seconds: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        """One iteration, whose number and seconds `[W]` are given; all times `[W]`.

        The state: when each begins it, and how long it then receives; and when each began the last `max_gap` ones (a
        ring). A worker begins no iteration before those who hear it have begun the one `max_gap` before it.
        """
        (start, receive_seconds, recent_starts), (iteration, seconds) = state, iteration_and_seconds
        messages = exchange(iteration)
        compute_start = start + receive_seconds
        compute_end = compute_start + seconds
        finish = compute_end + message_seconds(messages.num_sent, upload)
        next_start = jnp.maximum(finish, _time_enough_heard(messages, finish, num_backup))
        if max_gap is not None:
            recent_starts = recent_starts.at[iteration % max_gap].set(start)
            # [W], of iteration t + 1 - max_gap, if this is t; 0 before the first one.
            oldest_start = recent_starts[(iteration + 1) % max_gap]
            start_of_hearers, is_hearer = messages.of_hearers(oldest_start)
            next_start = jnp.maximum(next_start, jnp.where(is_hearer, start_of_hearers, 0).max(axis=1))
        num_received = messages.num_received if num_backup == 0 else _num_received(messages, finish, next_start)
        next_state = next_start, message_seconds(num_received, download), recent_starts
        return next_state, (start, compute_start, compute_end, finish)

    zero_seconds = jnp.zeros(num_workers, dtype)  # all begin with the same parameters, and receive none
    iterations = jnp.arange(num_units, dtype=jnp.int32)
    initial: tuple[jax.Array, ...] = zero_seconds, zero_seconds, jnp.zeros((max_gap or 0, num_workers), dtype)
    (next_start, _, _), times = jax.lax.scan(step, initial, (iterations, durations))
    start, compute_start, compute_end, finish = times
    time, horizon = finish.max(axis=1), next_start.min()
    num_commits_before = jnp.searchsorted(time, start.ravel(), side="right").reshape(start.shape).astype(jnp.int32)
    read = jnp.minimum(num_commits_before, iterations[:, None])  # where iterations take no time
    return record(
        Timeline(start, compute_start, compute_end, send_start=compute_end, finish=finish, horizon=horizon),
        time=jnp.where(time <= horizon, time, jnp.inf),
        worker=jnp.broadcast_to(jnp.arange(num_workers, dtype=jnp.int32), durations.shape),
        unit=iterations[:, None],
        work=jnp.ones((), jnp.int32),
        weight=1.0 / num_workers,
        read=jnp.where(jnp.isfinite(start), read, -1),
    )
