"""Block designs, and the closed form of constant decoding on every mask."""

import itertools

import jax
import numpy as np
import pytest

from gcjax import codes
from gcjax.codes import assignments
from gcjax.codes.assignments import design_constructions as designs


def test_every_known_design_is_one():
    found = list(designs.known_designs(40))
    assert len(found) > 60
    for design in found:
        designs.incidence(design)
        assert design.num_shared_blocks * (design.num_points - 1) == design.replication * (design.block_size - 1)
        assert design.num_design_blocks * design.block_size == design.num_points * design.replication


@pytest.mark.parametrize(
    ("v", "r"), [(57, 8), (73, 9), (64, 9), (49, 8), (37, 9), (40, 13), (16, 6), (101, 25), (27, 13)]
)
def test_well_known_designs_are_found(v, r):
    assert designs.smallest_design(v, r) is not None
    designs.incidence(designs.smallest_design(v, r))


@pytest.mark.parametrize("q", [2, 4, 7, 8, 9, 25])
def test_fields(q):
    add, multiply = designs.field(q)
    for table in (add, multiply[1:, 1:]):
        assert all(len(set(row)) == len(table) for row in table) and np.array_equal(table, table.T)
    a, b, c = np.random.default_rng(0).integers(0, q, (3, 50))
    np.testing.assert_array_equal(multiply[a, add[b, c]], add[multiply[a, b], multiply[a, c]])
    np.testing.assert_array_equal(multiply[1], np.arange(q))


@pytest.mark.parametrize(("v", "r"), [(7, 3), (7, 4), (9, 4)])
def test_constant_decoding_has_the_error_of_the_closed_form_and_is_optimal(x64, v, r):
    code = codes.bibd(v, load=r)
    optimal = codes.whole_workers(codes.optimal_decoding(code.assignment))
    shared, chunks = designs.smallest_design(v, r).num_shared_blocks, code.assignment.num_chunks
    masks = np.array(list(itertools.product((0, r), repeat=v)), np.int32)
    ours, best = (np.asarray(jax.jit(jax.vmap(c.plan))(masks).residual) ** 2 for c in (code, optimal))
    f = (masks > 0).sum(axis=1)
    expected = chunks - r**2 * f / np.maximum(r + shared * (f - 1), 1)
    np.testing.assert_allclose(ours, expected, atol=1e-9)
    np.testing.assert_allclose(best, expected, atol=1e-9)


def test_fano_errors_are_the_published_ones(x64):
    code = codes.bibd(7, load=3)
    errors = [float(code.plan(np.repeat([0, 3], [s, 7 - s]).astype(np.int32)).residual) ** 2 for s in (1, 2, 3, 4)]
    np.testing.assert_allclose(errors, [0.25, 4 / 7, 1.0, 1.6], atol=1e-9)


def test_a_missing_design_names_the_nearest():
    with pytest.raises(ValueError, match=r"none for num_workers=22, load=6.*The nearest are .*\(21, 5\)"):
        codes.bibd(22, load=6)
    with pytest.raises(ValueError, match="num_workers must be a whole number at least 3"):
        assignments.block_design(2, load=1)
