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
      values: float64[steps, series], logarithms; NaN where not measured.

    Returns:
      For each series the indices of the first measured values after its changes, increasing. The probability of a false
      alarm is that of all series together.
    """
    num_series = values.shape[1]
    changes_by_series = []
    for may_change, series in zip(_series_that_may_change(values), values.T, strict=True):
        # No steps of a series that surely does not change, so that it has no changes.
        measured_steps = np.flatnonzero(~np.isnan(series)) if may_change else np.arange(0)
        changes = _changes_of_series(series[measured_steps], num_series)
        changes_by_series.append(measured_steps[changes].tolist())
    return changes_by_series


def _series_that_may_change(values: np.ndarray) -> np.ndarray:
    """bool[series]: whether `values float64[steps, series]` may change: a quick look, the others surely do not.

    A series may that has gaps (NaN), or, looked at as a whole, a difference of means above the threshold. None may with
    too few steps.
    """
    may_change = np.isnan(values).any(axis=0)
    if len(values) < 2 * MIN_STEPS:
        return np.zeros_like(may_change)
    threshold, series_without_gaps = _difference_threshold(*values.shape), np.flatnonzero(~may_change)
    for first_of_batch in range(0, len(series_without_gaps), _SERIES_AT_ONCE):
        batch = series_without_gaps[first_of_batch : first_of_batch + _SERIES_AT_ONCE]
        scores = normal_scores(values[:, batch])
        # Of each window float64[series of the batch].
        differences = [_strongest_difference(scores, window)[0] for window in _window_sizes(len(scores))]
        may_change[batch] = np.max(differences, axis=0) > threshold * _noise_of_means(scores)
    return may_change


def _changes_of_series(values: np.ndarray, num_series: int) -> list[int]:
    """The changes of a series float64[n] of logarithms without gaps: the index of the first value of each new level.

    The more series are tested, `num_series` with this one, the higher is the threshold, as each may be a false alarm.
    Changes that come too soon after the one before or too near to the end, or are small, are dropped.
    """
    change_indices = _binary_segmentation(values, _difference_threshold(len(values), num_series))
    changes = _refined_changes(values, _without_small_changes(values, change_indices))
    last_index = len(values) - MIN_STEPS
    changes_apart = [
        change
        for previous_change, change in pairwise([0, *changes])
        if change - previous_change >= MIN_STEPS and change <= last_index
    ]
    return _without_small_changes(values, changes_apart)


def _difference_threshold(num_values: int, num_series: int) -> float:
    """What the difference of two means must exceed, in standard deviations, to be a change.

    The probability of a false alarm is divided among all tests, of each index, window and series, and both signs.
    """
    num_windows = max(1, len(_window_sizes(num_values)))
    num_tests = max(1, num_values * num_windows * num_series)
    return -NormalDist().inv_cdf(FALSE_ALARM / (2 * num_tests))


def _window_sizes(num_values: int) -> list[int]:
    """The sizes of the windows: 10, 20, 40, ..., and the whole series; none if that is too short to have a change."""
    sizes = []
    size = MIN_STEPS
    while size < num_values - MIN_STEPS:
        sizes.append(size)
        size *= 2
    return [*sizes, num_values] if num_values >= 2 * MIN_STEPS else []


def _binary_segmentation(values: np.ndarray, threshold: float) -> list[int]:
    """Indices at which a series float64[n] is divided, and its parts again, by differences above the threshold."""
    change_indices, unsegmented_parts = [], [(0, len(values))]
    while unsegmented_parts:
        part_start, part_end = unsegmented_parts.pop()
        change_index = _strongest_change_point(values[part_start:part_end], threshold)
        if change_index is not None:
            change_indices.append(part_start + change_index)
            unsegmented_parts += [(part_start, part_start + change_index), (part_start + change_index, part_end)]
    return sorted(change_indices)


def _strongest_change_point(values: np.ndarray, threshold: float) -> int | None:
    """The index at which a part float64[n] is divided, the first of what comes after; None if nowhere.

    That is where the means of scores before and after differ most, if by more than `threshold` standard deviations.
    """
    if len(values) < 2 * MIN_STEPS:
        return None
    scores = normal_scores(values)
    strength, index = max(_strongest_difference(scores, window) for window in _window_sizes(len(scores)))
    return int(index) if strength > threshold * _noise_of_means(scores) else None


def _noise_of_means(scores: np.ndarray) -> np.ndarray:
    """float64[...]: the standard deviation of a mean of n scores float64[n, ...], times the root of n.

    With a correlation r of neighbours, differences of scores that are 1 and 2 apart have half variances v (1 - r) and
    v (1 - r^2), v the variance of a score, and the variance of a mean is v (1 + r) / (1 - r) / n. An r below 0 is taken
    for 0, one above 0.6 for 0.6, and a deviation below 0.1 for 0.1.
    """
    semivariance_1, semivariance_2 = (((scores[lag:] - scores[:-lag]) ** 2).mean(axis=0) / 2 for lag in (1, 2))
    neighbour_correlation = np.clip(semivariance_2 / np.maximum(semivariance_1, 1e-12) - 1, 0, _MAX_CORRELATION)
    noise = np.sqrt(semivariance_1 * (1 + neighbour_correlation)) / (1 - neighbour_correlation)
    return np.maximum(noise, _MIN_NOISE)


def _strongest_difference(scores: np.ndarray, window: int, *, margin: int = MIN_STEPS) -> tuple[np.ndarray, np.ndarray]:
    """The largest standardised difference of the means after and before an index, and the index, for each series.

    Args:
      scores: float64[n, ...].
      window: over so many scores means are taken, or up to the end.
      margin: so many scores at least there are on both sides.

    Returns:
      float64[...], the difference over its standard deviation, were scores independent with variance 1; and int64[...],
      the index, which is that of the first score after.
    """
    num_scores = len(scores)
    cumulative_sums = np.concatenate([np.zeros_like(scores[:1]), np.cumsum(scores, axis=0)])
    split_index = np.arange(margin, num_scores - margin + 1)  # [splits]; the arrays below are [splits, ...]
    window_start, window_end = np.maximum(split_index - window, 0), np.minimum(split_index + window, num_scores)
    shape = (-1, *(1,) * (scores.ndim - 1))  # along the first axis of the scores
    num_before, num_after = (split_index - window_start).reshape(shape), (window_end - split_index).reshape(shape)
    sum_before = cumulative_sums[split_index] - cumulative_sums[window_start]
    sum_after = cumulative_sums[window_end] - cumulative_sums[split_index]
    difference = sum_after / num_after - sum_before / num_before
    strength = np.abs(difference) * np.sqrt(num_before * num_after / (num_before + num_after))
    return strength.max(axis=0), split_index[strength.argmax(axis=0)]


def _refined_changes(values: np.ndarray, changes: list[int]) -> list[int]:
    """The changes of `values float64[n]` (indices), each moved to where the parts beside it differ most.

    A part is what is between two changes, clipped to between the medians of both, so that no outlier counts.
    """
    edges = [0, *changes, len(values)]
    for edge in range(1, len(edges) - 1):
        start, change, end = edges[edge - 1 : edge + 2]  # `start` is refined, `end` not yet
        medians = np.median(values[start:change]), np.median(values[change:end])
        clipped = np.clip(values[start:end], min(medians), max(medians))
        _, refined_change = _strongest_difference(clipped, window=end - start, margin=1)
        edges[edge] = start + int(refined_change)
    return edges[1:-1]


def _without_small_changes(values: np.ndarray, changes: list[int]) -> list[int]:
    """The changes (indices) without those by a factor below `MIN_RATIO`, the smallest taken away first.

    The factor is between the medians of the parts beside a change of `values float64[n]`, which are logarithms.
    """
    changes = list(changes)
    medians_of_parts = [float(np.median(part)) for part in np.split(values, changes) if changes]
    while changes:
        jumps = np.abs(np.diff(medians_of_parts))
        smallest_jump = int(jumps.argmin())
        if jumps[smallest_jump] >= np.log(MIN_RATIO):
            break
        del changes[smallest_jump]
        edges = [0, *changes, len(values)]
        merged_part = values[edges[smallest_jump] : edges[smallest_jump + 1]]
        medians_of_parts[smallest_jump : smallest_jump + 2] = [float(np.median(merged_part))]
    return changes
