"""Dynamic stale synchronous parallel (Zhao, An, Liu, Chen, ICDCS 2019)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule, View
from gcjax.stragglers.network import Network


class _Pushes(NamedTuple):
    """What the server keeps in mind; arrays [W]: the times of the last two pushes, and the steps still granted."""

    last: jax.Array
    before: jax.Array
    granted: jax.Array
    free: jax.Array


@comparable
def dssp(*, lower: int = 3, span: int = 12, weight: float | None = None) -> Protocol:
    """Dynamic SSP: the staleness threshold moves in [lower, lower + span], by what is predicted to cost least waiting.

    A worker that has done n units goes on if `n - min_v n_v <= lower`, or on steps that it has been granted. When the
    fastest worker may not go on, it is granted the r <= span steps after which it would wait least for the next push of
    the slowest: with A and I the last push and the last interval between pushes of each, `r` minimises
    `min_(k >= 1) {A_slow + k I_slow - (A_fast + r I_fast) >= 0}`, the least r of equal ones. It never gets more than
    `lower + span + 1` ahead. Gradients are applied on arrival (Zhao et al. 2019, algorithms 1 and 2). Without two
    pushes of both there is no prediction, and nothing is granted.

    Args:
      lower: the least threshold, in units.
      span: how many steps more can be granted; 0 is `ssp(staleness=lower)`.
      weight: the factor of a gradient when it is applied; 1/W if None.

    Raises:
      ValueError: if a threshold is negative or not whole.
    """
    _validate.integer("lower", lower)
    _validate.integer("span", span)
    if weight is not None:
        _validate.single_number("weight", weight, finite=True)
    rule = _rule(lower, span)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        factor = 1.0 / durations.shape[1] if weight is None else weight
        return event_schedule(rule, durations, network, weight=factor)

    def max_staleness(num_workers: int) -> int:
        return (num_workers - 1) * (2 * (lower + span) + 1)

    return Protocol(
        schedule,
        max_staleness=max_staleness,
        specification=lambda num_workers: specifications.dssp(num_workers, lower=lower, span=span),
        max_weight=1.0 if weight is None else None,
    )


def _rule(lower: int, span: int) -> Rule:
    def memory(num_workers: int, dtype: jnp.dtype) -> _Pushes:
        never, none = jnp.zeros(num_workers, dtype), jnp.zeros(num_workers, jnp.int32)
        return _Pushes(never, never, none, none > 0)

    def remember(view: View, worker: jax.Array) -> _Pushes:
        pushes: _Pushes = view.memory
        pushes = pushes._replace(
            before=pushes.before.at[worker].set(pushes.last[worker]), last=pushes.last.at[worker].set(view.now)
        )
        left = pushes.granted[worker]
        ahead = view.clock[worker] - view.clock.min()
        asks = (left == 0) & (ahead > lower) & (view.clock[worker] == view.clock.max())
        most = jnp.minimum(span, lower + span + 1 - ahead)
        steps = jnp.where(asks, _grant(pushes, view.clock, worker, span, most), left)
        return pushes._replace(
            granted=pushes.granted.at[worker].set((steps - 1).clip(0)), free=pushes.free.at[worker].set(steps > 0)
        )

    def ready(view: View) -> jax.Array:
        return view.memory.free | (view.clock - view.clock.min() <= lower)

    return Rule(ready=ready, memory=memory, remember=remember)


def _grant(pushes: _Pushes, clock: jax.Array, fast: jax.Array, span: int, most: jax.Array) -> jax.Array:
    """int32[]: the number of steps after which the fast worker is predicted to wait least."""
    slow = jnp.argmin(clock)
    fast_interval, slow_interval = (pushes.last[w] - pushes.before[w] for w in (fast, slow))
    steps = jnp.arange(span + 1, dtype=jnp.int32)
    arrival = pushes.last[fast] + steps.astype(fast_interval.dtype) * fast_interval
    length = jnp.where(slow_interval > 0, slow_interval, 1)
    number = jnp.maximum(jnp.ceil((arrival - pushes.last[slow]) / length), 1)
    wait = pushes.last[slow] + number * slow_interval - arrival
    wait = jnp.where(steps <= most, jnp.maximum(wait, 0), jnp.inf)
    known = (clock[fast] >= 2) & (clock[slow] >= 2) & (slow_interval > 0)
    return jnp.where(known, jnp.argmin(wait).astype(jnp.int32), 0)
