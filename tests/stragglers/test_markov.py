"""The two-state chain against its stationary state and its transition probabilities."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcjax import stragglers

NUM_UNITS, NUM_WORKERS = 200, 400


@st.composite
def chains(draw):
    """P(slow) and P(slow | slow before) of a chain that exists."""
    probability = draw(st.floats(0.05, 0.95))
    return probability, draw(st.floats(max(0.0, 2 - 1 / probability), 0.98))


def is_slow(probability, persistence, seed=0):
    model = stragglers.markov(probability=probability, persistence=persistence, slowdown=5.0, base=2.0)
    seconds = stragglers.sample_durations(model, jax.random.key(seed), NUM_UNITS, NUM_WORKERS)
    assert set(np.unique(seconds)) <= {2.0, 10.0}
    return np.asarray(seconds) == 10.0


@given(chain=chains(), seed=st.integers(0, 100))
def test_it_has_the_two_probabilities(chain, seed):
    probability, persistence = chain
    slow = is_slow(probability, persistence, seed)
    spread = np.sqrt(probability * (1 - probability) / NUM_WORKERS)
    assert abs(slow.mean() - probability) < 5 * spread
    num_before = slow[:-1].sum()
    stay = slow[1:][slow[:-1]].mean()
    assert abs(stay - persistence) < 5 * np.sqrt(persistence * (1 - persistence) / num_before) + 1e-3


@given(chain=chains(), seed=st.integers(0, 100))
def test_it_is_stationary_from_the_first_unit_on(chain, seed):
    probability, persistence = chain
    slow = is_slow(probability, persistence, seed)
    spread = np.sqrt(probability * (1 - probability) / NUM_WORKERS)
    for unit in (0, 1, NUM_UNITS - 1):
        assert abs(slow[unit].mean() - probability) < 5 * spread


@pytest.mark.parametrize(
    ("probability", "persistence", "expected"), [(0.0, 0.9, False), (1.0, 1.0, True), (0.0, 0.0, False)]
)
def test_certain_chains(probability, persistence, expected):
    assert (is_slow(probability, persistence) == expected).all()


def test_full_persistence_never_changes():
    slow = is_slow(0.5, 1.0)
    assert (slow == slow[0]).all() and 0.3 < slow[0].mean() < 0.7


def test_alternation_where_everyone_must_recover():
    slow = is_slow(0.5, 0.0)
    assert (slow[1:] != slow[:-1]).all()


def test_the_base_may_be_a_model_and_parameters_may_differ_by_worker():
    model = stragglers.markov(
        probability=[0.0, 1.0],
        persistence=1.0,
        slowdown=[7.0, 3.0],
        base=stragglers.pareto(minimum=1.0, shape=9.0),
    )
    seconds = np.asarray(stragglers.sample_durations(model, jax.random.key(0), 500, 2))
    assert seconds[:, 0].min() == pytest.approx(1.0, abs=0.01)
    assert seconds[:, 1].min() == pytest.approx(3.0, abs=0.03)
    assert len(np.unique(seconds)) > 900


def test_the_state_of_the_base_goes_on():
    base = stragglers.failed_workers(stragglers.constant(), workers=(0,), forever=False, onset=3)
    model = stragglers.markov(probability=0.5, persistence=0.5, slowdown=2.0, base=base)
    seconds = np.asarray(stragglers.sample_durations(model, jax.random.key(0), 8, 2))
    assert np.argwhere(np.isinf(seconds)).tolist() == [[3, 0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"probability": 0.8, "persistence": 0.1}, "got probability=0.8, persistence=0.1.* at least 0.75"),
        ({"probability": [0.1, 1.0], "persistence": 0.5}, "got probability=1, persistence=0.5.* at least 1"),
        ({"probability": -0.1, "persistence": 0.5}, "probability must be at least 0 and at most 1; got -0.1"),
        ({"probability": 0.5, "persistence": 1.1}, "persistence must be at least 0 and at most 1; got 1.1"),
        ({"probability": 0.5, "persistence": 0.5, "slowdown": 0.0}, "slowdown must be above 0"),
        ({"probability": 0.5, "persistence": 0.5, "base": -1.0}, "seconds must be at least 0"),
    ],
)
def test_impossible_chains_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        stragglers.markov(**{"slowdown": 2.0, **arguments})
