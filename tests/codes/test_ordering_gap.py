"""Orders and bounds of irregular assignments: against all orders at small sizes, in time at large ones."""

import itertools

import jax
import numpy as np
import pytest

from gcjax import codes
from gcjax.codes import assignments, diagnostics
from gcjax.codes.ordering.slack import INFINITE, remaining_work, slack, slack_and_largest_term
from gcjax.codes.ordering.worst_case_search import (
    _candidate_groups,
    _reorder_chunks,
    _without_common_chunks,
    order_with_larger_slack,
)
from tests.codes.orders import all_q_max, irregular, small

KEY = jax.random.key(0)


@pytest.mark.parametrize("seed", range(30))
def test_the_optimum_of_all_orders_is_found_and_the_bound_is_at_most_one_below(seed):
    assignment = small(seed)
    for num_blocks in range(1, int(codes.holders(assignment).counts.min()) + 1):
        optimum = all_q_max(assignment, num_blocks).min()
        ordered = assignments.order_chunks(assignment, num_blocks=num_blocks)
        assert diagnostics.q_max(ordered, num_blocks=num_blocks) == optimum
        bound = diagnostics.q_max_bound(assignment, num_blocks=num_blocks)
        assert optimum - (num_blocks > 1) <= bound <= optimum  # exact for L = 1


def test_the_bound_sees_a_few_chunks_that_crowd_each_other():
    # Workers 0, 1 hold the same four chunks and nobody else does; the others have room enough.
    matrix = np.zeros((8, 6), int)
    matrix[:4, :2] = 1
    matrix[4:, 2:] = 1
    matrix[4, 0] = 1
    assignment = assignments.from_matrix(matrix)
    for num_blocks in (1, 2):
        best = diagnostics.ordering_gap(
            assignments.order_chunks(assignment, num_blocks=num_blocks), num_blocks=num_blocks
        )
        assert best.gap == 0


def test_the_bound_counts_early_and_late_positions():
    # A mean over the chunks allows a slack of 31 for L = 2; counting shows that 29 is the most.
    assignment = assignments.random_regular(200, load=8, rng_key=KEY)
    assert [1601 - diagnostics.q_max_bound(assignment, num_blocks=num_blocks) for num_blocks in (1, 2, 3)] == [
        36,
        29,
        23,
    ]


def test_the_gap_is_that_of_the_given_order():
    assignment = irregular(60, 50, holders=2)
    for num_blocks in (1, 2):
        given = diagnostics.ordering_gap(assignment, num_blocks=num_blocks)
        assert given == (
            diagnostics.q_max(assignment, num_blocks=num_blocks),
            diagnostics.q_max_bound(assignment, num_blocks=num_blocks),
            given.gap,
        )
        assert given.gap == given.q_max - given.bound > 0
        ordered = assignments.order_chunks(assignment, num_blocks=num_blocks)
        assert diagnostics.ordering_gap(ordered, num_blocks=num_blocks).gap == 0
        assert diagnostics.ordering_gap(ordered, num_blocks=num_blocks).bound == given.bound
        assert np.array_equal(np.sort(ordered.chunks, axis=1), np.sort(assignment.chunks, axis=1))
        assert ordered == assignments.order_chunks(assignment, num_blocks=num_blocks)


def test_loads_beyond_counting_still_have_a_tight_bound():
    assignment = assignments.cyclic(40, load=30)
    assert diagnostics.ordering_gap(assignment).gap == 0


def test_chunks_that_must_all_have_the_same_positions_in_sum():
    # 8 chunks a worker, 4 workers a chunk: a slack of 18 leaves nothing to spare.
    chunks = (2 * np.arange(100)[:, None] + np.array([0, 1, 3, 7, 12, 20, 30, 45])) % 200
    assignment = codes.Assignment(chunks.astype(np.int32), 200)
    assert diagnostics.ordering_gap(assignment).gap > 0
    assert diagnostics.ordering_gap(assignments.order_chunks(assignment)).gap == 0


@pytest.mark.parametrize("num_blocks", [1, 2, 3])
def test_a_turn_finds_the_best_order_of_the_worker(num_blocks):
    assignment = assignments.random_order(irregular(15, 12, holders=3), rng_key=KEY)
    for worker in np.flatnonzero(assignment.loads <= 6):
        work = remaining_work(assignment, codes.holders(assignment), num_blocks)
        state = np.append(slack_and_largest_term(work), np.full((3, 1), INFINITE), axis=1)
        held = slice(worker * assignment.load, worker * assignment.load + assignment.loads[worker])
        chunks = work.chunks[worker, : assignment.loads[worker]]
        smallest = []
        for order in itertools.permutations(range(1, assignment.loads[worker] + 1)):
            values = work.flat_remaining_work.copy()
            values[held] = order
            smallest.append(slack(work._replace(flat_remaining_work=values), chunks).min())
        _reorder_chunks(work, state, np.array([worker]), np.random.default_rng(0))
        assert state[0, chunks].min() == max(smallest) >= smallest[-1]
        np.testing.assert_array_equal(state[:, :-1], slack_and_largest_term(work))


def test_workers_that_take_their_turns_together_have_no_chunk_in_common():
    assignment = irregular(200, 180, holders=1)
    work = remaining_work(assignment, codes.holders(assignment), 1)
    workers = _without_common_chunks(work, np.random.default_rng(0).permutation(200)[:20])
    together = assignment.chunks[workers]
    assert 1 < workers.size < 20 and np.bincount(together[together >= 0]).max() == 1


def test_after_the_sweeps_only_holders_of_the_worst_chunks_have_a_turn():
    assignment = irregular(50, 40, holders=2)
    inverse = codes.holders(assignment)
    work = remaining_work(assignment, inverse, 1)
    slacks = np.append(slack(work), INFINITE)
    groups = list(itertools.islice(_candidate_groups(work, slacks, inverse, np.random.default_rng(0)), 10 * 50 + 1))
    assert sorted(np.concatenate(groups[:-1])) == sorted(list(range(50)) * 10)
    worst = inverse.workers[slacks[:-1] == slacks.min()]
    assert 0 < groups[-1].size <= 8 and np.isin(groups[-1], worst).all()


@pytest.mark.slow("2")
@pytest.mark.parametrize("num_blocks", [2, 3])
def test_a_search_never_makes_a_good_order_worse(num_blocks):
    assignment = assignments.order_chunks(assignments.random_regular(40, load=6, rng_key=KEY), num_blocks=num_blocks)
    found = order_with_larger_slack(assignment, codes.holders(assignment), num_blocks=num_blocks, target=INFINITE)
    assert found != assignment
    assert diagnostics.q_max(found, num_blocks=num_blocks) <= diagnostics.q_max(assignment, num_blocks=num_blocks)


def test_twice_as_many_holders_as_chunks_a_worker_is_exact_too():
    matrix = np.array([[1, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 1], [0, 1, 1, 1, 1, 0]])
    assignment = assignments.from_matrix(matrix)  # 6 workers with 2 chunks, 3 chunks with 4 holders
    ordered = assignments.order_chunks(assignment)
    for slot in range(2):
        assert sorted(ordered.chunks[:, slot]) == [0, 0, 1, 1, 2, 2]
    assert diagnostics.ordering_gap(ordered).gap == 0
    assert diagnostics.q_max(ordered) == all_q_max(assignment, 1).min()


@pytest.mark.slow
def test_copies_two_and_more_are_never_worse_than_the_matchings():
    assignment = assignments.random_regular(40, load=6, rng_key=KEY)
    matchings = assignments.order_chunks(assignment)
    for num_blocks in (2, 3):
        ordered = assignments.order_chunks(assignment, num_blocks=num_blocks)
        assert diagnostics.q_max(ordered, num_blocks=num_blocks) <= diagnostics.q_max(matchings, num_blocks=num_blocks)
        assert diagnostics.ordering_gap(ordered, num_blocks=num_blocks).gap <= 1


def test_matchings_are_not_always_optimal_for_more_copies():
    assignment = assignments.random_regular(60, load=8, rng_key=KEY)
    ordered, matchings = assignments.order_chunks(assignment, num_blocks=4), assignments.order_chunks(assignment)
    assert diagnostics.q_max(ordered, num_blocks=4) < diagnostics.q_max(matchings, num_blocks=4) == 481 - 15


def test_ten_thousand_irregular_workers():
    assignment = irregular(10_000, 8_000, holders=2)
    ordered = assignments.order_chunks(assignment)
    assert diagnostics.ordering_gap(ordered).gap == 0 < diagnostics.ordering_gap(assignment).gap


@pytest.mark.slow
@pytest.mark.parametrize("num_blocks", [1, 2])
@pytest.mark.parametrize("name", ["square", "irregular", "more chunks"])
def test_a_hundred_thousand_workers(name, num_blocks):
    size = 100_000
    made = {
        "square": lambda: assignments.random_regular(size, load=8, rng_key=KEY),
        "irregular": lambda: irregular(size, 4 * size // 5, holders=3),
        "more chunks": lambda: irregular(size, 5 * size // 4, holders=3),
    }
    ordered = assignments.order_chunks(made[name](), num_blocks=num_blocks)
    assert diagnostics.ordering_gap(ordered, num_blocks=num_blocks).gap <= num_blocks - 1
