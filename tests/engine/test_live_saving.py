"""Live training that is cut off and resumed: given the same progress in every round, it ends with the same bits."""

import functools
import itertools
import re
import shutil
import signal
import threading
from functools import partial

import jax
import numpy as np
import optax
import pytest

from gcjax import codes, engine, interrupts, processes, saved_progress, tasks
from gcjax.engine import live
from gcjax.engine.live import saving, training
from gcjax.engine.live.chunk_work import Clock
from tests.devices import devices
from tests.engine.live_simulation import INF, KEY, SGD, K, Simulation, Time, W, pairs
from tests.parameters import one_in, some

NUM_ROUNDS = 5
ADAPTIVE = live.adaptive(tolerance=1.0, window=2)


def uneven(worker, number):
    """Sums of these are exact, so a time does not depend on when the clock was started."""
    return 1.0 + (3 * worker + 5 * number) % 7 / 4


def simulation(rule, num_blocks=1):
    task = tasks.digits(8, batch_size=3, hidden=(5,), dropout=0.3)
    return Simulation(task, pairs(num_blocks), rule, uneven, max_residual=3.0)


def bits(run):
    return [(np.asarray(x).dtype, np.asarray(x).shape, np.asarray(x).tobytes()) for x in jax.tree.leaves(run)]


def cut(folder, to, last):
    """A copy of a folder of checkpoints, as it was when step `last` was the latest."""
    shutil.copytree(folder, to)
    for step in to.iterdir():
        if int(step.name) > last:
            shutil.rmtree(step)
    return to


@pytest.mark.slow
@pytest.mark.parametrize("rule", one_in(2, [ADAPTIVE, live.until_decodable()]))
def test_a_run_that_is_cut_anywhere_ends_with_the_same_bits(tmp_path, rule):
    whole = simulation(rule).run(NUM_ROUNDS)
    rounds = whole[1]
    assert len(set(rounds.deadline.tolist())) > 2 and rounds.deadline[0] == INF and (rounds.progress < K).any()
    with engine.Checkpoints(tmp_path / "all", every=1, keep=NUM_ROUNDS) as checkpoints:
        assert bits(simulation(rule).run(NUM_ROUNDS, checkpoints)) == bits(whole)
    assert sorted(int(step.name) for step in (tmp_path / "all").iterdir()) == [1, 2, 3, 4, 5]
    for last in range(1, NUM_ROUNDS + 1):
        with engine.Checkpoints(cut(tmp_path / "all", tmp_path / str(last), last), every=2) as checkpoints:
            assert bits(simulation(rule).run(NUM_ROUNDS, checkpoints)) == bits(whole)


def test_every_worker_keeps_its_own_seconds_and_64_bits(tmp_path):
    mesh = jax.sharding.Mesh(np.array(devices(W)), ("workers",))
    with engine.Checkpoints(tmp_path, every=2) as checkpoints:
        place = saving.Storage(checkpoints, "", pairs(), 4, mesh, saved_progress.SavedProgress("", 4, list))
        progress, times = np.arange(W, dtype=np.int32), np.full((K, W), np.nan, np.float32)
        happened = live.Round(0.1, INF, 3, progress, 1 / 3, -0.1, times)
        state = saving._checkpoint_arrays(place, saving.TrainingState({}, {}, [happened]))
        assert state["seconds"].shape == (W, 4, 8) and state["seconds"].sharding.spec[0] == "workers"
        saving.save(place, saving.TrainingState({}, {}, [happened]), any_process_stops=False)
        assert not any(tmp_path.glob("[0-9]*"))
        both = saving.TrainingState({}, {}, [happened, happened._replace(seconds=0.2)])
        saving.save(place, both, any_process_stops=False)
        history = saving.restore(place, saving.TrainingState({}, {}, [])).history
    assert [round.seconds for round in history] == [0.1, 0.2]
    assert bits(history[0]) == bits(happened)


# All of `train`, with one worker.


@functools.cache
def task():
    return tasks.digits(5, batch_size=3, hidden=(4,))


CODE = codes.uncoded(1, load=5)


@pytest.fixture
def timed(monkeypatch):
    """A clock on which a chunk takes exactly what the throttle says."""
    monkeypatch.setattr(training, "Clock", lambda: Time().clock())
    monkeypatch.setattr("gcjax.engine.live.chunk_work.MAX_SLEEP", 1e9)
    assert isinstance(training.Clock(), Clock)


class Stop(Exception):
    """Ends a run as a signal would."""


def trained(checkpoints=None, *, stop=None, seen=None, **kwargs):
    def on_round(number, happened, params):
        if seen is not None:
            seen.append(number)
        if number == stop:
            raise Stop

    arguments = {"rng_key": KEY, "num_rounds": 6, "deadline": live.adaptive(window=2), "throttle": uneven}
    arguments |= {"optimizer": SGD}
    return live.train(task(), CODE, on_round=on_round, checkpoints=checkpoints, **{**arguments, **kwargs})


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "left"), some([(3, range(2, 6))], [(0, range(6)), (4, range(4, 6))]))
def test_training_goes_on_from_its_last_checkpoint(tmp_path, timed, stop, left):
    whole, seen = trained(), []
    with engine.Checkpoints(tmp_path, every=2) as checkpoints, pytest.raises(Stop):
        trained(checkpoints, stop=stop)
    (tmp_path / ".seen-by-all-0123").touch()  # left by a process that was killed while the others looked for it
    with engine.Checkpoints(tmp_path, every=2) as checkpoints:
        run = trained(checkpoints, seen=seen)
    assert bits(run) == bits(whole) and len(set(whole.rounds.deadline)) > 2
    assert seen == list(left)


@pytest.fixture
def ended(monkeypatch):
    """As in a command, with what has ended the process instead of an end, and that a signal comes."""
    ends = []
    monkeypatch.setattr(interrupts._signal_state, "saving_seconds", interrupts.SAVING_SECONDS)
    monkeypatch.setattr(interrupts._signal_state, "received_signal", None)
    monkeypatch.setattr(
        interrupts, "_end_process", lambda number: ends.append((number, saved_progress.lost_work_text()))
    )
    return ends


def test_a_signal_saves_the_round_and_ends_the_process(tmp_path, timed, ended):
    """There would be no checkpoint before the end."""

    class Signalled(list):
        def append(self, number):
            super().append(number)
            if number == 2:
                interrupts._signal_state.received_signal = signal.SIGTERM

    seen, rest = Signalled(), []
    with engine.Checkpoints(tmp_path, every=1000, label="a child") as checkpoints:
        trained(checkpoints, seen=seen)
        assert checkpoints.on_disk() == [3]
    said = "a checkpoint was written at 50% of a child, so nothing is lost"
    assert seen == [0, 1, 2] and ended == [(signal.SIGTERM, said)]
    interrupts._signal_state.received_signal = None
    with engine.Checkpoints(tmp_path, every=1000) as checkpoints:
        run = trained(checkpoints, seen=rest)
    assert rest == [3, 4, 5] and len(ended) == 1
    interrupts._signal_state.saving_seconds = {}
    assert bits(run) == bits(trained())


def test_all_save_the_round_in_which_one_is_asked_to_stop(tmp_path, timed, ended, monkeypatch):
    """As one sees it that has no signal: it saves, and goes on until it is ended."""
    asked = iter([False, False, True, False, False, False, False])  # the first before the rounds, to compile it
    monkeypatch.setattr(training.pieces, "stop_requested", lambda training: next(asked))
    seen = []
    with engine.Checkpoints(tmp_path, every=1000, keep=9) as checkpoints:
        trained(checkpoints, seen=seen)
        assert checkpoints.on_disk() == [2, 6]
    assert seen == list(range(6)) and not ended


def test_waiting_for_each_other_between_rounds_counts_to_the_next_round(tmp_path, monkeypatch):
    """All ask each other after each round whether to stop: who is late is waited for there."""
    time, asked = Time(), itertools.count(-1)  # before the rounds, too
    monkeypatch.setattr(training, "Clock", time.clock)
    monkeypatch.setattr("gcjax.engine.live.chunk_work.MAX_SLEEP", 1e9)

    def wait_after_third_round(params):
        time.pass_by(100.0 if next(asked) == 2 else 0.0)
        return False

    seconds_of_each = []
    for stop_requested in (lambda params: False, wait_after_third_round):
        monkeypatch.setattr(training.pieces, "stop_requested", stop_requested)
        with engine.Checkpoints(tmp_path / str(len(seconds_of_each)), every=1000) as checkpoints:
            seconds_of_each.append(trained(checkpoints, throttle=lambda worker, number: 1.0).rounds.seconds)
    np.testing.assert_array_equal(seconds_of_each[1] - seconds_of_each[0], [0, 0, 0, 100, 0, 0])


def test_what_a_round_that_takes_too_long_loses_is_said(tmp_path, timed):
    """Also by a run that has gone on from a checkpoint, and has made none of its own yet."""
    for _ in range(2):
        with engine.Checkpoints(tmp_path, every=2, label="a child") as checkpoints, pytest.raises(Stop):
            trained(checkpoints, stop=4)
        assert re.fullmatch(
            r"lost is the work of \d+ s since the checkpoint at 67% of a child", saved_progress.lost_work_text()
        )


def test_a_finished_run_is_not_trained_again(tmp_path, timed, monkeypatch):
    with engine.Checkpoints(tmp_path, every=4) as checkpoints:
        whole = trained(checkpoints)
    assert sorted(step.name for step in tmp_path.iterdir()) == ["4", "6"]
    monkeypatch.setattr(training, "_train_rounds", None)
    with engine.Checkpoints(tmp_path, every=4) as checkpoints:
        assert bits(trained(checkpoints)) == bits(whole)


def test_checkpoints_of_another_run_are_refused_with_the_difference(tmp_path, timed):
    go = partial(trained, num_rounds=2)
    with engine.Checkpoints(tmp_path, every=1) as checkpoints:
        go(checkpoints, identity="live.load = 5")
    for other, text in (
        ({"identity": "live.load = 6"}, "belongs to another run:[^$]*-live.load = 5\n.*[+]live.load = 6"),
        ({"num_rounds": 3}, "-num_rounds = 2\n.*[+]num_rounds = 3"),
        ({"rng_key": jax.random.key(3)}, "-rng_key = <"),
        ({"max_residual": 2.0}, "[+]max_residual = 2.0"),
        ({"optimizer": optax.sgd(0.7)}, "-computation = <"),
        ({"deadline": live.fixed(0.5)}, "-deadline = .*adaptive.*\n.*[+]deadline = .*fixed.*0.5"),
        ({"deadline": live.adaptive(window=3)}, "[+]deadline = .*'window', .* 3"),
    ):
        with engine.Checkpoints(tmp_path, every=1) as checkpoints, pytest.raises(ValueError, match=text):
            go(checkpoints, **{"identity": "live.load = 5", **other})


def test_another_number_of_workers_is_refused(tmp_path):
    mesh = partial(saving.Storage, code=pairs(), num_rounds=2, progress=saved_progress.SavedProgress("", 2, list))
    names = [
        saving.identity(
            "", code=code, num_rounds=2, rule=ADAPTIVE, residual_bound=0.0, computation="", data=None, rng_key=KEY
        )
        for code in (pairs(), codes.uncoded(2, load=K))
    ]
    workers_mesh = jax.sharding.Mesh(np.array(devices(W)), ("workers",))
    with engine.Checkpoints(tmp_path) as checkpoints:
        happened = live.Round(1.0, INF, 0, np.zeros(W, np.int32), 0.0, 0.0, np.zeros((K, W), np.float32))
        state = saving.TrainingState({}, {}, [happened] * 2)
        saving.save(mesh(checkpoints, names[0], mesh=workers_mesh), state, any_process_stops=False)
    with (
        engine.Checkpoints(tmp_path) as checkpoints,
        pytest.raises(ValueError, match=r"another run:[^$]*-num_workers = 4\n[^$]*[+]num_workers = 2"),
    ):
        saving.restore(mesh(checkpoints, names[1], mesh=workers_mesh), saving.TrainingState({}, {}, []))


# Several processes must agree.


class Group:
    """Threads that stand for processes: what they share, and which of them is the first."""

    def __init__(self, number, monkeypatch):
        self.own, self.barrier = threading.local(), threading.Barrier(number, timeout=30)
        self.number, self.answers, self.ends = number, [None] * number, [None] * number
        monkeypatch.setitem(processes.agree.__globals__, "share", self.share)  # the module has the name of a function
        monkeypatch.setattr(processes, "share", self.share)
        monkeypatch.setattr(processes, "is_first", lambda: self.own.rank == 0)
        monkeypatch.setattr(jax, "process_count", lambda: number)

    def share(self, make):
        try:
            answer = make(), None
        except ValueError as error:
            answer = None, error
        self.barrier.wait()
        self.answers[self.own.rank] = answer
        self.barrier.wait()
        answers = list(self.answers)
        for rank, (_, error) in enumerate(answers):
            if error is not None:
                raise processes.ErrorOnAllProcesses(f"Process {rank}: {error}")
        return [value for value, _ in answers]

    def run(self, work):
        def one(rank):
            self.own.rank = rank
            try:
                self.ends[rank] = work(rank)
            except ValueError as error:
                self.ends[rank] = str(error)

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.ends


def test_a_process_that_does_not_see_the_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "VISIBLE_SECONDS", 0.2)
    shared, own = tmp_path / "shared", tmp_path / "own"
    group = Group(3, monkeypatch)
    assert group.run(lambda rank: saving.check_processes_agree(engine.Checkpoints(shared), "")) == [None] * 3
    assert not any(shared.iterdir())
    for there in (False, True):
        ends = group.run(
            lambda rank: saving.check_processes_agree(engine.Checkpoints(own if rank == 1 else shared), "")
        )
        for end in ends:
            assert "Process 1: all processes must see the output folder" in end and "on a disk that all" in end
        assert not any(shared.iterdir()) and own.exists() == there
        own.mkdir(exist_ok=True)


def test_processes_with_other_checkpoints_are_refused(tmp_path, monkeypatch):
    group = Group(2, monkeypatch)
    ends = group.run(lambda rank: saving.check_processes_agree(engine.Checkpoints(tmp_path, every=1 + rank), "a = 1"))
    assert all("same checkpoints; that of process 1" in end and "+every 2 rounds" in end for end in ends)
    ends = group.run(lambda rank: saving.check_processes_agree(engine.Checkpoints(tmp_path), f"a = {rank}"))
    assert all("-a = 0" in end and "+a = 1" in end for end in ends)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    ends = Group(2, monkeypatch).run(
        lambda rank: saving.check_processes_agree(engine.Checkpoints(tmp_path / "file/x"), "")
    )
    assert all("the folder of the checkpoints must be writable" in end for end in ends)
