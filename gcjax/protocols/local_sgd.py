"""Local SGD (Stich, ICLR 2019) and DiLoCo (Douillard et al. 2023, arXiv 2311.08105)."""

from collections.abc import Callable

import jax
import optax

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, Protocol, Schedule
from gcjax.protocols.simulation.rounds import fixed_units, rounds
from gcjax.protocols.simulation.rules import round_rule
from gcjax.stragglers.network import Network


@comparable
def local_sgd(*, num_local_steps: int) -> Protocol:
    """Local SGD: everybody takes H steps on parameters of its own, then all take the mean of the parameters.

    With P[n, w] the seconds of w's units n H, ..., n H + H - 1: `F[n] = max_w (F[n-1] + P[n, w])` (Stich 2019). The
    steps are those of the run's optimizer, whose state stays with the worker; H = 1 without momentum is `bsp`.

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


@comparable
def diloco(
    *,
    num_local_steps: int,
    inner: optax.GradientTransformation | None = None,
    outer: optax.GradientTransformation | None = None,
) -> Protocol:
    """DiLoCo: H steps of an inner optimizer on each worker, then one outer step on the mean of what they changed.

    Waiting as in `local_sgd`: `F[n] = max_w (F[n-1] + P[n, w])`. The outer gradient is the mean of the parameters
    before the steps minus those after (Douillard et al. 2023, algorithm 1). The paper uses AdamW inside, some hundreds
    of steps, and outside SGD with the rate 0.7 and Nesterov momentum 0.9, which is the default.

    Args:
      num_local_steps: H, 1 or more.
      inner: the optimizer of the steps; the one of the run if None. Its state stays with the worker.
      outer: the optimizer of the server.

    Raises:
      ValueError: if there is no step, or an optimizer is none.
    """
    outer = optax.sgd(0.7, momentum=0.9, nesterov=True) if outer is None else _validate.optimizer("outer", outer)
    _validate.optional_optimizers(inner=inner)
    return _averaging_rounds(num_local_steps, LocalWork(optimizer=inner, merge=outer), specifications.diloco)


def _averaging_rounds(
    num_local_steps: int, local: LocalWork, specification_of: Callable[..., specifications.Specification]
) -> Protocol:
    """Rounds of so many local steps of every worker, with its `specification_of`; each ends when all have arrived."""
    _validate.integer("num_local_steps", num_local_steps, minimum=1)

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
    """Checks that there are units (local steps) `[T, W]` for one round of so many."""
    if durations.shape[0] < num_local_steps:
        raise ValueError(
            f"a round takes {num_local_steps} units of each worker; got durations of {durations.shape[0]} units. "
            f"Sample at least {num_local_steps}."
        )
