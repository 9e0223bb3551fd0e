"""STSyn: straggler-tolerant local SGD (Zhu, Zhang, Wang 2022, arXiv 2210.03521)."""

from typing import Any

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, Protocol, Schedule
from gcjax.protocols.local_sgd import check_units
from gcjax.protocols.schedule import with_weights
from gcjax.protocols.simulation.rounds import Round, rounds, units_until
from gcjax.protocols.simulation.rules import Rule, View, stopped_rule
from gcjax.protocols.simulation.turns import Work
from gcjax.stragglers.network import Network


@comparable
def stsyn(*, num_local_steps: int, num_waited: int) -> Protocol:
    """STSyn: a round ends when the K-th worker has taken H local steps; everyone who has taken one uploads.

    With P[w] the seconds of H units of worker w, all stop at `the K-th smallest of r[w] + P[w]`, r the time of
    receiving; the faster ones go on until then. The server adds up what was changed and divides by the number of
    uploads (Zhu, Zhang, Wang 2022). A step that is not finished is lost. A round in which more than W - K workers fail
    never ends.

    Args:
      num_local_steps: H, 1 or more.
      num_waited: K, from 1 to W.

    Raises:
      ValueError: if there is no step, or K is not between 1 and W.
    """
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    num_waited = _validate.integer("num_waited", num_waited, minimum=1)

    def rule(work: Work, first_unit: jax.Array, receive_time: jax.Array, begin_time: jax.Array) -> Round:
        """The round that stops, for all, when K = `num_waited` workers have done H = `num_local_steps` units.

        Each works from its unit `first_unit int32[W]` on, and has the parameters at `receive_time float[W]` seconds.
        """
        del begin_time
        steps_done_time = receive_time + work.seconds(first_unit, num_local_steps)
        stop = jnp.sort(steps_done_time)[num_waited - 1]
        # So many are known to be done, also where another sum of the same seconds is rounded above the stop.
        min_units = jnp.where(jnp.isfinite(steps_done_time) & (steps_done_time <= stop), num_local_steps, 0)
        this_round = units_until(work, first_unit, receive_time, jnp.broadcast_to(stop, first_unit.shape), min_units)
        num_sampled = jnp.minimum(num_local_steps, work.num_units - first_unit)  # [W], of the H units
        num_failed = jnp.isinf(work.seconds(first_unit, num_sampled)).sum()  # workers with a unit that never ends
        # Without a stop: if too many workers fail, the round never ends: 0 units begun, which are always there. Else
        # units run out: more are begun than there are.
        never_ends = num_failed > first_unit.size - num_waited
        num_begun_without_stop = jnp.where(never_ends, 0, work.num_units)
        return this_round._replace(num_begun=jnp.where(jnp.isinf(stop), num_begun_without_stop, this_round.num_begun))

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of rounds; a contribution has the weight 1 / workers that upload something in the round."""
        hint = "No more workers can be waited for than there are."
        _validate.integer("num_waited", num_waited, minimum=1, maximum=durations.shape[1], hint=hint)
        check_units(durations, num_local_steps)
        return with_weights(rounds(rule, durations, network, num_rounds=durations.shape[0]), _one_over_num_uploads)

    def real_clock_rule(num_workers: int) -> Rule:
        """The rule on the real clock: the server stops a round as soon as K workers have said that they took H steps.

        These are `num_waited` and `num_local_steps`. Whoever has taken one by then uploads; where some have left, K is
        at most the number of the others.
        """
        _validate.integer("num_waited", num_waited, minimum=1, maximum=num_workers)

        def stop(view: View) -> jax.Array:
            """float[] seconds: now, if `num_waited` workers, or all, have taken `num_local_steps`; inf otherwise."""
            num_done = ((view.progress >= num_local_steps) & view.alive).sum()
            num_waited_for = jnp.minimum(num_waited, view.alive.sum())
            return jnp.where(num_done >= num_waited_for, view.now, jnp.inf)

        return stopped_rule(stop, num_workers)._replace(weight=_one_over_num_uploads)

    return Protocol(
        schedule,
        max_staleness=lambda num_workers: 0,
        local=LocalWork(),
        rule=real_clock_rule,
        specification=lambda num_workers: specifications.stsyn(
            num_workers, num_local_steps=num_local_steps, num_waited=num_waited
        ),
    )


def _one_over_num_uploads(staleness: Any, work: Any) -> Any:
    """float[..., 1]: the weight of each of the C contributions to a commit, of `work int32[..., C]` steps: 1 / uploads.

    Who has taken a step uploads; 1 if nobody has.
    """
    del staleness
    return 1 / (work > 0).sum(axis=-1, keepdims=True).clip(1)
