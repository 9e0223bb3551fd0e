"""Delay-adaptive asynchronous SGD (Koloskova, Stich, Jaggi, NeurIPS 2022)."""

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.schedule import with_weights
from gcjax.protocols.simulation.rules import Rule
from gcjax.protocols.ssp import asp
from gcjax.stragglers.network import Network


@comparable
def delay_adaptive(*, delay_threshold: float | None = None) -> Protocol:
    """Asynchronous SGD with smaller steps for gradients that are later than usual.

    Nobody waits, and a gradient is applied on arrival, as in `asp`. A gradient of version v that arrives after e
    commits has the delay τ = e - v, and the factor `min(1, τ_C / τ)`: up to τ_C it is 1, beyond that the step shrinks
    as 1/τ (Koloskova et al. 2022). τ_C = 1 is `staleness_aware`.

    Args:
      delay_threshold: τ_C in commits, 1 or more; W if None, the gradients that are computed at the same time.

    Raises:
      ValueError: if the threshold is below 1, or not finite.

    Example:
      >>> durations = jnp.array([[1.0, 3.5], [1.0, 3.5], [1.0, 3.5], [1.0, 3.5]])  # worker 1 is slower
      >>> schedule = gcjax.protocols.delay_adaptive(delay_threshold=1.5)(durations)
      >>> schedule.weight[:5, 0].tolist()  # what worker 1 sends at 3.5, after three commits, counts half
      [1.0, 1.0, 1.0, 0.5, 1.0]
    """
    if delay_threshold is not None:
        _validate.single_number("delay_threshold", delay_threshold, minimum=1.0, finite=True)
    unweighted = asp(weight=1.0)

    def rule(num_workers: int) -> Rule:
        """The rule of asynchronous SGD, with other weights."""
        threshold = num_workers if delay_threshold is None else delay_threshold

        def weight(staleness: jax.Array, work: jax.Array) -> jax.Array:
            """float[..., C]: the factor of gradients with these delays: min(1, τ_C / delay); `work` plays no part."""
            del work
            delay = jnp.maximum(staleness, 1).astype(jnp.result_type(float))
            return jnp.minimum(1.0, threshold / delay)

        return Rule(weight=weight)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of asynchronous SGD, with the weights of the delays."""
        return with_weights(unweighted.schedule(durations, network), rule(durations.shape[1]).weight)

    return unweighted.replace(schedule=schedule, max_weight=1.0, rule=rule, specification=specifications.delay_adaptive)
