"""AdaComm: local SGD whose communication period follows the loss (Wang, Joshi, MLSys 2019)."""

from functools import partial

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, LossFeedback, Observed, Protocol, Schedule
from gcjax.protocols.local_sgd import check_units
from gcjax.protocols.observed_losses import mean_loss, window_of
from gcjax.protocols.simulation.rounds import Round, fixed_units, rounds
from gcjax.protocols.simulation.rules import Rule, round_begin, round_rule
from gcjax.protocols.simulation.turns import Work
from gcjax.stragglers.network import Network


@comparable
def adacomm(*, num_local_steps: int, seconds: float, num_windows: int) -> Protocol:
    """AdaComm: long periods between averages at first, when progress counts, short ones at the end.

    Waiting as in `local_sgd`, with H[j] steps in the rounds that begin in window j: `H[j] = ceil(sqrt(F[j] / F[0])
    H[0])`, where F[0] is the training loss of the first commit and F[j] the mean of those in the window before; if that
    is not less than before, H is halved (Wang and Joshi 2019, without the step size). After a window without commits
    H stays.

    Args:
      num_local_steps: H[0], 1 or more.
      seconds: the length of a window.
      num_windows: how many there are; the last one lasts until the end.

    Raises:
      ValueError: if there is no step or window, or the time is not above 0.
    """
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    num_windows = _validate.integer("num_windows", num_windows, minimum=1)
    seconds = float(_validate.single_number("seconds", seconds, above=True, finite=True))

    initial_steps = partial(_initial_steps, num_local_steps)
    window_at = partial(window_of, window_seconds=seconds, num_windows=num_windows)

    def schedule_of_steps(durations: jax.Array, network: Network, steps_by_window: jax.Array) -> Schedule:
        """The rounds of local SGD; those that begin in window j have `steps_by_window[j]` local steps, H[0] at most.

        Window j is from `seconds * j` on; the last of the `num_windows` has no end.
        """
        check_units(durations, num_local_steps)

        def rule(work: Work, first_unit: jax.Array, receive_time: jax.Array, begin_time: jax.Array) -> Round:
            """The round in which each worker does its window's steps, the units from `first_unit int32[W]` on.

            It begins at `begin_time float[]`, by which `steps_by_window int32[windows]` is looked up; the parameters
            have arrived at `receive_time float[W]` seconds.
            """
            return fixed_units(steps_by_window[window_at(begin_time)])(work, first_unit, receive_time, begin_time)

        return rounds(rule, durations, network, num_rounds=durations.shape[0])

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule if the loss never changes the number of local steps."""
        return schedule_of_steps(durations, network, initial_steps(num_windows))

    loss_feedback = LossFeedback(
        initial=initial_steps,
        schedule=schedule_of_steps,
        next=partial(_next_steps, num_local_steps, seconds),
        seconds=seconds,
        num_windows=num_windows,
    )

    def real_clock_rule(num_workers: int) -> Rule:
        """The rule on the real clock: its memory, int32[windows], are the local steps of each window, at first H[0]."""
        return round_rule(num_workers, num_units=1)._replace(
            num_units=lambda view: view.memory[window_at(round_begin(view))],  # of the window in which the round began
            memory=lambda num_workers, dtype: initial_steps(num_windows),
        )

    return Protocol(
        schedule,
        max_staleness=lambda num_workers: 0,
        local=LocalWork(),
        loss_feedback=loss_feedback,
        rule=real_clock_rule,
        specification=lambda num_workers: specifications.adacomm(num_workers, num_local_steps=num_local_steps),
    )


def _initial_steps(num_local_steps: int, count: int) -> jax.Array:
    """int32[count]: H[0] local steps in each of so many windows, as long as no loss is known."""
    return jnp.full(count, num_local_steps, jnp.int32)


def _next_steps(first_steps: int, window_seconds: float, steps_by_window: jax.Array, observed: Observed) -> jax.Array:
    """int32[windows]: the local steps H of each window, new ones for those after `observed.window`, which has ended.

    These are `ceil(sqrt(F / F[0]) H[0])`: F the mean loss of this window, F[0] the loss of the first commit, and H[0]
    the `first_steps`. If that is not less than before, H is halved; without these losses (NaN, or inf of the first), or
    if F[0] is not above 0, it stays. H is 1 at least.
    """
    first_loss, window_loss = observed.loss[0], mean_loss(observed, observed.window, window_seconds)
    has_losses = jnp.isfinite(first_loss) & jnp.isfinite(window_loss) & (first_loss > 0)
    loss_ratio = jnp.where(has_losses, window_loss / first_loss, 1)
    steps_by_loss = jnp.ceil(jnp.sqrt(loss_ratio) * first_steps)
    old_steps = steps_by_window[observed.window]
    halved_steps = jnp.maximum(old_steps // 2, 1)
    fewer_steps = jnp.where(
        steps_by_loss < old_steps.astype(steps_by_loss.dtype), steps_by_loss.astype(jnp.int32), halved_steps
    )
    new_steps = jnp.where(has_losses, fewer_steps, old_steps).clip(1)
    is_later_window = jnp.arange(steps_by_window.size, dtype=jnp.int32) > observed.window
    return jnp.where(is_later_window, new_steps, steps_by_window)
