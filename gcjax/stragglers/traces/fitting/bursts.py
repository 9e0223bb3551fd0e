"""The bursty model by maximum likelihood of who is slow when.

Of a pattern of slow units all is known that `gcjax.stragglers.bursty` draws: who could begin a burst in a step, who
did, and how long it lasted. So its likelihood is a product over steps and bursts. The largest burst B is the longest
slow spell. The window is the widest that no two bursts of a worker contradict, or one a little below; the bound on slow
workers is the least that the pattern allows, or one a little above; the probability is found numerically. A round is
one step. A unit that was not measured counts as fast.

Letters: T steps, W workers.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from gcjax.stragglers.traces.fitting.calls import call
from gcjax.stragglers.traces.fitting.candidates import Candidate
from gcjax.stragglers.traces.fitting.patterns import split

_NUM_WINDOWS = 8
_NUM_BOUNDS = 3


class Burst(NamedTuple):
    """The parameters of bursts, as in `gcjax.stragglers.bursty`."""

    burst: int
    window: int
    max_slow: int
    probability: float


class Rounds(NamedTuple):
    """What happened in each step, for one window.

    Attributes:
      counted: int64[T], workers that are in a burst, or were less than a window ago.
      begun: int64[T], bursts that begin.
      is_wrong: bool[T], whether a worker began one that could not.
    """

    counted: np.ndarray
    begun: np.ndarray
    is_wrong: np.ndarray


def candidates(seconds: np.ndarray) -> Iterator[Candidate]:
    """The bursty model, unless nobody is slow, of float64[T, W] finite seconds above 0, NaN where not measured."""
    groups = split(seconds)
    is_slow = groups.states(seconds) == 1
    if not is_slow.any():
        return
    burst = _likeliest_burst(is_slow)
    base_and_slowdown = {"base": groups.fast, "slowdown": groups.slow / groups.fast}
    parameters = base_and_slowdown | burst._asdict()

    def log_likelihood(times: np.ndarray) -> np.ndarray:
        """Of who is slow: an equal part of each step's for each worker, and that of its burst."""
        states = groups.states(times)
        return np.where(np.isnan(states), np.nan, log_probability(states == 1, burst))

    yield Candidate(call("bursty", **parameters), len(parameters), log_likelihood)


def log_probability(slow: np.ndarray, burst: Burst) -> np.ndarray:
    """float64[T, W], the sum of which is the logarithm of the probability of a pattern bool[T, W]."""
    num_workers = slow.shape[1]
    log_probability_of_steps = _log_probability_of_begun(rounds(slow, burst.window), burst, num_workers)
    equal_parts = log_probability_of_steps[:, None] / num_workers
    return equal_parts + _log_probability_of_lengths(slow, burst)


def steps_slow_so_far(slow: np.ndarray) -> np.ndarray:
    """int64[T, W]: for how many steps a worker has been slow, this one among them; 0 if it is not."""
    num_steps = np.zeros(slow.shape, np.int64)
    for step, is_slow in enumerate(slow):
        num_steps_before = num_steps[step - 1] if step else 0
        num_steps[step] = np.where(is_slow, num_steps_before + 1, 0)
    return num_steps


def _steps_since_slow(slow: np.ndarray) -> np.ndarray:
    """int64[T, W]: steps since a worker was last slow, before this one; very large if never."""
    steps, never = np.arange(len(slow))[:, None], -(2**40)
    last_slow_step = np.maximum.accumulate(np.where(slow, steps, never), axis=0)
    return steps - np.concatenate([np.full_like(last_slow_step[:1], never), last_slow_step[:-1]])


def _least_gap(slow: np.ndarray) -> int:
    """Steps from the last of a burst to the first of the worker's next, the least; T if no worker has two."""
    gaps = _steps_since_slow(slow)
    begins_burst = slow & (gaps > 1)
    return int(np.where(begins_burst, gaps, len(slow)).min())


def rounds(slow: np.ndarray, window: int) -> Rounds:
    """What happened in each step of a pattern bool[T, W]."""
    gaps = _steps_since_slow(slow)
    is_counted = gaps < window
    begins = slow & ((gaps > 1) | np.asarray(window == 1))
    is_wrong = np.any(begins & is_counted, axis=1)
    return Rounds(counted=is_counted.sum(axis=1), begun=begins.sum(axis=1), is_wrong=is_wrong)


def _log_probability_of_begun(history: Rounds, burst: Burst, num_workers: int) -> np.ndarray:
    """float64[T]: the logarithm of the probability that these workers begin, of those that could."""
    from scipy.special import gammaln
    from scipy.stats import binom

    num_able, num_places = num_workers - history.counted, burst.max_slow - history.counted
    num_begun = history.begun
    with np.errstate(divide="ignore", invalid="ignore"):
        log_if_unbounded = num_begun * np.log(burst.probability) + (num_able - num_begun) * np.log1p(-burst.probability)
        log_num_sets = gammaln(num_able + 1) - gammaln(num_begun + 1) - gammaln(num_able - num_begun + 1)
        log_at_least_as_many = binom.logsf(num_places - 1, num_able, burst.probability)  # more may not have been let
        log_if_at_bound = log_at_least_as_many - log_num_sets
        log_if_possible = np.where(num_begun < num_places, log_if_unbounded, log_if_at_bound)
    is_impossible = history.is_wrong | (num_begun > num_places) | (num_begun > num_able)
    return np.where(is_impossible, -np.inf, log_if_possible)


def _log_probability_of_lengths(slow: np.ndarray, burst: Burst) -> np.ndarray:
    """float64[T, W]: of whether a burst goes on, where a worker was slow in the step before; 0 elsewhere."""
    if burst.window == 1:
        return np.zeros(slow.shape)
    slow_so_far = steps_slow_so_far(slow)
    slow_before = np.concatenate([np.zeros_like(slow_so_far[:1]), slow_so_far[:-1]])
    with np.errstate(divide="ignore", invalid="ignore"):
        num_longer_lengths = burst.burst - slow_before  # that are possible if it goes on; one more if it ends
        log_if_possible = np.log(np.where(slow, num_longer_lengths, 1) / (num_longer_lengths + 1))
    was_slow, is_too_long = slow_before > 0, num_longer_lengths < 0
    return np.where(~was_slow, 0, np.where(is_too_long, -np.inf, log_if_possible))


def _likeliest_burst(slow: np.ndarray) -> Burst:
    """The parameters of the largest likelihood."""
    num_workers, longest_burst, widest_window = slow.shape[1], int(steps_slow_so_far(slow).max()), _least_gap(slow)
    is_every_slow_unit_a_burst = longest_burst > widest_window
    if is_every_slow_unit_a_burst:
        longest_burst, widest_window = 1, 1
    likelihoods_and_bursts = []
    for window in range(max(longest_burst, widest_window - _NUM_WINDOWS + 1), widest_window + 1):
        history = rounds(slow, window)
        most_at_once = max(int((history.counted + history.begun).max()), 1)
        for max_slow in range(most_at_once, min(most_at_once + _NUM_BOUNDS, num_workers + 1)):
            any_probability = Burst(longest_burst, window, max_slow, probability=0.5)
            likelihoods_and_bursts.append(_likelihood_and_burst(history, any_probability, num_workers))
    _, likeliest = max(likelihoods_and_bursts)
    return likeliest


def _likelihood_and_burst(history: Rounds, burst: Burst, num_workers: int) -> tuple[float, Any]:
    """The largest likelihood of steps, and the parameters with the probability that has it."""
    from scipy.optimize import minimize_scalar

    def loss(probability: float) -> float:
        """Minus the likelihood."""
        return -float(_log_probability_of_begun(history, burst._replace(probability=probability), num_workers).sum())

    optimum = minimize_scalar(loss, bounds=(1e-9, 1 - 1e-9), method="bounded", options={"xatol": 1e-9})
    return -float(optimum.fun), burst._replace(probability=float(optimum.x))
