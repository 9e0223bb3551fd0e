"""A few numbers of times, to hold a model against what was measured.

Letters: T steps, W workers.
"""

from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.description.statistics import SLOW_RATIO, slow_probabilities
from gcjax.stragglers.traces.description.step_times import median_of_rows


class StatisticsWithFailures(NamedTuple):
    """Numbers of times float[T, W], where a failed worker counts as slow, but in S; `describe` leaves it out.

    Attributes:
      median: seconds.
      p99_over_median: the 99th percentile over the median.
      slow_probability: P(slow): the share of units that take over 1.5 times the median of their step.
      slow_again_probability: P(slow | slow before); NaN if none is.
      slowest_over_median: the slowest worker of a step over the median one, the median of all steps.
      slowdown: S, the sum over steps of the longest finite time over the sum of their medians, as in `describe`: what
        waiting for the slowest worker makes of a step. NaN if no step takes time.
    """

    median: float
    p99_over_median: float
    slow_probability: float
    slow_again_probability: float
    slowest_over_median: float
    slowdown: float


def statistics_with_failures(seconds: np.ndarray) -> StatisticsWithFailures:
    """The statistics of times float[T, W], NaN where not measured; inf is a failure, which is slower than any time.

    The median, the 99th percentile and S are of finite times. Steps in which nothing was measured are left out.
    """
    seconds = seconds[~np.isnan(seconds).all(axis=1)]
    finite_seconds = seconds[np.isfinite(seconds)]
    median, p99 = map(float, np.quantile(finite_seconds, (0.5, 0.99))) if finite_seconds.size else (np.nan, np.nan)
    step_medians = np.nanmedian(seconds, axis=1, keepdims=True)
    is_slow = np.isinf(seconds) | (seconds > SLOW_RATIO * step_medians)
    slow_probability, slow_again_probability = slow_probabilities(is_slow, ~np.isnan(seconds))
    with np.errstate(invalid="ignore"):  # inf / inf, which is left out, where the median of a step is a failure
        slowest_over_median = np.nanmax(seconds, axis=1) / step_medians[:, 0]
    return StatisticsWithFailures(
        median=median,
        p99_over_median=p99 / median,
        slow_probability=slow_probability,
        slow_again_probability=slow_again_probability,
        slowest_over_median=float(np.nanmedian(slowest_over_median)) if np.isfinite(step_medians).any() else np.inf,
        slowdown=_slowdown(np.where(np.isfinite(seconds), seconds, np.nan)),
    )


def _slowdown(seconds: np.ndarray) -> float:
    """S of finite times float[T, W], NaN where there is none; NaN if no step takes time."""
    ideal_seconds = float(np.nansum(median_of_rows(seconds)))
    return float(np.nansum(np.fmax.reduce(seconds, axis=1))) / ideal_seconds if ideal_seconds > 0 else np.nan
