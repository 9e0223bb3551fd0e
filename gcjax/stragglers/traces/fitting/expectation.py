"""Expectation maximisation (Baum et al. 1970) of Markov models of times whose states are hidden.

The states are not seen; each pass computes how likely they are given all times, and then the likeliest parameters given
that. Transitions are counted from the second step on. The likelihood can have several tops: EM begins at several
thresholds between fast and slow, and goes on from the best.

Letters: T steps, W workers.
"""

from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.fitting.chains import Chain, mixture_log_density, slow_given_past, state_probabilities
from gcjax.stragglers.traces.fitting.families import Family, log_density, maximum_likelihood
from gcjax.stragglers.traces.fitting.independent import seconds_and_weights
from gcjax.stragglers.traces.fitting.patterns import PSEUDO_COUNT, slow_threshold

_PASSES_PER_TRIAL = 8  # passes from each beginning
_MAX_PASSES = 60
_TOLERANCE = 1e-6  # nats a time that a pass must win
_SLOWDOWN_FACTORS = (1.5, 1.2, 1.06, 1.02, 1.005, 1.001)
"""Factors on the slowdown that are tried; the first only where there is no shortest time."""
_MAX_TRIALS_PER_FACTOR = 8  # with each factor
_NEGLIGIBLE = 1e-9  # a weight that counts as none
_SLOW_RATIOS = (1.3, 2.0)
"""Beginnings: what is slower than so many times the median of its worker. Another is the best threshold for all."""


class Parameters(NamedTuple):
    """Of a hidden Markov model of times.

    Attributes:
      chain: of the states.
      scale: float64[W], of fast units.
      shape: of the family.
      slowdown: the factor of slow units.
    """

    chain: Chain
    scale: np.ndarray
    shape: float
    slowdown: float


class ModelKind(NamedTuple):
    """What is fitted.

    Attributes:
      family: of the times of fast units.
      is_scaled: whether each worker has a scale of its own.
      has_memory: whether the next state depends on this one; otherwise persistence is the probability.
    """

    family: Family
    is_scaled: bool
    has_memory: bool


def fitted_parameters(kind: ModelKind, seconds: np.ndarray) -> Parameters:
    """The parameters of the largest likelihood that EM finds for float64[T, W] seconds above 0, NaN if not measured.

    `kind`: the distribution of times, whether each worker has a scale, and whether slow units follow one another.
    """
    initial_states = [seconds > ratio * worker_medians(seconds) for ratio in _SLOW_RATIOS]  # bool[T, W]: is slow
    initial_states.append(seconds > slow_threshold(seconds))
    initial_parameters = [_parameters_of_states(kind, seconds, is_slow) for is_slow in initial_states]
    improved = [_after_em_passes(kind, seconds, parameters, _PASSES_PER_TRIAL) for parameters in initial_parameters]
    best = max(improved, key=lambda parameters: _mean_log_likelihood(kind, parameters, seconds))
    return _after_em_passes(kind, seconds, _best_of_other_slowdowns(kind, seconds, best), _MAX_PASSES)


def _best_of_other_slowdowns(kind: ModelKind, seconds: np.ndarray, best: Parameters) -> Parameters:
    """The likeliest of the parameters `best` and of those that EM finds from larger and smaller slowdowns.

    EM alone cannot leave a slowdown where slow units have a shortest time: the times below it are never slow again.
    Each factor is applied as long as that makes the times likelier, some times at most.
    """
    mean_log_likelihood = _mean_log_likelihood(kind, best, seconds)
    factors = _SLOWDOWN_FACTORS if kind.family.has_shortest_time else _SLOWDOWN_FACTORS[:1]
    for factor in [direction for factor_up in factors for direction in (factor_up, 1 / factor_up)]:
        for _ in range(_MAX_TRIALS_PER_FACTOR):
            with_other_slowdown = best._replace(slowdown=best.slowdown * factor)
            trial = _after_em_passes(kind, seconds, with_other_slowdown, _PASSES_PER_TRIAL)
            trial_mean_log_likelihood = _mean_log_likelihood(kind, trial, seconds)
            if trial_mean_log_likelihood < mean_log_likelihood + _TOLERANCE:
                break
            best, mean_log_likelihood = trial, trial_mean_log_likelihood
    return best


def _after_em_passes(kind: ModelKind, seconds: np.ndarray, parameters: Parameters, num_passes: int) -> Parameters:
    """The parameters after `num_passes` passes of EM, or fewer once the likelihood grows by less than `_TOLERANCE`.

    The likelihood is the mean log-likelihood of a measured time of `seconds float64[T, W]`, in nats.
    """
    likelihood = -np.inf
    for _ in range(num_passes):
        log_density_fast, log_density_slow = log_densities(kind, parameters, seconds)
        states = state_probabilities(log_density_fast, log_density_slow, parameters.chain)
        likelihood_before = likelihood
        likelihood = float(np.nanmean(mixture_log_density(log_density_fast, log_density_slow, states.slow_given_past)))
        if likelihood - likelihood_before < _TOLERANCE:
            break
        # A state that cannot have this time has probability 0, which those of the chain only come near to.
        is_surely_fast, is_surely_slow = np.isneginf(log_density_slow), np.isneginf(log_density_fast)
        slow_probability = np.where(is_surely_fast, 0, np.where(is_surely_slow, 1, states.slow_given_all))
        chain = _chain_of_states(kind, states.slow_given_all, states.stayed_given_all)
        parameters = _likeliest_parameters(kind, seconds, slow_probability, chain, parameters)
    return parameters


def _parameters_of_states(kind: ModelKind, seconds: np.ndarray, is_slow: np.ndarray) -> Parameters:
    """The likeliest parameters if it had been seen which units are slow: `is_slow bool[T, W]`.

    The workers' scales, by which times are divided before that, are as their medians, or equal unless `kind.is_scaled`.
    """
    slow_probability = is_slow.astype(np.float64)
    chain = _chain_of_states(kind, slow_probability, slow_probability[1:] * slow_probability[:-1])
    scale = worker_medians(seconds) if kind.is_scaled else np.ones(seconds.shape[1])
    only_scale_is_used = Parameters(chain, scale=scale / np.median(scale), shape=np.nan, slowdown=1.0)
    return _likeliest_parameters(kind, seconds, slow_probability, chain, only_scale_is_used)


def worker_medians(seconds: np.ndarray) -> np.ndarray:
    """float64[W]: the median of each worker's `seconds float64[T, W]` (NaN: not measured).

    A worker without a measured time has the median of all times.
    """
    is_measured = ~np.isnan(seconds).all(axis=0)
    medians = np.full(seconds.shape[1], np.nanmedian(seconds))
    medians[is_measured] = np.nanmedian(seconds[:, is_measured], axis=0)
    return medians


def _chain_of_states(kind: ModelKind, slow_probability: np.ndarray, stayed_probability: np.ndarray) -> Chain:
    """The chain whose probabilities are the shares of expected slow states and transitions.

    By P(slow) of each unit, float64[T, W], and P(slow in it and in the next one), float64[T - 1, W]. Counts are raised
    a little, so that no probability is 0 or 1. Without memory, or with one step, the persistence is P(slow).
    """
    if not kind.has_memory or len(slow_probability) < 2:
        with_one_more_of_each = (slow_probability.sum() + 1) / (slow_probability.size + 2.0)
        return Chain(probability=with_one_more_of_each, persistence=with_one_more_of_each)
    num_from_slow, num_stayed = slow_probability[:-1].sum(), stayed_probability.sum()
    num_from_fast = slow_probability[:-1].size - num_from_slow
    num_entered = slow_probability[1:].sum() - num_stayed
    persistence = (num_stayed + PSEUDO_COUNT) / (num_from_slow + 2 * PSEUDO_COUNT)
    enter_probability = (num_entered + PSEUDO_COUNT) / (num_from_fast + 2 * PSEUDO_COUNT)
    return Chain(probability=enter_probability / (enter_probability + 1 - persistence), persistence=persistence)


def _likeliest_parameters(
    kind: ModelKind, seconds: np.ndarray, slow_probability: np.ndarray, chain: Chain, parameters_before: Parameters
) -> Parameters:
    """The best parameters if each unit has this P(slow), float64[T, W]; `chain` is taken over as it is.

    With a scale a worker, the slowdown is improved for the scales of before, and then the scales for it. Of
    `parameters_before` only the scales are looked at.
    """
    seconds_or_one, is_measured = seconds_and_weights(seconds)
    weights = np.stack([(1 - slow_probability) * is_measured, slow_probability * is_measured])  # [2, T, W]
    weights = np.where(weights < _NEGLIGIBLE, 0, weights)
    relative_seconds = seconds_or_one / parameters_before.scale if kind.is_scaled else seconds_or_one
    seconds_by_state = np.broadcast_to(relative_seconds, weights.shape).reshape(2, -1).T  # [T W, 2]: if fast, if slow
    (fast_scale, slow_scale), shape = maximum_likelihood(kind.family, seconds_by_state, weights.reshape(2, -1).T)
    slowdown = float(slow_scale / fast_scale)
    if not kind.is_scaled:
        return Parameters(chain, np.full(seconds.shape[1], fast_scale), shape, slowdown)
    as_if_fast = np.concatenate([seconds_or_one, seconds_or_one / slowdown])  # [2 T, W]
    scale_of_worker, shape = maximum_likelihood(kind.family, as_if_fast, weights.reshape(-1, seconds.shape[1]))
    return Parameters(chain, scale_of_worker, shape, slowdown)


def log_densities(kind: ModelKind, parameters: Parameters, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The logarithms float64[T, W] of the density of each time if its unit is fast, and if it is slow; NaN for NaN."""
    scale, shape = parameters.scale, parameters.shape
    fast = log_density(kind.family, seconds, scale, shape)
    return fast, log_density(kind.family, seconds, scale * parameters.slowdown, shape)


def _mean_log_likelihood(kind: ModelKind, parameters: Parameters, seconds: np.ndarray) -> float:
    """The mean log-likelihood of a measured time, in nats, given all earlier ones of its worker."""
    log_density_fast, log_density_slow = log_densities(kind, parameters, seconds)
    slow_probability = slow_given_past(log_density_fast, log_density_slow, parameters.chain)
    return float(np.nanmean(mixture_log_density(log_density_fast, log_density_slow, slow_probability)))
