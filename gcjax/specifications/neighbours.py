"""Iterations that wait for neighbours: the clocks of the workers, and how far apart they are (Lian et al. 2017).

The state is the iterations that each worker has done. Beginning one and having sent what it gives are one step, as in
`clocks`. Clocks are counted from the slowest, less a whole number of turns of the graphs.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.mixing_matrices import UNBOUNDED, iterations_ahead, mixing_matrices, undirected_neighbours
from gcjax.specifications.base import Specification, check_num_workers, zeros
from gcjax.specifications.clocks import MOST_ITERATIONS, Clocks, counted_from_slowest, pushing_workers, replay_clocks
from gcjax.specifications.thresholds import near_others


@comparable
def d_psgd(num_workers: int = 3, *, mixing: Any = "ring") -> Specification:
    """D-PSGD: neighbours are at most one iteration apart, and others at most their distance in the graph.

    A worker begins an iteration when those whom it hears have done the one before (Lian et al. 2017).

    Args:
      num_workers: W.
      mixing: as in `gcjax.protocols.d_psgd`.
    """
    check_num_workers(num_workers)
    hears = mixing_matrices(mixing, num_workers) > 0  # bool[turns, W, W]
    return _waiting_for_neighbours(f"d_psgd({num_workers} workers)", hears)


@comparable
def sgp(num_workers: int = 3, *, mixing: Any = "one_peer_exponential") -> Specification:
    """SGP: nobody is further ahead of a worker than there are hops between them, along those who hear each other.

    A worker begins an iteration when those whom it hears after the one before have done that (Assran et al. 2019).

    Args:
      num_workers: W.
      mixing: as in `gcjax.protocols.sgp`.
    """
    check_num_workers(num_workers)
    hears = mixing_matrices(mixing, num_workers, keeps_equal=False) > 0  # bool[turns, W, W]
    return _waiting_for_neighbours(f"sgp({num_workers} workers)", hears)


@comparable
def prague(num_workers: int = 3, *, group_size: int = 2) -> Specification:
    """Partial all-reduce: each worker is at most one iteration ahead of as many others as its group has.

    A worker begins an iteration when so many others have done the one before as are in a group besides it; which ones
    the random groups make it wait for is left open (Luo et al. 2020).

    Args:
      num_workers: W.
      group_size: the most members of a group, from 1 to W; groups are as equal in size as possible.
    """
    group_size = _validate.integer("group_size", group_size, minimum=1, maximum=check_num_workers(num_workers))
    name = f"prague({num_workers} workers, groups of {group_size})"
    num_groups = -(-num_workers // group_size)
    num_others = num_workers // num_groups - 1  # in the smallest group
    return near_others(name, num_workers, num_sampled=num_others, staleness=0, commits_are_rounds=True)


@comparable
def hop(num_workers: int = 3, *, graph: Any = "ring", num_backup: int = 1, max_gap: int = 2) -> Specification:
    """Hop with backup workers: nobody is more than g + 1 iterations ahead of a neighbour, g the largest gap.

    A worker begins an iteration when all of its neighbours but b have done the one before, and nobody of them is more
    than g iterations behind (Luo et al. 2019).

    Args:
      num_workers: W.
      graph: as in `gcjax.protocols.hop`.
      num_backup: b.
      max_gap: g.
    """
    neighbours = undirected_neighbours(graph, check_num_workers(num_workers))
    num_backup = _validate.integer("num_backup", num_backup)
    max_gap = _validate.integer("max_gap", max_gap, minimum=1, maximum=MOST_ITERATIONS)
    distance = iterations_ahead(neighbours[None])[0]  # int64[W, W], in hops; the graph is the same in each turn: [None]
    is_connected = distance < UNBOUNDED  # whether there is a path
    farthest = (max_gap + 1) * int(distance.max(where=is_connected, initial=0))
    allowed = np.where(is_connected, distance * (max_gap + 1), UNBOUNDED)  # [W, W]: how far w may be ahead of v
    allowed = np.minimum(allowed, 2 * MOST_ITERATIONS - 1).astype(np.int32)

    def push(state: Clocks, worker: jax.Array) -> tuple[Clocks, jax.Array]:
        """The state with one iteration more of the worker, and whether it may do it.

        At most b of its neighbours, `neighbours bool[W, W]`, are behind it, by at most g iterations.
        """
        clock, is_neighbour = state.clock, jnp.asarray(neighbours)[worker]
        num_behind = (is_neighbour & (clock < clock[worker])).sum()
        is_near = ~is_neighbour | (clock >= clock[worker] - max_gap)
        return Clocks(clock.at[worker].add(1)), (num_behind <= num_backup) & is_near.all()

    def guarantee(before: Clocks, after: Clocks, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker does one iteration, at most g ahead of neighbours, at most b of them behind it."""
        lead = jnp.where(jnp.asarray(neighbours)[worker], before.clock[worker] - before.clock, 0)
        has_heard_enough = (lead > 0).sum() <= num_backup
        return (after.clock[worker] == before.clock[worker] + 1) & (lead.max() <= max_gap) & has_heard_enough

    return Specification(
        f"hop({num_workers} workers, {num_backup} backup, gap {max_gap})",
        num_workers,
        initial=Clocks(zeros(num_workers)),
        sizes=Clocks(np.full(num_workers, farthest + 2)),  # clocks from 0 on, the slowest one's
        worker=pushing_workers(num_workers, push, guarantee, commits_are_rounds=True),
        claim=f"nobody is more than {max_gap + 1} iterations ahead of a neighbour",
        invariant=lambda state: (state.clock[:, None] - state.clock[None] <= jnp.asarray(allowed)).all(),
        is_explored=lambda state: state.clock.max() - state.clock.min() <= farthest,
        canonicalise=counted_from_slowest,
        replay=replay_clocks,
    )


def _waiting_for_neighbours(name: str, hears: np.ndarray) -> Specification:
    """Workers that begin an iteration when those have done the one before whom they hear, bool[turns, W, W] by turns.

    Where somebody can be ahead without a bound, only states are explored in which nobody is ahead of the slowest by
    more iterations than there are turns and workers, multiplied: no bound is above that.
    """
    num_turns, num_workers = hears.shape[:2]
    # int64[turns, W, W]: how far w may be ahead of v, by the turn of its last iteration.
    ahead = iterations_ahead(hears)
    bounded = ahead < UNBOUNDED
    farthest = int(ahead.max()) if bounded.all() else num_turns * num_workers

    def waits_for(clock: jax.Array, worker: jax.Array) -> jax.Array:
        """bool[W]: whom the worker has to hear before its next iteration, by the graph of its last one.

        Before the first one there is none (turn -1, the last one, is taken), and nobody is behind: all clocks are 0.
        """
        return jnp.asarray(hears)[(clock[worker] - 1) % num_turns, worker]

    def push(state: Clocks, worker: jax.Array) -> tuple[Clocks, jax.Array]:
        """The state with one iteration more of the worker, and whether all whom it hears have done the one before."""
        clock = state.clock
        has_heard = ~waits_for(clock, worker) | (clock >= clock[worker])
        return Clocks(clock.at[worker].add(1)), has_heard.all()

    def guarantee(before: Clocks, after: Clocks, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker does one iteration, and nobody whom it hears is behind it."""
        clock = before.clock[worker]
        is_behind = waits_for(before.clock, worker) & (before.clock < clock)
        return (after.clock[worker] == clock + 1) & ~is_behind.any()

    def invariant(state: Clocks) -> jax.Array:
        """bool[]: whether nobody is further ahead of anybody than the graphs allow."""
        last_turn = (state.clock - 1) % num_turns  # of each worker
        allowed = jnp.asarray(ahead)[last_turn, jnp.arange(num_workers)]  # [W, W]: of each worker, a row
        return (state.clock[:, None] - state.clock[None] <= allowed).all()

    return Specification(
        name,
        num_workers,
        initial=Clocks(zeros(num_workers)),
        sizes=Clocks(np.full(num_workers, farthest + num_turns + 1)),
        worker=pushing_workers(num_workers, push, guarantee, commits_are_rounds=True),
        claim="nobody is further ahead of anybody than there are hops between them",
        invariant=invariant,
        is_explored=lambda state: state.clock.max() - state.clock.min() <= farthest,
        # The slowest is counted from 0 to turns - 1: whole turns are left out, which keeps everybody's graph.
        canonicalise=lambda state: Clocks(state.clock - state.clock.min() // num_turns * num_turns),
        replay=replay_clocks,
    )
