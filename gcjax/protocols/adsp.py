"""ADSP: adaptive synchronous parallel (Hu, Wang, Wu, AAAI 2020)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Adaptive, LocalWork, Observed, Protocol, Schedule
from gcjax.protocols.observed_losses import in_window, mean_loss, window_of
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.rules import Rule, TurnPlan, turn_of
from gcjax.protocols.simulation.turns import Work
from gcjax.stragglers.network import Network

_ASYMPTOTES = 32


class Rates(NamedTuple):
    """What the search knows.

    Attributes:
      commits: int32[windows], the commits that each worker makes in a window.
      searching: bool[], whether the next window tries one commit more.
      best: float[], the best reward of the search so far; -1 if there is none.
      least: float[], the least mean loss of a window since the search ended.
    """

    commits: jax.Array
    searching: jax.Array
    best: jax.Array
    least: jax.Array


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
    reward is below the best is given up for the one before. When the loss of a window has risen by 30 % over the least
    one since, the search begins again (Hu et al. 2020, algorithms 1 and 2). The server adds a push with the weight 1/W.

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
    _validate.integer("num_windows", num_windows, minimum=1)
    _validate.single_number("min_interval", min_interval, finite=True)

    def schedule(durations: jax.Array, network: Network, rates: Rates) -> Schedule:
        num_workers = durations.shape[1]
        messages = jnp.asarray(network.send_seconds() + network.receive_seconds(), durations.dtype)
        messages = jnp.broadcast_to(messages, (1, num_workers))
        length = jnp.maximum(min_interval, seconds / rates.commits.astype(durations.dtype)[:, None] - messages)

        def plan(work: Work, first: jax.Array, ready: jax.Array, memory: Any) -> TurnPlan:
            del memory
            window = window_of(ready, seconds, num_windows)
            return turn_of(work, first, ready, work.until(first, jnp.take_along_axis(length, window[None], axis=0)[0]))

        return event_schedule(Rule(plan=plan), durations, network, weight=1.0 / num_workers)

    def initial(count: int) -> Rates:
        zero = jnp.zeros((), jnp.result_type(float))
        return Rates(jnp.ones(count, jnp.int32), zero == 0, zero - 1, zero + jnp.inf)

    adaptive = Adaptive(
        initial=initial, schedule=schedule, next=search.next_rates, seconds=float(seconds), num_windows=num_windows
    )
    return Protocol(
        lambda d, n: schedule(d, n, initial(num_windows)),
        local=LocalWork(),
        adaptive=adaptive,
        specification=lambda num_workers: specifications.adsp(num_workers),
    )


class _Search(NamedTuple):
    """The search for the number of commits in a window; the parameters are those of `adsp`."""

    seconds: float
    max_commits: int
    max_loss_growth: float
    target_loss: float | None

    def validated(self) -> "_Search":
        """The same, if the parameters are in their ranges."""
        _validate.single_number("seconds", self.seconds, above=True, finite=True)
        _validate.integer("max_commits", self.max_commits, minimum=1)
        _validate.single_number("max_loss_growth", self.max_loss_growth, minimum=1.0)
        if self.target_loss is not None:
            _validate.single_number("target_loss", self.target_loss, finite=True)
        return self

    def next_rates(self, rates: Rates, seen: Observed) -> Rates:
        """The rates after a window: the search goes on, ends, rests, or begins again."""
        now, dtype = rates.commits[seen.window], rates.best.dtype
        loss = mean_loss(seen, seen.window, self.seconds).astype(dtype)
        known = jnp.isfinite(loss)
        reward = jnp.where(known, _reward(seen, self.seconds, self.target_loss), -1).astype(dtype)
        better = rates.searching & ((reward > rates.best) | ~known)  # a window without a commit says nothing
        continues = better & (now < self.max_commits)
        ends = rates.searching & ~continues
        again = ~rates.searching & (loss > self.max_loss_growth * rates.least)
        given_up = ends & ~better
        coming = jnp.where(continues, now + 1, jnp.where(given_up, jnp.maximum(now - 1, 1), jnp.where(again, 1, now)))
        least = jnp.where(continues | again, jnp.inf, jnp.fmin(loss, rates.least))
        return Rates(
            jnp.where(jnp.arange(rates.commits.size) > seen.window, coming, rates.commits),
            continues | again,
            jnp.where(again, -1, jnp.maximum(reward, rates.best)),
            least,
        )


def _reward(seen: Observed, seconds: float, target: float | None) -> jax.Array:
    """float[]: how good a window was, by the c that fits best: `a²`, or the inverse time to the target."""
    in_this_window = in_window(seen, seen.window, seconds)
    t = jnp.where(in_this_window, seen.time - seen.window.astype(seen.time.dtype) * seconds, 0)
    loss = jnp.where(in_this_window, seen.loss, 0).astype(t.dtype)
    asymptotes = jnp.min(jnp.where(in_this_window, loss, jnp.inf)) * jnp.linspace(0, 0.98, _ASYMPTOTES, dtype=t.dtype)

    def fit(c: jax.Array) -> tuple[jax.Array, jax.Array]:
        """1 / (loss - c) = a² t + b by least squares: its error in the loss, and the reward."""
        y = jnp.where(in_this_window, 1 / (loss - c), 0)
        n, st, sy = in_this_window.sum().astype(t.dtype), t.sum(), y.sum()
        slope = (n * (t * y).sum() - st * sy) / (n * (t * t).sum() - st * st)
        intercept = (sy - slope * st) / n
        line = slope * t + intercept
        error = jnp.where(in_this_window, (1 / jnp.where(line > 0, line, jnp.nan) + c - loss) ** 2, 0).sum()
        reward = slope if target is None else slope * jnp.where(target > c, _inverse(1 / (target - c) - intercept), 0)
        return jnp.where(jnp.isfinite(error), error, jnp.inf), jnp.where(slope > 0, reward, 0)

    errors, rewards = jax.vmap(fit)(asymptotes)
    best = jnp.argmin(errors)
    return jnp.where((in_this_window.sum() >= 3) & jnp.isfinite(errors[best]), rewards[best], 0)


def _inverse(way: jax.Array) -> jax.Array:
    """float[]: 1 / way; inf if there is none left."""
    return jnp.where(way > 0, 1 / jnp.where(way > 0, way, 1), jnp.inf)
