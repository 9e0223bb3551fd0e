"""The samples of psp: different numbers, and every set of them as often."""

import collections
import math

import jax
import numpy as np
import pytest

from gcjax import protocols
from gcjax.protocols.psp import _sample
from gcjax.stragglers import Network


def samples(num_draws, num_others, num_sampled):
    keys = jax.random.split(jax.random.key(0), num_draws)
    draw = jax.jit(jax.vmap(lambda key: _sample(key, num_others, num_sampled)))
    return np.asarray(draw(keys))


@pytest.mark.parametrize(("num_others", "num_sampled"), [(1, 1), (4, 1), (4, 2), (5, 3), (4, 4)])
def test_every_set_is_as_probable(num_others, num_sampled):
    """Each frequency is within five standard deviations of its probability."""
    num_draws = 6000
    counts = collections.Counter(frozenset(row) for row in samples(num_draws, num_others, num_sampled).tolist())
    num_sets = math.comb(num_others, num_sampled)
    assert len(counts) == num_sets
    assert {len(drawn) for drawn in counts} == {num_sampled}
    assert all(0 <= x < num_others for drawn in counts for x in drawn)
    deviation = math.sqrt(num_draws / num_sets * (1 - 1 / num_sets))
    assert max(abs(count - num_draws / num_sets) for count in counts.values()) <= 5 * deviation


@pytest.mark.parametrize(("num_others", "num_sampled"), [(40, 32), (40, 33), (33, 33), (3, 0)])
def test_large_samples_and_none(num_others, num_sampled):
    drawn = samples(20, num_others, num_sampled)
    assert drawn.shape == (20, num_sampled)
    assert all(len(set(row)) == num_sampled and set(row) <= set(range(num_others)) for row in drawn.tolist())


@pytest.mark.slow
def test_samples_that_are_drawn_before_are_those_drawn_one_by_one(monkeypatch):
    durations = jax.random.exponential(jax.random.key(1), (6, 5))
    drawn_before = protocols.psp(num_sampled=2, rng_key=jax.random.key(0))(durations)
    monkeypatch.setitem(_sample.__globals__, "_MAX_DRAWN_BEFORE", 0)
    one_by_one = jax.jit(protocols.psp(num_sampled=2, rng_key=jax.random.key(0)).schedule)(durations, Network())
    for ours, theirs in zip(drawn_before, one_by_one, strict=True):
        np.testing.assert_array_equal(ours, theirs)
