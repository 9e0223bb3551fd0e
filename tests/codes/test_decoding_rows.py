"""Harmonic rows of partial-straggler codes: independent for any L holders, and how much rounding errors grow."""

import itertools

import jax
import numpy as np
import pytest

from gcjax import codes
from gcjax.codes import assignments, diagnostics
from gcjax.codes.base import holders
from gcjax.codes.decoding_rows import harmonic_rows, worker_colours
from tests.codes.helpers import KEY
from tests.parameters import some

ASSIGNMENTS = {
    "cyclic": assignments.cyclic(32, load=6),
    "cyclic, all hold all": assignments.cyclic(5, load=5),
    "repetition": assignments.repetition(12, load=4),
    "graph": assignments.random_regular(30, load=5, rng_key=KEY),
    "block design": assignments.block_design(7, load=3),
    "uneven": assignments.from_matrix([[1, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 1, 1]]),
    "nobody holds a chunk": codes.Assignment(np.array([[0, 3], [3, -1], [-1, -1]], np.int32), 5),
}


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_any_holders_of_a_chunk_have_independent_rows_of_length_one(name):
    assignment = ASSIGNMENTS[name]
    for num_blocks in (1, 2, 3, 4):
        rows = harmonic_rows(assignment, holders(assignment), num_blocks)
        assert rows.shape == (assignment.num_workers, num_blocks)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-12)
        for chunk in range(assignment.num_chunks):
            workers = np.flatnonzero((assignment.chunks == chunk).any(axis=1))
            for some_holders in itertools.combinations(workers, min(num_blocks, workers.size)):
                assert np.linalg.svd(rows[list(some_holders)])[1].min(initial=1) > 1e-3


def test_cyclic_assignments_and_repetition_have_as_few_points_as_there_can_be():
    """At least W over the most workers of which no two share a chunk."""
    for num_workers, load in itertools.product((16, 32, 100, 101), (3, 4, 6, 8)):
        assignment = assignments.cyclic(num_workers, load=load)
        points = worker_colours(assignment, holders(assignment))
        assert points.max() + 1 == -(-num_workers // (num_workers // load))
    assignment = ASSIGNMENTS["repetition"]
    assert worker_colours(assignment, holders(assignment)).max() + 1 == 4


def test_two_blocks_are_angles_that_are_evenly_spread():
    assignment = assignments.repetition(4, load=4)
    rows = harmonic_rows(assignment, holders(assignment), 2)
    np.testing.assert_allclose(rows, [[np.cos(np.pi * j / 4), np.sin(np.pi * j / 4)] for j in range(4)], atol=1e-15)
    pairs = [np.linalg.cond(rows[list(pair)]) for pair in itertools.combinations(range(4), 2)]
    np.testing.assert_allclose(max(pairs), 1 / np.tan(np.pi / 8), rtol=1e-12)


def worst_condition(code, num_stragglers):
    """Of all sets of stragglers, in float64."""
    workers = code.assignment.num_workers
    stragglers = np.array(list(itertools.combinations(range(workers), num_stragglers)))
    progress = np.broadcast_to(code.assignment.loads, (len(stragglers), workers)).copy()
    np.put_along_axis(progress, stragglers, 0, axis=1)
    condition = jax.jit(
        lambda rows: jax.lax.map(
            lambda row: diagnostics.condition_number(code.assignment, code.plan(row)), rows, batch_size=64
        )
    )
    return float(condition(progress.astype(np.int32)).max())


@pytest.mark.parametrize(
    ("num_stragglers", "num_blocks"), some([(2, 2), (2, 4)], [(1, 2), (1, 4), (3, 2), (3, 3), (4, 2), (4, 4)])
)
def test_the_worst_condition_of_32_workers_over_all_sets_of_stragglers(x64, num_stragglers, num_blocks):
    """Below 10; with random rows above 15."""
    assignment = assignments.cyclic(32, load=num_stragglers + num_blocks)
    code = codes.partial(assignment, num_blocks=num_blocks, rows="harmonic")
    assert worst_condition(code, num_stragglers) < 10
    if num_stragglers <= 2:
        assert worst_condition(codes.partial(assignment, num_blocks=num_blocks, rng_key=KEY), num_stragglers) > 15


def test_messages_may_be_bfloat16():
    code = codes.partial(assignments.cyclic(32, load=4), num_blocks=2, rows="harmonic")
    found = diagnostics.conditioning(code, num_stragglers=2, rng_key=KEY, max_masks=64)
    assert found.errors["bfloat16"] < 0.005 and found.worst_condition_number < 2


def test_bad_rows():
    assignment = assignments.cyclic(4, load=3)
    with pytest.raises(ValueError, match="'harmonic', 'random'; got 'harmonics'. Did you mean 'harmonic'"):
        codes.partial(assignment, num_blocks=2, rows="harmonics")
    with pytest.raises(ValueError, match='or rows="harmonic"'):
        codes.partial(assignment, num_blocks=2)
