"""Live rounds of simulated workers: they end as they should, and are the engine's rounds for the same progress."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes, protocols, stragglers, tasks
from gcjax.codes import assignments, stopping
from gcjax.engine import live
from tests.engine.live_simulation import KEY, K, Simulation, Time, W, changing, engine_run, one_slow, pairs, simulated
from tests.parameters import some

GROUPS = codes.fractional_repetition(W, num_stragglers=1)


@pytest.mark.slow
@pytest.mark.parametrize(("num_blocks", "speeds"), some([(2, changing)], [(1, one_slow)]))
def test_live_rounds_are_the_engines_rounds_for_the_same_progress(num_blocks, speeds, x64):
    """With deadlines by all rules in turn."""
    rules = (live.adaptive(), live.fixed(2.0), live.until_decodable())
    mixed = live.DeadlineRule(lambda situation: rules[len(situation.history) % 3].seconds(situation))
    task, code = tasks.linear_regression(num_chunks=8, num_examples=40, num_features=3), pairs(num_blocks)
    if num_blocks == 2:  # with randomness in the loss
        task = tasks.digits(8, batch_size=3, hidden=(5,), dropout=0.3)
    params, happened = Simulation(task, code, mixed, speeds, max_residual=3.0).run(6)
    assert (happened.progress < K).any() and happened.residual.max() > 0.5
    run = engine_run(task, code, happened.progress)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), params, run.params)
    np.testing.assert_allclose(happened.loss, run.info.loss, rtol=1e-9)
    np.testing.assert_allclose(happened.residual, run.info.residual, rtol=1e-6, atol=1e-6)


def test_an_adaptive_round_does_not_wait_for_a_slow_worker():
    happened = simulated(pairs(), live.adaptive(), one_slow)
    np.testing.assert_array_equal(happened.deadline[1:], K)
    np.testing.assert_array_equal(happened.seconds, [3 * K, *[K] * 5])
    np.testing.assert_array_equal(happened.progress[1:], [[K, 1, K, K]] * 5)
    np.testing.assert_allclose(happened.residual, 0, atol=1e-6)
    whole = simulated(pairs(), live.whole_load(), one_slow)
    np.testing.assert_array_equal(whole.seconds, 3 * K)


def test_a_worker_that_recovers_is_noticed():
    happened = simulated(pairs(), live.adaptive(), lambda w, n: 3.0 if w == 1 and n < 3 else 1.0)
    assert happened.progress[2, 1] == 1 and happened.progress[-1, 1] == K


@pytest.mark.slow
@pytest.mark.parametrize("speeds", some([one_slow, lambda w, n: 1.0], [changing, lambda w, n: 100.0 ** (w == n % W)]))
def test_until_decodable_always_decodes_and_soon(speeds):
    for code in (pairs(), pairs(2), GROUPS):
        happened = simulated(code, live.until_decodable(), speeds)
        np.testing.assert_allclose(happened.residual, 0, atol=1e-3)
        if code.num_blocks == 1 and speeds is one_slow:
            seconds = jnp.asarray([speeds(w, 0) for w in range(W)], jnp.float32)
            best = max(float(codes.completion_time(code, seconds)), 3.0)  # nobody waits for less than a chunk
            assert (happened.seconds[1:] <= 1.1 * best + 1).all()


def test_an_extension_does_not_wait_for_a_chunk_that_is_not_needed():
    """Worker 3 takes ten; when worker 2 turns slower, only a chunk of that one is missing."""
    happened = simulated(
        pairs(), live.until_decodable(), lambda w, n: 10.0 if w == 3 else 2.5 if (w, n) == (2, 3) else 1.0
    )
    assert happened.extensions[3] == 1 and happened.progress[3, 3] == 1
    np.testing.assert_allclose(happened.seconds[1:], [10, 10, 12.5, 10, 10])


def test_a_round_ends_even_if_nobody_expects_to_finish_in_time(monkeypatch):
    """Whenever a worker looks at its clock, some time has passed."""

    def now(time):
        time.seconds += 1.0
        return time.seconds

    monkeypatch.setattr(Time, "now", now)
    happened = simulated(
        pairs(), live.until_decodable(), lambda w, n: 100.0 if w == 3 else 10.0 if (w, n) == (2, 3) else 1.0
    )
    assert happened.extensions[3] > 1
    np.testing.assert_allclose(happened.residual, 0, atol=1e-3)


@pytest.mark.slow("0.0")
@pytest.mark.parametrize("max_residual", [0.0, 0.5, 1.5])
def test_a_round_in_which_too_little_arrived_is_extended(max_residual):
    code = codes.uncoded(W, load=K)
    happened = simulated(code, live.fixed(1.0), changing, max_residual=max_residual)
    assert (happened.extensions > 0).all()
    assert (happened.residual <= max(max_residual, 1e-3)).all()
    assert (happened.residual > 0).any() == (max_residual > 0.5)
    missing = K * W - happened.progress.sum(axis=1)
    np.testing.assert_allclose(happened.residual, np.sqrt(missing), atol=1e-3)


def test_by_default_three_quarters_must_arrive():
    happened = simulated(codes.uncoded(W, load=K), live.fixed(1.0), lambda w, n: 1.0)
    np.testing.assert_array_equal(happened.progress, 3)
    assert happened.residual.max() == 2.0  # half of sqrt(16)


def test_uneven_loads_and_workers_without_work():
    matrix = np.zeros((4, W), int)
    matrix[:, 0], matrix[:2, 1], matrix[2:, 2] = 1, 1, 1
    code = codes.partial(assignments.from_matrix(matrix))
    for rule in (live.adaptive(), live.fixed(0.5), live.until_decodable(), live.whole_load()):
        happened = simulated(code, rule, one_slow, max_residual=0.0)
        assert (happened.progress <= [4, 2, 2, 0]).all()
        np.testing.assert_allclose(happened.residual, 0, atol=1e-6)


def test_the_recorded_trace_replays_the_rounds():
    """Rounds of the simulator on the replayed times last as long as the live ones did, and get as far."""
    first_chunks = simulated(pairs(), live.fixed(3.0), changing).trace[::K]
    np.testing.assert_allclose(first_chunks, [[changing(w, n) for w in range(W)] for n in range(6)], rtol=1e-6)
    happened = simulated(pairs(), live.fixed(3.0), one_slow)
    trace = happened.trace
    assert trace.shape == (6 * K, W) and np.isnan(trace).any() and not np.isinf(trace).any()
    durations = stragglers.sample_durations(stragglers.replay(trace=trace, start="recorded"), KEY, len(trace), W)
    schedule = protocols.coded(pairs(), stop=stopping.deadline(3.0))(durations)
    np.testing.assert_array_equal(schedule.work, happened.progress)
    np.testing.assert_allclose(np.diff(schedule.time), happened.seconds[1:], rtol=1e-5)
