"""Peeling against a plain loop, and what batch raptor codes recover."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes
from gcjax.codes import assignments
from gcjax.codes.batch_raptor import _degree_probabilities, peel
from tests.codes.helpers import KEY, distance


def peeled(assignment, finished):
    """The batches that peeling recovers, one after the other."""
    known = set()
    while True:
        rests = [
            set(row[row >= 0].tolist()) - known for row, done in zip(assignment.chunks, finished, strict=True) if done
        ]
        new = {rest.pop() for rest in rests if len(rest) == 1}
        if not new:
            return known
        known |= new


@pytest.mark.parametrize("seed", range(4))
def test_peeling_recovers_what_a_plain_loop_does_on_every_mask(seed):
    assignment = assignments.bernoulli(8, num_chunks=6, load=2.5, rng_key=jax.random.key(seed))
    masks = np.array(list(itertools.product((False, True), repeat=8)))
    weights = np.asarray(jax.jit(jax.vmap(lambda finished: peel(assignment, finished)))(masks))
    rows = np.zeros((8, 6), int)
    for w, row in enumerate(assignment.chunks):
        rows[w, row[row >= 0]] = 1
    assert (weights[~masks] == 0).all()
    for found, mask in zip(weights @ rows, masks, strict=True):
        known = peeled(assignment, mask)
        np.testing.assert_array_equal(found, [int(batch in known) for batch in range(6)])


def test_the_residual_is_that_of_the_chunks_not_recovered(x64):
    code = codes.batch_raptor(12, num_chunks=12, num_stragglers=2, error=0.2, rng_key=KEY)
    plan = jax.jit(code.plan)
    for seed in range(5):
        progress = np.where(np.random.default_rng(seed).random(12) < 0.3, 0, code.assignment.loads)
        coding = plan(jnp.asarray(progress, jnp.int32))
        np.testing.assert_allclose(coding.residual, distance(code, coding), atol=1e-9)
        assert abs(coding.residual**2 - round(float(coding.residual) ** 2)) < 1e-9


def test_many_workers_lose_less_than_the_error_they_were_made_for():
    code = codes.batch_raptor(1000, num_chunks=1000, num_stragglers=200, error=0.05, rng_key=KEY)
    assert 4 < code.assignment.loads.mean() < 12  # s + 1 would be 201
    plan, lost = jax.jit(code.plan), []
    for seed in range(10):
        progress = code.assignment.loads.copy()
        progress[np.random.default_rng(seed).choice(1000, 200, replace=False)] = 0
        lost.append(float(plan(jnp.asarray(progress)).residual) ** 2 / 1000)
    assert 0 < np.mean(lost) < 0.05


def test_degree_probabilities():
    probabilities = _degree_probabilities(0.1)
    u = 0.2 * 0.8 / 0.36
    expected = [u, *(1 / (k * (k - 1)) for k in range(2, 11)), 1 / 10]
    np.testing.assert_allclose(probabilities, np.array(expected) / (u + 1))
    code = codes.batch_raptor(50, num_chunks=101, num_stragglers=10, error=0.1, rng_key=KEY)
    assert set(np.unique(code.assignment.loads)) <= {2 * k + extra for k in range(1, 12) for extra in (0, 1)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"error": 0.25}, "below 1/4; got 0.25"),
        ({"error": 0.1, "num_stragglers": 0}, "between 1 and 9; got 0"),
        ({"error": 0.1, "num_chunks": 0}, "num_chunks must be a whole number at least 1"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        codes.batch_raptor(10, **{"num_chunks": 10, "num_stragglers": 2, "rng_key": KEY, **arguments})
