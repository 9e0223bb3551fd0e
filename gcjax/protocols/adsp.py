"""ADSP: adaptive synchronous parallel (Hu, Wang, Wu, AAAI 2020)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import LocalWork, LossFeedback, Observed, Protocol, Schedule
from gcjax.protocols.observed_losses import in_window, mean_loss, window_begin, window_of
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule, View
from gcjax.stragglers.network import Network

_NUM_ASYMPTOTES = 32
_MAX_ASYMPTOTE = 0.98
"""The highest asymptote that is tried, as a share of the least loss."""
_MIN_LOSSES = 3
"""With fewer losses a window has no reward."""


class Rates(NamedTuple):
    """What the search knows.

    Attributes:
      num_commits: int32[windows], the commits that each worker makes in a window.
      is_searching: bool[], whether the next window tries one commit more.
      best_reward: float[], the best reward of the search so far; -1 if there is none.
      least_loss: float[], the least mean loss of a window since the search ended.
    """

    num_commits: jax.Array
    is_searching: jax.Array
    best_reward: jax.Array
    least_loss: jax.Array


@comparable
def adsp(
    *,
    seconds: float = 60.0,
    num_windows: int,
    min_interval: float = 10.0,
    max_commits: int = 32,
    max_loss_growth: float = 1.3,
    target_loss: float | None = None,
) -> Protocol:
    """ADSP: nobody waits, and everybody commits equally often, at a rate that is searched for.

    Workers take local steps all the time. Each commits, that is pushes what it has changed and reads the newest
    version, after the first step that ends `interval = max(min_interval, Γ / C - O)` or more after it read; O is the
    time of its messages, Γ the length of a window, and C the commits that each makes in a window. The search begins
    with C = 1 and tries one more in each window; the reward of a window comes from fitting `1 / (a² t + b) + c` to its
    losses. With a target it is that of the released code, `a² / (1 / (target - c) - b)`: the inverse of the time, from
    the begin of the window, after which the fit is at the target. It is 0 where the fit never gets there, that is if
    target <= c or a² = 0, and inf where it was there from the begin. Without a target it is `a²`. The first C whose
    reward is not above the best is given up for the one before; a window without a commit says nothing, and the search
    goes on. When the loss of a window has risen by 30 % over the least one since, the search begins again (Hu et al.
    2020). The server adds a push with the weight 1/W.

    Args:
      seconds: Γ.
      num_windows: how many windows there are; the last one lasts until the end.
      min_interval: seconds.
      max_commits: the most that the search tries.
      max_loss_growth: the factor by which the loss must rise for a new search.
      target_loss: the training loss to reach; None takes `a²` as the reward.

    Raises:
      ValueError: if a time is negative, or there is no window, or a number is out of its range.
    """
    search = _Search(seconds, max_commits, max_loss_growth, target_loss).validated()
    window_seconds = float(seconds)
    num_windows = _validate.integer("num_windows", num_windows, minimum=1)
    _validate.single_number("min_interval", min_interval, finite=True)

    def schedule(durations: jax.Array, network: Network, rates: Rates) -> Schedule:
        """The schedule of durations `[T, W]` if every worker makes `rates.num_commits[j]` commits in each window j.

        A worker computes for `compute_seconds_by_window float[windows, W]` between two commits: its share of the
        window, whose length is `window_seconds`, without the time of its messages, but never less than `min_interval`.
        """
        num_workers = durations.shape[1]
        message_seconds = jnp.asarray(network.send_seconds() + network.receive_seconds(), durations.dtype)
        message_seconds = jnp.broadcast_to(message_seconds, (1, num_workers))
        num_commits = rates.num_commits.astype(durations.dtype)[:, None]  # of each worker, one row a window
        compute_seconds_by_window = jnp.maximum(min_interval, window_seconds / num_commits - message_seconds)

        def turn_seconds(view: View) -> jax.Array:
            """float[W]: for how long each worker computes in its turn, by the window in which that begins."""
            window = window_of(view.begin_time, window_seconds, num_windows)  # int32[W]
            return compute_seconds_by_window[window, jnp.arange(num_workers)]

        return event_schedule(Rule(turn_seconds=turn_seconds, weight=1.0 / num_workers), durations, network)

    loss_feedback = LossFeedback(
        initial=_initial_rates,
        schedule=schedule,
        next=search.next_rates,
        seconds=window_seconds,
        num_windows=num_windows,
    )

    def real_clock_rule(num_workers: int) -> Rule:
        """The rule on the real clock: its memory are the `Rates`, of which it looks at `num_commits int32[windows]`.

        The time of messages is not known before the run, and is taken as 0.
        """

        def turn_seconds(view: View) -> jax.Array:
            """float[W]: the interval between two commits of each worker in the window in which its turn begins."""
            num_commits = view.memory.num_commits[window_of(view.begin_time, window_seconds, num_windows)]
            return jnp.maximum(min_interval, window_seconds / num_commits.astype(view.now.dtype))

        return Rule(
            weight=1.0 / num_workers,
            memory=lambda num_workers, dtype: _initial_rates(num_windows),
            turn_seconds=turn_seconds,
        )

    return Protocol(
        lambda durations, network: schedule(durations, network, _initial_rates(num_windows)),
        local=LocalWork(),
        loss_feedback=loss_feedback,
        rule=real_clock_rule,
        specification=specifications.adsp,
    )


def _initial_rates(num_windows: int) -> Rates:
    """The rates at first: one commit a window, the search under way; reward -1, least loss inf: nothing known."""
    dtype = jnp.result_type(float)
    return Rates(
        jnp.ones(num_windows, jnp.int32),
        is_searching=jnp.ones((), bool),
        best_reward=jnp.full((), -1, dtype),
        least_loss=jnp.full((), jnp.inf, dtype),
    )


class _Search(NamedTuple):
    """The search for the number of commits in a window; the parameters are those of `adsp`."""

    window_seconds: float
    max_commits: int
    max_loss_growth: float
    target_loss: float | None

    def validated(self) -> "_Search":
        """The same, if the parameters are in their ranges; otherwise a `ValueError`."""
        _validate.single_number("seconds", self.window_seconds, above=True, finite=True)
        _validate.integer("max_commits", self.max_commits, minimum=1)
        _validate.single_number("max_loss_growth", self.max_loss_growth, minimum=1.0)
        if self.target_loss is not None:
            _validate.single_number("target_loss", self.target_loss, finite=True)
        return self

    def next_rates(self, rates: Rates, observed: Observed) -> Rates:
        """The rates after the window `observed.window` has ended.

        A search goes on with one commit more while the reward rises, and ends with one less when it falls. After a
        search the rate stays, until the loss has risen by `max_loss_growth` over the least loss since
        (`rates.least_loss`); then a new search begins at one commit.
        """
        num_commits, dtype = rates.num_commits[observed.window], rates.best_reward.dtype
        loss = mean_loss(observed, observed.window, self.window_seconds).astype(dtype)  # NaN without a commit
        has_loss = jnp.isfinite(loss)
        reward = jnp.where(has_loss, _reward(observed, self.window_seconds, self.target_loss), -1).astype(dtype)
        reward_rises = (reward > rates.best_reward) | ~has_loss  # a window without a commit says nothing
        is_better = rates.is_searching & reward_rises
        continues = is_better & (num_commits < self.max_commits)
        is_worse = rates.is_searching & ~is_better
        restarts = ~rates.is_searching & (loss > self.max_loss_growth * rates.least_loss)
        next_commits = jnp.where(restarts, 1, num_commits)
        next_commits = jnp.where(is_worse, jnp.maximum(num_commits - 1, 1), next_commits)
        next_commits = jnp.where(continues, num_commits + 1, next_commits)
        return Rates(
            num_commits=jnp.where(
                jnp.arange(rates.num_commits.size) > observed.window, next_commits, rates.num_commits
            ),
            is_searching=continues | restarts,
            best_reward=jnp.where(restarts, -1, jnp.maximum(reward, rates.best_reward)),
            # `fmin` passes over a NaN: a window without a commit changes nothing.
            least_loss=jnp.where(continues | restarts, jnp.inf, jnp.fmin(loss, rates.least_loss)),
        )


def _reward(observed: Observed, window_seconds: float, target: float | None) -> jax.Array:
    """float[]: the reward of `observed.window`, of length `window_seconds`; 0 with fewer than 3 commits, or no fit.

    `1 / (a² t + b) + c` is fitted to its losses, t the seconds since it began, for several asymptotes c. The reward is
    that of the best fit: `a²` without a target, otherwise the inverse of the seconds until the fit is at the target.
    """
    in_this_window = in_window(observed, observed.window, window_seconds)
    # float[E], 0 for the commits of other windows, as the losses; least_loss is then inf if there are none at all.
    begin = window_begin(observed.window, window_seconds, observed.time.dtype)
    elapsed = jnp.where(in_this_window, observed.time - begin, 0)
    loss = jnp.where(in_this_window, observed.loss, 0).astype(elapsed.dtype)
    least_loss = jnp.min(jnp.where(in_this_window, loss, jnp.inf))
    asymptotes = least_loss * jnp.linspace(0, _MAX_ASYMPTOTE, _NUM_ASYMPTOTES, dtype=elapsed.dtype)

    def fit(asymptote: jax.Array) -> tuple[jax.Array, jax.Array]:
        """float[] each: the squared error in the loss, and the reward, of 1 / (loss - c) = a² t + b by least squares.

        c is `asymptote`, a² the `slope`, b the `intercept`. The error is inf where the line is not above 0 at some
        commit of the window, or no number; the reward is 0 where it does not rise.
        """
        inverse_excess = jnp.where(in_this_window, 1 / (loss - asymptote), 0)
        num_losses = in_this_window.sum().astype(elapsed.dtype)
        sum_elapsed, sum_inverse = elapsed.sum(), inverse_excess.sum()
        covariance = num_losses * (elapsed * inverse_excess).sum() - sum_elapsed * sum_inverse
        variance = num_losses * (elapsed * elapsed).sum() - sum_elapsed * sum_elapsed
        slope = covariance / variance
        intercept = (sum_inverse - slope * sum_elapsed) / num_losses
        fitted_inverse = slope * elapsed + intercept
        fitted_loss = 1 / jnp.where(fitted_inverse > 0, fitted_inverse, jnp.nan) + asymptote
        squared_error = jnp.where(in_this_window, (fitted_loss - loss) ** 2, 0).sum()
        if target is None:
            reward = slope
        else:  # the line is at the target, 1 / (target - c), after the seconds (1 / (target - c) - b) / a²
            is_reachable = target > asymptote
            inverse_to_go = 1 / (target - asymptote) - intercept
            reward = slope * jnp.where(is_reachable, _reciprocal_or_inf(inverse_to_go), 0)
        return jnp.where(jnp.isfinite(squared_error), squared_error, jnp.inf), jnp.where(slope > 0, reward, 0)

    errors, rewards = jax.vmap(fit)(asymptotes)  # of each asymptote
    best_fit = jnp.argmin(errors)
    return jnp.where((in_this_window.sum() >= _MIN_LOSSES) & jnp.isfinite(errors[best_fit]), rewards[best_fit], 0)


def _reciprocal_or_inf(inverse_to_go: jax.Array) -> jax.Array:
    """float[]: the reciprocal; inf if the argument is 0 or negative, that is if the target is reached already."""
    return jnp.where(inverse_to_go > 0, 1 / jnp.where(inverse_to_go > 0, inverse_to_go, 1), jnp.inf)
