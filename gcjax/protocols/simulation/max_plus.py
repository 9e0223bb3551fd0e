"""The max-plus law of bounded staleness, and how a timeline becomes a list of commits."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gcjax._shared_loops import max_over_runs
from gcjax.protocols.schedule import Schedule, Timeline, record
from gcjax.stragglers.network import Network

Pair = tuple[jax.Array, jax.Array]
RankState = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


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
    bounded = staleness < num_units
    depth = int(staleness) + 1 if bounded else 1
    dtype = durations.dtype
    receive, send = (
        jnp.broadcast_to(jnp.asarray(x, dtype), (num_workers,))
        for x in (network.receive_seconds(), network.send_seconds())
    )

    def begin(last_finish: jax.Array, slowest: jax.Array, unit: jax.Array) -> jax.Array:
        """float[W]: when unit number `unit` of each worker begins.

        After its last unit, at `last_finish float[W]`, and after the unit `depth` before it of everybody, at
        `slowest float[depth]`, the latest finish of each of the last `depth` units (that of unit n at n % depth).
        """
        return jnp.maximum(last_finish, slowest[unit % depth]) if bounded else last_finish

    def step(state: Pair, unit_durations: Pair) -> tuple[Pair, tuple[jax.Array, ...]]:
        """One unit of every worker: the state that `begin` looks at, and the times of the unit, `[W]` each.

        `unit_durations`: the number of the unit, and its seconds `[W]`; `receive` and `send` are those of messages.
        """
        (last_finish, slowest), (unit, seconds) = state, unit_durations
        start = begin(last_finish, slowest, unit)
        compute_start = start + receive
        compute_end = compute_start + seconds
        finish = compute_end + send
        return (finish, slowest.at[unit % depth].set(finish.max())), (start, compute_start, compute_end, finish)

    initial = jnp.zeros(num_workers, dtype), jnp.zeros(depth, dtype)
    units = jnp.arange(num_units)
    (last_finish, slowest), times = jax.lax.scan(step, initial, (units, durations))
    start, compute_start, compute_end, finish = times
    horizon = begin(last_finish, slowest, jnp.asarray(num_units)).min()  # of the first unit that was not sampled
    return Timeline(
        start=start,
        compute_start=compute_start,
        compute_end=compute_end,
        send_start=compute_end,
        finish=finish,
        horizon=horizon,
    )


@partial(jax.jit, static_argnums=2)
def commits_on_arrival(timeline: Timeline, weight: float | jax.Array, staleness: float) -> Schedule:
    """The record in which every unit is a commit of its own, on what had arrived when it started; E = T·W, C = 1.

    Units are committed in the order of their arrival. All that arrives at one moment does so before anybody starts at
    that moment; so a unit of no length, which starts and arrives at it, comes after what it waited for: it has a higher
    rank (`_rank_within_moment`). Of one rank the worker with the lower number is first. What a unit has read is all
    commits up to the last one with the time and the rank of what it waited for, by the law of `bounded_staleness` its
    worker's last unit, or the last of those that it may not be too far ahead of. So a unit never reads its own commit
    or a later one.
    """
    num_units, num_workers = timeline.finish.shape
    arrivals, rank = timeline.finish.T.ravel(), _rank_within_moment(timeline, staleness).T.ravel()
    order = _sorted_order(arrivals, rank)
    time, rank = arrivals[order], rank[order]
    is_last = jnp.append((time[1:] != time[:-1]) | (rank[1:] != rank[:-1]), True)  # of one time and rank
    num_commits = jnp.arange(1, time.size + 1, dtype=jnp.int32)
    # The version there is once all commits of the time and the rank of a commit have happened; in order, then [W, T].
    version_after = jax.lax.cummin(jnp.where(is_last, num_commits, time.size), reverse=True)
    version_after = jnp.zeros_like(version_after).at[order].set(version_after, unique_indices=True)
    version_after = version_after.reshape(num_workers, num_units)
    version = _shifted_columns(version_after, 1)  # after the worker's last unit
    if staleness < num_units:
        slowest = version_after.max(axis=0, keepdims=True)
        version = jnp.maximum(version, _shifted_columns(slowest, int(staleness) + 1))
    return record(
        timeline,
        time=jnp.where(time <= timeline.horizon, time, jnp.inf),
        worker=(order // num_units)[:, None],
        unit=(order % num_units)[:, None],
        work=jnp.ones((), jnp.int32),
        weight=weight,
        read=version.T,
    )


def _shifted_columns(values: jax.Array, count: int) -> jax.Array:
    """The values `[n, T]` moved to the right by so many columns; zeros come in from the left."""
    return jnp.pad(values, ((0, 0), (count, 0)))[:, : values.shape[1]]


def _rank_within_moment(timeline: Timeline, staleness: float) -> jax.Array:
    """int32[T, W]: the rank of each unit among those that arrive at the same moment.

    That is 0 for a unit that takes time, and for one of no length one more than the rank of what it waited for, its
    worker's last unit and those of the others, as far as these arrived at the moment at which it started. The scan
    keeps, of the last `depth` rows of units, when the last one arrived, and the latest rank of those that did so then.
    """
    num_units, num_workers = timeline.finish.shape
    depth = int(staleness) + 1 if staleness < num_units else 1

    def step(state: RankState, unit: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[RankState, jax.Array]:
        """The ranks `[W]` of one unit of every worker, and the state for the next one.

        `unit`: its number, and when it starts and finishes `[W]`.

        The state: the finish and the rank of each worker's last unit `[W]`; and of each of the last `depth` units
        `[depth]`, unit n at n % depth, its latest finish, and the highest rank of those who finished then.
        """
        last_finish, last_rank, latest_finish, latest_rank = state
        index, start, finish = unit
        row = index % depth
        waited_rank = jnp.maximum(
            jnp.where(last_finish == start, last_rank, -1), jnp.where(latest_finish[row] == start, latest_rank[row], -1)
        )
        rank = jnp.where((finish == start) & jnp.isfinite(finish), waited_rank + 1, 0)
        latest = finish.max()
        if staleness < num_units:
            latest_finish = latest_finish.at[row].set(latest)
            latest_rank = latest_rank.at[row].set(jnp.max(jnp.where(finish == latest, rank, -1)))
        return (finish, rank, latest_finish, latest_rank), rank

    zero, no_rank = jnp.zeros(num_workers, timeline.start.dtype), jnp.full(num_workers, -1, jnp.int32)
    # Without a bound nobody waits for others: -1 is no time at which a unit starts.
    rows = jnp.full(depth, 0.0 if staleness < num_units else -1.0, zero.dtype), jnp.full(depth, -1, jnp.int32)
    units = jnp.arange(num_units, dtype=jnp.int32), timeline.start, timeline.finish
    return jax.lax.scan(step, (zero, no_rank, *rows), units)[1]


def _sorted_order(times: jax.Array, rank: jax.Array) -> jax.Array:
    """int32[n]: the stable order by times that are not negative, and then by rank.

    XLA sorts plain integers several times faster than tuples. The bits of a float32 >= 0 grow with it, so with the rank
    and the place of each time they make one integer of 64 bits, unless somebody has a very high rank at one moment.
    """

    def sorted_as_tuples(times: jax.Array, rank: jax.Array) -> jax.Array:
        """The order, for any times and ranks."""
        place = jnp.arange(times.size, dtype=jnp.int32)
        return jax.lax.sort((times, rank, place), num_keys=2, is_stable=True)[2]

    if times.dtype != jnp.float32:
        return sorted_as_tuples(times, rank)
    bits = max((times.size - 1).bit_length(), 2)  # so that 1 << (32 - bits) is an int32

    def sorted_as_integers(times: jax.Array, rank: jax.Array) -> jax.Array:
        """The order, for ranks that fit: a key is the time's 32 bits, the rank, and the place in the lowest `bits`."""
        with jax.enable_x64(True):
            time_bits, rank = (x.astype(jnp.uint64) for x in (jax.lax.bitcast_convert_type(times, jnp.uint32), rank))
            key = jnp.left_shift(time_bits, jnp.uint64(32)) | jnp.left_shift(rank, jnp.uint64(bits))
            key = jax.lax.sort(key | jax.lax.iota(jnp.uint64, times.size), is_stable=False)
            return (key & jnp.uint64((1 << bits) - 1)).astype(jnp.int32)

    rank_fits = max_over_runs(rank.max()) < 1 << (32 - bits)
    return jax.lax.cond(rank_fits, sorted_as_integers, sorted_as_tuples, jnp.abs(times), rank)  # abs: -0.0 is 0.0


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
