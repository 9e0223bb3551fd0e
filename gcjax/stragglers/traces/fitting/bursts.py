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
    slow = groups.states(seconds) == 1
    if not slow.any():
        return
    burst = _likeliest(slow)
    slowdown = groups.slow / groups.fast
    model = call("bursty", base=groups.fast, slowdown=slowdown, **burst._asdict())

    def log_likelihood(times: np.ndarray) -> np.ndarray:
        """Of who is slow: an equal part of each step's for each worker, and that of its burst."""
        states = groups.states(times)
        return np.where(np.isnan(states), np.nan, log_probability(states == 1, burst))

    yield Candidate(model, 6, log_likelihood)


def log_probability(slow: np.ndarray, burst: Burst) -> np.ndarray:
    """float64[T, W], the sum of which is the logarithm of the probability of a pattern bool[T, W]."""
    num_workers = slow.shape[1]
    begun = _log_begun(rounds(slow, burst.window), burst, num_workers)
    return begun[:, None] / num_workers + _log_lengths(slow, burst)


def lengths(slow: np.ndarray) -> np.ndarray:
    """int64[T, W]: for how many steps a worker has been slow, this one among them; 0 if it is not."""
    result = np.zeros(slow.shape, np.int64)
    for step, is_slow in enumerate(slow):
        result[step] = np.where(is_slow, result[step - 1] + 1 if step else 1, 0)
    return result


def _steps_since_slow(slow: np.ndarray) -> np.ndarray:
    """int64[T, W]: steps since a worker was last slow, before this one; very large if never."""
    steps, never = np.arange(len(slow))[:, None], -(2**40)
    last = np.maximum.accumulate(np.where(slow, steps, never), axis=0)
    return steps - np.concatenate([np.full_like(last[:1], never), last[:-1]])


def _closest(slow: np.ndarray) -> int:
    """Steps from the last of a burst to the first of the worker's next, the least; T if no worker has two."""
    gaps = _steps_since_slow(slow)
    return int(np.where(slow & (gaps > 1), gaps, len(slow)).min())


def rounds(slow: np.ndarray, window: int) -> Rounds:
    """What happened in each step of a pattern bool[T, W]."""
    gaps = _steps_since_slow(slow)
    is_counted = gaps < window
    begins = slow & ((gaps > 1) | np.asarray(window == 1))
    return Rounds(is_counted.sum(axis=1), begins.sum(axis=1), np.any(begins & is_counted, axis=1))


def _log_begun(history: Rounds, burst: Burst, num_workers: int) -> np.ndarray:
    """float64[T]: the logarithm of the probability that these workers begin, of those that could."""
    from scipy.special import gammaln
    from scipy.stats import binom

    able, places = num_workers - history.counted, burst.max_slow - history.counted
    begun = history.begun
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = begun * np.log(burst.probability) + (able - begun) * np.log1p(-burst.probability)
        sets = gammaln(able + 1) - gammaln(begun + 1) - gammaln(able - begun + 1)
        at_bound = binom.logsf(places - 1, able, burst.probability) - sets  # more wanted to, and were not let
        values = np.where(begun < places, alone, at_bound)
    return np.where(history.is_wrong | (begun > places) | (begun > able), -np.inf, values)


def _log_lengths(slow: np.ndarray, burst: Burst) -> np.ndarray:
    """float64[T, W]: of whether a burst goes on, where a worker was slow in the step before; 0 elsewhere."""
    before = lengths(slow)
    before = np.concatenate([np.zeros_like(before[:1]), before[:-1]])
    if burst.window == 1:
        return np.zeros(slow.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        left = burst.burst - before  # lengths that are still possible if it goes on
        values = np.log(np.where(slow, left, 1) / (left + 1))
    return np.where(before == 0, 0, np.where(left < 0, -np.inf, values))


def _likeliest(slow: np.ndarray) -> Burst:
    """The parameters of the largest likelihood."""
    num_workers, longest, gap = slow.shape[1], int(lengths(slow).max()), _closest(slow)
    longest, gap = (1, 1) if longest > gap else (longest, gap)
    trials = []
    for window in range(max(longest, gap - _NUM_WINDOWS + 1), gap + 1):
        history = rounds(slow, window)
        least = max(int((history.counted + history.begun).max()), 1)
        for max_slow in range(least, min(least + _NUM_BOUNDS, num_workers + 1)):
            trials.append(_with_probability(history, Burst(longest, window, max_slow, 0.5), num_workers))
    return max(trials)[1]


def _with_probability(history: Rounds, burst: Burst, num_workers: int) -> tuple[float, Any]:
    """The largest likelihood of steps, and the parameters with the probability that has it."""
    from scipy.optimize import minimize_scalar

    def loss(probability: float) -> float:
        """Minus the likelihood."""
        return -float(_log_begun(history, burst._replace(probability=probability), num_workers).sum())

    result = minimize_scalar(loss, bounds=(1e-9, 1 - 1e-9), method="bounded", options={"xatol": 1e-9})
    return -float(result.fun), burst._replace(probability=float(result.x))
