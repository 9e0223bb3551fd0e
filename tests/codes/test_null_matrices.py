"""Random matrices for cyclic repetition codes: what Tandon's asks for, and what rounding asks for beyond that."""

import itertools

import jax
import numpy as np
import pytest

from gcjax.codes import null_matrices, replication
from tests.codes.helpers import KEY


def spread(num_workers, num_stragglers):
    return next(null_matrices.spread_matrices(np.random.default_rng(0), num_workers, num_stragglers))


@pytest.mark.parametrize(("n", "s"), [(33, 1), (33, 3), (34, 32), (200, 2), (200, 5)])
def test_columns_of_a_spread_matrix_add_up_to_zero_and_any_s_are_independent(n, s):
    matrix, rng = spread(n, s), np.random.default_rng(1)
    np.testing.assert_allclose(matrix.sum(axis=1), 0, atol=1e-11)
    for _ in range(50):
        chosen = matrix[:, rng.choice(n, s, replace=False)]
        assert np.linalg.matrix_rank(chosen, tol=1e-12) == s


@pytest.mark.parametrize(("n", "s"), [(200, 1), (200, 2), (200, 3)])
def test_neighbours_are_far_from_parallel_and_sums_short_across_the_end_too(n, s):
    """Plain matrices have neighbours with condition numbers in the hundreds, and sums of about sqrt(n s)."""
    matrix = spread(n, s)
    neighbours = (np.arange(n)[:, None] + np.arange(s)) % n
    assert np.linalg.cond(np.moveaxis(matrix[:, neighbours], 1, 0)).max() < 5
    assert np.linalg.norm(np.cumsum(matrix, axis=1), axis=0).max() < 1 + s


def test_no_two_columns_in_the_plane_are_nearly_parallel():
    """Of random ones the closest would be about 1/n² apart."""
    matrix = spread(200, 2)
    units = matrix / np.linalg.norm(matrix, axis=0)
    pairs = np.array(list(itertools.combinations(range(200), 2)))
    sines = np.abs(np.linalg.det(np.moveaxis(units[:, pairs], 1, 0)))
    assert sines.min() > 0.2 * np.pi / 200


def test_few_workers_keep_the_plain_matrix():
    for n, same in ((24, True), (32, True), (33, False)):
        seed = np.asarray(jax.random.key_data(KEY)).ravel().tolist()
        plain = np.random.default_rng(seed).normal(size=(2, n))
        plain[:, -1] = -plain[:, :-1].sum(axis=1)
        got = replication.cyclic_coefficients(n, 2, KEY)
        assert np.allclose(got, null_matrices.cyclic_rows(plain)) == same


def test_rows_are_orthogonal_to_the_matrix():
    matrix = spread(50, 4)
    rows = np.zeros((50, 50))
    support = (np.arange(50)[:, None] + np.arange(5)) % 50
    np.put_along_axis(rows, support, null_matrices.cyclic_rows(matrix), axis=1)
    np.testing.assert_allclose(rows @ matrix.T, 0, atol=1e-10)
