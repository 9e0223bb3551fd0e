"""Medians, tails, probabilities and correlations of the times of a trace.

A time is slow if it is over 1.5 times the median of its step.

Letters: T steps, W workers.
"""

import math
from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.description.step_times import StepTimes, median_of_rows, relative_log_times

SLOW_RATIO = 1.5
"""A time is slow if it is over so many times the median of its step."""
_MAX_RATIO = 1e300  # so that quantiles are finite


class Statistics(NamedTuple):
    """What the times of a trace are like. What cannot be computed (of one step, or of equal times) is NaN.

    Attributes:
      median: seconds, over all times.
      worker_median: float64[W] seconds; NaN for a worker without a time.
      tail_over_median: the 95th and 99th percentile and the largest of all times over the median of their step.
      slowest_over_median: the median and the 95th percentile over steps of the longest time over the step's median.
      slow_probability: P(slow), over all times.
      slow_again_probability: P(slow | slow in the step before), over workers with a time in two successive rows.
      worker_slow_probability: float64[W].
      correlation: between workers: the mean over all pairs of the correlation of the logarithms of their times, where
        a step that one was not measured in counts as its mean.
      serial_correlation: the correlation of a worker's time over the step's median, as a logarithm, with that of the
        step before, over all workers, each about its own mean.
    """

    median: float
    worker_median: np.ndarray
    tail_over_median: tuple[float, float, float]
    slowest_over_median: tuple[float, float]
    slow_probability: float
    slow_again_probability: float
    worker_slow_probability: np.ndarray
    correlation: float
    serial_correlation: float


def statistics(times: StepTimes) -> Statistics:
    """The statistics of the times of a trace."""
    has_time = ~np.isnan(times.seconds)
    is_slow = times.seconds > SLOW_RATIO * times.step_median[:, None]
    slow_probability, slow_again_probability = slow_probabilities(is_slow, has_time)
    ratios_or_nan = _over_median(times.seconds, times)  # [steps with a median above zero, W]
    ratios = ratios_or_nan[~np.isnan(ratios_or_nan)]
    return Statistics(
        median=float(np.median(times.seconds[has_time])),
        worker_median=median_of_rows(times.seconds.T),
        tail_over_median=(*_quantiles(ratios, (0.95, 0.99)), float(ratios.max()) if ratios.size else math.nan),
        slowest_over_median=_quantiles(_over_median(times.step_longest[:, None], times), (0.5, 0.95)),
        slow_probability=slow_probability,
        slow_again_probability=slow_again_probability,
        worker_slow_probability=_share_or_nan(is_slow.sum(axis=0), has_time.sum(axis=0)),
        correlation=_mean_correlation(times.seconds),
        serial_correlation=_serial_correlation(relative_log_times(times)),
    )


def slow_probabilities(is_slow: np.ndarray, has_time: np.ndarray) -> tuple[float, float]:
    """P(slow), and P(slow | slow in the step before), over the times that there are; NaN over none.

    Args:
      is_slow: bool[T, W]; False where there is no time.
      has_time: bool[T, W], whether there is a time, which can be that of a failed worker.
    """
    was_slow = is_slow[:-1] & has_time[1:]
    slow_again = was_slow & is_slow[1:]
    return float(_share_or_nan(is_slow.sum(), has_time.sum())), float(_share_or_nan(slow_again.sum(), was_slow.sum()))


def _over_median(seconds: np.ndarray, times: StepTimes) -> np.ndarray:
    """float64[steps, columns]: times float64[T, columns] over the median of each step with a median above zero."""
    is_positive = times.step_median > 0
    with np.errstate(over="ignore"):
        return np.minimum(seconds[is_positive] / times.step_median[is_positive, None], _MAX_RATIO)


def _quantiles(values: np.ndarray, probabilities: tuple[float, float]) -> tuple[float, float]:
    """Two quantiles of all values, at these probabilities; NaN of nothing."""
    low, high = np.quantile(values, probabilities) if values.size else (np.nan, np.nan)
    return float(low), float(high)


def _share_or_nan(count: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The count over the total, NaN where that is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return count / total


def _mean_correlation(seconds: np.ndarray) -> float:
    """The mean correlation over pairs of columns of log times that vary, from the variance of their sum.

    A column of `seconds float64[T, W]` is a worker; NaN, or 0 seconds, counts as its mean. NaN if fewer than two vary.
    """
    deviations = _deviation_from_column_mean(np.log(np.where(seconds > 0, seconds, np.nan)))
    norm = np.sqrt((deviations**2).sum(axis=0))  # [W]
    varies = norm > 1e-9 * max(1.0, np.sqrt(len(seconds)))  # more than by rounding
    num_varying = int(varies.sum())
    if num_varying < 2:
        return np.nan
    sum_of_unit_columns = (deviations[:, varies] / norm[varies]).sum(axis=1)  # [T]
    sum_of_all_correlations = (sum_of_unit_columns**2).sum()  # those of columns with themselves, which are 1, too
    return float((sum_of_all_correlations - num_varying) / (num_varying * (num_varying - 1)))


def _serial_correlation(log_ratios: np.ndarray) -> float:
    """The correlation of rows with the rows before, over all columns, each about its own mean.

    Of `log_ratios float64[T, W]`, over pairs without NaN; NaN if nothing varies.
    """
    is_pair = ~np.isnan(log_ratios[1:]) & ~np.isnan(log_ratios[:-1])
    deviations = _deviation_from_column_mean(log_ratios)
    previous_deviations, next_deviations = deviations[:-1][is_pair], deviations[1:][is_pair]
    norm = np.sqrt((previous_deviations**2).sum() * (next_deviations**2).sum())
    varies = norm > 1e-12 * max(1, previous_deviations.size)  # more than by rounding
    return float((previous_deviations * next_deviations).sum() / norm) if varies else np.nan


def _deviation_from_column_mean(values: np.ndarray) -> np.ndarray:
    """float64[T, W]: what each value is above the mean of its column; 0 for NaN."""
    is_value = ~np.isnan(values)
    count = np.maximum(is_value.sum(axis=0), 1)
    mean = np.where(is_value, values, 0).sum(axis=0) / count
    return np.where(is_value, values - mean, 0)
