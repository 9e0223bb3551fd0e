"""Differences seed by seed, by hand and by SciPy."""

import numpy as np
import pytest
from scipy import stats

from gcjax.analysis import paired


def by_scipy(ratios):
    """The 95 % interval of the geometric mean."""
    logs = np.log(ratios)
    return np.exp(stats.t.interval(0.95, logs.size - 1, logs.mean(), stats.sem(logs)))


def test_differences_of_the_seeds_in_which_both_reached_it():
    reach_times = {
        "first": np.array([10.0, 20.0, 30.0, np.inf]),
        "second": np.array([11.0, 24.0, 33.0, 40.0]),
        "third": np.array([np.inf, np.inf, 31.0, 50.0]),
    }
    page = paired.section(reach_times)
    low, high = by_scipy(np.array([1.1, 1.2, 1.1]))
    assert page.startswith("## Later than first, seed by seed\n")
    assert f"| second | 2.67 | 1.13 | [{low:.2f}, {high:.2f}] | 3 of 4 |" in page
    assert "| third | - | - | - | 1 of 4 |" in page


def test_the_mean_is_inside_of_so_many_intervals():
    draws = np.random.default_rng(0).normal(1.0, 2.0, (4000, 5))
    intervals = np.array([paired.mean_interval(values) for values in draws])
    share = ((intervals[:, 0] <= 1) & (intervals[:, 1] >= 1)).mean()
    assert share == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 4000))


@pytest.mark.parametrize("times", [[1.0], [np.inf, np.inf]])
def test_nothing_is_said_of_one_seed_or_if_nobody_got_there(times):
    assert paired.section({"one": np.array(times), "other": np.array(times)}) == ""
    assert paired.section({"alone": np.array([1.0, 2.0])}) == ""


def test_the_reference_may_be_named():
    reach_times = {"first": np.array([10.0, 20.0, 30.0]), "second": np.array([11.0, 24.0, 33.0])}
    page = paired.section(reach_times, against="second")
    low, high = by_scipy(1 / np.array([1.1, 1.2, 1.1]))
    assert page.startswith("## Later than second, seed by seed\n")
    assert f"| first | -2.67 | 0.88 | [{low:.2f}, {high:.2f}] | 3 of 3 |" in page
    assert "chosen by the same seeds" in paired.section(reach_times) and "chosen by the same seeds" not in page


def test_a_named_reference_has_rows_also_where_nothing_can_be_told():
    reach_times = {"first": np.array([10.0]), "never": np.array([np.inf])}
    assert "| first | - | - | - | 0 of 1 |" in paired.section(reach_times, against="never")


def test_a_reference_that_is_no_scheme():
    with pytest.raises(ValueError, match=r"against must be one of 'BSP', 'SSP'; got 'BPS'\. Did you mean 'BSP'\?"):
        paired.section({"BSP": np.ones(2), "SSP": np.ones(2)}, against="BPS")
