"""The max-plus law of bounded staleness, and how a timeline becomes a list of commits.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gcjax._shared_loops import max_over_runs
from gcjax.protocols.schedule import Schedule, Timeline, record
from gcjax.stragglers.network import Network

TwoArrays = tuple[jax.Array, jax.Array]
RankState = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

_TIME_BITS = 32
_NO_START_TIME = -1.0
"""A time at which no unit starts."""


def bounded_staleness(durations: jax.Array, network: Network, staleness: float) -> Timeline:
    """When every unit starts and finishes if nobody may be more than `staleness` units ahead of the slowest.

    With F[n, w] the finish of w's n-th unit, D its duration and c the time of its messages:
    `F[n, w] = max(F[n-1, w], max_v F[n-1-staleness, v]) + c[w] + D[n, w]` (Ho et al. 2013).

    Args:
      durations: float[T, W] seconds.
      network: the time of messages.
      staleness: s >= 0; inf for no bound.
    """
    num_units, num_workers = durations.shape
    is_bounded = staleness < num_units
    ring_size = int(staleness) + 1 if is_bounded else 1  # of the finishes that are kept: none is read without a bound
    dtype = durations.dtype
    receive_seconds, send_seconds = (
        jnp.broadcast_to(jnp.asarray(x, dtype), (num_workers,))
        for x in (network.receive_seconds(), network.send_seconds())
    )

    def begin_time(last_finish: jax.Array, latest_finishes: jax.Array, unit: jax.Array) -> jax.Array:
        """float[W] seconds: when unit number `unit` of each worker begins; `ring_size` is the staleness + 1.

        After its last unit, at `last_finish float[W]`, and after the unit `ring_size` before it of everybody, at
        `latest_finishes float[ring_size]`, the latest finish of each of the last units (unit n at n % ring_size).
        """
        return jnp.maximum(last_finish, latest_finishes[unit % ring_size]) if is_bounded else last_finish

    def step(state: TwoArrays, numbered_unit: TwoArrays) -> tuple[TwoArrays, tuple[jax.Array, ...]]:
        """One unit of every worker: the state that `begin_time` looks at, and the times of the unit, `[W]` each.

        `numbered_unit`: the number of the unit, and its seconds `[W]`; messages take `receive_seconds` and
        `send_seconds`.
        """
        (last_finish, latest_finishes), (unit_number, seconds) = state, numbered_unit
        start = begin_time(last_finish, latest_finishes, unit_number)
        compute_start = start + receive_seconds
        compute_end = compute_start + seconds
        finish = compute_end + send_seconds
        latest_finishes = latest_finishes.at[unit_number % ring_size].set(finish.max())
        return (finish, latest_finishes), (start, compute_start, compute_end, finish)

    initial = jnp.zeros(num_workers, dtype), jnp.zeros(ring_size, dtype)  # nobody waits before unit `ring_size`
    unit_numbers = jnp.arange(num_units)
    (last_finish, latest_finishes), times = jax.lax.scan(step, initial, (unit_numbers, durations))
    start, compute_start, compute_end, finish = times
    first_not_sampled = jnp.asarray(num_units)
    horizon = begin_time(last_finish, latest_finishes, first_not_sampled).min()  # of whoever is first
    return Timeline(start, compute_start, compute_end, send_start=compute_end, finish=finish, horizon=horizon)


@partial(jax.jit, static_argnums=2)
def commits_on_arrival(timeline: Timeline, weight: float | jax.Array, staleness: float) -> Schedule:
    """The record in which every unit is a commit of its own, on what had arrived when it started.

    There are E = T·W commits, of one contribution each (C = 1), in the order of their arrival. All that arrives at one
    moment does so before anybody starts at that moment; so a unit of no length, which starts and arrives at it, comes
    after what it waited for: it has a higher rank (`_rank_within_moment`). Of one rank the worker with the lower number
    is first.

    A unit has waited, by the law of `bounded_staleness`, for its worker's last unit, or for the last of those that it
    may not be too far ahead of. It has read that one's commit, and all others of the same time and rank: so never its
    own commit, or a later one.

    Args:
      timeline: of the units; what arrives after its horizon is not committed.
      weight: of each contribution.
      staleness: how many units a worker may be ahead of the slowest; inf for no bound.
    """
    num_units, num_workers = timeline.finish.shape
    # [W T], worker by worker: so a stable order has the lower worker first.
    arrivals, rank = timeline.finish.T.ravel(), _rank_within_moment(timeline, staleness).T.ravel()
    commit_order = _sorted_order(arrivals, rank)
    time, rank = arrivals[commit_order], rank[commit_order]
    next_differs = (time[1:] != time[:-1]) | (rank[1:] != rank[:-1])
    is_last_of_rank = jnp.append(next_differs, True)  # of one time and rank
    num_commits = jnp.arange(1, time.size + 1, dtype=jnp.int32)
    # The version there is once all commits of the time and the rank of a commit have happened.
    version_after_commit = jax.lax.cond(  # there is nothing to look for where no two have the same
        _is_any(~is_last_of_rank),
        lambda: jax.lax.cummin(jnp.where(is_last_of_rank, num_commits, time.size), reverse=True),
        lambda: num_commits,
    )
    zeros = jnp.zeros_like(version_after_commit)
    version_after_unit = zeros.at[commit_order].set(version_after_commit, unique_indices=True)
    version_after_unit = version_after_unit.reshape(num_workers, num_units)  # [W, T]
    version = _shifted_columns(version_after_unit, count=1)  # after the worker's last unit
    if staleness < num_units:
        version_after_all = version_after_unit.max(axis=0, keepdims=True)  # [1, T], once all have done the unit
        version = jnp.maximum(version, _shifted_columns(version_after_all, count=int(staleness) + 1))
    return record(
        timeline,
        time=jnp.where(time <= timeline.horizon, time, jnp.inf),
        worker=(commit_order // num_units)[:, None],
        unit=(commit_order % num_units)[:, None],
        work=jnp.ones((), jnp.int32),
        weight=weight,
        read=version.T,
    )


def _is_any(flags: jax.Array) -> jax.Array:
    """bool[]: whether any flag is true; under vmap that of any run, so that what depends on it stays a branch."""
    return max_over_runs(flags.any().astype(jnp.int32)) > 0


def _shifted_columns(values: jax.Array, count: int) -> jax.Array:
    """The values `[n, T]` moved to the right by so many columns; zeros come in from the left."""
    return jnp.pad(values, ((0, 0), (count, 0)))[:, : values.shape[1]]


def _rank_within_moment(timeline: Timeline, staleness: float) -> jax.Array:
    """int32[T, W]: the rank of each unit among those that arrive at the same moment.

    That is 0 for a unit that takes time, and for one of no length one more than the rank of what it waited for, its
    worker's last unit and those of the others, as far as these arrived at the moment at which it started; 0 if none
    did (-1 is no rank). The scan keeps, of the last `ring_size` = staleness + 1 rows of units, when the last one
    arrived, and the latest rank of those that did then.
    """
    num_units, num_workers = timeline.finish.shape
    ring_size = int(staleness) + 1 if staleness < num_units else 1

    def step(state: RankState, numbered_unit: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[RankState, jax.Array]:
        """The ranks `[W]` of one unit of every worker, and the state for the next one.

        `numbered_unit`: its number, and when it starts and finishes `[W]`.

        The state: the finish and the rank of each worker's last unit `[W]`; and of each of the last `ring_size` units
        `[ring_size]`, unit n at n % ring_size, its latest finish, and the highest rank of those who finished then.
        """
        last_finish, last_rank, finish_ring, rank_ring = state
        unit_number, start, finish = numbered_unit
        place_in_ring = unit_number % ring_size
        own_rank = jnp.where(last_finish == start, last_rank, -1)
        others_rank = jnp.where(finish_ring[place_in_ring] == start, rank_ring[place_in_ring], -1)
        awaited_rank = jnp.maximum(own_rank, others_rank)
        rank = jnp.where((finish == start) & jnp.isfinite(finish), awaited_rank + 1, 0)
        latest_finish = finish.max()
        if staleness < num_units:
            finish_ring = finish_ring.at[place_in_ring].set(latest_finish)
            latest_rank = jnp.max(jnp.where(finish == latest_finish, rank, -1))
            rank_ring = rank_ring.at[place_in_ring].set(latest_rank)
        return (finish, rank, finish_ring, rank_ring), rank

    takes_no_time = (timeline.finish == timeline.start) & jnp.isfinite(timeline.finish)
    zero_times, no_rank = jnp.zeros(num_workers, timeline.start.dtype), jnp.full(num_workers, -1, jnp.int32)
    nobody_is_waited_for = staleness >= num_units
    first_finish = _NO_START_TIME if nobody_is_waited_for else 0.0
    empty_rings = jnp.full(ring_size, first_finish, zero_times.dtype), jnp.full(ring_size, -1, jnp.int32)
    units = jnp.arange(num_units, dtype=jnp.int32), timeline.start, timeline.finish
    return jax.lax.cond(
        _is_any(takes_no_time),
        lambda: jax.lax.scan(step, (zero_times, no_rank, *empty_rings), units)[1],
        lambda: jnp.zeros((num_units, num_workers), jnp.int32),
    )


def _sorted_order(times: jax.Array, rank: jax.Array) -> jax.Array:
    """int32[n]: the stable order by times that are not negative, and then by rank.

    XLA sorts plain integers several times faster than tuples, and the times of a worker, which are in order already,
    faster by a stable sort: it merges. The bits of a float32 >= 0 grow with it, so with the rank
    and the place of each time they make one integer of 64 bits, unless somebody has a very high rank at one moment.
    """

    def order_by_tuples(times: jax.Array, rank: jax.Array) -> jax.Array:
        """int32[n]: the order, for any times and ranks, [n] both."""
        index = jnp.arange(times.size, dtype=jnp.int32)
        return jax.lax.sort((times, rank, index), num_keys=2, is_stable=True)[2]

    if times.dtype != jnp.float32:
        return order_by_tuples(times, rank)
    index_bits = max((times.size - 1).bit_length(), 2)  # so that 1 << (32 - index_bits) is an int32

    def order_by_integers(times: jax.Array, rank: jax.Array) -> jax.Array:
        """int32[n]: the order, for ranks below 2^(32 - index_bits) and times float32[n] that are not negative.

        A key of 64 bits is, from the highest on, the time's 32 bits, the rank, and the index in `index_bits`.
        """
        with jax.enable_x64(True):
            time_bits, rank = (x.astype(jnp.uint64) for x in (jax.lax.bitcast_convert_type(times, jnp.uint32), rank))
            key = jnp.left_shift(time_bits, jnp.uint64(_TIME_BITS)) | jnp.left_shift(rank, jnp.uint64(index_bits))
            key = jax.lax.sort(key | jax.lax.iota(jnp.uint64, times.size), is_stable=True)
            index_mask = jnp.uint64((1 << index_bits) - 1)
            return (key & index_mask).astype(jnp.int32)

    rank_fits = max_over_runs(rank.max()) < 1 << (32 - index_bits)
    without_negative_zero = jnp.abs(times)
    return jax.lax.cond(rank_fits, order_by_integers, order_by_tuples, without_negative_zero, rank)


def check_staleness(staleness: float) -> float:
    """The staleness bound, if it is a whole number >= 0, or inf.

    Raises:
      ValueError: if it is neither.
    """
    is_number = (
        isinstance(staleness, (int, float, np.integer, np.floating))
        and not isinstance(staleness, bool)
        and staleness >= 0
    )
    if not is_number or (not math.isinf(staleness) and staleness != int(staleness)):
        raise ValueError(
            f"staleness must be a whole number >= 0, or inf for no bound; got {staleness!r}. "
            "0 is bulk synchronous (bsp), inf is asynchronous (asp)."
        )
    return staleness
