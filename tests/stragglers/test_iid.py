"""Distributions against their closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gcjax import stragglers

NUM_UNITS, NUM_WORKERS = 1000, 4
POSITIVE = st.floats(0.25, 8.0, width=32)


def sample(model, seed=0):
    return np.asarray(stragglers.sample_durations(model, jax.random.key(seed), NUM_UNITS, NUM_WORKERS))


def assert_follows(seconds, distribution):
    """Kolmogorov-Smirnov, at a level that one in 10^5 good samples misses; neighbours do not correlate."""
    limit = 2.5 / np.sqrt(seconds.size)
    assert stats.ks_1samp(seconds.ravel(), distribution.cdf).statistic < limit
    ranks = distribution.cdf(seconds) - 0.5
    assert abs(np.mean(ranks[1:] * ranks[:-1])) * 12 < 5 / np.sqrt(seconds.size)
    assert abs(np.mean(ranks[:, 1:] * ranks[:, :-1])) * 12 < 5 / np.sqrt(seconds.size)


@given(mean=POSITIVE, seed=st.integers(0, 100))
def test_exponential(mean, seed):
    assert_follows(sample(stragglers.exponential(mean=mean), seed), stats.expon(scale=mean))


@given(shift=POSITIVE, mean=POSITIVE, seed=st.integers(0, 100))
def test_shifted_exponential(shift, mean, seed):
    seconds = sample(stragglers.shifted_exponential(shift=shift, mean=mean), seed)
    assert_follows(seconds, stats.expon(loc=shift, scale=mean))


@given(median=POSITIVE, sigma=POSITIVE, seed=st.integers(0, 100))
def test_lognormal(median, sigma, seed):
    seconds = sample(stragglers.lognormal(median=median, sigma=sigma), seed)
    assert_follows(seconds, stats.lognorm(sigma, scale=median))


@given(minimum=POSITIVE, shape=POSITIVE, seed=st.integers(0, 100))
def test_pareto(minimum, shape, seed):
    seconds = sample(stragglers.pareto(minimum=minimum, shape=shape), seed)
    assert_follows(seconds, stats.pareto(shape, scale=minimum))


@given(scale=POSITIVE, shape=POSITIVE, seed=st.integers(0, 100))
def test_weibull(scale, shape, seed):
    seconds = sample(stragglers.weibull(scale=scale, shape=shape), seed)
    assert_follows(seconds, stats.weibull_min(shape, scale=scale))


@given(probability=st.floats(0.01, 0.99), seed=st.integers(0, 100))
def test_bimodal(probability, seed):
    seconds = sample(stragglers.bimodal(fast=1.0, slow=4.0, probability=probability), seed)
    assert set(np.unique(seconds)) <= {1.0, 4.0}
    slow = seconds == 4.0
    spread = np.sqrt(probability * (1 - probability) / seconds.size)
    assert abs(slow.mean() - probability) <= 4.5 * spread
    assert abs(np.mean(slow[1:] & slow[:-1]) - probability**2) <= 9 * spread


def test_bimodal_with_certain_outcomes():
    assert (sample(stragglers.bimodal(fast=1.0, slow=4.0, probability=0.0)) == 1.0).all()
    assert (sample(stragglers.bimodal(fast=1.0, slow=np.inf, probability=1.0)) == np.inf).all()


def test_constant_per_worker():
    seconds = sample(stragglers.constant(seconds=[1.0, 2.0, 3.0, np.inf]))
    np.testing.assert_array_equal(seconds, np.tile([1.0, 2.0, 3.0, np.inf], (NUM_UNITS, 1)))


def test_parameters_per_worker():
    means = np.array([0.5, 1.0, 2.0, 4.0])
    seconds = sample(stragglers.exponential(mean=means))
    np.testing.assert_allclose(seconds.mean(axis=0) / means, 1.0, atol=0.15)


@pytest.mark.parametrize("draw", [lambda rng_key, num_workers, low: low, lambda rng_key: 1.0, "uniform"])
def test_a_draw_of_other_arguments_is_refused(draw):
    with pytest.raises(ValueError, match=r"can be called as draw\(rng_key, low\); got .*: "):
        stragglers.independent(draw, low=1.0)


def test_independent_takes_a_users_own_distribution():
    def uniform(rng_key, low, high):
        return jax.random.uniform(rng_key, low.shape, low.dtype, low, high)

    seconds = sample(stragglers.independent(uniform, low=1.0, high=jnp.array([2.0, 2.0, 2.0, 2.0])))
    assert_follows(seconds, stats.uniform(1.0, 1.0))


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda: stragglers.constant(seconds=-1.0), "seconds must be at least 0; got -1"),
        (lambda: stragglers.constant(seconds=np.nan), "seconds must be at least 0; got nan"),
        (lambda: stragglers.exponential(mean=0.0), "mean must be above 0 and finite; got 0"),
        (lambda: stragglers.exponential(mean=np.inf), "mean must be above 0 and finite; got inf"),
        (lambda: stragglers.exponential(mean=10**400), "mean must be a number that a float can be"),
        (lambda: stragglers.exponential(mean="slow"), "mean must be a number .* got 'slow'"),
        (lambda: stragglers.shifted_exponential(shift=-1.0, mean=1.0), "shift must be at least 0"),
        (lambda: stragglers.lognormal(median=1.0, sigma=0.0), "sigma must be above 0"),
        (lambda: stragglers.pareto(minimum=1.0, shape=0.0), "shape must be above 0"),
        (lambda: stragglers.weibull(scale=0.0, shape=1.0), "scale must be above 0"),
        (
            lambda: stragglers.bimodal(fast=1.0, slow=2.0, probability=1.5),
            "probability must be .* at most 1; got 1.5",
        ),
        (
            lambda: sample(stragglers.exponential(mean=[1.0, 2.0])),
            r"mean must be one number or .*\(4,\); got shape \(2,\)",
        ),
        (lambda: sample(stragglers.exponential), "model must be a StragglerModel.* Was the factory called"),
    ],
)
def test_bad_input_is_refused(factory, message):
    with pytest.raises(ValueError, match=message):
        factory()


def test_more_than_a_float_of_32_bits_is_refused():
    with jax.enable_x64(False), pytest.raises(ValueError, match=r"mean must be below 3.*, or inf; got 1e\+39"):
        sample(stragglers.exponential(mean=1e39))


@pytest.mark.parametrize(("num_units", "num_workers"), [(0, 4), (4, 0), (2.5, 4)])
def test_bad_counts_are_refused(num_units, num_workers):
    with pytest.raises(ValueError, match="must be a whole number at least 1; got"):
        stragglers.sample_durations(stragglers.constant(), jax.random.key(0), num_units, num_workers)
