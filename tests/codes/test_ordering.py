"""Processing orders: the definition of q_max, optimality where it is known, and the bound elsewhere."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcjax import codes
from gcjax.codes import assignments, diagnostics

KEY = jax.random.key(3)


def brute_q_max(assignment, num_blocks):
    """By enumeration of all progress vectors: most chunks processed while some chunk lacks finished holders."""
    worst = 0
    for progress in itertools.product(*(range(load + 1) for load in assignment.loads)):
        done = np.zeros(assignment.num_chunks, int)
        for w, p in enumerate(progress):
            done[assignment.chunks[w, :p]] += 1
        if done.min() < num_blocks:
            worst = max(worst, sum(progress))
    return worst + 1


def same_chunks(a, b):
    return np.array_equal(np.sort(a.chunks, axis=1), np.sort(b.chunks, axis=1))


@pytest.mark.parametrize("num_blocks", [1, 2])
@pytest.mark.parametrize(
    "assignment",
    [
        assignments.cyclic(5, load=3),
        assignments.repetition(6, load=2),
        assignments.random_order(assignments.cyclic(5, load=4), rng_key=KEY),
        assignments.from_matrix([[1, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 1, 1]]),
    ],
)
def test_q_max_is_what_enumeration_finds(assignment, num_blocks):
    assert diagnostics.q_max(assignment, num_blocks=num_blocks) == brute_q_max(assignment, num_blocks)


def test_regular_assignments_get_each_chunk_once_at_each_position():
    for seed in range(3):
        assignment = assignments.random_regular(40, load=6, rng_key=jax.random.key(seed))
        ordered = assignments.order_chunks(assignment)
        assert same_chunks(assignment, ordered)
        for slot in range(6):
            assert sorted(ordered.chunks[:, slot]) == list(range(40))
        assert diagnostics.q_max(ordered) == diagnostics.q_max_bound(ordered) < diagnostics.q_max(assignment)


@given(st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_any_order_is_above_the_bound_and_the_search_never_makes_it_worse(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.random((rng.integers(2, 9), rng.integers(2, 7))) < 0.5
    matrix[np.arange(len(matrix)), rng.integers(0, matrix.shape[1], len(matrix))] = True
    assignment = assignments.from_matrix(matrix.astype(int))
    for num_blocks in range(1, int(matrix.sum(axis=1).min()) + 1):
        ordered = assignments.order_chunks(assignment, num_blocks=num_blocks)
        assert same_chunks(assignment, ordered)
        shuffled = assignments.random_order(assignment, rng_key=jax.random.key(seed))
        best = min(diagnostics.q_max(a, num_blocks=num_blocks) for a in (assignment, shuffled, ordered))
        assert diagnostics.q_max_bound(assignment, num_blocks=num_blocks) <= best
        if not (len(set(assignment.loads)) == 1 and matrix.shape[0] == matrix.shape[1]):
            assert diagnostics.q_max(ordered, num_blocks=num_blocks) <= diagnostics.q_max(
                assignment, num_blocks=num_blocks
            )


def test_search_reaches_the_optimum_of_all_orders_on_a_small_case():
    matrix = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [1, 0, 1]])
    assignment = assignments.from_matrix(matrix)
    rows = [list(itertools.permutations(row[row >= 0])) for row in assignment.chunks]
    load = assignment.load
    best = min(
        diagnostics.q_max(assignment._replace(chunks=np.array([r + (-1,) * (load - len(r)) for r in choice], np.int32)))
        for choice in itertools.product(*rows)
    )
    assert diagnostics.q_max(assignments.order_chunks(assignment)) == best >= diagnostics.q_max_bound(assignment)


def test_random_order_keeps_the_chunks_and_the_padding_last():
    assignment = assignments.from_matrix([[1, 1, 0], [1, 1, 1], [1, 0, 0]])
    shuffled = assignments.random_order(assignment, rng_key=KEY)
    assert same_chunks(assignment, shuffled)
    np.testing.assert_array_equal(shuffled.chunks >= 0, assignment.chunks >= 0)
    np.testing.assert_array_equal(shuffled.chunks, assignments.random_order(assignment, rng_key=KEY).chunks)


def test_copies_beyond_the_replication_is_an_error():
    with pytest.raises(ValueError, match="num_blocks must be a whole number between 1 and 2; got 3"):
        diagnostics.q_max(assignments.cyclic(4, load=2), num_blocks=3)


def test_large_assignments_need_nothing_dense():
    assignment = assignments.cyclic(100_000, load=8)
    inverse = codes.holders(assignment)
    assert inverse.workers.shape == (100_000, 8)
    assert diagnostics.q_max(assignment) == diagnostics.q_max_bound(assignment)
