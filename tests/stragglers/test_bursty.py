"""Bursts conform to their model, and reach its bounds."""

import jax
import numpy as np
import pytest

from gcjax import stragglers
from tests.stragglers.bursts import is_bursty


def pattern(burst, window, max_slow, seed=0, period=1, workers=8, rounds=300, probability=0.3):
    model = stragglers.bursty(
        slowdown=9.0, burst=burst, window=window, max_slow=max_slow, probability=probability, period=period
    )
    durations = stragglers.sample_durations(model, jax.random.key(seed), rounds * period, workers)
    return np.asarray(durations).reshape(rounds, period, workers) > 1


@pytest.mark.parametrize(("burst", "window", "max_slow"), [(1, 2, 1), (2, 5, 3), (3, 4, 2), (2, 2, 4), (1, 1, 0)])
def test_bursts_conform_and_reach_the_bounds(burst, window, max_slow):
    slow = pattern(burst, window, max_slow)[:, 0]
    assert is_bursty(slow, burst=burst, window=window, max_slow=max_slow)
    if max_slow == 0:
        assert not slow.any()
        return
    assert not is_bursty(slow, burst=burst, window=window, max_slow=max_slow - 1)
    assert not is_bursty(slow, burst=burst, window=window + 1, max_slow=max_slow)
    assert burst == 1 or not is_bursty(slow, burst=burst - 1, window=window, max_slow=max_slow)


def test_a_round_is_a_period_of_units():
    slow = pattern(2, 5, 3, period=3)
    assert (slow == slow[:, :1]).all() and slow.any()


def test_conforms_by_hand():
    rows = lambda *columns: np.array(columns, bool).T  # noqa: E731
    assert is_bursty(rows([1, 0, 0, 1], [0, 1, 0, 0]), burst=1, window=3, max_slow=2)
    assert not is_bursty(rows([1, 0, 0, 1], [0, 1, 0, 0]), burst=1, window=4, max_slow=2)
    assert not is_bursty(rows([1, 0, 0, 1], [0, 1, 0, 0]), burst=1, window=3, max_slow=1)
    assert is_bursty(rows([1, 0, 1]), burst=3, window=3, max_slow=1)
    assert not is_bursty(rows([1, 1]), burst=1, window=9, max_slow=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"burst": 4}, "burst must be a whole number between 1 and 3; got 4"),
        ({"window": 2**31 - 1}, "window must be a whole number between 1 and 2147483646; got 2147483647"),
        ({"period": 2**31}, "period must be a whole number between 1 and 2147483646; got 2147483648"),
        ({"slowdown": 1.0}, "slowdown must be above 1"),
        ({"probability": 2.0}, "probability must be at least 0 and at most 1"),
        ({"max_slow": 9}, "max_slow must be a whole number between 0 and 8; got 9"),
    ],
)
def test_bad_input(changes, message):
    with pytest.raises(ValueError, match=message):
        model = stragglers.bursty(**{"slowdown": 2.0, "burst": 1, "window": 3, "max_slow": 1, **changes})
        stragglers.sample_durations(model, jax.random.key(0), 2, 8)
