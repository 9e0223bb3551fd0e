"""Four families of times by maximum likelihood: exponential, shifted exponential, Pareto, Weibull.

All are scale families: a time is `scale * z`, where z has a density with at most one parameter, `shape`. A fit has one
scale for each of several groups of times and a shape that they share. Times have weights, for hidden states.

Letters: n times of a group.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gcjax.stragglers.traces.fitting.calls import Call, call

_TINY = 1e-9  # where all times are equal, a scale or the inverse of a shape would be 0
_SMALLEST_SHAPE, _LARGEST_SHAPE = 1e-3, 1e5


class Family(NamedTuple):
    """Distributions of times.

    Attributes:
      fit: `(seconds [n, groups], weights [n, groups]) -> (scale [groups], shape)` of the largest likelihood; all in
        float64, weights of 0 for what does not count, seconds above 0.
      log_density: `(z, shape) -> ` the logarithm of the density at `z = seconds / scale`, for a scale of 1.
      call: `(scale, shape) ->` the factory's call; the scale may be one a worker.
      num_shapes: parameters besides the scale.
      has_shortest_time: whether no time is below a multiple of the scale that is above 0.
    """

    fit: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, float]]
    log_density: Callable[[np.ndarray, float], np.ndarray]
    call: Callable[[Any, float], Call]
    num_shapes: int
    has_shortest_time: bool


def maximum_likelihood(family: Family, seconds: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """The likeliest scale of each group, float64[groups], and the shape of all; without weight, the median scale.

    `seconds` and `weights` (how much each time counts) are float64[n, groups].
    """
    has_weight = weights.sum(axis=0) > 0
    scale, shape = family.fit(seconds[:, has_weight], weights[:, has_weight])
    scales = np.full(len(has_weight), np.median(scale))
    scales[has_weight] = scale
    return scales, float(shape)


def log_density(family: Family, seconds: np.ndarray, scale: np.ndarray | float, shape: float) -> np.ndarray:
    """The logarithms of the density at times float64[...], with NaN for NaN; -inf where the family has no such time."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values = family.log_density(seconds / scale, shape) - np.log(scale)
    return np.where(np.isnan(seconds), np.nan, np.where(np.isnan(values), -np.inf, np.minimum(values, 700)))


def _weights_and_means(seconds: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float64[groups] twice: the weight of each group, and its mean time."""
    totals = weights.sum(axis=0)
    return totals, (weights * seconds).sum(axis=0) / np.maximum(totals, _TINY)


def _minima(seconds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """float64[groups]: the shortest time of each group that has a weight."""
    return np.where(weights > 0, seconds, np.inf).min(axis=0)


def _fit_exponential(seconds: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """The mean of each group."""
    return _weights_and_means(seconds, weights)[1], math.nan


def _fit_pareto(seconds: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """The shortest time of each group; the inverse of the shape is the mean logarithm of the times over it."""
    minima = _minima(seconds, weights)
    logarithms = np.log(np.maximum(seconds / minima, 1))
    return minima, weights.sum() / max((weights * logarithms).sum(), weights.sum() / _LARGEST_SHAPE)


def _fit_shifted_exponential(seconds: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """The mean of each group's exponential part, float64[groups]; the shape is the shift over this mean, one for all.

    Given the shape a, a group with the mean m and the shortest time l has the scale min(m, l / a), and its likelihood
    is concave in a: so is their sum, whose top is sought between those of the groups.
    """
    from scipy.optimize import minimize_scalar

    (total_weights, means), minima = _weights_and_means(seconds, weights), _minima(seconds, weights)
    best_shapes = minima / np.maximum(means - minima, _TINY * means)  # the best shape of each group alone
    shape = float(best_shapes[0])
    has_several_shapes = len(best_shapes) > 1 and best_shapes.max() > best_shapes.min() * (1 + _TINY)
    if has_several_shapes:

        def loss(log_shape: float) -> float:
            """Minus the likelihood of the best scales for a shape."""
            scales = np.minimum(means, minima / math.exp(log_shape))
            return -float((total_weights * (math.exp(log_shape) - np.log(scales) - means / scales)).sum())

        log_bounds = math.log(max(float(best_shapes.min()), _TINY)), math.log(max(float(best_shapes.max()), 2 * _TINY))
        shape = math.exp(minimize_scalar(loss, bounds=log_bounds, method="bounded", options={"xatol": 1e-10}).x)
    return np.minimum(means, minima / max(shape, _TINY)), shape


def _fit_weibull(seconds: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """The likeliest scale of each group, float64[groups], and shape of all, from `seconds` and `weights [n, groups]`.

    At the shape the slope of the best scales' likelihood has its one change of sign.
    """
    from scipy.optimize import brentq

    logarithms = np.where(weights > 0, np.log(seconds), 0)
    total_weights = weights.sum(axis=0)
    largest = np.where(weights > 0, logarithms, -np.inf).max(axis=0)
    below_largest = np.where(weights > 0, logarithms - largest, 0)  # at most 0, so that no power overflows
    mean_below_largest = (weights * below_largest).sum() / weights.sum()

    def slope(log_shape: float) -> float:
        """The derivative of the likelihood by the shape, divided by the number of times."""
        powers = weights * np.exp(math.exp(log_shape) * below_largest)
        group_means = (powers * below_largest).sum(axis=0) / np.maximum(powers.sum(axis=0), _TINY)
        mean_by_powers = (total_weights * group_means).sum() / total_weights.sum()
        return float(math.exp(-log_shape) - mean_by_powers + mean_below_largest)

    low, high = math.log(_SMALLEST_SHAPE), math.log(_LARGEST_SHAPE)
    log_shape = high if slope(high) > 0 else brentq(slope, low, high, xtol=1e-9)
    shape = math.exp(log_shape)
    mean_powers = (weights * np.exp(shape * below_largest)).sum(axis=0) / np.maximum(total_weights, _TINY)
    log_scale = largest + np.log(np.maximum(mean_powers, 1e-300)) / shape
    return np.exp(log_scale), shape


FAMILIES = {
    "exponential": Family(
        _fit_exponential,
        lambda z, shape: np.where(z >= 0, -z, -np.inf),
        lambda scale, shape: call("exponential", mean=scale),
        num_shapes=0,
        has_shortest_time=False,
    ),
    "shifted_exponential": Family(
        _fit_shifted_exponential,
        lambda z, shape: np.where(z >= shape * (1 - _TINY), shape - z, -np.inf),
        lambda scale, shape: call("shifted_exponential", shift=shape * scale, mean=scale),
        num_shapes=1,
        has_shortest_time=True,
    ),
    "pareto": Family(
        _fit_pareto,
        lambda z, shape: np.where(z >= 1 - _TINY, math.log(shape) - (shape + 1) * np.log(z), -np.inf),
        lambda scale, shape: call("pareto", minimum=scale, shape=shape),
        num_shapes=1,
        has_shortest_time=True,
    ),
    "weibull": Family(
        _fit_weibull,
        lambda z, shape: math.log(shape) + (shape - 1) * np.log(z) - z**shape,
        lambda scale, shape: call("weibull", scale=scale, shape=shape),
        num_shapes=1,
        has_shortest_time=False,
    ),
}
