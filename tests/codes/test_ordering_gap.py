"""Orders and bounds of irregular assignments: against all orders at small sizes, in time at large ones."""

import time

import jax
import numpy as np
import pytest

from gcjax import codes
from tests.codes.orders import all_q_max, irregular, small

KEY = jax.random.key(0)


@pytest.mark.parametrize("seed", range(30))
def test_the_optimum_of_all_orders_is_found_and_the_bound_is_at_most_one_below(seed):
    assignment = small(seed)
    for copies in range(1, int(codes.holders(assignment).counts.min()) + 1):
        optimum = all_q_max(assignment, copies).min()
        ordered = codes.order_chunks(assignment, copies=copies)
        assert codes.q_max(ordered, copies=copies) == optimum
        bound = codes.q_max_bound(assignment, copies=copies)
        assert optimum - (copies > 1) <= bound <= optimum  # exact for one copy


def test_the_bound_sees_a_few_chunks_that_crowd_each_other():
    # Workers 0, 1 hold the same four chunks and nobody else does; the others have room enough.
    matrix = np.zeros((8, 6), int)
    matrix[:4, :2] = 1
    matrix[4:, 2:] = 1
    matrix[4, 0] = 1
    assignment = codes.from_matrix(matrix)
    for copies in (1, 2):
        best = codes.ordering_gap(codes.order_chunks(assignment, copies=copies), copies=copies)
        assert best.gap == 0


def test_the_bound_counts_early_and_late_positions():
    # A mean over the chunks allows a spare of 31 for L = 2; counting shows that 29 is the most.
    assignment = codes.random_regular(200, load=8, rng_key=KEY)
    assert [1601 - codes.q_max_bound(assignment, copies=copies) for copies in (1, 2, 3)] == [36, 29, 23]


def test_the_gap_is_that_of_the_given_order():
    assignment = irregular(60, 50, holders=2)
    for copies in (1, 2):
        given = codes.ordering_gap(assignment, copies=copies)
        assert given == (
            codes.q_max(assignment, copies=copies),
            codes.q_max_bound(assignment, copies=copies),
            given.gap,
        )
        assert given.gap == given.q_max - given.bound > 0
        ordered = codes.order_chunks(assignment, copies=copies)
        assert codes.ordering_gap(ordered, copies=copies).gap == 0
        assert codes.ordering_gap(ordered, copies=copies).bound == given.bound
        assert np.array_equal(np.sort(ordered.chunks, axis=1), np.sort(assignment.chunks, axis=1))
        assert ordered == codes.order_chunks(assignment, copies=copies)


def test_twice_as_many_holders_as_chunks_a_worker_is_exact_too():
    matrix = np.array([[1, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 1], [0, 1, 1, 1, 1, 0]])
    assignment = codes.from_matrix(matrix)  # 6 workers with 2 chunks, 3 chunks with 4 holders
    ordered = codes.order_chunks(assignment)
    for slot in range(2):
        assert sorted(ordered.chunks[:, slot]) == [0, 0, 1, 1, 2, 2]
    assert codes.ordering_gap(ordered).gap == 0
    assert codes.q_max(ordered) == all_q_max(assignment, 1).min()


def test_copies_two_and_more_are_never_worse_than_the_matchings():
    assignment = codes.random_regular(40, load=6, rng_key=KEY)
    matchings = codes.order_chunks(assignment)
    for copies in (2, 3):
        ordered = codes.order_chunks(assignment, copies=copies)
        assert codes.q_max(ordered, copies=copies) <= codes.q_max(matchings, copies=copies)
        assert codes.ordering_gap(ordered, copies=copies).gap <= 1


def test_matchings_are_not_always_optimal_for_more_copies():
    assignment = codes.random_regular(60, load=8, rng_key=KEY)
    ordered, matchings = codes.order_chunks(assignment, copies=4), codes.order_chunks(assignment)
    assert codes.q_max(ordered, copies=4) < codes.q_max(matchings, copies=4) == 481 - 15


def test_ten_thousand_irregular_workers():
    assignment = irregular(10_000, 8_000, holders=2)
    ordered = codes.order_chunks(assignment)
    assert codes.ordering_gap(ordered).gap == 0 < codes.ordering_gap(assignment).gap


@pytest.mark.slow
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("name", ["square", "irregular", "more chunks"])
def test_a_hundred_thousand_workers_within_a_minute(name, copies):
    size = 100_000
    made = {
        "square": lambda: codes.random_regular(size, load=8, rng_key=KEY),
        "irregular": lambda: irregular(size, 4 * size // 5, holders=3),
        "more chunks": lambda: irregular(size, 5 * size // 4, holders=3),
    }
    assignment = made[name]()
    start = time.perf_counter()
    ordered = codes.order_chunks(assignment, copies=copies)
    assert time.perf_counter() - start < 60
    assert codes.ordering_gap(ordered, copies=copies).gap <= copies - 1
