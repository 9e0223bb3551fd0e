"""Bulk synchronous parallel (Valiant, CACM 1990)."""

import jax
import jax.numpy as jnp

from gcjax import specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol
from gcjax.protocols.schedule import Schedule, record
from gcjax.protocols.simulation.max_plus import bounded_staleness
from gcjax.protocols.simulation.rounds import fixed_units, rounds
from gcjax.protocols.simulation.rules import round_rule
from gcjax.stragglers.network import Network


@comparable
def bsp() -> Protocol:
    """Bulk synchronous parallel: every round waits for everybody and applies the mean (Valiant 1990).

    With F[n, w] the end of unit n of worker w, and D[n, w] its seconds: `F[n, w] = max_v F[n-1, v] + D[n, w]`; commit n
    happens at `max_w F[n, w]`. E = T, C = W.

    Example:
      >>> schedule = gcjax.protocols.bsp()(jnp.array([[1.0, 2.0], [1.0, 3.0]]))  # [T, W] seconds
      >>> schedule.time.tolist()
      [2.0, 5.0]
    """

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule in which commit n is round n: unit n of every worker, on version n; column w is worker w."""
        num_units, num_workers = durations.shape
        messages_share_link = network.server is not None
        if messages_share_link:
            return rounds(fixed_units(count=1), durations, network, num_rounds=num_units)
        timeline = bounded_staleness(durations, network, staleness=0)
        round_number = jnp.arange(num_units)[:, None]  # [T, 1], also of commits: E = T
        return record(
            timeline,
            time=timeline.finish.max(axis=1),
            worker=jnp.broadcast_to(jnp.arange(num_workers), (num_units, num_workers)),
            unit=round_number,
            work=jnp.ones((), jnp.int32),
            weight=1.0 / num_workers,
            read=round_number,
        )

    return Protocol(
        schedule,
        rule=lambda num_workers: round_rule(num_workers, num_units=1),
        max_staleness=lambda num_workers: 0,
        specification=specifications.bsp,
    )
