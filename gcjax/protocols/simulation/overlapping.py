"""Turns of workers that go on computing while they send and receive.

Letters: W workers.
"""

import jax
import jax.numpy as jnp

from gcjax.protocols.simulation.rules import TurnPlan
from gcjax.protocols.simulation.turns import Work


def overlapping_turn(work: Work, first: jax.Array, ready: jax.Array, began: jax.Array) -> TurnPlan:
    """The push of all units that are done once the last push and reading have ended, one at least.

    Computing began with unit 0 and never stops, so all times are sums of units from there on.

    Args:
      work: the sampled units.
      first: int32[W], the first unit that was not pushed yet.
      ready: float[W] seconds, when the last push and reading end.
      began: float[W] seconds, when each worker began to compute.
    """
    unit_0 = jnp.zeros_like(first)
    send_start = jnp.maximum(ready, began + work.seconds(unit_0, first + 1))  # once a unit is done
    num_units = (work.done(unit_0, send_start - began) - first).clip(1)
    stop = began + work.seconds(unit_0, first + num_units)
    # The step that is under way at `ready` is the first one on the new parameters.
    fresh = work.done(unit_0, ready - began).clip(first, first + num_units)
    send_start = jnp.where(jnp.isfinite(stop), send_start, jnp.inf)
    compute_start = began + work.seconds(unit_0, first)
    return TurnPlan(num_units, compute_start=compute_start, stop=stop, send_start=send_start, fresh=fresh)
