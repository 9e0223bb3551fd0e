"""Rennala SGD (Tyurin, Richtárik, NeurIPS 2023)."""

import jax

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule, num_messages
from gcjax.stragglers.network import Network


@comparable
def rennala(*, num_contributions: int) -> Protocol:
    """Rennala SGD: a commit takes the first B gradients of its own version; those of older versions are ignored.

    Nobody is cut off: who is computing at a commit goes on, and what it then sends is ignored, which `k_batch_sync`
    would have cut off. Whoever has sent a gradient goes on with the newest version. With v[n, w] the version of the
    gradient that arrives from worker w as its n-th, commit e happens at the B-th arrival with `v[n, w] = e`, and
    applies their mean (Tyurin and Richtárik 2023).

    Args:
      num_contributions: B, 1 or more; more than W is possible.

    Raises:
      ValueError: if B is below 1.

    Example:
      >>> durations = jnp.array([[1.0, 1.5], [1.0, 1.5], [1.0, 1.5], [1.0, 1.5]])
      >>> schedule = gcjax.protocols.rennala(num_contributions=2)(durations)
      >>> schedule.time.tolist()  # what worker 0 sends at 2, of version 0, is ignored
      [1.5, 3.0, inf, inf]
    """
    num_contributions = _validate.integer("num_contributions", num_contributions, minimum=1)
    waiting_rule = Rule(
        accepts=lambda view, worker: view.version[worker] == view.num_commits,  # it is of the newest version
        commits=lambda view, worker: num_messages(view) >= num_contributions,
        weight=1.0 / num_contributions,
        num_contributions=num_contributions,
    )

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule in which the first B gradients of the newest version are a commit, each with the weight 1/B."""
        max_commits = max(1, durations.size // num_contributions)
        return event_schedule(waiting_rule, durations, network, num_commits=max_commits)

    return Protocol(
        schedule,
        max_staleness=lambda num_workers: 0,
        rule=lambda num_workers: waiting_rule,
        specification=lambda num_workers: specifications.rennala(num_workers, num_contributions=num_contributions),
    )
