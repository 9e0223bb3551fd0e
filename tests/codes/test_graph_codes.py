"""Graph codes against their closed form, and random assignments with chunks that nobody holds."""

import itertools

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from gcjax import codes
from gcjax.codes import assignments, diagnostics
from tests.codes.helpers import KEY, completion, distance

GRAPHS = {
    "triangle with a tail": nx.lollipop_graph(3, 2),
    "path": nx.path_graph(5),
    "star": nx.star_graph(4),
    "two pieces": nx.disjoint_union(nx.cycle_graph(3), nx.path_graph(3)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_closed_form_on_every_mask(x64, name):
    code = codes.whole_workers(codes.optimal_decoding(assignments.edges(GRAPHS[name])))
    workers = code.assignment.num_workers
    masks = np.array(list(itertools.product((0, 2), repeat=workers)), np.int32)
    found = np.asarray(jax.jit(jax.vmap(code.plan))(masks).residual) ** 2
    np.testing.assert_allclose(found, [diagnostics.graph_error(code.assignment, m > 0) for m in masks], atol=1e-8)


def test_closed_form_by_hand():
    star = assignments.edges(nx.star_graph(4))  # sides of 1 and 4
    np.testing.assert_allclose(diagnostics.graph_error(star, np.ones(4, bool)), 9 / 5)
    np.testing.assert_allclose(diagnostics.graph_error(star, np.array([True, False, False, False])), 3.0)
    assert diagnostics.graph_error(assignments.edges(nx.cycle_graph(5)), np.ones(5, bool)) == 0


def test_iterative_decoding_of_many_workers_has_the_error_of_the_closed_form(x64):
    code = codes.graph_code(3000, replication=3, rng_key=KEY)
    finished = np.random.default_rng(0).random(3000) > 0.3
    coding = jax.jit(code.plan)(jnp.asarray(2 * finished, jnp.int32))
    np.testing.assert_allclose(coding.residual**2, diagnostics.graph_error(code.assignment, finished), rtol=1e-9)


def test_assignment_of_edges():
    assignment = assignments.edges(nx.Graph([("b", "a"), ("c", "b")]))
    np.testing.assert_array_equal(assignment.chunks, [[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: codes.graph_code(10, replication=3, rng_key=KEY), "Use num_workers=9 or 12"),
        (lambda: codes.graph_code(4, replication=4, rng_key=KEY), "Use num_workers=12 or 16"),
        (lambda: assignments.edges(nx.Graph([(0, 0), (0, 1)])), "without loops"),
        (lambda: assignments.edges(nx.DiGraph([(0, 1)])), "undirected"),
        (lambda: diagnostics.graph_error(assignments.cyclic(4, load=3), np.ones(4, bool)), "two chunks"),
        (lambda: assignments.bernoulli(4, num_chunks=4, load=5, rng_key=KEY), "load must be above 0 and at most 4"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_bernoulli_assignments():
    plain = assignments.bernoulli(4000, num_chunks=500, load=3, rng_key=KEY)
    assert abs(plain.loads.mean() - 3) < 0.15 and abs(plain.loads.var() - 3) < 0.4
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in plain.chunks)
    thin = assignments.bernoulli(4000, num_chunks=500, load=3, rng_key=KEY, regularised=True)
    assert plain.load > 6 and thin.load == 6 and plain.loads.min() == 0
    np.testing.assert_array_equal(thin.loads, np.minimum(plain.loads, 6))
    counts = np.bincount(plain.chunks[plain.chunks >= 0], minlength=500)
    assert abs(counts.std() - np.sqrt(24)) < 1


def test_chunks_that_nobody_holds_are_in_the_residual(x64):
    assignment = codes.Assignment(np.array([[0, 3], [3, -1], [-1, -1]], np.int32), 5)
    done = jnp.asarray(assignment.loads)
    for code, expected in (
        (codes.partial(assignment), np.sqrt(3)),
        (codes.partial(assignment, num_blocks=2, rng_key=KEY), np.sqrt(2 * 3 + 1)),
        (codes.optimal_decoding(assignment), np.sqrt(3)),
    ):
        coding = jax.jit(code.plan)(done)
        np.testing.assert_allclose(coding.residual, expected, rtol=1e-9)
        np.testing.assert_allclose(coding.residual, distance(code, coding), rtol=1e-9)
        assert np.isinf(completion(code)(jnp.ones(3)))
        assert not code.sent(done)[2].any()


def test_a_residual_that_is_small_but_there_is_not_taken_for_exact():
    path = codes.whole_workers(codes.optimal_decoding(assignments.edges(nx.path_graph(401)), max_iterations=1000))
    left_over = float(jax.jit(path.plan)(jnp.asarray(path.assignment.loads)).residual)
    np.testing.assert_allclose(left_over, 1 / np.sqrt(401), rtol=1e-2)  # sides of 200 and 201
    assert np.isinf(completion(path)(jnp.ones(400)))
