"""FedBuff: buffered asynchronous aggregation (Nguyen and others, AISTATS 2022)."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, Protocol, Schedule
from gcjax.protocols.k_sync import first_arrivals
from gcjax.protocols.local_sgd import check_units
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule
from gcjax.stragglers.network import Network


@comparable
def fedbuff(
    *,
    num_local_steps: int,
    num_contributions: int,
    weigh_staleness: bool = False,
    inner: optax.GradientTransformation | None = None,
    outer: optax.GradientTransformation | None = None,
) -> Protocol:
    """FedBuff: a commit takes any K changes, each of H local steps from the version that its worker read; nobody waits.

    A worker that has sent its change begins anew from the newest version, which may be the one that it had; the W
    workers are the clients that train at the same time. The server makes its step with the mean of the K changes in its
    buffer, or with the factors `1 / (K sqrt(1 + τ))`, τ the commits since the version was read (Nguyen et al. 2022).
    With the gradients of single steps that is `k_batch_async`.

    Args:
      num_local_steps: H, 1 or more.
      num_contributions: K, 1 or more, the size of the buffer.
      weigh_staleness: whether changes of older versions count less.
      inner: the optimizer of the steps; the one of the run if None. Its state stays with the worker.
      outer: the optimizer of the server; it adds the weighted changes as they are if None.

    Raises:
      ValueError: if there is no step, or K is below 1, or `weigh_staleness` is no bool, or an optimizer is none.

    Example:
      >>> durations = jnp.array([[1.0, 3.0], [1.0, 3.0], [1.0, 3.0], [1.0, 3.0]])  # worker 1 is slower
      >>> gcjax.protocols.fedbuff(num_local_steps=2, num_contributions=2)(durations).time.tolist()
      [4.0, inf]
    """
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    num_contributions = _validate.integer("num_contributions", num_contributions, minimum=1)
    _validate.boolean("weigh_staleness", weigh_staleness)
    _validate.optional_optimizers(inner=inner, outer=outer)

    def weight(staleness: jax.Array, work: jax.Array) -> jax.Array:
        """float[..., C]: 1 / (K sqrt(1 + staleness)), K = `num_contributions`, of `staleness int32[..., C]` commits."""
        del work
        delay = jnp.maximum(staleness, 0).astype(jnp.result_type(float))
        return (1.0 / num_contributions) / jnp.sqrt(1.0 + delay)

    waiting_rule = first_arrivals(num_contributions, one_push_per_worker=False, cancels_others=False)
    waiting_rule = waiting_rule._replace(num_units=num_local_steps)
    if weigh_staleness:
        waiting_rule = waiting_rule._replace(weight=weight)

    def rule(num_workers: int) -> Rule:
        """The rule: any `num_contributions` messages are a commit, each of `num_local_steps` units."""
        del num_workers
        return waiting_rule

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of changes of `num_local_steps` units each, any `num_contributions` of which are a commit."""
        check_units(durations, num_local_steps)
        num_turns = durations.shape[0] // num_local_steps
        max_commits = max(1, num_turns * durations.shape[1] // num_contributions)
        return event_schedule(waiting_rule, durations, network, num_commits=max_commits, num_turns=num_turns)

    server_optimizer = optax.sgd(1.0) if outer is None else outer
    return Protocol(
        schedule,
        one_version=False,
        round_units=num_local_steps,
        local=LocalWork(
            optimizer=inner,
            server_optimizer=server_optimizer,
            push=_change_and_base,
            max_contributions=num_contributions,
        ),
        rule=rule,
        specification=lambda num_workers: specifications.fedbuff(
            num_workers, num_local_steps=num_local_steps, num_contributions=num_contributions
        ),
        max_weight=1.0 / num_contributions,  # of each of the K contributions that a worker can have
    )


def _change_and_base(params: Any, base: Any, version_params: Any, weight: jax.Array) -> tuple[Any, Any]:
    """What a worker pushes, the change of its parameters since `base`; and `base`, its parameters after the push."""
    del version_params, weight
    return jax.tree.map(jnp.subtract, params, base), base
