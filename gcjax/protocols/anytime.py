"""Anytime minibatch (Ferdinand, Al-Lawati, Draper, Nokleby, ICLR 2019)."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, Protocol, Schedule
from gcjax.protocols.schedule import with_weights
from gcjax.protocols.simulation.rounds import Round, rounds, units_until
from gcjax.protocols.simulation.rules import Rule, round_begin, stopped_rule
from gcjax.protocols.simulation.turns import Work
from gcjax.stragglers.network import Network


@comparable
def anytime_minibatch(*, seconds: float) -> Protocol:
    """Anytime minibatch: everybody computes for the same time, and each gradient counts by the work that is in it.

    With b[w] the units that worker w finishes within `seconds` of receiving the parameters, all on one version, the
    commit applies `sum_w sum_{n <= b[w]} g[w, n] / sum_w b[w]` (Ferdinand et al. 2019). A unit that is not
    finished is lost.

    Args:
      seconds: the compute time of a round, above 0.

    Raises:
      ValueError: if the time is not above 0. `Protocol` also raises one if nobody ever finishes anything in it.
    """
    _validate.single_number("seconds", seconds, above=True, finite=True)

    def rule(work: Work, first_unit: jax.Array, receive_time: jax.Array, begin_time: jax.Array) -> Round:
        """The round in which everybody computes for `seconds`, from unit `first_unit int32[W]` on.

        The parameters have arrived at `receive_time float[W]` seconds.
        """
        del begin_time
        return units_until(work, first_unit, receive_time, stop=receive_time + seconds)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of rounds; a worker's contribution has the weight 1 / units of all workers in the commit."""
        return with_weights(rounds(rule, durations, network, num_rounds=durations.shape[0]), _one_over_num_units)

    def real_clock_rule(num_workers: int) -> Rule:
        """The rule on the real clock: the server stops a round `seconds` after it has let the first worker begin.

        A round in which nobody has done anything by then goes on until somebody has.
        """
        rule = stopped_rule(stop=lambda view: round_begin(view) + seconds, num_workers=num_workers)
        return rule._replace(weight=_one_over_num_units)

    return Protocol(
        schedule,
        max_staleness=lambda num_workers: 0,
        local=gradient_sums(),
        rule=real_clock_rule,
        specification=specifications.anytime_minibatch,
    )


def gradient_sums(max_contributions: int = 1) -> LocalWork:
    """Local work where a contribution is a sum of gradients of one version, with which the run's optimizer steps.

    Adding them up is a step of size 1 for each, judged at the version that was read. The steps begin at zero, since a
    sum that begins at the parameters would lose what is small beside these.

    Args:
      max_contributions: the contributions that a worker can have in one commit.
    """
    return LocalWork(
        optimizer=optax.sgd(1.0),
        server_optimizer=None,
        pull=lambda params, version_params: jax.tree.map(jnp.zeros_like, version_params),
        gradients_at_version=True,
        max_contributions=max_contributions,
        reads_always=True,
        sums_gradients=True,
    )


def _one_over_num_units(staleness: Any, work: Any) -> Any:
    """float[..., 1]: the weight of each of C contributions to a commit, of `work int32[..., C]` units: 1 / their sum.

    1 if that is 0.
    """
    del staleness
    return 1 / work.sum(axis=-1, keepdims=True).clip(1)
