"""Ringmaster ASGD (Maranjyan, Tyurin, Richtárik, ICML 2025)."""

import jax

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule, View
from gcjax.stragglers.network import Network


@comparable
def ringmaster(*, delay_threshold: int, cuts_off: bool = False) -> Protocol:
    """Ringmaster ASGD: asynchronous SGD that ignores gradients whose delay is R or more.

    A gradient of version v that arrives after e commits has the delay e - v. If that is below R, it is applied at once,
    with the factor 1, and is a commit; otherwise it is ignored, and makes no version. Nobody waits: whoever has sent a
    gradient goes on with the newest version (Maranjyan, Tyurin and Richtárik 2025). R = 1 is `rennala` with B = 1; with
    R large enough it is `asp` with the weight 1.

    Args:
      delay_threshold: R, 1 or more.
      cuts_off: the variant that stops computing: once the delay of what a worker computes is R, it is cut off, and
        begins anew with the newest version.

    Raises:
      ValueError: if R is below 1, or `cuts_off` is no bool.

    Example:
      >>> durations = jnp.array([[1.0, 3.5], [1.0, 3.5], [1.0, 3.5], [1.0, 3.5]])  # worker 1 is slower
      >>> schedule = gcjax.protocols.ringmaster(delay_threshold=3)(durations)
      >>> schedule.time[:5].tolist()  # what worker 1 sends at 3.5, after three commits, is ignored
      [1.0, 2.0, 3.0, 4.0, inf]
    """
    delay_threshold = _validate.integer("delay_threshold", delay_threshold, minimum=1)
    _validate.boolean("cuts_off", cuts_off)

    def is_too_old(view: View) -> jax.Array:
        """bool[W]: whose version is R commits old, or more."""
        return view.num_commits - view.version >= delay_threshold

    waiting_rule = Rule(
        accepts=lambda view, worker: ~is_too_old(view)[worker],
        cuts_off=(lambda view, worker: is_too_old(view)) if cuts_off else None,
    )

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule in which each gradient that is new enough is a commit on arrival, with the weight 1."""
        return event_schedule(waiting_rule, durations, network)

    return Protocol(
        schedule,
        max_staleness=lambda num_workers: delay_threshold - 1,
        rule=lambda num_workers: waiting_rule,
        specification=lambda num_workers: specifications.ringmaster(
            num_workers, delay_threshold=delay_threshold, cuts_off=cuts_off
        ),
    )
