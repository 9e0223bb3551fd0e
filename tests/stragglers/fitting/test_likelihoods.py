"""Likelihoods are probabilities: they sum to one over all that can happen, and agree with a sum over hidden states."""

import itertools

import numpy as np
import pytest
from scipy import stats

from gcjax.stragglers.traces.fitting import bursts, chains, failed
from gcjax.stragglers.traces.fitting.bursts import BurstParameters
from gcjax.stragglers.traces.fitting.families import FAMILIES, log_density


def all_patterns(num_steps, num_workers):
    for states in itertools.product([False, True], repeat=num_steps * num_workers):
        yield np.array(states).reshape(num_steps, num_workers)


@pytest.mark.parametrize(("burst", "window", "max_slow"), [(1, 1, 1), (2, 2, 2), (2, 3, 1), (3, 4, 2), (1, 2, 1)])
def test_the_probabilities_of_all_patterns_of_bursts_sum_to_one(burst, window, max_slow):
    parameters = BurstParameters(burst, window, max_slow, 0.3)
    total = sum(np.exp(bursts.log_probability(slow, parameters).sum()) for slow in all_patterns(5, 2))
    assert total == pytest.approx(1, rel=1e-9)


def test_the_probabilities_of_all_failures_sum_to_one():
    """With the parameters that fit each of several patterns."""
    for last in ([np.inf, 2.0], [np.inf, np.inf], [1.0, np.inf]):
        seconds = np.array([[1.0, 1.0], [np.inf, 2.0], last])
        for model in failed.failure_models(seconds):
            patterns = (np.where(x, np.inf, 1.0) for x in all_patterns(3, 2))
            total = sum(np.exp(model.log_likelihood(pattern).sum()) for pattern in patterns)
            assert total == pytest.approx(1, rel=1e-9), model.name
            if model.name == "failed_workers":  # those that fail do so, at the latest at the last onset
                assert model.log_likelihood(np.ones((3, 2))).sum() == -np.inf


def test_the_forward_algorithm_is_the_sum_over_all_states():
    chain, rng = chains.Chain(0.3, 0.8), np.random.default_rng(0)
    log_fast, log_slow = rng.normal(size=(2, 6, 1))
    log_fast[2] = log_slow[2] = np.nan  # not measured
    slow_given_past = chains.slow_given_past(log_fast, log_slow, chain)
    actual = np.nansum(chains.mixture_log_density(log_fast, log_slow, slow_given_past))
    transitions = np.array([[1 - chain.enter_probability, chain.enter_probability], [0.2, 0.8]])
    total, slow = 0.0, np.zeros(6)
    for states in itertools.product([0, 1], repeat=6):
        probability = (0.7, 0.3)[states[0]] * np.prod([transitions[pair] for pair in itertools.pairwise(states)])
        density = np.nansum([(log_fast, log_slow)[state][step, 0] for step, state in enumerate(states)])
        total += probability * np.exp(density)
        slow += probability * np.exp(density) * np.array(states)
    assert actual == pytest.approx(np.log(total), rel=1e-5)
    state_probabilities = chains.state_probabilities(log_fast, log_slow, chain)
    np.testing.assert_allclose(state_probabilities.slow_given_all[:, 0], slow / total, rtol=1e-4)
    assert (
        state_probabilities.stayed_given_all.shape == (5, 1)
        and (state_probabilities.stayed_given_all <= state_probabilities.slow_given_all[1:] + 1e-6).all()
    )


def test_densities_are_those_of_scipy():
    seconds, scale = np.array([0.5, 2.0, 3.0]), 0.4
    expected = {
        "exponential": stats.expon(scale=scale),
        "shifted_exponential": stats.expon(loc=1.3 * scale, scale=scale),
        "lognormal": stats.lognorm(1.3, scale=scale),
        "pareto": stats.pareto(1.3, scale=scale),
        "weibull": stats.weibull_min(1.3, scale=scale),
    }
    for name, family in FAMILIES.items():
        np.testing.assert_allclose(log_density(family, seconds, scale, 1.3), expected[name].logpdf(seconds), rtol=1e-9)
