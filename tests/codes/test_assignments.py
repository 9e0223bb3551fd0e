"""Assignments and their inverse."""

import jax
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcjax import codes
from gcjax.codes import assignments, diagnostics


def test_cyclic_and_repetition_hold_what_the_papers_say():
    np.testing.assert_array_equal(assignments.cyclic(4, load=2).chunks, [[0, 1], [1, 2], [2, 3], [3, 0]])
    np.testing.assert_array_equal(assignments.repetition(4, load=2).chunks, [[0, 1], [0, 1], [2, 3], [2, 3]])


def test_random_regular_is_regular_and_follows_its_key():
    a, b, c = (assignments.random_regular(20, load=4, rng_key=jax.random.key(k)) for k in (0, 0, 1))
    assert a == b and a != c and hash(a) == hash(b)
    assert (a.loads == 4).all() and (codes.holders(a).counts == 4).all()
    assert (a.chunks != np.arange(20)[:, None]).all()


def test_from_graph_takes_a_graph_or_its_adjacency():
    graph = nx.path_graph(4)
    expected = [[1, -1], [0, 2], [1, 3], [2, -1]]
    np.testing.assert_array_equal(assignments.from_graph(graph).chunks, expected)
    np.testing.assert_array_equal(assignments.from_graph(nx.to_numpy_array(graph, dtype=int)).chunks, expected)


@given(st.integers(0, 10_000))
@settings(max_examples=12, deadline=None)
def test_holders_is_the_inverse(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.random((rng.integers(1, 9), rng.integers(1, 7))) < 0.5
    matrix[np.arange(len(matrix)), rng.integers(0, matrix.shape[1], len(matrix))] = True
    assignment = assignments.random_order(assignments.from_matrix(matrix.astype(int)), rng_key=jax.random.key(seed))
    inverse = codes.holders(assignment)
    for chunk in range(assignment.num_chunks):
        found = [(w, s) for w, s in zip(inverse.workers[chunk], inverse.slots[chunk], strict=True) if w >= 0]
        assert sorted(w for w, _ in found) == list(np.flatnonzero(matrix[chunk]))
        assert all(assignment.chunks[w, s] == chunk for w, s in found)


def test_few_chunks_are_few_and_no_graph_is_an_error():
    assignment = assignments.bernoulli(200, num_chunks=10, load=0.4, rng_key=jax.random.key(0), regularised=True)
    assert set(assignment.loads.tolist()) == {0, 1}
    with pytest.raises(ValueError, match="load must be one number"):
        assignments.bernoulli(3, num_chunks=4, load=[1, 2, 3], rng_key=jax.random.key(0))
    with pytest.raises(ValueError, match="there must be workers and chunks"):
        assignments.edges(nx.Graph())
    one = assignments.from_graph(np.array([[1]]))
    assert diagnostics.expander_bound(one, 0) == 0.0


def test_speeds_may_be_as_large_as_numbers_can_be():
    for scale in (1e300, 1.0, 1e-300):
        assignment = assignments.proportional([1e8 * scale, scale, 1e8 * scale], num_chunks=6, replication=2)
        assert assignment.loads.tolist() == [6, 0, 6]
    assert assignments.proportional([1e308] * 3, num_chunks=6, replication=2).loads.tolist() == [4, 4, 4]
