"""A fitted model is simulated several times, and each number has a median and a range."""

import jax
import numpy as np
import pytest

from gcjax import stragglers
from gcjax.stragglers.traces.fitting import simulations

KEY = jax.random.key(0)


def test_ranges_of_long_simulations_are_around_the_median_and_narrow():
    model = stragglers.exponential(mean=2.0)
    median, smallest, largest = simulations.simulated(model, KEY, np.ones((300, 8)))
    assert all(low < middle < high for low, middle, high in zip(smallest, median, largest, strict=True))
    assert median.median == pytest.approx(2 * np.log(2), rel=0.03)
    of_few_steps = simulations.simulated(model, KEY, np.ones((20, 8)))
    assert of_few_steps.largest.slowdown - of_few_steps.smallest.slowdown > 2 * (largest.slowdown - smallest.slowdown)


def test_what_was_not_measured_does_not_count_in_simulations():
    model = stragglers.constant(seconds=(1.0, 1.0, 1.0, 5.0))
    seconds = np.ones((40, 4))
    assert simulations.simulated(model, KEY, seconds).median.slowdown == 5
    seconds[20:, 3] = np.nan  # the slow one has left: half of the steps have no straggler
    assert [statistics.slowdown for statistics in simulations.simulated(model, KEY, seconds)] == [3, 3, 3]


def test_what_was_not_measured_does_not_count_in_shorter_simulations_of_a_large_trace(monkeypatch):
    monkeypatch.setattr(simulations, "_MAX_TIMES", 200)  # 10 draws of 5 steps
    seconds = np.ones((40, 4))
    seconds[20:, 3] = np.nan  # the slow one is there in 3 of the steps 0, 8, 16, 24 and 32
    model = stragglers.constant(seconds=(1.0, 1.0, 1.0, 5.0))
    assert simulations.simulated(model, KEY, seconds).median.slowdown == pytest.approx((3 * 5 + 2 * 1) / 5)


def test_large_traces_are_simulated_less_often(monkeypatch):
    assert [simulations.num_draws(*shape) for shape in ((100, 4), (10**4, 10), (15_000, 10), (10**6, 10**3))] == [
        20, 20, 13, 10,
    ]  # fmt: skip
    shapes = []

    def sample_durations(model, key, *shape):
        shapes.append(shape)
        return np.ones(shape)

    monkeypatch.setattr(simulations, "sample_durations", sample_durations)
    simulations.simulated(stragglers.constant(seconds=1.0), KEY, np.full((3_000, 1_000), np.nan))
    assert shapes == 10 * [(200, 1_000)]
