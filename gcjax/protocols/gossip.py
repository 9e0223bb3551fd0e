"""What protocols without a server have in common: workers that mix their parameters with those of neighbours."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.mixing_matrices import MixingMatrix, iterations_ahead, short_rows
from gcjax.protocols.base import LocalWork, Mixing, Protocol, Schedule, own_params
from gcjax.protocols.not_served import not_served
from gcjax.protocols.simulation.neighbours import Exchange, copies_sent, exchange_of, neighbour_iterations
from gcjax.specifications import Specification
from gcjax.stragglers.network import Network

no_rule = not_served(
    "there is no server in this protocol: workers send their parameters to each other. gcjax.engine.run simulates "
    "it; it cannot be served, and its workers cannot be away."
)


def iterations_with_neighbours(
    matrices_of: Callable[[int], np.ndarray],
    specification: Callable[[int], Specification],
    *,
    push_sum: bool = False,
) -> Protocol:
    """The protocol of iterations after each of which all mix with those whom they hear.

    Args:
      matrices_of: pure function `num_workers -> float64[turns, W, W]`, which take turns.
      specification: its own, by the number of workers.
      push_sum: whether weights take out that rows do not add up to 1.
    """

    def exchange(num_workers: int) -> Callable[[jax.Array], Exchange]:
        """What so many workers send each other, by the iteration: w hears those v with M[w, v] > 0."""
        return exchange_of(matrices_of(num_workers) > 0)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule in which everybody waits for those whom it hears."""
        return neighbour_iterations(exchange(durations.shape[1]), durations, network)

    def copies(schedule: Schedule) -> jax.Array:
        """float[T, W]: how many copies of its parameters each worker sends after a unit, one to each who hears it."""
        return copies_sent(exchange(schedule.start.shape[1]), schedule)

    def matrix(schedule: Schedule) -> Callable[[jax.Array], MixingMatrix]:
        """The matrices of the iterations that commits end."""
        matrices = matrices_of(schedule.start.shape[1])  # [turns, W, W]
        columns = short_rows(matrices != 0)
        weights = matrices if columns is None else np.take_along_axis(matrices, columns, axis=2)
        by_turns = MixingMatrix(
            jnp.asarray(weights, schedule.time.dtype), None if columns is None else jnp.asarray(columns)
        )
        return lambda commit: jax.tree.map(lambda x: x[commit % len(matrices)], by_turns)

    def max_staleness(num_workers: int) -> int:
        """The most commits that happen while a worker is in an iteration: how far ahead it begins, less one."""
        ahead = iterations_ahead(matrices_of(num_workers) > 0)  # int[turns, W, W]
        return max(int(ahead.max()) - 1, 0)

    return Protocol(
        schedule,
        one_version=False,
        max_staleness=max_staleness,
        local=LocalWork(pull=own_params, mixing=Mixing(matrix, copies, push_sum=push_sum), single_steps=True),
        rule=no_rule,
        specification=specification,
    )
