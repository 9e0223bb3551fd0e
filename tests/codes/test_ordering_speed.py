"""Orders for workers of known speeds, against all orders at small sizes."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from gcjax import codes
from gcjax.codes import assignments, diagnostics
from gcjax.codes.ordering import mean_time_search as sampled_order
from tests.codes.orders import all_completion_times, irregular, small

KEY = jax.random.key(0)


def draw(seed, shape):
    rng = np.random.default_rng(seed)
    seconds = rng.exponential(size=shape) if seed % 2 else rng.choice([1.0, 3.0], shape)
    return np.where(rng.random(shape) < 0.1, np.inf, seconds)


def completion(assignment, seconds, num_blocks):
    """float[S], by the definition, from the table of holders."""
    held = codes.holders(assignment)
    times = np.where(held.workers >= 0, seconds[:, held.workers] * np.maximum(held.slots + 1, 1), np.inf)
    return np.sort(times, axis=-1)[..., num_blocks - 1].max(axis=-1)


@pytest.mark.parametrize("seed", range(16))
def test_the_least_completion_time_of_all_orders_is_found(seed):
    assignment = small(seed, holders=2, orders=5000)
    seconds = draw(seed, (8, assignment.num_workers))
    for num_blocks in (1, 2):
        least = all_completion_times(assignment, seconds, num_blocks).min(axis=0)
        np.testing.assert_allclose(diagnostics.min_completion_time(assignment, seconds, num_blocks=num_blocks), least)
        for row, best in zip(seconds, least, strict=True):
            ordered = assignments.order_by_speed(assignment, row, num_blocks=num_blocks)
            np.testing.assert_allclose(completion(ordered, row[None], num_blocks), best)
            np.testing.assert_array_equal(np.sort(ordered.chunks, axis=1), np.sort(assignment.chunks, axis=1))


@pytest.mark.parametrize("seed", range(8))
def test_no_earlier_time_is_enough_for_a_flow(seed):
    assignment = irregular(30, 24, holders=2, seed=seed)
    seconds = np.random.default_rng(seed).exponential(size=30)
    num_blocks = 1 + seed % 2
    least = diagnostics.min_completion_time(assignment, seconds, num_blocks=num_blocks)
    times = np.sort(
        np.where(assignment.chunks >= 0, seconds[:, None] * np.arange(1, assignment.load + 1), 0), axis=None
    )
    for time in (least, times[times < least][-1]):
        graph = nx.DiGraph()
        for chunk in range(24):
            graph.add_edge(("chunk", chunk), "sink", capacity=num_blocks)
        for worker, row in enumerate(assignment.chunks):
            fits = int((seconds[worker] * np.arange(1, assignment.load + 1) <= time).sum())
            graph.add_edge("source", worker, capacity=fits)
            graph.add_edges_from([(worker, ("chunk", int(c))) for c in row[row >= 0]], capacity=1)
        assert (nx.maximum_flow_value(graph, "source", "sink") == 24 * num_blocks) == (time == least)


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_what_a_move_gains_is_the_difference_of_the_means(num_blocks):
    assignment = small(3, holders=2)
    seconds = np.random.default_rng(0).exponential(size=(12, assignment.num_workers))
    state = sampled_order._initial_search(assignment, seconds, num_blocks)
    moves = sampled_order._candidate_moves(state)
    gains = sampled_order._move_gains(state, sampled_order._latest_chunks(state), moves)[0] * state.time_scale.mean()
    for worker, early, late, gain in zip(*moves, gains, strict=True):
        chunks = assignment.chunks.copy()
        chunks[worker, [early, late]] = chunks[worker, [late, early]]
        lower = completion(assignment, seconds, num_blocks) - completion(
            assignment._replace(chunks=chunks), seconds, num_blocks
        )
        np.testing.assert_allclose(gain, lower.mean(), atol=1e-12)
    assert gains.size > 5 and gains.max() > 0 > gains.min()


@pytest.mark.parametrize("seed", range(4))
def test_no_move_lowers_the_mean_of_a_local_optimum(seed):
    assignment = irregular(12, 10, holders=2, seed=seed)
    seconds = draw(seed, (25, 12)).clip(max=9)
    found = sampled_order._local_optimum(assignment, seconds, 1)
    assert completion(found, seconds, 1).mean() < completion(assignment, seconds, 1).mean()
    state = sampled_order._initial_search(found, seconds, 1)
    assert (
        sampled_order._move_gains(state, sampled_order._latest_chunks(state), sampled_order._candidate_moves(state))[
            0
        ].max()
        <= 1e-12
    )


@pytest.mark.slow("1", "10", "11", "13", "14", "15", "2", "3", "5", "6", "7", "9")
@pytest.mark.parametrize("seed", range(16))
def test_the_mean_over_samples_is_within_five_percent_of_the_best_of_all_orders(seed):
    assignment = small(seed, holders=2, orders=5000)
    seconds = draw(seed, (20, assignment.num_workers))
    for num_blocks in (1, 2):
        times = all_completion_times(assignment, seconds, num_blocks)
        finite = np.isfinite(times[0])
        if not finite.any():
            continue
        optimum = times[:, finite].mean(axis=1).min()
        ordered = assignments.order_by_speed(assignment, seconds, num_blocks=num_blocks)
        mean = completion(ordered, seconds[finite], num_blocks).mean()
        least = diagnostics.min_completion_time(assignment, seconds[finite], num_blocks=num_blocks).mean()
        assert least * (1 - 1e-9) <= optimum <= mean * (1 + 1e-9) <= 1.05 * optimum


def test_samples_are_never_worse_than_the_starts_and_repeatable():
    assignment = assignments.random_regular(24, load=4, rng_key=KEY)
    seconds = np.random.default_rng(0).exponential(size=24) * np.random.default_rng(1).uniform(0.5, 2, (30, 24))
    ordered = assignments.order_by_speed(assignment, seconds)
    mean = completion(ordered, seconds, 1).mean()
    others = [
        assignment,
        assignments.order_chunks(assignment),
        assignments.order_by_speed(assignment, np.median(seconds, axis=0)),
    ]
    assert mean <= min(completion(a, seconds, 1).mean() for a in others)
    assert mean < 0.7 * completion(assignments.order_chunks(assignment), seconds, 1).mean()  # knowing the speeds pays
    assert ordered == assignments.order_by_speed(assignment, seconds)


def test_a_partial_code_is_complete_at_the_least_time():
    assignment = irregular(12, 10, holders=3)
    seconds = np.random.default_rng(2).exponential(size=12).astype(np.float32)
    for num_blocks in (1, 2):
        ordered = assignments.order_by_speed(assignment, jnp.asarray(seconds), num_blocks=num_blocks)
        code = codes.partial(ordered, num_blocks=num_blocks, rng_key=KEY)
        least = diagnostics.min_completion_time(assignment, seconds, num_blocks=num_blocks)
        np.testing.assert_allclose(codes.completion_time(code, jnp.asarray(seconds)), least, rtol=1e-6)
        given = codes.completion_time(
            codes.partial(assignment, num_blocks=num_blocks, rng_key=KEY), jnp.asarray(seconds)
        )
        assert least < 0.9 * given


def test_failed_workers():
    assignment = assignments.cyclic(5, load=2)
    seconds = np.ones(5)
    seconds[2] = np.inf
    assert diagnostics.min_completion_time(assignment, seconds) == 2
    ordered = assignments.order_by_speed(assignment, seconds)
    np.testing.assert_allclose(completion(ordered, seconds[None], 1), 2)
    assert diagnostics.min_completion_time(assignment, seconds, num_blocks=2) == np.inf
    assert assignments.order_by_speed(assignment, seconds, num_blocks=2) == assignment
    assert assignments.order_by_speed(assignment, seconds[None], num_blocks=2) == assignment
    assert assignments.order_by_speed(assignment, np.zeros(5)).num_chunks == 5  # nobody takes any time


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        (np.ones(4), r"chunk_seconds must be float\[5\].*got shape \(4,\)"),
        (np.ones((3, 4)), r"got shape \(3, 4\)"),
        (np.ones((0, 5)), r"got shape \(0, 5\)"),
        (np.array([1, 1, np.nan, 1, 1]), "chunk_seconds must be at least 0"),
        (-np.ones((2, 5)), "chunk_seconds must be at least 0"),
    ],
)
def test_bad_seconds_are_errors(seconds, message):
    for function in (assignments.order_by_speed, diagnostics.min_completion_time):
        with pytest.raises(ValueError, match=message):
            function(assignments.cyclic(5, load=2), seconds)


@pytest.mark.parametrize("num_blocks", [0, 3, 1.5])
def test_bad_num_blocks_are_errors(num_blocks):
    assignment = assignments.cyclic(5, load=2)
    for function in (assignments.order_chunks, diagnostics.q_max_bound, diagnostics.ordering_gap):
        with pytest.raises(ValueError, match="num_blocks must be a whole number between 1 and 2"):
            function(assignment, num_blocks=num_blocks)
    for function in (assignments.order_by_speed, diagnostics.min_completion_time):
        with pytest.raises(ValueError, match="num_blocks must be a whole number between 1 and 2"):
            function(assignment, np.ones(5), num_blocks=num_blocks)


def test_ten_thousand_workers():
    assignment = irregular(10_000, 8_000, holders=2)
    seconds = np.random.default_rng(0).exponential(size=10_000)
    ordered = assignments.order_by_speed(assignment, seconds)
    least = diagnostics.min_completion_time(assignment, seconds)
    np.testing.assert_allclose(completion(ordered, seconds[None], 1), least)
    assert least < 0.5 * completion(assignments.order_chunks(assignment), seconds[None], 1)
