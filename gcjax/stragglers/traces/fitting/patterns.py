"""Who is slow when: models whose slow units all take one time, by the likelihood of the pattern.

Such a model has no density: all of its times are one of two. What it says of a measured trace is who is slow in which
step. A unit is slow if its time is over a threshold: that which splits the logarithms of all times into the two groups
with the least squares (two means), so the two times of such a model are found as they are.

Letters: T steps, W workers.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.fitting.calls import call
from gcjax.stragglers.traces.fitting.candidates import Candidate, log_probability_of_indicators

PSEUDO_COUNT = 0.5
"""Transitions of each sort that are added to those counted, so that none is certain."""


class SpeedGroups(NamedTuple):
    """Fast and slow units.

    Attributes:
      threshold: seconds; slower units are slow.
      fast_median: the median of the fast ones, seconds.
      slow_median: the median of the slow ones, or that of the fast ones if there is none.
    """

    threshold: float
    fast_median: float
    slow_median: float

    def slow_states(self, seconds: np.ndarray) -> np.ndarray:
        """float64[T, W]: 1 for slow units, 0 for fast ones, NaN where not measured."""
        return np.where(np.isnan(seconds), np.nan, seconds > self.threshold)


LEAST_RATIO_OF_SPEEDS = 1e-8
"""Times that differ by a smaller share, as by rounding, are equal: models are written with 9 digits."""


def slow_threshold(seconds: np.ndarray) -> float:
    """The seconds that best split the logarithms of all times into two groups; inf if all are equal.

    Best is the split with the least squares about the two means, in the middle between the logarithms beside it.
    """
    sorted_logarithms = np.sort(np.log(seconds[~np.isnan(seconds)]))
    # An entry for each split: after the shortest time, after the two shortest, ...
    sum_fast, num_fast = np.cumsum(sorted_logarithms)[:-1], np.arange(1, len(sorted_logarithms))
    sum_slow, num_slow = sorted_logarithms.sum() - sum_fast, num_fast[::-1]
    squares_explained = sum_fast**2 / num_fast + sum_slow**2 / num_slow  # largest where the rest is least
    can_split = np.diff(sorted_logarithms) > LEAST_RATIO_OF_SPEEDS  # not between equal times
    if not can_split.any():
        return float(np.inf)
    last_fast = int(np.where(can_split, squares_explained, -np.inf).argmax())
    return float(np.exp((sorted_logarithms[last_fast] + sorted_logarithms[last_fast + 1]) / 2))


def speed_groups(seconds: np.ndarray) -> SpeedGroups:
    """Fast and slow units of float64[T, W] seconds above 0, NaN where not measured: a threshold and two medians.

    If all times are equal, all are fast: the threshold is inf, and the slow median that of the fast.
    """
    threshold_seconds = slow_threshold(seconds)
    is_slow = seconds > threshold_seconds
    fast_median = float(np.nanmedian(np.where(is_slow, np.nan, seconds)))
    has_slow = np.isfinite(threshold_seconds)
    slow_median = float(np.nanmedian(np.where(is_slow, seconds, np.nan))) if has_slow else fast_median
    return SpeedGroups(threshold_seconds, fast_median, slow_median)


def candidates(seconds: np.ndarray) -> Iterator[Candidate]:
    """The models of patterns, fitted to float64[T, W] finite seconds above 0, NaN where not measured."""
    groups = speed_groups(seconds)
    yield _bimodal_candidate(groups, groups.slow_states(seconds))
    yield _markov_candidate(groups, groups.slow_states(seconds))


def _bimodal_candidate(groups: SpeedGroups, slow_states: np.ndarray) -> Candidate:
    """The model in which each unit is slow with the same probability, the share of the slow ones.

    `slow_states` are float64[T, W]: 1 slow, 0 fast, NaN where not measured.
    """
    probability = float(np.nanmean(slow_states))
    model = call("bimodal", fast=groups.fast_median, slow=groups.slow_median, probability=probability)
    return Candidate(model, 3, lambda seconds: log_probability_of_indicators(groups.slow_states(seconds), probability))


def _markov_candidate(groups: SpeedGroups, slow_states: np.ndarray) -> Candidate:
    """The Markov model by the shares of transitions between states float64[T, W]: 1 slow, 0 fast, NaN not measured."""
    state_before, state_after = slow_states[:-1], slow_states[1:]
    is_pair = ~np.isnan(state_before) & ~np.isnan(state_after)
    from_slow, from_fast = is_pair & (state_before == 1), is_pair & (state_before == 0)
    num_stayed, num_entered = state_after[from_slow].sum(), state_after[from_fast].sum()
    persistence = (num_stayed + PSEUDO_COUNT) / (from_slow.sum() + 2 * PSEUDO_COUNT)
    enter_probability = (num_entered + PSEUDO_COUNT) / (from_fast.sum() + 2 * PSEUDO_COUNT)
    probability = enter_probability / (enter_probability + 1 - persistence)
    slowdown = groups.slow_median / groups.fast_median
    model = call("markov", probability=probability, persistence=persistence, slowdown=slowdown, base=groups.fast_median)

    def log_likelihood(seconds: np.ndarray) -> np.ndarray:
        """float64[T, W]: the log-likelihood of each state (slow or fast), given the one before; NaN where not measured.

        Where the one before is not known, as in the first step, a unit is slow as often as in the long run.
        """
        slow_states = groups.slow_states(seconds)
        state_before = np.concatenate([np.full_like(slow_states[:1], np.nan), slow_states[:-1]])
        slow_probability = np.where(
            state_before == 1, persistence, np.where(state_before == 0, enter_probability, probability)
        )
        return log_probability_of_indicators(slow_states, slow_probability)

    return Candidate(model, 4, log_likelihood)
