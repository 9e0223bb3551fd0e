"""Dynamic stale synchronous parallel (Zhao, An, Liu, Chen, ICDCS 2019)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.simulation.earliest import first_index
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule, View, slowest_clock
from gcjax.protocols.simulation.worker_selection import with_entry
from gcjax.stragglers.network import Network


class _Pushes(NamedTuple):
    """The pushes of the workers and what they were granted, as the server remembers them; arrays [W].

    Attributes:
      last_time: float seconds, the last push; 0 before there is one.
      previous_time: float seconds, the push before the last one.
      num_pushes: int32, so many there were, which who joins has none of, whatever its clock is then.
      num_granted: int32, the granted steps that are left, beyond the next one.
      may_go_on: bool, whether the next step is granted, however far ahead the worker is.
    """

    last_time: jax.Array
    previous_time: jax.Array
    num_pushes: jax.Array
    num_granted: jax.Array
    may_go_on: jax.Array


@comparable
def dssp(*, lower: int = 3, span: int = 12, weight: float | None = None) -> Protocol:
    """Dynamic SSP: the staleness threshold moves in [lower, lower + span], by what is predicted to cost least waiting.

    A worker that has done n units goes on if `n - min_v n_v <= lower`, or on steps that it has been granted. When the
    fastest worker may not go on, it is granted the r <= span steps after which it would wait least for the next push of
    the slowest: with A and I the last push and the last interval between pushes of each, `r` minimises
    `min_(k >= 1) {A_slow + k I_slow - (A_fast + r I_fast) >= 0}`, the least r of equal ones. Waits that differ by less
    than 0.001 I_slow count as equal, so that rounding grants nobody another number of steps. It never gets more than
    `lower + span + 1` ahead. Gradients are applied on arrival (Zhao et al. 2019, algorithms 1 and 2). Without two
    pushes of both there is no prediction, and nothing is granted.

    Args:
      lower: the least threshold, in units.
      span: how many steps more can be granted; 0 is `ssp(staleness=lower)`.
      weight: the factor of a gradient when it is applied; 1/W if None.

    Raises:
      ValueError: if a threshold is negative or not whole.
    """
    lower = _validate.integer("lower", lower)
    span = _validate.integer("span", span)
    if weight is not None:
        _validate.single_number("weight", weight, finite=True)

    def rule(num_workers: int) -> Rule:
        """The waiting rule, with the weight 1/W or `weight`."""
        return _threshold_rule(lower, span)._replace(weight=1.0 / num_workers if weight is None else weight)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of the waiting rule; each message is a commit of its own, with the weight 1/W or `weight`."""
        return event_schedule(rule(durations.shape[1]), durations, network)

    def max_staleness(num_workers: int) -> int:
        """int: the most commits between reading and pushing.

        Nobody is more than s = lower + span units ahead when it begins one. So while a worker is busy with its unit n,
        each other one can push at most its units n - s, ..., n + s.
        """
        max_ahead = lower + span
        max_pushes_meanwhile = 2 * max_ahead + 1
        return (num_workers - 1) * max_pushes_meanwhile

    return Protocol(
        schedule,
        max_staleness=max_staleness,
        specification=lambda num_workers: specifications.dssp(num_workers, lower=lower, span=span),
        max_weight=1.0 if weight is None else None,  # who gives a weight says how far a gradient moves
        rule=rule,
    )


def _threshold_rule(lower: int, max_granted: int) -> Rule:
    """The waiting rule: who may go on, and what the server remembers (`_Pushes`).

    `lower` is the threshold of `dssp`, `max_granted` its `span`, both in steps.
    """

    def memory(num_workers: int, dtype: jnp.dtype) -> _Pushes:
        """The memory at first: no push, and nothing granted."""
        zero_times, zero_steps = jnp.zeros(num_workers, dtype), jnp.zeros(num_workers, jnp.int32)
        nobody = jnp.zeros(num_workers, bool)
        return _Pushes(zero_times, zero_times, num_pushes=zero_steps, num_granted=zero_steps, may_go_on=nobody)

    def remember(view: View, worker: jax.Array) -> _Pushes:
        """The memory after a push of `worker`, now: its times, and the steps that it may take beyond `lower`.

        It uses up a step granted before. The fastest worker, too far ahead and with none left, is granted new ones.
        """
        pushes: _Pushes = view.memory
        pushes = pushes._replace(
            previous_time=with_entry(pushes.previous_time, worker, pushes.last_time[worker]),
            last_time=with_entry(pushes.last_time, worker, view.now),
            num_pushes=with_entry(pushes.num_pushes, worker, pushes.num_pushes[worker] + 1),
        )
        num_left = pushes.num_granted[worker]
        num_ahead = view.clock[worker] - slowest_clock(view)  # steps; who joins begins at the slowest
        is_fastest = view.clock[worker] == jnp.max(jnp.where(view.alive, view.clock, 0))
        needs_grant = (num_left == 0) & (num_ahead > lower) & is_fastest
        # Whoever is exactly at the threshold may still take a step, so it ends at most one beyond lower + max_granted.
        max_steps = jnp.minimum(max_granted, lower + max_granted + 1 - num_ahead)
        num_left = jnp.where(needs_grant, _num_steps_to_grant(pushes, view, worker, max_granted, max_steps), num_left)
        num_left_after_next = (num_left - 1).clip(0)  # without the step that begins now
        return pushes._replace(
            num_granted=with_entry(pushes.num_granted, worker, num_left_after_next),
            may_go_on=with_entry(pushes.may_go_on, worker, num_left > 0),
        )

    def ready(view: View) -> jax.Array:
        """bool[W]: who has a granted step, or is at most `lower` steps ahead of the slowest."""
        return view.memory.may_go_on | (view.clock - slowest_clock(view) <= lower)

    return Rule(ready=ready, memory=memory, remember=remember)


def _num_steps_to_grant(
    pushes: _Pushes, view: View, fast_worker: jax.Array, max_granted: int, max_steps: jax.Array
) -> jax.Array:
    """int32[]: the number of steps, `max_steps` at most, after which the fast worker is predicted to wait least.

    Both it and the slowest are predicted to go on at the interval between their last two pushes. 0 if one of them has
    pushed less than twice. `view.clock int32[W]` says how far each worker is.
    """
    slow_worker = first_index(view.alive & (view.clock == slowest_clock(view)))
    fast_interval, slow_interval = (pushes.last_time[w] - pushes.previous_time[w] for w in (fast_worker, slow_worker))
    num_steps = jnp.arange(max_granted + 1, dtype=jnp.int32)  # all that can be granted; what follows is of each
    fast_push = pushes.last_time[fast_worker] + num_steps.astype(fast_interval.dtype) * fast_interval
    positive_interval = jnp.where(slow_interval > 0, slow_interval, 1)  # not 0, also where the result is not used
    intervals_since_slow_push = (fast_push - pushes.last_time[slow_worker]) / positive_interval
    num_slow_pushes = jnp.maximum(jnp.ceil(intervals_since_slow_push - _ROUNDING), 1)
    wait = jnp.maximum(num_slow_pushes - intervals_since_slow_push, 0)  # in intervals of the slow worker
    wait = jnp.where(num_steps <= max_steps, wait, jnp.inf)
    first_of_least = jnp.argmax(wait <= wait.min() + _ROUNDING).astype(jnp.int32)
    have_pushed_twice = (pushes.num_pushes[fast_worker] >= 2) & (pushes.num_pushes[slow_worker] >= 2)
    is_predictable = have_pushed_twice & (slow_interval > 0)
    return jnp.where(is_predictable, first_of_least, 0)


_ROUNDING = 1e-3
"""Of an interval between two pushes: waits that differ by less are equal but for rounding."""
