"""Live deadlines: the rules, a worker, one process, and several; rounds are in `test_live_rounds`."""

import contextlib
import functools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes, stragglers, tasks
from gcjax.codes import assignments
from gcjax.engine import live
from gcjax.engine.live import deadlines, exchange, training
from gcjax.engine.live.chunk_work import Clock, work_until
from tests.devices import devices
from tests.engine.live_simulation import INF, KEY, NAN, SGD, K, Time, W, engine_run, pairs


@functools.cache
def _completion():
    return deadlines.compiled_completion(pairs())


def situation(history):
    history = np.asarray(history, np.float64)
    return live.DeadlineInputs(pairs(), _completion(), history.reshape(-1, K, history.shape[-1]))


def constant(*seconds, num_rounds=1):
    """A history in which every chunk of a worker takes as long."""
    return np.broadcast_to(np.asarray(seconds, np.float64), (num_rounds, K, len(seconds)))


# Deadlines.


def test_fixed_and_whole_load():
    for history in (np.empty((0, K, W)), constant(1, 1, 1, 3)):
        assert live.fixed(2.5).seconds(situation(history)) == 2.5
        assert live.whole_load().seconds(situation(history)) == INF


def test_adaptive_is_load_times_median_and_deviation_of_the_last_rounds():
    rng = np.random.default_rng(0)
    history = rng.exponential(size=(6, K, W))
    history[-1, 2:, 1] = NAN
    recent = history[-2:][~np.isnan(history[-2:])]
    median = np.median(recent)
    expected = K * (median + 1.5 * np.median(abs(recent - median)))
    found = live.adaptive(tolerance=1.5, window=2).seconds(situation(history))
    assert found == pytest.approx(expected, rel=1e-12)
    assert live.adaptive().seconds(situation(np.empty((0, K, W)))) == INF


def test_one_slow_worker_does_not_move_the_adaptive_deadline():
    assert live.adaptive().seconds(situation(constant(1, 1, 1, 3))) == K


@pytest.mark.slow("seconds0")
@pytest.mark.parametrize("seconds", [(1, 1, 1, 1), (1, 1, 1, 3), (0.5, 2, 1, 9), (1, INF, 1, 1)])
def test_until_decodable_predicts_the_completion_time(seconds):
    expected = 1.1 * codes.completion_time(pairs(), jnp.asarray(seconds, jnp.float32))
    assert live.until_decodable().seconds(situation(constant(*seconds))) == pytest.approx(float(expected), rel=1e-5)


def test_recent_seconds_are_the_median_of_the_latest_chunks():
    history = np.full((2, K, 3), NAN)
    history[0, :, 0], history[1, :2, 0] = [9, 1, 2, 3], [4, 5]  # 1 2 3 4 5
    history[0, :1, 1] = 7
    np.testing.assert_array_equal(deadlines.recent_seconds(history), [3, 7, INF])


def test_time_to_decode_goes_on_from_the_progress():
    slow = situation(constant(1, 1, 1, 10))
    alone = [deadlines.time_to_decode(slow, np.array(p)) for p in ([0] * W, [1] * W, [K, K, K, 0], [K] * W)]
    assert alone[0] > alone[1] > 0
    assert alone[2:] == [0, 0]


def test_an_extension_lasts_until_decodable_or_for_a_chunk_of_the_slowest():
    history = constant(1, 1, 1, 10)
    nearly = np.array(
        [K - 1, K - 1, K - 1, 0]
    )  # a chunk of another worker makes it decodable before the slow one has one
    assert deadlines.extension(situation(history), nearly, stalled=False) == (pytest.approx(1.1), 0)
    assert deadlines.extension(situation(history), nearly, stalled=True) == (10, 1)
    needed = np.array([K, K, 0, 0])  # nobody but these two has some of the chunks
    even = situation(constant(1, 1, 2, 3))
    assert deadlines.extension(even, needed, stalled=False) == (3, 1)
    full = np.array([K, K, 0, K])  # those with nothing left do not count
    assert deadlines.extension(situation(constant(1, 1, 2, 50)), full, stalled=True) == (2, 1)


# One worker.


def worked(until, recent=(), chunk=1.0, num_slots=8, **kwargs):
    """The seconds of the chunks that a worker does, each of which takes `chunk`."""
    time, done = Time(), []

    def run_chunk(slot):
        done.append(slot)
        time.pass_by(chunk)

    seconds = work_until(run_chunk, range(2, num_slots), list(recent), deadline=until, clock=time.clock(), **kwargs)
    assert done == list(range(2, 2 + len(seconds)))
    return seconds


def test_chunks_are_started_only_if_expected_to_be_finished_in_time():
    assert worked(INF) == [1.0] * 6
    assert worked(3.5, [1.0]) == [1.0] * 3
    assert worked(2.95, [1.0]) == [1.0] * 3  # late by less than a tenth
    assert worked(2.85, [1.0]) == [1.0] * 2
    assert worked(3.5, [2.0] * 5) == [1.0] * 2  # it expects two seconds until the median says otherwise
    assert worked(3.5) == [1.0] * 3  # nothing known: the first, and then its own


def test_at_least_one_chunk_is_done_unless_none_is_asked_for():
    assert worked(0.5, [9.0]) == [1.0]
    assert worked(0.5, [9.0], min_chunks=0) == []
    assert worked(0.5, [9.0], min_chunks=3) == [1.0] * 3
    assert worked(INF, num_slots=2) == []


def test_a_paced_chunk_takes_at_least_its_time():
    np.testing.assert_allclose(worked(INF, chunk=0.1, num_slots=4, min_seconds=0.25), [0.25, 0.25])
    np.testing.assert_allclose(worked(INF, chunk=0.5, num_slots=4, min_seconds=0.25), [0.5, 0.5])


def test_a_stop_lengthens_a_paced_chunk():
    time = Time()

    def sleep(seconds):  # stopped once, for two seconds
        time.pass_by(seconds + (2.0 if 0.1 < time.now() < 0.102 else 0.0))

    (seconds,) = work_until(
        lambda slot: None, range(1), [], deadline=INF, min_seconds=0.25, clock=Clock(time.now, sleep)
    )
    assert seconds == pytest.approx(2.25, abs=0.01)


# What is recorded.


def test_slow_workers_are_named_with_their_slowdown_and_since_when():
    rng = np.random.default_rng(0)
    seconds = rng.uniform(0.95, 1.05, (12, K, W))
    seconds[5:, :, 2] *= 3
    seconds[5:, 1:, 2] = NAN
    seconds[2:7, :, 0] *= 2
    seconds[9, :, 1] *= 50  # once is no spell
    seconds[0, :, 3] = NAN
    first, second = live.slow_spells(seconds)
    assert (first.worker, first.first_round, first.last_round) == (0, 2, 6)
    assert (second.worker, second.first_round, second.last_round) == (2, 5, None)
    assert first.slowdown == pytest.approx(2, rel=0.06) and second.slowdown == pytest.approx(3, rel=0.06)
    text = live.slow_text([first._replace(slowdown=2.04), second._replace(slowdown=3.0)])
    assert "worker 0: 2.0 times slower in rounds 2 to 6\n" in text
    assert "worker 2: 3.0 times slower since round 5" in text
    assert live.slow_spells(seconds[:, :, 1:2]) == [] and live.slow_text([]) == "slow workers: none"


# One process.


@pytest.mark.slow
def test_training_in_one_process_is_the_engines_training(x64):
    task, code = tasks.digits(5, batch_size=3, hidden=(4,)), codes.uncoded(1, load=5)
    seen = []
    run = live.train(task, code, SGD, rng_key=KEY, num_rounds=4, on_round=lambda n, r, p: seen.append((n, r.loss)))
    reference = engine_run(task, code, run.rounds.progress)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), run.params, reference.params)
    np.testing.assert_allclose(run.rounds.loss, reference.info.loss, rtol=1e-9)
    assert seen == list(enumerate(run.rounds.loss.tolist()))
    assert run.rounds.chunk_seconds.shape == (4, 5, 1) and run.rounds.deadline[0] == INF
    assert (np.isnan(run.rounds.chunk_seconds).sum(axis=(1, 2)) == 5 - run.rounds.progress[:, 0]).all()


@pytest.mark.slow("rule0")
@pytest.mark.parametrize("rule", [live.until_decodable(), live.fixed(1e-9)])
def test_nothing_is_compiled_after_the_warm_up(rule, monkeypatch):
    task, code = tasks.digits(5, batch_size=3, hidden=(4,)), codes.uncoded(1, load=5)
    compiled, counts, warm_up = [], [], training._warm_up

    def listen(event, duration_secs, **kwargs):
        compiled.extend([event] if "backend_compile" in event else [])

    def counted(*args):
        kept = warm_up(*args)
        counts.append(len(compiled))
        return kept

    monkeypatch.setattr(training, "_warm_up", counted)
    jax.monitoring.register_event_duration_secs_listener(listen)
    run = live.train(
        task, code, SGD, rng_key=KEY, num_rounds=3, deadline=rule, on_round=lambda *_: counts.append(len(compiled))
    )
    assert len(counts) == 4 and counts[0] > 0 and set(counts) == {counts[0]}
    assert (run.rounds.extensions.min() > 0) == (not rule.exact)


def test_a_slowdown_is_the_median_of_single_rounds():
    """Not of the running medians by which spells are found."""
    seconds = np.ones((7, 1, 3))
    seconds[:, 0, 0] = [1, 1, 4, 2, 4, 1, 1]
    (spell,) = live.slow_spells(seconds)
    assert (spell.first_round, spell.last_round, spell.slowdown) == (2, 4, 4.0)


def test_bad_input_is_refused():
    task, code = tasks.digits(4), codes.uncoded(1, load=4)
    go = functools.partial(live.train, optimizer=SGD, rng_key=KEY, num_rounds=2)
    for bad in (0, -1.0, NAN):
        with pytest.raises(ValueError, match="seconds must be above 0"):
            live.fixed(bad)
    with pytest.raises(ValueError, match="tolerance must be at least 0"):
        live.adaptive(tolerance=-1.0)
    for window in (0, 101):
        with pytest.raises(ValueError, match=f"window must be a whole number between 1 and 100; got {window}"):
            live.adaptive(window=window)
    for make, name in {
        lambda: live.fixed((1.0, 2.0)): "seconds",
        lambda: live.adaptive(tolerance="3"): "tolerance",
    }.items():
        with pytest.raises(ValueError, match=f"{name} must be one number"):
            make()
    wrong_arguments = {"max_residual": (1.0, 2.0), "rng_key": 5, "throttle": 0.1, "on_round": 3}
    for name, wrong in wrong_arguments.items():
        with pytest.raises(ValueError, match=f"{name} must be"):
            go(task, code, **{name: wrong})
    assert exchange.worker_mesh(1).devices.tolist() == devices(1)
    with pytest.raises(ValueError, match="the code has 4 workers, and there are 1 processes"):
        go(tasks.digits(8), pairs())
    with pytest.raises(ValueError, match="the code has 4, the task 5. Make the task with num_chunks=4"):
        go(tasks.digits(5), code)
    with pytest.raises(ValueError, match="deadline must be a rule.*got 3.0"):
        go(task, code, deadline=3.0)
    with pytest.raises(ValueError, match="max_residual must be at least 0"):
        go(task, code, max_residual=-1.0)
    with pytest.raises(ValueError, match="optimizer must be an optax.GradientTransformation.*got 0.1"):
        live.train(task, code, 0.1, rng_key=KEY, num_rounds=2)
    with pytest.raises(ValueError, match="num_rounds must be a whole number at least 1"):
        go(task, code, num_rounds=0)
    undecodable = codes.partial(assignments.from_matrix(np.ones((4, 1), int)), num_blocks=2, rng_key=KEY)
    with pytest.raises(ValueError, match="residual of at most 0.001; this code leaves 2.* exact"):
        go(task, undecodable, deadline=live.until_decodable())
    with pytest.raises(ValueError, match="residual of at most 1.41; this code leaves 2"):
        go(task, undecodable)
    go(task, undecodable, max_residual=2.1)
    with pytest.raises(ValueError, match="progress must be int\\[4\\]"):
        exchange.round_exchange(pairs(), SGD, jax.sharding.Mesh(np.array(devices(3)), ("workers",))).share_progress(
            np.zeros((3, K), np.float32)
        )


# Several processes.


def start(command):
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    return subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip


def outputs(children, timeout):
    """What they print; all of them, and what they have started, are gone afterwards."""
    try:
        printed = [child.communicate(timeout=timeout)[0] for child in children]
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    assert [child.returncode for child in children] == [0] * len(children), "\n".join(printed)
    return printed


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.slow
def test_two_processes_do_the_engines_rounds_for_the_progress_that_they_made(tmp_path, x64):
    script, port = pathlib.Path(__file__).with_name("live_process.py"), free_port()
    files = [tmp_path / f"{rank}.npz" for rank in range(2)]
    outputs([start([script, str(r), "2", str(port), file]) for r, file in enumerate(files)], timeout=90)
    one, other = (dict(np.load(file).items()) for file in files)
    for name in set(one) - {"seconds"}:
        np.testing.assert_array_equal(one[name], other[name])
    code = codes.partial(assignments.from_matrix(np.ones((6, 2), int)), num_blocks=2, rng_key=KEY)
    run = engine_run(tasks.digits(6, batch_size=3, hidden=(5,)), code, one["progress"])
    for i, leaf in enumerate(jax.tree.leaves(run.params)):
        np.testing.assert_allclose(one[f"arr_{i}"], leaf, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(one["loss"], run.info.loss, rtol=1e-9)
    assert (one["progress"] < 6).any() and (one["progress"] > 0).all()
    assert (one["chunk_seconds"][:, 0, 1] >= 0.06).all() and (np.nanmin(one["chunk_seconds"][..., 0]) >= 0.02)


@pytest.mark.slow
def test_four_processes_with_a_slow_one_keep_their_round_time_and_their_loss(tmp_path):
    folder = tmp_path / "out"
    # A checkpoint that is written while the process is stopped would take the stop out of the rounds' seconds.
    bindings = ("live.num_rounds = 20", "live.stop_seconds = 1.0", "live.checkpoint_every = 20")
    command = ["-m", "experiments.live", "--out", str(folder)]
    (printed,) = outputs([start([*command, *(p for b in bindings for p in ("--set", b))])], timeout=900)
    assert "coded, one slow: slow workers:\n  worker 1: 3.0 times slower since round 0" in printed
    rows = {(row["scheme"], row["scenario"]): row for row in json.loads((folder / "live.json").read_text())}
    for scheme, most in (("coded", 1.3), ("uncoded", 3.3)):
        base = rows[scheme, "nobody slow"]
        for scenario in ("one slow", "slow one changes"):
            row = rows[scheme, scenario]
            ratio = row["round_seconds"] / base["round_seconds"]
            assert (ratio > 2) == (scheme == "uncoded") and ratio < most
            assert row["train_loss"] == pytest.approx(base["train_loss"], rel=1e-3)
        assert 1 < rows[scheme, "one stopped 1 s"]["longest_round"] < 2.5
    assert rows["coded", "one slow"]["train_loss"] == pytest.approx(rows["uncoded", "one slow"]["train_loss"], rel=0.2)
    heads, *lines = [line for line in (folder / "summary.md").read_text().splitlines() if line.startswith("| ")]
    assert "who is slow" in heads and len(lines) == 1 + len(rows) == 11
    trace = stragglers.read_trace(folder / "coded-one-slow.csv").compute
    assert trace.shape == (20 * 8, 4) and 2.5 < np.nanmedian(trace[:, 1]) / np.nanmedian(trace) < 3.5
