"""Backup workers and a bounded gap without a server (Luo, Lin, Zhuo, Qian, ASPLOS 2019: Hop)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.mixing_matrices import MixingMatrix, short_rows, undirected_neighbours
from gcjax.protocols.base import LocalWork, Mixing, Protocol, Schedule, own_params
from gcjax.protocols.gossip import no_rule
from gcjax.protocols.simulation.neighbours import copies_sent, exchange_of, has_arrived, neighbour_iterations
from gcjax.stragglers.network import Network


@comparable
def hop(*, graph: Any = "ring", num_backup: int = 1, max_gap: int = 2) -> Protocol:
    """Hop: as `d_psgd`, but a worker waits for all of its neighbours except b, and runs ahead of none by too much.

    Worker w begins iteration t when it has done t - 1, all of its neighbours but b have, and all of them have begun
    t - g: so much do the paper's queues of tokens let through (Luo et al. 2019). With S[t, v] the begin of an iteration
    and F[t, v] when its messages have been sent, `S[t, w] = max(F[t-1, w], all but the b largest F[t-1, v],
    max_v S[t-g, v])`, v its neighbours. Its parameters become the mean, with equal weights, of its own and those that
    have come by then; later ones are dropped. Nobody is more than g + 1 iterations ahead of a neighbour. Commits,
    messages and the run's parameters are those of `d_psgd`, but averages do not keep the mean of all workers. The
    paper's bounded staleness and its skipping of iterations are left out.

    Args:
      graph: undirected: "ring", "torus", "complete" or "bipartite", or bool[W, W], or a `networkx.Graph`.
      num_backup: b; 0 waits for all neighbours. Who has no more of them waits for g only.
      max_gap: g, 1 or more.

    Raises:
      ValueError: if the graph is directed, or of other workers, or b is negative, or g is below 1.
    """
    num_backup = _validate.integer("num_backup", num_backup)
    max_gap = _validate.integer("max_gap", max_gap, minimum=1)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule in which everybody waits for all but b of its neighbours."""
        exchange = exchange_of(undirected_neighbours(graph, durations.shape[1])[None])
        return neighbour_iterations(exchange, durations, network, num_backup=num_backup, max_gap=max_gap)

    def copies(schedule: Schedule) -> jax.Array:
        """float[T, W]: the copies of its parameters that each worker sends after a unit, one for each neighbour."""
        return copies_sent(exchange_of(undirected_neighbours(graph, schedule.start.shape[1])[None]), schedule)

    def matrix(schedule: Schedule) -> Callable[[jax.Array], MixingMatrix]:
        """Row w is the mean of its own and what has come from neighbours when its next iteration begins."""
        num_units, num_workers = schedule.start.shape
        neighbours, itself = undirected_neighbours(graph, num_workers), np.eye(num_workers, dtype=bool)
        columns_of_turns = short_rows((neighbours | itself)[None])

        def matrix_of_commit(commit: jax.Array) -> MixingMatrix:
            # When each begins its next iteration, float[W]; after the last one, the horizon, when the first would.
            is_last = commit == num_units - 1
            next_start = jnp.where(is_last, schedule.horizon, schedule.start[(commit + 1).clip(0, num_units - 1)])
            is_heard = has_arrived(jnp.asarray(neighbours), schedule.finish[commit], next_start) | itself
            weights = is_heard.astype(schedule.time.dtype)
            weights /= weights.sum(axis=1, keepdims=True)
            if columns_of_turns is None:
                return MixingMatrix(weights)
            (columns,) = columns_of_turns
            return MixingMatrix(jnp.take_along_axis(weights, columns, axis=1), jnp.asarray(columns))

        return matrix_of_commit

    return Protocol(
        schedule,
        one_version=False,
        local=LocalWork(pull=own_params, mixing=Mixing(matrix, copies), single_steps=True),
        rule=no_rule,
        specification=lambda num_workers: specifications.hop(
            num_workers, graph=graph, num_backup=num_backup, max_gap=max_gap
        ),
    )
