"""Change points: where a level changes, that is said within a step or two; where none does, almost never."""

import numpy as np
import pytest
from scipy.stats import rankdata

from gcjax.stragglers.traces.description.changes import FALSE_ALARM, change_points
from gcjax.stragglers.traces.description.ranks import ranks


def test_ranks_are_those_of_scipy():
    rng = np.random.default_rng(0)
    for values in (
        rng.normal(size=(50, 4)),
        rng.integers(0, 5, (50, 4)).astype(float),
        np.ones((3, 2)),
        np.ones((1, 1)),
    ):
        np.testing.assert_array_equal(ranks(values), rankdata(values, axis=0) - 1)
        np.testing.assert_array_equal(ranks(values[:, 0]), rankdata(values[:, 0]) - 1)


def noise(kind, rng, shape):
    """Log times without a change."""
    match kind:
        case "normal":
            return 0.1 * rng.normal(size=shape)
        case "heavy tails":
            return 0.1 * rng.standard_t(2, size=shape)
        case "exponential":
            return np.log(rng.exponential(size=shape))
        case "whole numbers":
            return np.log(20 + np.round(rng.normal(size=shape)))
        case "equal":
            return np.zeros(shape)
    raise ValueError(kind)


KINDS = ("normal", "heavy tails", "exponential", "whole numbers", "equal")


def num_alarms(kind, num_traces, num_steps):
    rng = np.random.default_rng(0)
    return sum(any(change_points(noise(kind, rng, (num_steps, 10)))) for _ in range(num_traces))


@pytest.mark.parametrize("kind", KINDS)
def test_quiet_traces_raise_no_alarm(kind):
    """50 traces of 10 workers: at the probability aimed at, more than 4 alarms come once in 10,000."""
    assert FALSE_ALARM == 0.01
    assert num_alarms(kind, 50, 100) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_steps", [40, 300, 1000])
def test_alarms_of_quiet_traces_are_counted(kind, num_steps):
    assert num_alarms(kind, 300, num_steps) <= 9


def test_times_that_depend_on_those_before_are_no_changes():
    rng = np.random.default_rng(0)
    num_alarms = 0
    for _ in range(20):
        values = 0.1 * rng.normal(size=(500, 5))
        for step in range(1, 500):
            values[step] += 0.4 * values[step - 1]
        num_alarms += any(change_points(values))
    assert num_alarms <= 2


@pytest.mark.parametrize(
    ("num_steps", "first", "end", "ratio"),
    [(1000, 500, 530, 2.0), (1000, 500, 515, 2.0), (1000, 985, 1000, 2.0), (300, 150, 300, 1.2), (44, 22, 44, 1.33)],
)
def test_a_change_is_where_it_is(num_steps, first, end, ratio):
    rng = np.random.default_rng(1)
    values = 0.03 * rng.normal(size=(num_steps, 6))
    values[first:end, 2] += np.log(ratio)
    changes = change_points(values)
    assert [series for series, own in enumerate(changes) if own] == [2]
    np.testing.assert_allclose(changes[2], [first] if end == num_steps else [first, end], atol=1)


def test_changes_are_ten_steps_apart():
    """In this trace the search divides once more, two steps after a change."""
    seconds = np.random.default_rng(164).lognormal(0, 0.05, (1000, 8))
    seconds[100:400, 3] *= 2
    assert change_points(np.log(seconds / np.median(seconds, axis=1, keepdims=True)))[3] == [100, 400]


def test_a_change_brings_no_others_with_it():
    """50 traces in which each of 10 workers changes once, half of them with gaps."""
    rng = np.random.default_rng(5)
    num_others = 0
    for _ in range(50):
        values = 0.1 * rng.normal(size=(200, 10))
        values[100:] += 0.5
        values[10, ::2] = np.nan
        num_others += sum(len(changes) != 1 for changes in change_points(values))
    assert num_others <= 4


def test_a_weak_change_is_seen_if_it_lasts():
    """As large as the noise, for 80 steps: too few for a mean over all, too many for one over ten."""
    values = 0.1 * np.random.default_rng(6).normal(size=(1200, 3))
    values[600:680, 1] += 0.12
    changes = change_points(values)
    assert changes[0] == changes[2] == []
    np.testing.assert_allclose(changes[1], [600, 680], atol=25)


def test_it_is_where_it_is_without_noise():
    values = np.zeros((60, 3))
    values[20:, 1] = 0.5
    assert change_points(values) == [[], [20], []]


@pytest.mark.parametrize("num_steps_after", [4, 6, 9, 10])
def test_a_change_is_told_only_if_ten_steps_after_it_are_measured(num_steps_after):
    values = np.zeros((60, 2))
    values[60 - num_steps_after :, 1] = 0.5
    assert change_points(values) == [[], [50] if num_steps_after == 10 else []]


def test_what_was_not_measured_has_no_part():
    rng = np.random.default_rng(2)
    values = 0.03 * rng.normal(size=(200, 3))
    values[120:, 0] += 0.5
    values[::2, 0] = np.nan
    values[100:125, 0] = np.nan
    assert change_points(values) == [[125], [], []]


def test_single_outliers_are_no_changes():
    values = 0.03 * np.random.default_rng(3).normal(size=(300, 4))
    values[[40, 41, 150, 290], 1] += 5.0
    assert change_points(values) == [[], [], [], []]


def test_small_changes_are_not_told():
    values = 0.001 * np.random.default_rng(4).normal(size=(300, 2))
    values[150:, 0] += np.log(1.03)
    values[150:, 1] += np.log(1.07)
    assert change_points(values) == [[], [150]]


def test_a_short_series_has_no_changes():
    assert change_points(np.arange(19.0)[:, None]) == [[]]
    assert change_points(np.full((30, 2), np.nan)) == [[], []]
