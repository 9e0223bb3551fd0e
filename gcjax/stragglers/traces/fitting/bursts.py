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
from gcjax.stragglers.traces.fitting.patterns import speed_groups

_NUM_WINDOWS = 8  # the widest that is possible, and narrower ones
_NUM_MAX_SLOW = 3  # values of `max_slow`: the least that is possible, and larger ones


class BurstParameters(NamedTuple):
    """The parameters of bursts, as in `gcjax.stragglers.bursty`."""

    burst: int
    window: int
    max_slow: int
    probability: float


class BurstHistory(NamedTuple):
    """What happened in each step, for one window.

    Attributes:
      num_in_window: int64[T], workers that are in a burst, or were less than a window ago.
      num_begun: int64[T], bursts that begin.
      is_impossible: bool[T], whether a worker began one that could not.
    """

    num_in_window: np.ndarray
    num_begun: np.ndarray
    is_impossible: np.ndarray


def candidates(seconds: np.ndarray) -> Iterator[Candidate]:
    """Yields the bursty model, fitted to float64[T, W] finite seconds above 0, NaN where not measured.

    Yields nothing if nobody is slow, as where all times are equal.
    """
    groups = speed_groups(seconds)
    is_slow = groups.slow_states(seconds) == 1  # bool[T, W]; what was not measured counts as fast
    if not is_slow.any():
        return
    burst_parameters = _likeliest_burst(is_slow)
    base_and_slowdown = {"base": groups.fast_median, "slowdown": groups.slow_median / groups.fast_median}
    parameters = base_and_slowdown | burst_parameters._asdict()

    def log_likelihood(times: np.ndarray) -> np.ndarray:
        """float64[T, W]: the log-likelihood of who is slow when; NaN where not measured.

        Each worker has an equal part of that of who begins a burst in the step, and that of its own burst's length.
        """
        slow_states = groups.slow_states(times)
        return np.where(np.isnan(slow_states), np.nan, log_probability(slow_states == 1, burst_parameters))

    yield Candidate(call("bursty", **parameters), len(parameters), log_likelihood)


def log_probability(is_slow: np.ndarray, burst_parameters: BurstParameters) -> np.ndarray:
    """float64[T, W], which add up to the logarithm of the probability of `is_slow bool[T, W]` under a bursty model.

    That of who begins a burst in a step is of all workers together: each has an equal part of it.
    """
    num_workers = is_slow.shape[1]
    history = burst_history(is_slow, burst_parameters.window)
    log_probability_of_steps = _log_probability_of_begun_bursts(history, burst_parameters, num_workers)
    equal_parts = log_probability_of_steps[:, None] / num_workers
    return equal_parts + _log_probability_of_lengths(is_slow, burst_parameters)


def steps_slow_so_far(is_slow: np.ndarray) -> np.ndarray:
    """int64[T, W]: for how many steps a worker has been slow, this one among them; 0 if it is not."""
    num_steps = np.zeros(is_slow.shape, np.int64)
    for step, is_slow_in_step in enumerate(is_slow):
        num_steps_before = num_steps[step - 1] if step else 0
        num_steps[step] = np.where(is_slow_in_step, num_steps_before + 1, 0)
    return num_steps


def _steps_since_slow(is_slow: np.ndarray) -> np.ndarray:
    """int64[T, W]: steps since a worker was last slow, before this one: 1 if in the last one; 2^40 or more if never."""
    steps, never = np.arange(len(is_slow))[:, None], -(2**40)
    last_slow_step = np.maximum.accumulate(np.where(is_slow, steps, never), axis=0)
    return steps - np.concatenate([np.full_like(last_slow_step[:1], never), last_slow_step[:-1]])


def _least_steps_between_bursts(is_slow: np.ndarray) -> int:
    """The least steps from the last of a burst to the first of the worker's next; T if no worker has two bursts.

    A burst is consecutive slow steps of a worker in `is_slow bool[T, W]`.
    """
    steps_since_slow = _steps_since_slow(is_slow)
    begins_burst = is_slow & (steps_since_slow > 1)
    return int(np.where(begins_burst, steps_since_slow, len(is_slow)).min())


def burst_history(is_slow: np.ndarray, window: int) -> BurstHistory:
    """What happened in each step of `is_slow bool[T, W]`; no burst may begin within `window` steps of the last one.

    A burst is consecutive slow steps; with a window of 1 one can follow at once, so that every slow step is a burst.
    """
    steps_since_slow = _steps_since_slow(is_slow)
    is_in_window = steps_since_slow < window
    begins_burst = is_slow & ((steps_since_slow > 1) | np.asarray(window == 1))
    is_impossible = np.any(begins_burst & is_in_window, axis=1)
    return BurstHistory(
        num_in_window=is_in_window.sum(axis=1), num_begun=begins_burst.sum(axis=1), is_impossible=is_impossible
    )


def _log_probability_of_begun_bursts(
    history: BurstHistory, burst_parameters: BurstParameters, num_workers: int
) -> np.ndarray:
    """float64[T]: the logarithm of the probability that just those workers begin a burst in each step that do.

    Every worker that is not in a window wants to begin with one probability. At most `max_slow` workers may be in a
    window: if more want to begin, a random set of as many as have place does. So those who begin are all who want to
    while a place is left; where none is, at least as many want to. -inf where more begin than can.
    """
    from scipy.special import gammaln
    from scipy.stats import binom

    num_able, num_places = num_workers - history.num_in_window, burst_parameters.max_slow - history.num_in_window
    num_begun, probability = history.num_begun, burst_parameters.probability  # the first int64[T], as the two above
    with np.errstate(divide="ignore", invalid="ignore"):
        log_if_unbounded = num_begun * np.log(probability) + (num_able - num_begun) * np.log1p(-probability)
        log_num_sets = gammaln(num_able + 1) - gammaln(num_begun + 1) - gammaln(num_able - num_begun + 1)
        log_at_least_as_many = binom.logsf(num_places - 1, num_able, probability)  # not all may be let
        log_if_at_bound = log_at_least_as_many - log_num_sets
        log_if_possible = np.where(num_begun < num_places, log_if_unbounded, log_if_at_bound)
    is_impossible = history.is_impossible | (num_begun > num_places) | (num_begun > num_able)
    return np.where(is_impossible, -np.inf, log_if_possible)


def _log_probability_of_lengths(is_slow: np.ndarray, burst_parameters: BurstParameters) -> np.ndarray:
    """float64[T, W]: the log-probability of a burst going on or ending, where a worker was slow before; else 0.

    A burst lasts 1 to `burst` steps, any number as likely as any other, so that after s steps it goes on with
    probability (burst - s) / (burst - s + 1). -inf where it is too long.
    """
    if burst_parameters.window == 1:  # then every burst is one step
        return np.zeros(is_slow.shape)
    steps_slow = steps_slow_so_far(is_slow)
    steps_slow_before = np.concatenate([np.zeros_like(steps_slow[:1]), steps_slow[:-1]])
    with np.errstate(divide="ignore", invalid="ignore"):
        num_longer_lengths = burst_parameters.burst - steps_slow_before  # with these it goes on; it ends with one more
        log_if_possible = np.log(np.where(is_slow, num_longer_lengths, 1) / (num_longer_lengths + 1))
    was_slow, is_too_long = steps_slow_before > 0, num_longer_lengths < 0
    return np.where(~was_slow, 0, np.where(is_too_long, -np.inf, log_if_possible))


def _likeliest_burst(is_slow: np.ndarray) -> BurstParameters:
    """The parameters of a bursty model with the largest likelihood of the pattern `is_slow bool[T, W]`.

    The burst is the longest slow spell; some windows below the widest and some bounds on slow workers above the least
    are tried, each with its likeliest probability.
    """
    num_workers = is_slow.shape[1]
    longest_burst = int(steps_slow_so_far(is_slow).max())
    widest_window = _least_steps_between_bursts(is_slow)
    is_every_slow_unit_a_burst = longest_burst > widest_window
    if is_every_slow_unit_a_burst:  # as no burst may be longer than the window
        longest_burst, widest_window = 1, 1
    likelihoods_and_bursts = []  # (log-likelihood, parameters)
    for window in range(max(longest_burst, widest_window - _NUM_WINDOWS + 1), widest_window + 1):
        history = burst_history(is_slow, window)
        # The least bound that the pattern allows.
        most_in_window = max(int((history.num_in_window + history.num_begun).max()), 1)
        for max_slow in range(most_in_window, min(most_in_window + _NUM_MAX_SLOW, num_workers + 1)):
            with_any_probability = BurstParameters(longest_burst, window, max_slow, probability=0.5)
            likelihoods_and_bursts.append(_likelihood_and_burst(history, with_any_probability, num_workers))
    _, likeliest = max(likelihoods_and_bursts)
    return likeliest


def _likelihood_and_burst(
    history: BurstHistory, burst_parameters: BurstParameters, num_workers: int
) -> tuple[float, Any]:
    """The largest log-likelihood of who begins a burst, and the parameters with the probability that has it.

    The probability in `burst_parameters` is not looked at. The likelihood of the lengths does not depend on it.
    """
    from scipy.optimize import minimize_scalar

    def loss(probability: float) -> float:
        """Minus the log-likelihood of who begins a burst in all steps, if all who may want to with this probability."""
        with_probability = burst_parameters._replace(probability=probability)
        return -float(_log_probability_of_begun_bursts(history, with_probability, num_workers).sum())

    optimum = minimize_scalar(loss, bounds=(1e-9, 1 - 1e-9), method="bounded", options={"xatol": 1e-9})
    return -float(optimum.fun), burst_parameters._replace(probability=float(optimum.x))
