"""Five families of times by maximum likelihood: exponential, shifted exponential, log-normal, Pareto, Weibull.

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
    """The likeliest scale of each group, float64[groups], and the shape of all, NaN if the family has none.

    `seconds` and `weights` (how much each time counts) are float64[n, groups]. A group without weight gets the median
    scale of the others.
    """
    has_weight = weights.sum(axis=0) > 0
    scale, shape = family.fit(seconds[:, has_weight], weights[:, has_weight])
    scales = np.full(len(has_weight), np.median(scale))
    scales[has_weight] = scale
    return scales, float(shape)


def log_density(family: Family, seconds: np.ndarray, scale: np.ndarray | float, shape: float) -> np.ndarray:
    """The logarithms of the density at times float64[...], with NaN for NaN; -inf where the family has no such time.

    No more than 700, so that e to it is a float64. The scale is one for all times, or broadcasts with them.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_densities = family.log_density(seconds / scale, shape) - np.log(scale)
    return np.where(
        np.isnan(seconds), np.nan, np.where(np.isnan(log_densities), -np.inf, np.minimum(log_densities, 700))
    )


def _weights_and_means(seconds: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float64[groups] twice: the weight of each group, and its mean time, from float64[n, groups] both."""
    totals = weights.sum(axis=0)
    return totals, (weights * seconds).sum(axis=0) / np.maximum(totals, _TINY)


def _minima(seconds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """float64[groups]: the shortest time of each group that has a weight."""
    return np.where(weights > 0, seconds, np.inf).min(axis=0)


def _fit_exponential(seconds: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """(scale float64[groups], shape): the mean of each group, and NaN, as there is no shape."""
    return _weights_and_means(seconds, weights)[1], math.nan


def _fit_pareto(seconds: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """(scale float64[groups], shape) for float64[n, groups]: the shortest time of each group is its scale.

    The inverse of the shape is the mean logarithm, by weights, of all times over the shortest of their group. There is
    a largest shape, for times that are all equal.
    """
    minima = _minima(seconds, weights)
    logarithms = np.log(np.maximum(seconds / minima, 1))
    return minima, weights.sum() / max((weights * logarithms).sum(), weights.sum() / _LARGEST_SHAPE)


def _fit_lognormal(seconds: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """(scale float64[groups], shape) for float64[n, groups]: the scale is the median, the shape the deviation sigma.

    The logarithm of a group's median is the mean of its times' logarithms, by weights; sigma squared is the mean
    square of what is left, over all groups. There is a smallest sigma, for times that are all equal.
    """
    log_times = np.where(weights > 0, np.log(seconds), 0)
    _, log_medians = _weights_and_means(log_times, weights)
    variance = (weights * (log_times - log_medians) ** 2).sum() / weights.sum()
    return np.exp(log_medians), max(math.sqrt(variance), 1 / _LARGEST_SHAPE)


def _fit_shifted_exponential(seconds: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """The mean of each group's exponential part, float64[groups]; the shape is the shift over this mean, one for all.

    Given the shape a, a group with the mean m and the shortest time l has the scale min(m, l / a), and its
    log-likelihood is concave in a: so is their sum, whose top is sought between those of the groups.
    """
    from scipy.optimize import minimize_scalar

    (total_weights, means), minima = _weights_and_means(seconds, weights), _minima(seconds, weights)
    # The best shape of each group alone, float64[groups]; above 0 and finite.
    best_shapes = minima / np.maximum(means - minima, _TINY * means)
    shape = float(best_shapes[0])
    has_several_shapes = len(best_shapes) > 1 and best_shapes.max() > best_shapes.min() * (1 + _TINY)
    if has_several_shapes:

        def loss(log_shape: float) -> float:
            """Minus the log-likelihood of all times for a shape and the best scale of each group for it."""
            scales = np.minimum(means, minima / math.exp(log_shape))
            return -float((total_weights * (math.exp(log_shape) - np.log(scales) - means / scales)).sum())

        log_bounds = math.log(float(best_shapes.min())), math.log(float(best_shapes.max()))
        shape = math.exp(minimize_scalar(loss, bounds=log_bounds, method="bounded", options={"xatol": 1e-10}).x)
    return np.minimum(means, minima / shape), shape


def _fit_weibull(seconds: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """The likeliest Weibull scale of each group, float64[groups], and shape k of all, of times and weights [n, groups].

    A group's best scale for a shape is mean(time^k)^(1 / k), means by the weights. At the best shape the slope of the
    log-likelihood of these scales has its one change of sign.
    """
    from scipy.optimize import brentq

    log_times = np.where(weights > 0, np.log(seconds), 0)
    total_weights = weights.sum(axis=0)  # [groups]
    log_longest = np.where(weights > 0, log_times, -np.inf).max(axis=0)  # [groups]
    log_ratios = np.where(weights > 0, log_times - log_longest, 0)  # [n, groups], at most 0: no power overflows
    mean_log_ratio = (weights * log_ratios).sum() / weights.sum()  # over all times of all groups

    def slope(log_shape: float) -> float:
        """The derivative by the shape k of the Weibull log-likelihood with the best scales, over the sum of weights.

        1 / k + mean(y) - mean over the groups of sum(w e^(k y) y) / sum(w e^(k y)), where w are the `weights` of times
        float64[n, groups], y their `log_ratios`, log(time / longest time of the group), and means are by the weights.
        """
        powers = weights * np.exp(math.exp(log_shape) * log_ratios)
        group_means = (powers * log_ratios).sum(axis=0) / np.maximum(powers.sum(axis=0), _TINY)
        mean_by_powers = (total_weights * group_means).sum() / total_weights.sum()
        return float(math.exp(-log_shape) - mean_by_powers + mean_log_ratio)

    low, high = math.log(_SMALLEST_SHAPE), math.log(_LARGEST_SHAPE)
    # Of times that are all but equal the likeliest shape is above the largest.
    log_shape = high if slope(high) > 0 else brentq(slope, low, high, xtol=1e-9)
    shape = math.exp(log_shape)
    mean_powers = (weights * np.exp(shape * log_ratios)).sum(axis=0) / np.maximum(total_weights, _TINY)
    log_scale = log_longest + np.log(np.maximum(mean_powers, 1e-300)) / shape
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
    "lognormal": Family(
        _fit_lognormal,
        lambda z, sigma: -np.log(z) - math.log(sigma * math.sqrt(2 * math.pi)) - (np.log(z) / sigma) ** 2 / 2,
        lambda scale, sigma: call("lognormal", median=scale, sigma=sigma),
        num_shapes=1,
        has_shortest_time=False,
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
