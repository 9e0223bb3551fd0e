"""Mixing matrices, and how far apart the workers of protocols without a server get."""

import jax
import networkx as nx
import numpy as np
import pytest

from gcjax import analysis, mixing_matrices, protocols
from gcjax.stragglers.network import Network
from tests.protocols import neighbours_reference as neighbours
from tests.protocols.table import KEY

SIZES = (1, 2, 3, 4, 6, 7, 8)


def edges(name, num_workers):
    """The neighbours by their definition."""
    workers = range(num_workers)
    if name == "ring":
        return {(w, (w + 1) % num_workers) for w in workers}
    if name == "complete":
        return {(w, v) for w in workers for v in workers}
    if name == "bipartite":
        return {(w, v) for w in workers for v in workers if (w + v) % 2}
    rows = max(n for n in range(1, num_workers + 1) if num_workers % n == 0 and n * n <= num_workers)
    grid = [(i, j) for i in range(rows) for j in range(num_workers // rows)]
    down = {(grid.index((i, j)), grid.index(((i + 1) % rows, j))) for i, j in grid}
    return down | {(grid.index((i, j)), grid.index((i, (j + 1) % (num_workers // rows)))) for i, j in grid}


@pytest.mark.parametrize("num_workers", SIZES)
@pytest.mark.parametrize("name", ["bipartite", "complete", "ring", "torus"])
def test_weights_of_a_graph_are_those_of_metropolis(name, num_workers):
    graph = nx.Graph(e for e in edges(name, num_workers) if e[0] != e[1])
    graph.add_nodes_from(range(num_workers))
    (found,) = mixing_matrices.mixing_matrices(name, num_workers)
    np.testing.assert_array_equal(found, protocols.metropolis_weights(graph))
    for w in range(num_workers):
        for v in set(range(num_workers)) - {w}:
            expected = 1 / (1 + max(graph.degree(w), graph.degree(v))) if graph.has_edge(w, v) else 0.0
            assert found[w, v] == found[v, w] == pytest.approx(expected)
    assert (found >= -1e-12).all()
    np.testing.assert_allclose(found.sum(axis=0), 1)


@pytest.mark.parametrize("num_workers", SIZES)
def test_exponential_graphs_hear_1_2_4_before(num_workers):
    turns = mixing_matrices.mixing_matrices("one_peer_exponential", num_workers)
    for t in range(2 * len(turns)):
        for w in range(num_workers):
            heard = neighbours.one_before(t, w, num_workers)
            assert set(np.flatnonzero(turns[t % len(turns), w])) == heard | {w}
    (all_at_once,) = mixing_matrices.mixing_matrices("exponential", num_workers)
    np.testing.assert_array_equal(all_at_once > 0, (turns > 0).any(axis=0))
    np.testing.assert_allclose(all_at_once[all_at_once > 0], 1 / (1 + len(turns) * (num_workers > 1)))
    if num_workers in (2, 4, 8):  # then all have the mean of all after a turn each
        product = np.linalg.multi_dot([*turns[::-1], np.eye(num_workers)])
        np.testing.assert_allclose(product, 1 / num_workers)


@pytest.mark.parametrize("name", ["bipartite", "complete", "ring", "torus"])
def test_with_one_graph_nobody_is_further_ahead_than_the_distance(name):
    for num_workers in SIZES:
        (matrix,) = mixing_matrices.mixing_matrices(name, num_workers)
        distances = dict(nx.all_pairs_shortest_path_length(nx.from_numpy_array(matrix > 0)))
        expected = [[distances[w][v] for v in range(num_workers)] for w in range(num_workers)]
        np.testing.assert_array_equal(mixing_matrices.iterations_ahead(matrix[None] > 0)[0], expected)


def lead(schedule):
    """float[W, W]: how many more iterations than v a worker w has ever done, one that has just ended counted."""
    largest = np.zeros((schedule.start.shape[1],) * 2)
    for moment in np.unique(np.asarray(schedule.finish)):
        done = (np.asarray(schedule.finish) <= moment).sum(axis=0)
        largest = np.maximum(largest, done[:, None] - done)
    return largest


SPARSE = ((0.5, 0.5, 0.0), (0.5, 0.0, 0.5), (0.0, 0.5, 0.5))  # a row of workers, the one in the middle keeps nothing


@pytest.mark.slow("made0-ring-6", "made2-matrices2-3")
@pytest.mark.promotes  # states are of 32 bits, what is counted about them in Python is not
@pytest.mark.parametrize(
    ("made", "matrices", "num_workers"),
    [
        (protocols.d_psgd(), "ring", 6),
        (protocols.sgp(), "one_peer_exponential", 6),
        (protocols.sgp(mixing=SPARSE), SPARSE, 3),
    ],
)
def test_the_bound_is_kept_and_reached(made, matrices, num_workers, x64):
    """Whoever is slow for long holds up all, those far from it the latest."""
    hears = mixing_matrices.mixing_matrices(matrices, num_workers) > 0
    bound, largest = mixing_matrices.iterations_ahead(hears), np.zeros((num_workers, num_workers))
    for slow in range(num_workers):
        for unit in range(3):
            durations = np.random.default_rng(slow).uniform(0.9, 1.1, (12, num_workers))
            durations[unit, slow] = 50.0
            schedule = made(durations)
            largest = np.maximum(largest, lead(schedule))
            assert bool(protocols.check(schedule, made.specification(num_workers)))
            staleness = np.arange(schedule.time.size)[:, None] - np.asarray(schedule.version)
            assert staleness[np.isfinite(schedule.time)].max() <= made.max_staleness(num_workers)
    np.testing.assert_array_equal(largest, bound.max(axis=0))


def test_who_is_never_heard_holds_up_nobody(x64):
    durations = np.ones((9, 2))
    durations[2:, 0] = np.inf
    alone = protocols.d_psgd(mixing=np.eye(2))(durations)
    np.testing.assert_array_equal(alone.start[:, 1], np.arange(9))
    assert np.isfinite(alone.time).sum() == 2
    assert not protocols.d_psgd(mixing=np.eye(2)).max_staleness(2) < 8


def test_copies_are_charged_and_counted(x64):
    """Ring: two copies. One peer: one. A group of four: 3/2. An exchange of two: one each."""
    network, ones = Network(latency=0.5, upload=2.0, download=4.0), np.ones((6, 4))
    seconds = {
        "ring": (protocols.d_psgd(), 2, 0.5 + 4, 0.5 + 8),
        "peer": (protocols.sgp(), 1, 0.5 + 2, 0.5 + 4),
        "group": (protocols.prague(group_size=4, rng_key=KEY), 1.5, 0.5 + 3, 0.5 + 6),
        "pair": (protocols.ad_psgd(rng_key=KEY), 2, 0.5 + 2 + 0.5 + 4, 0.0),
    }
    for protocol, copies, send, receive in seconds.values():
        schedule = protocol(ones, network)
        np.testing.assert_allclose(schedule.finish[0], 1 + send)
        np.testing.assert_allclose(schedule.compute_start[1] - schedule.start[1], receive)
        spent = analysis.costs(schedule, ones, np.array([1e6]), mixing=protocol.local.mixing)
        np.testing.assert_allclose(spent.messages, 6 * copies)
        shared = network._replace(server=100.0)  # nothing passes it
        assert jax.tree.all(jax.tree.map(np.array_equal, schedule, protocol(ones, shared)))


def test_who_has_no_neighbour_pays_for_no_exchange(x64):
    pair = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], bool)
    network, ones = Network(latency=0.5, upload=2.0, download=4.0), np.ones((6, 3))
    half = np.where(pair, 0.5, np.diag([0.5, 0.5, 1.0]))
    for protocol in (protocols.ad_psgd(graph=pair, rng_key=KEY), protocols.d_psgd(mixing=half)):
        schedule = protocol(ones, network)
        np.testing.assert_allclose(schedule.finish[:, 2], np.arange(1, 7))
        copies = protocol.local.mixing.copies(schedule)
        assert (copies[:, 2] == 0).all() and (copies[:2, :2] > 0).all()
    alone = protocols.ad_psgd(rng_key=KEY)(ones[:, :1], network)
    np.testing.assert_allclose(alone.time, np.arange(1, 7))


@pytest.mark.parametrize("name", ["d_psgd", "sgp"])
def test_there_are_at_least_as_many_digits_as_the_matrix_needs(name):
    """Rounded thirds are taken, too."""
    third = np.float32(1 / 3)
    getattr(protocols, name)(mixing=np.full((3, 3), third))(np.ones((2, 3), np.float32))


@pytest.mark.slow("unsafe_rbg")
@pytest.mark.parametrize("kind", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_members_of_a_group_of_prague_are_those_it_waits_for_with_any_key(kind):
    """Seven workers in groups of three, two and two; copies are of as many members, too."""
    num_units, num_workers = 5, 7
    protocol = protocols.prague(group_size=3, rng_key=jax.random.key(7, impl=kind))
    durations = np.random.default_rng(0).uniform(0.5, 2.0, (num_units, num_workers)).astype(np.float32)
    schedule = protocol(durations)
    matrix_of_commit, copies = (f(schedule) for f in (protocol.local.mixing.matrix, protocol.local.mixing.copies))
    for t in range(num_units - 1):
        start = np.asarray(schedule.start)[t + 1]
        goes_on_together = start[:, None] == start
        matrix = np.asarray(matrix_of_commit(jax.numpy.int32(t)).weights)
        np.testing.assert_array_equal(matrix > 0, goes_on_together)
        num_members = goes_on_together.sum(axis=1)
        np.testing.assert_allclose(copies[t], 2 * (num_members - 1) / num_members, rtol=1e-6)
