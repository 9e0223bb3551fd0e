"""When a worker became slower or faster than it had been, relative to the others.

Each worker's log times over their step's median are ranked, and the ranks turned into normal scores, so that neither a
heavy tail nor a single outlier counts for much. The mean of the scores after a moment is compared with that before, in
windows of 10, 20, 40, ... steps on both sides, up to all there are (moving sums of several sizes: Eichinger and Kirch
2018). Where the difference is largest and above a threshold the series is divided, and both parts are looked at anew,
with ranks of their own (binary segmentation: Scott and Knott 1974). Then changes of the median of less than 5 % are
dropped, and each of the others is put where the two parts beside it differ most.

The threshold is that of a normal variable, divided over all moments, windows and workers, for `FALSE_ALARM` in a trace
in which nothing changes. The noise is estimated from how much scores that are one and two steps apart differ, which
few changes alter little, so that times that depend on those before, up to a correlation of 0.6, are not changes.

Letters: n steps.
"""

from itertools import pairwise
from statistics import NormalDist

import numpy as np

from gcjax.stragglers.traces.description.ranks import normal_scores

FALSE_ALARM = 0.01
"""The probability aimed at that a trace without changes is said to have one."""
MIN_STEPS = 10
"""A change is told only where so many steps before and after it are measured."""
MIN_RATIO = 1.05
"""Medians before and after that are nearer are no change."""

_MAX_CORRELATION = 0.6  # of neighbours; more than that is taken for changes
_MIN_NOISE = 0.1  # of scores, which have a standard deviation of 1
_SERIES_AT_ONCE = 256


def change_points(values: np.ndarray) -> list[list[int]]:
    """Where series change their levels.

    Args:
      values: float64[n, series], logarithms; NaN where not measured.

    Returns:
      For each series the indices of the first measured values after its changes, increasing. The probability of a false
      alarm is that of all series together.
    """
    changes = []
    for may_change, series in zip(_may_change(values), values.T, strict=True):
        steps = np.flatnonzero(~np.isnan(series)) if may_change else np.arange(0)
        changes.append(steps[_changes(series[steps], values.shape[1])].tolist())
    return changes


def _may_change(values: np.ndarray) -> np.ndarray:
    """bool[series]: whether a series has gaps, or a difference above the threshold as a whole."""
    may_change = np.isnan(values).any(axis=0)
    if len(values) < 2 * MIN_STEPS:
        return np.zeros_like(may_change)
    threshold, complete = _threshold(*values.shape), np.flatnonzero(~may_change)
    for start in range(0, len(complete), _SERIES_AT_ONCE):
        some = complete[start : start + _SERIES_AT_ONCE]
        scores = normal_scores(values[:, some])
        strength = np.max([_strongest(scores, window)[0] for window in _windows(len(scores))], axis=0)
        may_change[some] = strength > threshold * _noise(scores)
    return may_change


def _changes(values: np.ndarray, num_series: int) -> list[int]:
    """The changes of one series float64[n] without gaps, of so many series."""
    divisions = _divisions(values, _threshold(len(values), num_series))
    changes = _refined(values, _without_small_changes(values, divisions))
    apart = [change for before, change in pairwise([0, *changes]) if change - before >= MIN_STEPS]
    return _without_small_changes(values, apart)


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


def _divisions(values: np.ndarray, threshold: float) -> list[int]:
    """Indices at which a series is divided, and its parts again, increasing."""
    divisions, parts = [], [(0, len(values))]
    while parts:
        start, end = parts.pop()
        index = _division(values[start:end], threshold)
        if index is not None:
            divisions.append(start + index)
            parts += [(start, start + index), (start + index, end)]
    return sorted(divisions)


def _division(values: np.ndarray, threshold: float) -> int | None:
    """Where a part is divided; None if nowhere."""
    if len(values) < 2 * MIN_STEPS:
        return None
    scores = normal_scores(values)
    strength, index = max(_strongest(scores, window) for window in _windows(len(scores)))
    return int(index) if strength > threshold * _noise(scores) else None


def _noise(scores: np.ndarray) -> np.ndarray:
    """float64[...]: the noise of a mean of n scores float64[n, ...], times the root of n.

    With a correlation r of neighbours, differences of scores that are 1 and 2 apart have half variances v (1 - r) and
    v (1 - r^2), and the noise of a mean is v (1 + r) / (1 - r) / n.
    """
    next_to, two_apart = (((scores[lag:] - scores[:-lag]) ** 2).mean(axis=0) / 2 for lag in (1, 2))
    correlation = np.clip(two_apart / np.maximum(next_to, 1e-12) - 1, 0, _MAX_CORRELATION)
    return np.maximum(np.sqrt(next_to * (1 + correlation)) / (1 - correlation), _MIN_NOISE)


def _strongest(scores: np.ndarray, window: int, *, margin: int = MIN_STEPS) -> tuple[np.ndarray, np.ndarray]:
    """The largest standardised difference of the means after and before an index, and the index, for each series.

    Args:
      scores: float64[n, ...].
      window: over so many scores means are taken, or up to the end.
      margin: so many scores at least there are on both sides.
    """
    num_scores = len(scores)
    sums = np.concatenate([np.zeros_like(scores[:1]), np.cumsum(scores, axis=0)])
    index = np.arange(margin, num_scores - margin + 1)
    first, end = np.maximum(index - window, 0), np.minimum(index + window, num_scores)
    column = (-1, *(1,) * (scores.ndim - 1))
    num_before, num_after = (index - first).reshape(column), (end - index).reshape(column)
    difference = (sums[end] - sums[index]) / num_after - (sums[index] - sums[first]) / num_before
    strength = np.abs(difference) * np.sqrt(num_before * num_after / (num_before + num_after))
    return strength.max(axis=0), index[strength.argmax(axis=0)]


def _refined(values: np.ndarray, changes: list[int]) -> list[int]:
    """The changes, each where the parts beside it differ most, if no value counts for more than their medians."""
    changes = list(changes)
    for i, change in enumerate(changes):
        start = changes[i - 1] if i else 0
        end = changes[i + 1] if i + 1 < len(changes) else len(values)
        levels = np.median(values[start:change]), np.median(values[change:end])
        clipped = np.clip(values[start:end], min(levels), max(levels))
        changes[i] = start + int(_strongest(clipped, end - start, margin=1)[1])
    return changes


def _without_small_changes(values: np.ndarray, changes: list[int]) -> list[int]:
    """The changes without those of too little, the smallest taken away first."""
    changes = list(changes)
    levels = [float(np.median(part)) for part in np.split(values, changes) if changes]
    while changes:
        jumps = np.abs(np.diff(levels))
        smallest = int(jumps.argmin())
        if jumps[smallest] >= np.log(MIN_RATIO):
            break
        del changes[smallest]
        start, end = ([0, *changes, len(values)][i] for i in (smallest, smallest + 1))
        levels[smallest : smallest + 2] = [float(np.median(values[start:end]))]
    return changes
