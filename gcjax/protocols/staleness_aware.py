"""Staleness-aware asynchronous SGD (Zhang, Gupta, Lian, Liu, IJCAI 2016)."""

import jax
import jax.numpy as jnp

from gcjax import specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.k_sync import first_arrivals, k_batch_async
from gcjax.protocols.schedule import with_weights
from gcjax.protocols.simulation.rules import Rule
from gcjax.protocols.ssp import asp
from gcjax.stragglers.network import Network


@comparable
def staleness_aware(*, num_contributions: int = 1) -> Protocol:
    """n-softsync with step sizes divided by the staleness.

    A commit takes any K gradients, each on the version that its worker read, nobody waits (`k_batch_async`), and each
    is applied with the factor `1 / (K max(1, staleness))` (Zhang et al. 2016). n = W / K.

    Args:
      num_contributions: K, 1 or more.

    Raises:
      ValueError: if K is below 1.
    """
    k_gradients = k_batch_async(num_contributions=num_contributions)
    unweighted = asp(weight=1.0) if num_contributions == 1 else k_gradients  # the same for K = 1, and faster

    def weight(staleness: jax.Array, work: jax.Array) -> jax.Array:
        """float[..., C]: 1/K divided by the staleness in commits, or by 1 if that is 0; `work` plays no part."""
        del work
        return (1.0 / num_contributions) / jnp.maximum(staleness, 1).astype(jnp.result_type(float))

    def rule(num_workers: int) -> Rule:
        """The rule by which any `num_contributions` gradients are a commit, with weights by their staleness."""
        return first_arrivals(num_contributions, one_push_per_worker=False, cancels_others=False)._replace(
            weight=weight
        )

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of `unweighted`, with weights by the staleness."""
        return with_weights(unweighted.schedule(durations, network), weight)

    return unweighted.replace(
        schedule=schedule,
        rule=rule,
        specification=lambda num_workers: specifications.staleness_aware(
            num_workers, num_contributions=num_contributions
        ),
    )
