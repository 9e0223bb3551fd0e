"""Stale synchronous parallel (Ho et al., NeurIPS 2013), and asynchronous parallel as its limit."""

import math

import jax

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.max_plus import bounded_staleness, check_staleness, commits_on_arrival
from gcjax.protocols.simulation.rules import Rule, slowest_clock
from gcjax.stragglers.network import Network


@comparable
def ssp(*, staleness: float, weight: float | None = None) -> Protocol:
    """Stale synchronous parallel: wait only for those more than `staleness` units behind (Ho et al. 2013).

    A worker that has done n units starts the next one iff `n - min_v n_v <= staleness`; its gradient is applied on
    arrival. With F[n, w] the end of unit n of worker w, and D[n, w] its seconds: `F[n, w] = max(F[n-1, w],
    max_v F[n-1-s, v]) + D[n, w]`. Arrivals at the same moment are ordered by worker; units of no length at all can so
    be ahead of the bound within their one moment.

    Args:
      staleness: s >= 0 in units; 0 has the waiting of `bsp`, inf is `asp`.
      weight: the factor of a gradient when it is applied; 1/W if None, so that a round of all workers moves the
        parameters as far as the mean gradient does.

    Raises:
      ValueError: if the staleness is negative or not whole.

    Example:
      >>> durations = jnp.array([[1.0, 3.0], [1.0, 3.0], [1.0, 3.0]])  # worker 1 is slower
      >>> schedule = gcjax.protocols.ssp(staleness=1)(durations)
      >>> schedule.start.tolist()  # worker 0 begins its third unit when worker 1 has done one
      [[0.0, 0.0], [1.0, 3.0], [3.0, 6.0]]
    """
    check_staleness(staleness)
    if weight is not None:
        _validate.single_number("weight", weight, finite=True)

    def rule(num_workers: int) -> Rule:
        """The waiting rule: who is at most `staleness` units (messages) ahead of the slowest may begin; all if inf."""
        factor = 1.0 / num_workers if weight is None else weight
        if math.isinf(staleness):
            return Rule(weight=factor)
        return Rule(ready=lambda view: view.clock - slowest_clock(view) <= staleness, weight=factor)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule in which each unit is a commit on arrival, with the weight 1/W or `weight`."""
        waiting_rule = rule(durations.shape[1])
        messages_share_link = network.server is not None
        if messages_share_link:
            return event_schedule(waiting_rule, durations, network)
        timeline = bounded_staleness(durations, network, staleness)
        return commits_on_arrival(timeline, waiting_rule.weight, staleness)

    def max_staleness(num_workers: int) -> int:
        """int: the most commits between reading and pushing.

        While a worker is busy with its unit n, each other one can push its units n - s, ..., n + s, s = `staleness`.
        """
        max_pushes_meanwhile = 2 * staleness + 1
        return int((num_workers - 1) * max_pushes_meanwhile)

    def specification(num_workers: int) -> specifications.Specification:
        """The specification: nobody is more than `staleness` units ahead of anybody when it begins one."""
        if math.isinf(staleness):
            return specifications.asp(num_workers)
        return specifications.ssp(num_workers, staleness=int(staleness))

    return Protocol(
        schedule,
        max_staleness=None if math.isinf(staleness) else max_staleness,
        specification=specification,
        max_weight=1.0 if weight is None else None,  # who gives a weight says how far a gradient moves
        rule=rule,
    )


@comparable
def asp(*, weight: float | None = None) -> Protocol:
    """Asynchronous parallel: nobody waits; a gradient is applied on arrival (Dean et al. 2012).

    With F[n, w] the end of unit n of worker w, and D[n, w] its seconds: `F[n, w] = F[n-1, w] + D[n, w]`.

    Args:
      weight: the factor of a gradient when it is applied; 1/W if None.
    """
    return ssp(staleness=math.inf, weight=weight)
