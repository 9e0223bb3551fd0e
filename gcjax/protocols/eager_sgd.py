"""eager-SGD: partial collective operations (Li, Ben-Nun, Di Girolamo, Alistarh, Hoefler, PPoPP 2020)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.anytime import gradient_sums
from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule, View
from gcjax.stragglers.network import Network

COLLECTIVES = ("solo", "majority")


@comparable
def eager_sgd(*, collective: str = "solo", rng_key: jax.Array | None = None) -> Protocol:
    """eager-SGD: an all-reduce takes what is there when its initiator comes; late gradients are in the next one.

    With n[w] the gradients of worker w so far, and e the commits, each of which is an all-reduce over all workers: the
    one that is to come is initiated by the first worker with `n[w] = e + 1` (solo), or by a worker r[e] that is drawn
    at random, once `n[r[e]] = e + 1` (majority: half of the workers can be expected to be there by then). It applies
    the sum of all gradients that have not been in one yet, each divided by W, so that a late gradient is added to the
    worker's next contribution, and none is lost (Li et al. 2020). A worker that has come before the initiator waits
    for it; with solo nobody waits.

    Ours: the parameters are those of a server, of which a worker reads the newest version when it begins a gradient.
    In the paper each worker has a copy of its own, to which it applies the last all-reduce that it finds, and copies
    are made equal after some epochs.

    Args:
      collective: "solo" or "majority".
      rng_key: draws the initiators of majority all-reduces, by the number of the commit; None with solo.

    Raises:
      ValueError: if there is no such collective, or a key is missing, or none, or needless.

    Example:
      >>> durations = jnp.array([[1.0, 1.5], [1.0, 1.5], [1.0, 1.5], [1.0, 1.5]])
      >>> schedule = gcjax.protocols.eager_sgd()(durations)  # worker 1's gradients of 1.5 and 3 come behind, in turn
      >>> schedule.time.tolist(), [(row >= 0).sum().item() for row in schedule.worker]
      ([1.0, 2.0, 3.0, 4.0], [1, 2, 1, 2])
    """
    _validate.choice("collective", collective, COLLECTIVES)
    if collective == "majority":
        _validate.rng_key(rng_key)
    elif rng_key is not None:
        raise ValueError("rng_key draws the initiators of majority all-reduces; solo has none. Leave it out.")

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of all-reduces: as many as the fastest worker has units, at most."""
        num_units, num_workers = durations.shape
        return event_schedule(rule(num_workers), durations, network, num_commits=num_units)

    def rule(num_workers: int) -> Rule:
        """The rule of the collective; with solo, whoever comes first is the initiator."""
        return _rule(num_workers, _random_initiator(rng_key) if rng_key is not None else lambda view, worker: worker)

    return Protocol(
        schedule,
        one_version=False,
        local=gradient_sums(max_contributions=_NUM_VERSIONS),
        rule=rule,
        specification=lambda num_workers: specifications.eager_sgd(num_workers, collective=collective),
    )


_NUM_VERSIONS = 2
"""On which a worker's gradients in one commit can be: the newest, and that of the gradient under way before."""


def _rule(num_workers: int, initiator: Callable[[View, jax.Array], jax.Array]) -> Rule:
    """The rule: a commit takes all, once the initiator has made one gradient more than there are commits.

    `initiator`: `(view, worker) -> int32[]`, who it is; `worker` is whose message has arrived. A worker's clock counts
    its gradients. A commit has room for W contributions of each version that gradients in it can be of.
    """
    return Rule(
        commits=lambda view, worker: view.clock[initiator(view, worker)] > view.num_commits,
        ready=lambda view: view.clock <= view.num_commits,
        waits_for_commit=True,
        weight=1.0 / num_workers,
        num_contributions=_NUM_VERSIONS * num_workers,
        one_contribution_per_worker=True,
    )


def _random_initiator(rng_key: jax.Array) -> Callable[[View, jax.Array], jax.Array]:
    """The function that draws one of those who take part (`alive`), anew for each commit, by the commits so far."""

    def initiator(view: View, worker: jax.Array) -> jax.Array:
        """int32[]: the first in a random order of the workers that takes part, as `view.alive bool[W]` says.

        If all have left, it is who has come furthest, so that nobody who comes back waits for one that is away.
        """
        del worker
        order = jax.random.permutation(jax.random.fold_in(rng_key, view.num_commits), view.clock.size).astype(jnp.int32)
        first_there = order[jnp.argmax(view.alive[order])]
        return jnp.where(view.alive.any(), first_there, jnp.argmax(view.clock).astype(jnp.int32))

    return initiator
