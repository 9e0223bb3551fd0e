"""Elastic averaging SGD (Zhang, Choromanska, LeCun, NeurIPS 2015)."""

from typing import Any

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, Protocol, Schedule, own_params
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule
from gcjax.stragglers.network import Network


@comparable
def elastic_averaging(*, num_local_steps: int, moving_rate: float = 0.9) -> Protocol:
    """Asynchronous EASGD: workers explore on their own, tied to the server's parameters by an elastic force.

    Every H local steps worker w receives the server's parameters c, moves its own by `x -= α (x - c)`, and pushes the
    difference, by which the server moves: `c += α (x - c)`, α = `moving_rate` / W. Nobody waits: `F[n, w] = F[n-1, w]
    +` the seconds of H units and of the exchange (Zhang et al. 2015, algorithm 1).

    Args:
      num_local_steps: H, the communication period τ.
      moving_rate: β = α W, from 0 to W.

    Raises:
      ValueError: if there is no step, or the rate is negative, or above W.
    """
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    _validate.single_number("moving_rate", moving_rate, finite=True)

    def rule(num_workers: int) -> Rule:
        """The rule of exchanges after `num_local_steps` units, nobody waiting; the weight is α."""
        _validate.single_number("moving_rate", moving_rate, maximum=float(num_workers))
        return Rule(num_units=num_local_steps, pulls_before_push=True, weight=moving_rate / num_workers)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule in which every worker pushes after `num_local_steps` units, and each push is a commit."""
        num_units, num_workers = durations.shape
        pushes_of_worker = max(1, num_units // num_local_steps)
        return event_schedule(
            rule(num_workers),
            durations,
            network,
            num_commits=pushes_of_worker * num_workers,
            num_turns=pushes_of_worker,
        )

    return Protocol(
        schedule,
        round_units=num_local_steps,
        local=elastic(),
        rule=rule,
        specification=lambda num_workers: specifications.elastic_averaging(
            num_workers, num_local_steps=num_local_steps
        ),
    )


def elastic() -> LocalWork:
    """Local work that is tied to the server by an elastic force; its strength is the weight of a contribution."""
    return LocalWork(pull=own_params, push=_elastic_push)


def _elastic_push(params: Any, base: Any, version_params: Any, weight: jax.Array) -> tuple[Any, Any]:
    """What a worker pushes, its difference from the server's parameters, and its parameters after; `base` is not used.

    They move towards the server's, `version_params`, by `weight` times the difference, as the server's move to them:
    `weight float[]` is that of the contribution.
    """
    del base
    difference = jax.tree.map(jnp.subtract, params, version_params)
    moved_params = jax.tree.map(lambda x, dx: x - weight.astype(dx.dtype) * dx, params, difference)
    return difference, moved_params
