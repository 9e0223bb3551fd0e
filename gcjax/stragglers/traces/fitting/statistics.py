"""A few numbers of times, to hold a model against what was measured.

Letters: T steps, W workers.
"""

from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.description.statistics import SLOW_RATIO


class Statistics(NamedTuple):
    """Numbers of times float[T, W].

    Attributes:
      median: seconds.
      tail: the 99th percentile over the median.
      slow: P(slow): the share of units that take over 1.5 times the median of their step.
      slow_again: P(slow | slow before); NaN if none is.
      slowest: the slowest worker of a step over the median one, the median of all steps.
    """

    median: float
    tail: float
    slow: float
    slow_again: float
    slowest: float


def statistics(seconds: np.ndarray) -> Statistics:
    """The numbers of times float[T, W], NaN where not measured; inf is slow, and counts in nothing else."""
    seconds = seconds[~np.isnan(seconds).all(axis=1)]
    finite = seconds[np.isfinite(seconds)]
    median = float(np.median(finite))
    middles = np.nanmedian(seconds, axis=1, keepdims=True)
    is_slow = np.where(np.isnan(seconds), np.nan, seconds > SLOW_RATIO * middles)
    before, after = is_slow[:-1], is_slow[1:]
    again = after[(before == 1) & ~np.isnan(after)]
    with np.errstate(invalid="ignore"):
        slowest = np.nanmax(seconds, axis=1) / middles[:, 0]
    return Statistics(
        median=median,
        tail=float(np.quantile(finite, 0.99)) / median,
        slow=float(np.nanmean(is_slow)),
        slow_again=float(again.mean()) if again.size else float("nan"),
        slowest=float(np.nanmedian(slowest)),
    )
