"""Block coordinate codes: every state of progress by definition, the paper's times, and the sizes of the blocks."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, compression, engine, protocols, stragglers, tasks
from gcjax.codes.alternatives import used_rows
from gcjax.codes.base import chunk_coefficients
from gcjax.codes.block_coordinate import _mean_inverse
from tests.codes.helpers import KEY, completion, decoded

LEVELS = [(0, 0, 2), (1, 1, 3), (0, 1, 2, 3)]


def block_code(num_workers, redundancies):
    return codes.block_coordinate(num_workers, redundancies=redundancies, rng_key=KEY)


def round_seconds(redundancies, unit_seconds):
    """The paper's time of a round: of each block, when the last of the n - s workers that it needs has sent it.

    One time for each row of `unit_seconds [..., n]`.
    """
    levels, in_order = np.asarray(redundancies), np.sort(unit_seconds, axis=-1)
    return (in_order[..., in_order.shape[-1] - levels - 1] * np.cumsum(levels + 1)).max(axis=-1)


@pytest.mark.slow("redundancies2")
@pytest.mark.parametrize("redundancies", LEVELS)
def test_a_block_is_exact_iff_enough_workers_have_done_it(x64, redundancies):
    """All numbers of blocks that each of four workers can have done."""
    code, num_workers = block_code(4, redundancies), 4
    ends = np.cumsum(np.array(redundancies) + 1)
    blocks_done = np.array(list(itertools.product(range(len(ends) + 1), repeat=num_workers)))
    progress = np.concatenate([[0], ends])[blocks_done]
    coding = jax.jit(jax.vmap(code.plan))(progress.astype(np.int32))
    gradients = np.random.default_rng(0).normal(size=(num_workers, 2 * len(ends)))
    estimate = decoded(code, jax.tree.map(np.asarray, coding), gradients).reshape(len(progress), len(ends), 2)
    exact = gradients.sum(axis=0).reshape(len(ends), 2)
    is_right = np.isclose(estimate, exact[None], rtol=0, atol=1e-8).all(axis=2)
    num_done = (blocks_done[:, :, None] > np.arange(len(ends))).sum(axis=1)  # [states, L]
    np.testing.assert_array_equal(is_right, num_done >= num_workers - np.array(redundancies))
    np.testing.assert_array_equal(coding.residual < 1e-6, is_right.all(axis=1))


def test_units_are_the_blocks_of_chunks_in_the_order_of_redundancy():
    code = block_code(4, (0, 1, 1))
    np.testing.assert_array_equal(code.assignment.chunks[3], [3, 3, 0, 3, 0])
    np.testing.assert_array_equal(code.sent([0, 1, 3, 5]).sum(axis=1), [0, 1, 2, 3])
    encode = np.asarray(code.plan([5, 5, 5, 5]).encode)
    worker_3 = (encode[3] != 0).any(axis=0)  # [K, L]: of which block a unit is
    np.testing.assert_array_equal(worker_3.argmax(axis=1), [0, 1, 1, 2, 2])
    np.testing.assert_array_equal(worker_3.sum(axis=1), 1)


@pytest.mark.parametrize("redundancies", LEVELS)
def test_a_round_takes_the_time_of_the_paper(x64, redundancies):
    code = block_code(4, redundancies)
    seconds_of = completion(code)
    generator = np.random.default_rng(1)
    for _ in range(20):
        seconds = generator.exponential(size=4)
        np.testing.assert_allclose(seconds_of(jnp.asarray(seconds)), round_seconds(redundancies, seconds))
    seconds[0] = np.inf
    assert np.isfinite(seconds_of(jnp.asarray(seconds))) == (redundancies[0] > 0)


@pytest.mark.slow
def test_the_protocol_ends_its_rounds_then():
    redundancies, seconds = (0, 1, 2), [1.0, 2.0, 5.0]
    code = block_code(3, redundancies)
    schedule = protocols.coded(code)(jnp.tile(jnp.asarray(seconds), (2 * code.assignment.load, 1)))
    np.testing.assert_allclose(schedule.time, [round_seconds(redundancies, seconds) * r for r in (1, 2)])
    assert protocols.check(schedule, protocols.coded(code).specification(3))


def equal_time_shares(order_seconds):
    """Shares of blocks that decode at the same moment, by solving `sum over i <= s of (i + 1) x_i = 1 / t_(n-s)`."""
    n = len(order_seconds)
    system = np.tril(np.ones((n, n))) * np.arange(1, n + 1)
    shares = np.linalg.solve(system, 1 / np.asarray(order_seconds)[::-1])
    return shares / shares.sum()


@pytest.mark.parametrize(
    "order_seconds", [(1.0, 2.0, 6.0), (3.0, 3.0, 3.0, 4.0), (1.0, 2.0, np.inf), (0.5, 0.6, 7.0, 9.0)]
)
def test_shares_are_rounded_by_less_than_a_block(order_seconds):
    for num_blocks in (1, 7, 24, 1000):
        redundancies = codes.block_redundancies(order_seconds, num_blocks=num_blocks)
        assert len(redundancies) == num_blocks and list(redundancies) == sorted(redundancies)
        counts = np.bincount(redundancies, minlength=len(order_seconds))
        assert np.abs(counts - num_blocks * equal_time_shares(order_seconds)).max() < 1


@pytest.mark.parametrize(
    ("order_seconds", "num_blocks"), [((1.0, 2.0, 6.0), 6), ((1.0, 1.0, 2.0), 8), ((1.0, 4.0, 4.0, 4.0), 8)]
)
def test_no_other_redundancies_are_faster_at_these_times(order_seconds, num_blocks):
    """All non-decreasing redundancies; the shares of these times are whole blocks."""
    n = len(order_seconds)
    best = min(
        round_seconds(levels, order_seconds) for levels in itertools.combinations_with_replacement(range(n), num_blocks)
    )
    own = codes.block_redundancies(order_seconds, num_blocks=num_blocks)
    np.testing.assert_allclose(round_seconds(own, order_seconds), best)


def test_expected_order_times_are_those_of_samples():
    draws = np.sort(0.5 + 2.0 * np.random.default_rng(0).exponential(size=(200_000, 6)), axis=1)
    mean = codes.shifted_exponential_order_seconds(6, shift=0.5, mean=2.0)
    np.testing.assert_allclose(mean, draws.mean(axis=0), rtol=0.01)
    harmonic = codes.shifted_exponential_order_seconds(6, shift=0.5, mean=2.0, kind="harmonic")
    np.testing.assert_allclose(harmonic, 1 / (1 / draws).mean(axis=0), rtol=0.01)
    assert (np.array(harmonic) < mean).all()


def test_the_harmonic_seconds_of_very_many_workers():
    # The largest of n exponential times is about log n + 0.577, with a deviation of 1.28.
    largest = 1 / _mean_inverse(20_000, 20_000, 1.0, 1.0)
    assert 11.0 < largest < 1 + np.log(20_000) + 0.577


@pytest.mark.slow("harmonic")
@pytest.mark.parametrize("kind", ["mean", "harmonic"])
def test_the_sizes_beat_every_redundancy_of_the_whole_gradient(kind):
    """Mean time of a round of eight workers with shifted exponential speeds."""
    draws = 0.05 + np.random.default_rng(0).exponential(size=(4000, 8))
    times = codes.shifted_exponential_order_seconds(8, shift=0.05, mean=1.0, kind=kind)
    own = codes.block_redundancies(times, num_blocks=40)
    mean_of = lambda levels: round_seconds(levels, draws).mean()  # noqa: E731
    assert mean_of(own) < 0.9 * min(mean_of((s,) * 40) for s in range(8))


@pytest.mark.slow
def test_a_run_is_the_uncoded_run_and_computes_each_chunk_once(x64):
    """Whoever is late."""
    code, task = block_code(3, (0, 1, 2)), tasks.linear_regression(num_chunks=3)
    durations = stragglers.sample_durations(stragglers.exponential(mean=1.0), KEY, 4 * code.assignment.load, 3)
    plain = engine.run(task, protocols.coded(codes.uncoded(3)), optax.sgd(0.1), durations[:4], rng_key=KEY)
    run = engine.run(task, protocols.coded(code), optax.sgd(0.1), durations, rng_key=KEY)
    np.testing.assert_allclose(run.params, plain.params, rtol=1e-9)
    coding = code.plan(code.assignment.loads)
    rows = used_rows(code, coding)
    assert rows.chunks.shape == (3, 3) and rows.coding.encode.shape == (3, 3, 3, 3)
    once = codes.Assignment(np.asarray(rows.chunks), 3)
    np.testing.assert_allclose(
        chunk_coefficients(once, rows.coding.encode, rows.coding.decode),
        chunk_coefficients(code.assignment, coding.encode, coding.decode),
    )


@pytest.mark.slow
def test_places_that_all_share_are_linear(x64):
    """Compressed messages, too: whoever is late."""
    code, task = block_code(3, (0, 1, 2)), tasks.linear_regression(num_chunks=3)
    durations = stragglers.sample_durations(stragglers.exponential(mean=1.0), KEY, 4 * code.assignment.load, 3)
    places = compression.random_k(share=0.5, shared=True)
    early = engine.run(task, protocols.coded(code), optax.sgd(0.1), durations, rng_key=KEY, compression=places)
    late = engine.run(task, protocols.coded(code), optax.sgd(0.1), durations[:, ::-1], rng_key=KEY, compression=places)
    np.testing.assert_allclose(early.params, late.params, rtol=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: block_code(3, (1, 0)), r"do not decrease; got \(1, 0\)"),
        (lambda: block_code(3, ()), r"do not decrease; got \(\)"),
        (lambda: block_code(3, (0, 3)), "each of redundancies must be a whole number between 0 and 2; got 3"),
        (lambda: codes.block_redundancies([2.0, 1.0], num_blocks=3), "not decreasing"),
        (lambda: codes.block_redundancies([np.inf, np.inf], num_blocks=3), "the first finite"),
        (lambda: codes.block_redundancies([0.0, 1.0], num_blocks=3), "order_seconds must be above 0"),
        (lambda: codes.block_redundancies([1.0], num_blocks=0), "num_blocks must be a whole number at least 1"),
        (lambda: codes.shifted_exponential_order_seconds(2, shift=0, mean=1, kind="harmonic"), "shift must be above 0"),
        (lambda: codes.shifted_exponential_order_seconds(2, shift=0, mean=0), "mean must be above 0"),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
