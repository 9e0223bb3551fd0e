"""Bulk synchronous parallel (Valiant, CACM 1990)."""

import jax
import jax.numpy as jnp

from gcjax.algebra import specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.rounds import fixed, rounds
from gcjax.protocols.timing import bounded_staleness, used_commits
from gcjax.stragglers.network import Network


@comparable
def bsp() -> Protocol:
    """Bulk synchronous parallel: every round waits for everybody and applies the mean (Valiant 1990).

    `F[n, w] = max_v F[n-1, v] + D[n, w]`; commit n happens at `max_w F[n, w]`. E = T, C = W.
    """

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        num_units, num_workers = durations.shape
        if network.server is not None:  # messages get in each other's way
            return rounds(fixed(1), durations, network, num_units)
        timeline = bounded_staleness(durations, network, 0)
        everybody = (num_units, num_workers)
        index = jnp.broadcast_to(jnp.arange(num_units)[:, None], everybody)
        return used_commits(
            timeline,
            time=timeline.finish.max(axis=1),
            worker=jnp.broadcast_to(jnp.arange(num_workers)[None], everybody),
            unit=index,
            version=index,
            work=jnp.ones(everybody),
            weight=jnp.full(everybody, 1.0 / num_workers),
        )

    return Protocol(
        schedule,
        max_staleness=lambda num_workers: 0,
        specification=lambda num_workers: specifications.bsp(workers=num_workers),
    )
