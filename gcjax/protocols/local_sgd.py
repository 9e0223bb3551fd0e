"""Local SGD (Stich, ICLR 2019) and DiLoCo (Douillard et al. 2023, arXiv 2311.08105)."""

from collections.abc import Callable

import jax
import optax

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, Protocol, Schedule
from gcjax.protocols.dynamic_steps import with_dynamic_steps
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rounds import fixed_units, rounds
from gcjax.protocols.simulation.rules import Rule, round_rule
from gcjax.stragglers.network import Network


@comparable
def local_sgd(*, num_local_steps: int) -> Protocol:
    """Local SGD: everybody takes H steps on parameters of its own, then all take the mean of the parameters.

    With P[n, w] the seconds of w's units n H, ..., n H + H - 1, and F[n] the end of round n: `F[n] = max_w (F[n-1] +
    P[n, w])` (Stich 2019). The steps are those of the run's optimizer, whose state stays with the worker; H = 1 without
    momentum is `bsp`.

    Args:
      num_local_steps: H, 1 or more.

    Raises:
      ValueError: if there is no step.

    Example:
      >>> durations = jnp.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
      >>> gcjax.protocols.local_sgd(num_local_steps=2)(durations).time.tolist()  # one average every two steps
      [4.0, 8.0]
    """
    return _averaging_rounds(num_local_steps, LocalWork(), specifications.local_sgd)


OUTER = optax.sgd(0.7, momentum=0.9, nesterov=True)
"""The optimizer of the server in DiLoCo, if none is given."""


@comparable
def diloco(
    *,
    num_local_steps: int,
    dynamic: bool = False,
    inner: optax.GradientTransformation | None = None,
    outer: optax.GradientTransformation | None = None,
) -> Protocol:
    """DiLoCo: H steps of an inner optimizer on each worker, then one outer step on the mean of what they changed.

    Waiting as in `local_sgd`: `F[n] = max_w (F[n-1] + P[n, w])`. The outer gradient is the mean of the parameters
    before the steps minus those after (Douillard et al. 2023, algorithm 1). The paper uses AdamW inside, some hundreds
    of steps, and outside SGD with the rate 0.7 and Nesterov momentum 0.9, which is the default.

    With dynamic local updates slower workers take fewer steps, as in `async_local_sgd`, so that nobody waits long: H in
    the first round, then `floor(H s / s[w])`, one at least, s[w] the seconds a step of worker w in the round before and
    s those of the fastest. The mean stays that of all, whatever their steps (a baseline of Kim et al., ICML 2025, arXiv
    2506.04531, whose released code knows the speeds).

    Args:
      num_local_steps: H, 1 or more; with `dynamic`, of the fastest worker.
      dynamic: whether slower workers take fewer steps.
      inner: the optimizer of the steps; the one of the run if None. Its state stays with the worker.
      outer: the optimizer of the server.

    Raises:
      ValueError: if there is no step, or `dynamic` is no bool, or an optimizer is none.

    Example:
      >>> durations = jnp.array([[1.0, 2.0]] * 6)  # worker 1 takes half as many steps from the second round on
      >>> schedule = gcjax.protocols.diloco(num_local_steps=2, dynamic=True)(durations)
      >>> schedule.time[:3].tolist(), schedule.work[:3].tolist()
      ([4.0, 6.0, 8.0], [[2, 2], [2, 1], [2, 1]])
    """
    _validate.boolean("dynamic", dynamic)
    _validate.optional_optimizers(inner=inner, outer=outer)
    local = LocalWork(optimizer=inner, server_optimizer=OUTER if outer is None else outer)
    if not dynamic:
        return _averaging_rounds(num_local_steps, local, specifications.diloco)
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)

    def rule(num_workers: int) -> Rule:
        """The rule of rounds, of as many units of each worker as its speed says."""
        return with_dynamic_steps(round_rule(num_workers, num_local_steps), num_local_steps)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of rounds; nobody does less than one unit in a round, so there are no more rounds than units."""
        check_units(durations, num_local_steps)
        num_units, num_workers = durations.shape
        return event_schedule(rule(num_workers), durations, network, num_commits=num_units, num_turns=num_units)

    return Protocol(
        schedule,
        max_staleness=lambda num_workers: 0,
        local=local,
        rule=rule,
        specification=lambda num_workers: specifications.diloco(
            num_workers, num_local_steps=num_local_steps, dynamic=True
        ),
    )


def _averaging_rounds(
    num_local_steps: int, local: LocalWork, specification_of: Callable[..., specifications.Specification]
) -> Protocol:
    """Rounds of so many local steps of every worker, with its `specification_of`; each ends when all have arrived."""
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of rounds, in each of which every worker does `num_local_steps` units."""
        check_units(durations, num_local_steps)
        return rounds(fixed_units(num_local_steps), durations, network, durations.shape[0] // num_local_steps)

    return Protocol(
        schedule,
        max_staleness=lambda num_workers: 0,
        round_units=num_local_steps,
        local=local,
        rule=lambda num_workers: round_rule(num_workers, num_units=num_local_steps),
        specification=lambda num_workers: specification_of(num_workers, num_local_steps=num_local_steps),
    )


def check_units(durations: jax.Array, num_local_steps: int) -> None:
    """Raises a `ValueError` unless durations `[T, W]` have the units of a round at least: T >= `num_local_steps`."""
    if durations.shape[0] < num_local_steps:
        raise ValueError(
            f"a round takes {num_local_steps} units of each worker; got durations of {durations.shape[0]} units. "
            f"Sample at least {num_local_steps}."
        )
