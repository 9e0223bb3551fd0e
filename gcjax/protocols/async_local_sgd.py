"""Asynchronous local SGD with dynamic local updates (Liu and others 2024, arXiv 2401.09135)."""

import jax
import optax

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, Protocol, Schedule
from gcjax.protocols.dynamic_steps import with_dynamic_steps
from gcjax.protocols.local_sgd import check_units
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule
from gcjax.stragglers.network import Network


@comparable
def async_local_sgd(
    *,
    num_local_steps: int,
    dynamic: bool = False,
    weight: float | None = None,
    inner: optax.GradientTransformation | None = None,
    outer: optax.GradientTransformation | None = None,
) -> Protocol:
    """Asynchronous local SGD: a worker pushes what H local steps have changed, and goes on from the newest version.

    Nobody waits, and each push is a commit: `F[n, w] = F[n-1, w] +` the seconds of its steps. The outer optimizer gets
    minus the change as gradient; momentum from stale pushes does harm, so that the paper updates it every N pushes
    (`delayed_nesterov`). With dynamic local updates (DyLU) worker w takes `floor(H s / s[w])` steps in a turn, one at
    least, s[w] the seconds that it computed a step in its last turn, and s the fewest of the last turns so far of all
    who take part; H in its first turn (Liu et al. 2024; their released code knows the speeds, and takes five steps at
    least).

    Args:
      num_local_steps: H, 1 or more; with `dynamic`, of the fastest worker.
      dynamic: whether slower workers take fewer steps.
      weight: the factor of a push; 1/W if None. With `delayed_nesterov`, which divides by N, it is 1 in the paper.
      inner: the optimizer of the steps; the one of the run if None. Its state stays with the worker.
      outer: the optimizer of the server; it adds the weighted changes as they are if None.

    Raises:
      ValueError: if there is no step, or the weight is not finite, or negative, or `dynamic` is no bool, or an
        optimizer is none.

    Example:
      >>> durations = jnp.array([[1.0, 2.0]] * 6)  # worker 1 takes half as many steps from its second turn on
      >>> schedule = gcjax.protocols.async_local_sgd(num_local_steps=2, dynamic=True)(durations)
      >>> schedule.time[:5].tolist(), schedule.work[:5, 0].tolist()
      ([2.0, 4.0, 4.0, 6.0, 6.0], [2, 2, 2, 2, 1])
    """
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    _validate.boolean("dynamic", dynamic)
    if weight is not None:
        _validate.single_number("weight", weight, minimum=0.0, finite=True)
    _validate.optional_optimizers(inner=inner, outer=outer)

    def rule(num_workers: int) -> Rule:
        """The rule: each push, of H units, or if `dynamic` of as many as the speeds say, is a commit."""
        fixed = Rule(num_units=num_local_steps, weight=1.0 / num_workers if weight is None else weight)
        return with_dynamic_steps(fixed, num_local_steps) if dynamic else fixed

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule in which each push of local steps is a commit."""
        check_units(durations, num_local_steps)
        num_units, num_workers = durations.shape
        num_turns = num_units if dynamic else num_units // num_local_steps
        return event_schedule(
            rule(num_workers), durations, network, num_commits=num_turns * num_workers, num_turns=num_turns
        )

    return Protocol(
        schedule,
        round_units=1 if dynamic else num_local_steps,
        local=LocalWork(
            optimizer=inner, server_optimizer=optax.sgd(1.0) if outer is None else outer, reads_always=True
        ),
        rule=rule,
        specification=lambda num_workers: specifications.async_local_sgd(
            num_workers, num_local_steps=num_local_steps, dynamic=dynamic
        ),
        max_weight=1.0 if weight is None else None,  # who gives a weight says how far a change moves
    )
