"""Stochastic gradient coding: how chunks are placed, and the mean over all masks."""

import itertools

import jax
import numpy as np
import pytest

from gcjax import codes
from gcjax.codes import assignments
from gcjax.testing import check_code
from tests.codes.helpers import KEY, decoded


def shared(assignment):
    """int[N, N]: how many workers two chunks share; on the diagonal, their holders."""
    held = np.zeros((assignment.num_workers, assignment.num_chunks), int)
    for worker, chunks in enumerate(assignment.chunks):
        assert len(set(chunks[chunks >= 0])) == (chunks >= 0).sum()
        held[worker, chunks[chunks >= 0]] = 1
    return held.T @ held


def pairs(assignment):
    """int[pairs]: how many workers the chunks of each pair share."""
    return shared(assignment)[np.triu_indices(assignment.num_chunks, 1)]


def test_every_chunk_has_its_holders_and_loads_are_about_equal():
    replication = [1, 2, 2, 3, 5, 1, 4, 2, 2, 6, 1, 1]
    assignment = assignments.pairwise_balanced(6, num_chunks=12, replication=replication, rng_key=KEY)
    np.testing.assert_array_equal(np.diag(shared(assignment)), replication)
    assert np.ptp(assignment.loads) <= 2
    large = assignments.pairwise_balanced(60, num_chunks=100, replication=3, rng_key=KEY)
    assert (np.diag(shared(large)) == 3).all() and np.ptp(large.loads) <= 2


def test_pairs_meet_as_seldom_as_may_be():
    """A pair shares at most one worker where there is room; elsewhere fewer than in any of 200 random draws."""
    sparse = assignments.pairwise_balanced(40, num_chunks=40, replication=3, rng_key=KEY)
    assert pairs(sparse).max() == 1
    dense = assignments.pairwise_balanced(8, num_chunks=12, replication=3, rng_key=KEY)
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(200):
        matrix = np.zeros((12, 8), int)
        for row in matrix:
            row[rng.choice(8, 3, replace=False)] = 1
        draws.append((pairs(assignments.from_matrix(matrix)) ** 2).sum())
    assert (pairs(dense) ** 2).sum() < min(draws)
    assert abs(pairs(dense).mean() - 3 * 3 / 8) < 0.2  # d_i d_j / W


def test_the_same_key_gives_the_same_placement_and_another_one_another():
    draw = [assignments.pairwise_balanced(8, num_chunks=9, replication=2, rng_key=jax.random.key(i)) for i in (0, 0, 1)]
    assert draw[0] == draw[1] != draw[2]


def test_the_mean_over_all_masks_is_the_sum(x64):
    replication, late = [1, 2, 3, 2, 1, 3], 0.3
    code = codes.stochastic(6, num_chunks=6, replication=replication, straggler_probability=late, rng_key=KEY)
    masks = np.array(list(itertools.product((False, True), repeat=6)))
    chance = np.where(masks, 1 - late, late).prod(axis=1)
    codings = jax.jit(jax.vmap(code.plan))(np.where(masks, code.assignment.loads, 0).astype(np.int32))
    gradients = np.random.default_rng(0).normal(size=(6, 3))
    np.testing.assert_allclose(chance @ decoded(code, codings, gradients), gradients.sum(axis=0), rtol=1e-12)
    full = code.plan(code.assignment.loads)
    for worker, chunks in enumerate(code.assignment.chunks):
        weights = [1 / (replication[chunk] * (1 - late)) if chunk >= 0 else 0 for chunk in chunks]
        np.testing.assert_allclose(full.encode[worker, 0, :, 0], weights, rtol=1e-12)
    np.testing.assert_array_equal(full.decode, 1)


def test_the_contract():
    check_code(codes.stochastic(5, num_chunks=6, replication=2, straggler_probability=0.2, rng_key=KEY), quick=True)


@pytest.mark.parametrize(
    ("replication", "message"),
    [
        (5, "replication must be a whole number between 1 and 4; got 5"),
        ([1, 2, 0], "between 1 and 4; got 0"),
        ([1, 2], r"one number or int\[3\], one a chunk; got shape \(2,\)"),
    ],
)
def test_bad_replication(replication, message):
    with pytest.raises(ValueError, match=message):
        codes.stochastic(4, num_chunks=3, replication=replication, straggler_probability=0.1, rng_key=KEY)


def test_bad_probability():
    with pytest.raises(ValueError, match="below 1"):
        codes.stochastic(4, num_chunks=3, replication=2, straggler_probability=1.0, rng_key=KEY)
    with pytest.raises(ValueError, match="straggler_probability must be one number"):
        codes.stochastic(4, num_chunks=3, replication=2, straggler_probability=[0.1] * 4, rng_key=KEY)
