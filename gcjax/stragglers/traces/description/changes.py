"""When a worker became slower or faster than it had been, relative to the others.

Each worker's log times over their step's median are ranked, and the ranks turned into normal scores, so that neither a
heavy tail nor a single outlier counts for much. The mean of the scores after a moment is compared with that before, in
windows of 10, 20, 40, ... steps on both sides, up to all there are (moving sums of several sizes: Eichinger and Kirch
2018). Where the difference is largest and above a threshold the series is divided, and both parts are looked at anew,
with ranks of their own (binary segmentation: Scott and Knott 1974). Then each moment is put where the two parts beside
it differ most, and changes of the median of less than 5 % are dropped.

The threshold is that of a normal variable, divided over all moments, windows and workers, for `FALSE_ALARM` in a trace
in which nothing changes. The noise is estimated from how much scores that are one and two steps apart differ, which
few changes alter little, so that times that depend on those before, up to a correlation of 0.6, are not changes.

Letters: n measured steps of a worker, k changes.
"""

from statistics import NormalDist

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

FALSE_ALARM = 0.01
"""The probability aimed at that a trace without changes is said to have one."""
MIN_STEPS = 10
"""A change is told only where so many steps before and after it are measured."""
MIN_RATIO = 1.05
"""Medians before and after that are nearer are no change."""

_MAX_CORRELATION = 0.6  # of neighbours; more than that is taken for changes
_MIN_NOISE = 0.1  # of scores, which have a standard deviation of 1


def change_points(values: np.ndarray, *, num_series: int = 1) -> list[int]:
    """Where a series changes its level.

    Args:
      values: float[n], logarithms, of which all are numbers.
      num_series: how many series are searched in all, so that all together have the probability of a false alarm.

    Returns:
      The indices of the first values after each change, increasing.
    """
    changes = _refined(values, sorted(_divisions(values, 0, _threshold(len(values), num_series))))
    return _without_small_changes(values, changes)


def _threshold(num_values: int, num_series: int) -> float:
    """What the difference of two means must exceed, in standard deviations."""
    num_windows = max(1, len(_windows(num_values)))
    num_tests = max(1, num_values * num_windows * num_series)
    return -NormalDist().inv_cdf(FALSE_ALARM / (2 * num_tests))


def _windows(num_values: int) -> list[int]:
    """The sizes of the windows: 10, 20, 40, ..., and the whole series."""
    sizes = []
    size = MIN_STEPS
    while size < num_values - MIN_STEPS:
        sizes.append(size)
        size *= 2
    return [*sizes, num_values] if num_values >= 2 * MIN_STEPS else []


def _divisions(values: np.ndarray, start: int, threshold: float) -> list[int]:
    """Indices, from `start`, at which a series is divided, and its parts again."""
    if len(values) < 2 * MIN_STEPS:
        return []
    scores = normal_scores(values)
    strength, index = max(_strongest(scores, window) for window in _windows(len(scores)))
    if strength <= threshold * _noise(scores):
        return []
    before = _divisions(values[:index], start, threshold)
    return [*before, start + index, *_divisions(values[index:], start + index, threshold)]


def normal_scores(values: np.ndarray) -> np.ndarray:
    """float64[n]: the normal quantiles of the ranks of the values; equal values have equal scores."""
    return ndtri((rankdata(values) - 0.5) / len(values))


def _noise(scores: np.ndarray) -> float:
    """The noise of a mean of n scores, times the root of n.

    With a correlation r of neighbours, differences of scores that are 1 and 2 apart have half variances v (1 - r) and
    v (1 - r^2), and the noise of a mean is v (1 + r) / (1 - r) / n.
    """
    next_to, two_apart = (float(np.mean((scores[lag:] - scores[:-lag]) ** 2)) / 2 for lag in (1, 2))
    correlation = min(max(two_apart / next_to - 1, 0.0), _MAX_CORRELATION) if next_to > 0 else 0.0
    return max(_MIN_NOISE, np.sqrt(next_to * (1 + correlation)) / (1 - correlation))


def _strongest(scores: np.ndarray, window: int) -> tuple[float, int]:
    """The largest standardised difference of the means after and before an index, with windows cut at the ends."""
    sums = np.concatenate([[0.0], np.cumsum(scores)])
    num_scores = len(scores)
    index = np.arange(MIN_STEPS, num_scores - MIN_STEPS + 1)
    first, end = np.maximum(index - window, 0), np.minimum(index + window, num_scores)
    num_before, num_after = index - first, end - index
    difference = (sums[end] - sums[index]) / num_after - (sums[index] - sums[first]) / num_before
    strength = np.abs(difference) * np.sqrt(num_before * num_after / (num_before + num_after))
    strongest = int(strength.argmax())
    return float(strength[strongest]), int(index[strongest])


def _refined(values: np.ndarray, changes: list[int]) -> list[int]:
    """The changes, each where the parts between the changes beside it differ most."""
    changes = list(changes)
    for i in range(len(changes)):
        start = changes[i - 1] if i else 0
        end = changes[i + 1] if i + 1 < len(changes) else len(values)
        changes[i] = start + _strongest(normal_scores(values[start:end]), end - start)[1]
    return changes


def _without_small_changes(values: np.ndarray, changes: list[int]) -> list[int]:
    """The changes without those of too little, the smallest taken away first."""
    changes = list(changes)
    while changes:
        levels = np.array([np.median(part) for part in np.split(values, changes)])
        jumps = np.abs(np.diff(levels))
        smallest = int(jumps.argmin())
        if jumps[smallest] >= np.log(MIN_RATIO):
            break
        del changes[smallest]
    return changes
