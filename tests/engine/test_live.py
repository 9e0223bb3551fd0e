"""Live rounds: the rules, workers with simulated clocks, one process, and several."""

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
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from gcjax import codes, engine, protocols, stragglers, tasks
from gcjax.engine import live
from gcjax.engine.live import deadlines, exchange, records, rounds, training
from gcjax.engine.live.work import Clock, chunk_gradient, work

KEY = jax.random.key(2)
W, K = 4, 4
NAN, INF = np.nan, np.inf
SGD = optax.sgd(0.1, momentum=0.5)


def pairs(num_blocks=1):
    """Eight chunks, each on two of four workers."""
    matrix = np.arange(W)[None] - np.repeat(np.arange(W), 2)[:, None]
    assignment = codes.order_chunks(codes.from_matrix((matrix % W < 2).astype(int)))
    return codes.partial(assignment, num_blocks=num_blocks, rng_key=KEY)


@functools.cache
def _completion():
    return deadlines.completion(pairs())


def situation(history):
    history = np.asarray(history, np.float64)
    return live.Situation(pairs(), _completion(), history.reshape(-1, K, history.shape[-1]))


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


class Time:
    """A clock that moves only when told to."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def pass_by(self, seconds):
        self.seconds += seconds

    def clock(self):
        return Clock(self.now, self.pass_by)


def worked(until, recent=(), chunk=1.0, num_slots=8, **kwargs):
    """The seconds of the chunks that a worker does, each of which takes `chunk`."""
    time, done = Time(), []

    def run_chunk(slot):
        done.append(slot)
        time.pass_by(chunk)

    seconds = work(run_chunk, range(2, num_slots), list(recent), until=until, clock=time.clock(), **kwargs)
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
    assert worked(0.5, [9.0], at_least=0) == []
    assert worked(0.5, [9.0], at_least=3) == [1.0] * 3
    assert worked(INF, num_slots=2) == []


def test_a_paced_chunk_takes_at_least_its_time():
    np.testing.assert_allclose(worked(INF, chunk=0.1, num_slots=4, least_seconds=0.25), [0.25, 0.25])
    np.testing.assert_allclose(worked(INF, chunk=0.5, num_slots=4, least_seconds=0.25), [0.5, 0.5])


def test_a_stop_lengthens_a_paced_chunk():
    time = Time()

    def sleep(seconds):  # stopped once, for two seconds
        time.pass_by(seconds + (2.0 if 0.1 < time.now() < 0.102 else 0.0))

    (seconds,) = work(lambda slot: None, range(1), [], until=INF, least_seconds=0.25, clock=Clock(time.now, sleep))
    assert seconds == pytest.approx(2.25, abs=0.01)


# Simulated workers: the generators of all of them, each with its own clock, and the real collectives on four devices.


class Simulation:
    """W workers that know of each other only what they share."""

    def __init__(self, task, code, rule, speeds, max_residual=None, num_workers=W):
        self.task, self.code, self.speeds = task, code, speeds
        self.mesh = jax.sharding.Mesh(np.array(jax.devices()[:num_workers]), ("workers",))
        self.between = exchange.exchange(code, SGD, self.mesh)
        goal = training._goal(code, rule, max_residual)
        self.times = [Time() for _ in range(num_workers)]
        completion, gradient = deadlines.completion(code), chunk_gradient(task, code.num_blocks)
        init_key, self.batch_key = jax.random.split(KEY)
        self.params = task.init(init_key)
        self.workers = [
            rounds.Worker(
                w, code, functools.partial(self.chunk, gradient, w), completion, rule, goal, lambda *_: 0.0,
                self.times[w].clock(),
            )
            for w in range(num_workers)
        ]  # fmt: skip

    def chunk(self, gradient, worker, kept, params, slot, number):
        self.times[worker].pass_by(float(self.speeds(worker, number)))
        c = np.int32(self.code.assignment.chunks[worker, slot])
        return gradient(kept, params, self.task.data, self.batch_key, np.int32(slot), c, np.int32(number))

    def put(self, rows):
        return jax.device_put(rows, NamedSharding(self.mesh, PartitionSpec("workers")))

    def share(self, mine):
        rows = np.full((len(mine), self.code.assignment.load), NAN, np.float32)
        for w, seconds in enumerate(mine):
            rows[w, : len(seconds)] = seconds
        latest = max(time.seconds for time in self.times)
        for time in self.times:
            time.seconds = latest
        return jax.device_get(self.between.share(self.put(rows)))

    def finish(self, parts):
        """All workers' parts of a round, in lockstep from one share to the next."""
        mine = [next(part) for part in parts]
        for _ in range(100):
            shared, ends, more = self.share(mine), [], []
            for part in parts:
                try:
                    more.append(part.send(shared))
                except StopIteration as end:
                    ends.append(end.value)
            if ends:
                assert len(ends) == len(parts), "some go on and some do not"
                return ends
            mine = more
        raise AssertionError("the round does not end")

    def run(self, num_rounds):
        params, opt_state, history = self.params, SGD.init(self.params), []
        kept = [training._room(self.task, self.code, self.put_everywhere(params)) for _ in self.workers]
        for number in range(num_rounds):
            kept = jax.tree.map(lambda x: jnp.full_like(x, NAN), kept)  # what is not done must not matter
            begin = self.times[0].seconds
            ends = self.finish([
                rounds.working(worker, number, begin, history, params, kept[w])
                for w, worker in enumerate(self.workers)
            ])  # fmt: skip
            kept = [end.kept for end in ends]
            all_kept = jax.tree.map(lambda *x: self.put(np.concatenate([np.asarray(v) for v in x])), *kept)
            params, opt_state, loss = self.between.update(params, opt_state, all_kept, ends[0].shared.progress)
            params, opt_state = jax.device_get((params, opt_state))
            history.append(records.Round(
                self.times[0].seconds - begin, ends[0].deadline, ends[0].extensions, ends[0].shared.progress,
                float(ends[0].shared.residual), float(loss), ends[0].shared.seconds.T,
            ))  # fmt: skip
        return params, records.stack(history)

    def put_everywhere(self, tree):
        return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))


def engine_run(task, code, progress):
    """The engine's run for given progress int[E, W]."""
    progress = jnp.asarray(progress, jnp.int32)
    units = progress.shape[0] * code.assignment.load
    d = stragglers.sample_durations(stragglers.constant(), KEY, units, code.assignment.num_workers)
    base = protocols.coded(code, stop=codes.all_workers())
    protocol = protocols.Protocol(
        lambda durations, network: base.schedule(durations, network)._replace(work=progress), code, lambda _: 0
    )
    return engine.run(task, protocol, SGD, d, rng_key=KEY)


def one_slow(worker, number):
    return 3.0 if worker == 1 else 1.0


def changing(worker, number):
    return 5.0 if worker == number % W else 1.0 + 0.01 * worker


@pytest.mark.parametrize(("num_blocks", "speeds"), [(1, one_slow), (2, changing)])
def test_live_rounds_are_the_engines_rounds_for_the_same_progress(num_blocks, speeds, x64):
    """With deadlines by all rules in turn."""
    rules = (live.adaptive(), live.fixed(2.0), live.until_decodable())
    mixed = live.DeadlineRule(lambda situation: rules[len(situation.history) % 3].seconds(situation))
    task, code = tasks.digits(8, batch_size=3, hidden=(5,), dropout=0.3), pairs(num_blocks)
    params, happened = Simulation(task, code, mixed, speeds, max_residual=3.0).run(6)
    assert (happened.progress < K).any() and happened.residual.max() > 0.5
    run = engine_run(task, code, happened.progress)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), params, run.params)
    np.testing.assert_allclose(happened.loss, run.info.loss, rtol=1e-9)
    np.testing.assert_allclose(happened.residual, run.info.residual, rtol=1e-6, atol=1e-6)


def simulated(code, rule, speeds, num_rounds=6, num_workers=W, **kwargs):
    task = tasks.linear_regression(num_chunks=code.assignment.num_chunks, num_examples=40, num_features=3)
    return Simulation(task, code, rule, speeds, num_workers=num_workers, **kwargs).run(num_rounds)[1]


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


@pytest.mark.parametrize("speeds", [one_slow, changing, lambda w, n: 1.0, lambda w, n: 100.0 ** (w == n % W)])
def test_until_decodable_always_decodes_and_soon(speeds):
    for code in (pairs(), pairs(2), codes.fractional_repetition(W, num_stragglers=1)):
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
    for rule in (live.adaptive(), live.fixed(0.5), live.until_decodable(), live.whole_load()):
        happened = simulated(codes.partial(codes.from_matrix(matrix)), rule, one_slow, max_residual=0.0)
        assert (happened.progress <= [4, 2, 2, 0]).all()
        np.testing.assert_allclose(happened.residual, 0, atol=1e-6)


# What is recorded.


def test_the_recorded_trace_replays_the_rounds():
    """Rounds of the simulator on the replayed times last as long as the live ones did, and get as far."""
    first_chunks = simulated(pairs(), live.fixed(3.0), changing).trace[::K]
    np.testing.assert_allclose(first_chunks, [[changing(w, n) for w in range(W)] for n in range(6)], rtol=1e-6)
    happened = simulated(pairs(), live.fixed(3.0), one_slow)
    trace = happened.trace
    assert trace.shape == (6 * K, W) and np.isnan(trace).any() and not np.isinf(trace).any()
    durations = stragglers.sample_durations(stragglers.replay(trace=trace), KEY, len(trace), W)
    schedule = protocols.coded(pairs(), stop=codes.deadline(3.0))(durations)
    np.testing.assert_array_equal(schedule.work, happened.progress)
    np.testing.assert_allclose(np.diff(schedule.time), happened.seconds[1:], rtol=1e-5)


def test_slow_workers_are_named_with_their_slowdown_and_since_when():
    rng = np.random.default_rng(0)
    seconds = rng.uniform(0.95, 1.05, (12, K, W))
    seconds[5:, :, 2] *= 3
    seconds[5:, 1:, 2] = NAN
    seconds[2:7, :, 0] *= 2
    seconds[9, :, 1] *= 50  # once is no spell
    seconds[0, :, 3] = NAN
    first, second = live.slow_spells(seconds)
    assert (first.worker, first.first, first.last) == (0, 2, 6)
    assert (second.worker, second.first, second.last) == (2, 5, None)
    assert first.slowdown == pytest.approx(2, rel=0.06) and second.slowdown == pytest.approx(3, rel=0.06)
    text = live.slow_text([first._replace(slowdown=2.04), second._replace(slowdown=3.0)])
    assert "worker 0: 2.0 times slower in rounds 2 to 6\n" in text
    assert "worker 2: 3.0 times slower since round 5" in text
    assert live.slow_spells(seconds[:, :, 1:2]) == [] and live.slow_text([]) == "slow workers: none"


# One process.


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


def test_bad_input_is_refused():
    task, code = tasks.digits(4), codes.uncoded(1, load=4)
    go = functools.partial(live.train, optimizer=SGD, rng_key=KEY, num_rounds=2)
    for bad in (0, -1.0, NAN):
        with pytest.raises(ValueError, match="seconds must be above 0"):
            live.fixed(bad)
    with pytest.raises(ValueError, match="tolerance must be at least 0"):
        live.adaptive(tolerance=-1.0)
    with pytest.raises(ValueError, match="window must be a whole number at least 1; got 0"):
        live.adaptive(window=0)
    assert exchange.worker_mesh(1).devices.tolist() == jax.devices()[:1]
    with pytest.raises(ValueError, match="the code has 4 workers, and there are 1 processes"):
        go(tasks.digits(8), pairs())
    with pytest.raises(ValueError, match="the code has 4, the task 5. Make the task with num_chunks=4"):
        go(tasks.digits(5), code)
    with pytest.raises(ValueError, match="deadline must be a rule.*got 3.0"):
        go(task, code, deadline=3.0)
    with pytest.raises(ValueError, match="max_residual must be at least 0"):
        go(task, code, max_residual=-1.0)
    with pytest.raises(ValueError, match="num_rounds must be a whole number at least 1"):
        go(task, code, num_rounds=0)
    undecodable = codes.partial(codes.from_matrix(np.ones((4, 1), int)), num_blocks=2, rng_key=KEY)
    with pytest.raises(ValueError, match="residual of at most 0.001; this code leaves 2.* exact"):
        go(task, undecodable, deadline=live.until_decodable())
    with pytest.raises(ValueError, match="residual of at most 1.41; this code leaves 2"):
        go(task, undecodable)
    go(task, undecodable, max_residual=2.1)
    with pytest.raises(ValueError, match="progress must be int\\[4\\]"):
        exchange.exchange(pairs(), SGD, jax.sharding.Mesh(np.array(jax.devices()[:3]), ("workers",))).share(
            np.zeros((3, K), np.float32)
        )


# Several processes.


def start(command):
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
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


def test_two_processes_do_the_engines_rounds_for_the_progress_that_they_made(tmp_path, x64):
    script, port = pathlib.Path(__file__).with_name("live_process.py"), free_port()
    files = [tmp_path / f"{rank}.npz" for rank in range(2)]
    outputs([start([script, str(r), "2", str(port), file]) for r, file in enumerate(files)], timeout=90)
    one, other = (dict(np.load(file).items()) for file in files)
    for name in set(one) - {"seconds"}:
        np.testing.assert_array_equal(one[name], other[name])
    code = codes.partial(codes.from_matrix(np.ones((6, 2), int)), num_blocks=2, rng_key=KEY)
    run = engine_run(tasks.digits(6, batch_size=3, hidden=(5,)), code, one["progress"])
    for i, leaf in enumerate(jax.tree.leaves(run.params)):
        np.testing.assert_allclose(one[f"arr_{i}"], leaf, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(one["loss"], run.info.loss, rtol=1e-9)
    assert (one["progress"] < 6).any() and (one["progress"] > 0).all()
    assert (one["chunk_seconds"][:, 0, 1] >= 0.06).all() and (np.nanmin(one["chunk_seconds"][..., 0]) >= 0.02)


@pytest.mark.slow
def test_four_processes_with_a_slow_one_keep_their_round_time_and_their_loss(tmp_path):
    folder = tmp_path / "out"
    bindings = ("live.num_rounds = 20", "live.stop_seconds = 1.0")
    command = ["-m", "experiments.live", "--out", str(folder)]
    (printed,) = outputs([start([*command, *(p for b in bindings for p in ("--set", b))])], timeout=280)
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
    trace = stragglers.read_trace(folder / "coded-one-slow.csv")
    assert trace.shape == (20 * 8, 4) and 2.5 < np.nanmedian(trace[:, 1]) / np.nanmedian(trace) < 3.5
