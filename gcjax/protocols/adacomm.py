"""AdaComm: local SGD whose communication period follows the loss (Wang, Joshi, MLSys 2019)."""

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Adaptive, LocalWork, Observed, Protocol, Schedule
from gcjax.protocols.local_sgd import check_units
from gcjax.protocols.observed_losses import mean_loss, window_of
from gcjax.protocols.simulation.rounds import Round, fixed_units, rounds
from gcjax.protocols.simulation.turns import Work
from gcjax.stragglers.network import Network


@comparable
def adacomm(*, num_local_steps: int, seconds: float, num_windows: int) -> Protocol:
    """AdaComm: long periods between averages at first, when progress counts, short ones at the end.

    Waiting as in `local_sgd`, with H[j] steps in the rounds that begin in window j: `H[j] = ceil(sqrt(F[j] / F[0])
    H[0])`, where F[0] is the training loss of the first commit and F[j] the mean of those in the window before; if that
    is not less than before, H is halved (Wang and Joshi 2019, equations 17 and 18, without the step size). After a
    window without commits H stays.

    Args:
      num_local_steps: H[0], 1 or more.
      seconds: the length of a window.
      num_windows: how many there are; the last one lasts until the end.

    Raises:
      ValueError: if there is no step or window, or the time is not above 0.
    """
    _validate.integer("num_local_steps", num_local_steps, minimum=1)
    _validate.integer("num_windows", num_windows, minimum=1)
    _validate.single_number("seconds", seconds, above=True, finite=True)

    def initial(count: int) -> jax.Array:
        return jnp.full(count, num_local_steps, jnp.int32)

    def next_steps(steps: jax.Array, seen: Observed) -> jax.Array:
        """int32[windows]: the steps H, those of the windows after `seen.window` chosen by the loss in it."""
        first_loss, loss = seen.loss[0], mean_loss(seen, seen.window, seconds)
        has_losses = jnp.isfinite(first_loss) & jnp.isfinite(loss) & (first_loss > 0)
        by_loss = jnp.ceil(jnp.sqrt(jnp.where(has_losses, loss / first_loss, 1)) * num_local_steps)
        old = steps[seen.window]
        halved = jnp.maximum(old // 2, 1)
        new = jnp.where(has_losses, jnp.where(by_loss < old, by_loss.astype(jnp.int32), halved), old).clip(1)
        return jnp.where(jnp.arange(steps.size) > seen.window, new, steps)

    def schedule_of_steps(durations: jax.Array, network: Network, steps: jax.Array) -> Schedule:
        """The schedule with `steps[j]` local steps in the rounds that begin in window j."""
        check_units(durations, num_local_steps)

        def rule(work: Work, first: jax.Array, received: jax.Array, begin: jax.Array) -> Round:
            """The round with the steps of the window in which it begins."""
            return fixed_units(steps[window_of(begin, seconds, num_windows)])(work, first, received, begin)

        return rounds(rule, durations, network, durations.shape[0])

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        return schedule_of_steps(durations, network, initial(num_windows))

    adaptive = Adaptive(
        initial=initial,
        schedule=schedule_of_steps,
        next=next_steps,
        seconds=float(seconds),
        num_windows=num_windows,
    )
    return Protocol(
        schedule,
        max_staleness=lambda num_workers: 0,
        local=LocalWork(),
        adaptive=adaptive,
        specification=lambda num_workers: specifications.adacomm(num_workers, num_local_steps=num_local_steps),
    )
