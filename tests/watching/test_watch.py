"""`gcjax.watch` around steps of all kinds, in one process; and who hears of what."""

import functools
import os
import re
import shutil
import threading
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gcjax
from gcjax import watching
from gcjax.watching import recorder
from gcjax.watching.detection import WARNING
from gcjax.watching.shared_folder import SharedFolder


@jax.jit
def add(state, x):
    return state + x, (state * x).sum()


@functools.partial(jax.jit, donate_argnums=0)
def replace(state, x):
    return state + x


def num_rows(watched, at_least, timeout=30.0):
    """The steps that are known, once there are so many."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and watched.report().num_steps < at_least:
        time.sleep(0.01)
    return watched.report().num_steps


def python(state, x=2):
    return state + x


@pytest.mark.parametrize("step", [add, python, lambda state, x: None, lambda state, x: {"a": [add(state, x)]}])
def test_results_are_those_of_the_step(step):
    with gcjax.watch(step) as watched:
        for _ in range(5):
            result = watched(jnp.ones(3), x=2.0)
            assert jax.tree.structure(result) == jax.tree.structure(step(jnp.ones(3), x=2.0))
            jax.tree.map(np.testing.assert_array_equal, result, step(jnp.ones(3), x=2.0))
        assert num_rows(watched, 4) == 4
        assert watched.trace().steps.tolist() == [1, 2, 3, 4]


def test_a_step_that_takes_over_its_arguments():
    state = jnp.zeros(5)
    with gcjax.watch(replace) as watched:
        for _ in range(50):
            state = watched(state, 1.0)
        np.testing.assert_array_equal(state, np.full(5, 50.0))
        assert num_rows(watched, 20) >= 20


class Trainer:
    """Its step is watched as a method."""

    def __init__(self, rate):
        self.rate = rate

    @gcjax.watch
    def step(self, x, *, times=1):
        return self.rate * x * times


def test_a_method_can_be_watched():
    slow, fast = Trainer(1), Trainer(2)
    assert [slow.step(3), fast.step(3), fast.step(3, times=2)] == [3, 6, 12]
    assert num_rows(slow.step, 2) == 2 and slow.step.trace().steps.tolist() == [1, 2]
    Trainer.step.close()
    with gcjax.watch(Trainer(4).step) as watched:
        assert watched(2) == 8


def test_a_decorator_above_a_static_method_is_refused():
    with pytest.raises(ValueError, match="got a staticmethod. Write @gcjax.watch below that"):
        gcjax.watch(staticmethod(python))

    class Static:
        step = staticmethod(gcjax.watch(python))

    assert Static().step(1) == 3


def test_exceptions_pass_and_the_record_goes_on():
    def step(number):
        if number == 3:
            raise KeyError("of the step")
        return number

    with gcjax.watch(step) as watched:
        for number in range(8):
            if number == 3:
                with pytest.raises(KeyError, match="of the step"):
                    watched(number)
            else:
                assert watched(number) == number
        num_rows(watched, 5)
        assert watched.trace().steps.tolist() == [1, 2, 4, 5, 6]  # the failed one has no number, and 3 no beginning


def test_the_local_part_is_told_from_the_rest():
    release = threading.Event()

    def step(state, seconds):
        state = watching.local(lambda state: (time.sleep(seconds), state)[1])(state)
        release.wait(0.1)
        return state

    with gcjax.watch(step) as watched:
        for seconds in (0.0, 0.0, 0.3, 0.0):
            watched(jnp.ones(2), seconds)
        num_rows(watched, 3)
        trace = watched.trace()
    assert trace.compute.argmax() == 1 and (trace.communication >= 0.05).all()
    assert (trace.compute[[0, 2], 0] < trace.compute[1, 0] - 0.1).all()


def test_where_the_end_of_the_local_part_is_not_known_nothing_is_said(monkeypatch):
    part = watching.local(lambda state: state)

    def wait(self, output, copies):
        if float(output[0]) == 2.0:  # of the local part of step 2; what steps return is negative
            raise RuntimeError("given away")
        return wait_as_usual(self, output, copies)

    wait_as_usual = gcjax.watching.outputs.Outputs.wait
    monkeypatch.setattr(gcjax.watching.outputs.Outputs, "wait", wait)
    with gcjax.watch(lambda state: -part(state)) as watched:
        for number in range(5):
            watched(jnp.full(3, float(number)))
        num_rows(watched, 3)
        assert watched.trace().steps.tolist() == [1, 3, 4]


def test_local_outside_of_a_watched_step_is_the_function():
    assert watching.local(python)(3) == 5
    assert jax.jit(watching.local(python))(3) == 5
    assert watching.local(python).__name__ == "python"


def test_a_late_call_is_seen_as_time_of_the_host(tmp_path):
    with gcjax.watch(add, folder=tmp_path, report=None) as watched:
        for i in range(6):
            time.sleep(0.05 if i == 4 else 0.0)
            jax.block_until_ready(watched(jnp.ones(3), 1.0))
    host = np.genfromtxt(tmp_path / "step.0.0.csv", delimiter=",", names=True)["host"]
    assert host.argmax() == 3 and host[3] >= 0.04


@pytest.mark.parametrize(
    "wrapped", [gcjax.watch(add), lambda x, y: gcjax.watch(lambda x: watching.local(add)(x, y))(x)]
)
def test_it_cannot_be_compiled_itself(wrapped):
    with pytest.raises(ValueError, match=r"must not be compiled .* gcjax.watch\(jax.jit\(step\)\)"):
        jax.jit(wrapped)(1.0, 2.0)


def test_it_has_the_attributes_and_the_name_of_the_step():
    watched = gcjax.watch(add)
    assert watched.__name__ == "add" and watched.lower(jnp.ones(2), 1.0).compile() is not None
    with pytest.raises(AttributeError):
        _ = watched.nothing


def test_two_at_once_and_one_in_the_other(tmp_path):
    inner = gcjax.watch(add, folder=tmp_path, name="inner", report=None)
    outer = gcjax.watch(lambda state: inner(state, 1.0), folder=tmp_path, name="outer", report=None)
    with inner, outer:
        for _ in range(4):
            outer(jnp.ones(2))
        inner(jnp.ones(2), 1.0)
    for name, steps in (("inner", [1, 2, 3, 4]), ("outer", [1, 2, 3])):
        assert gcjax.stragglers.read_trace(tmp_path / f"{name}.csv").steps.tolist() == steps


def test_after_the_end_the_step_is_called_unrecorded(tmp_path):
    before = set(threading.enumerate())
    watched = gcjax.watch(python, folder=tmp_path, start=7)
    for _ in range(3):
        watched(1)
    watched.close()
    watched.close()
    assert watched(1) == 3
    assert gcjax.stragglers.read_trace(tmp_path / "step.csv").steps.tolist() == [8, 9]
    deadline = time.monotonic() + 10.0
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


def test_nothing_is_started_before_the_first_call(tmp_path):
    watched = gcjax.watch(python, folder=tmp_path / "none")
    assert watched.report().num_steps == 0
    watched.close()
    assert watched(1) == 3 and not list((tmp_path / "none").iterdir())


@pytest.mark.filterwarnings("ignore:os.fork")  # the child does nothing with JAX
def test_a_forked_process_calls_the_step_only(tmp_path):
    watched = gcjax.watch(python, folder=tmp_path, report=None)
    watched(1)
    child = os.fork()
    if not child:
        is_right = watched(1) == 3 and watched.report().num_steps == 0
        watched.close()
        os._exit(0 if is_right else 1)
    assert os.waitpid(child, 0)[1] == 0
    watched(1)
    watched.close()
    assert gcjax.stragglers.read_trace(tmp_path / "step.csv").steps.tolist() == [1]


def other_process(num_steps):
    """Rows of a process 1 that is one second late in every step."""
    return rows_of(1, num_steps)


def rows_of(worker, num_steps):
    """Rows of a process that is one second late in every step."""
    return "".join(f"{worker},{unit},1.5,,1.5,1.0,0\n" for unit in range(1, num_steps + 1))


def test_process_0_tells_who_is_slow(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gcjax.watching.wrapper, "_process_index_and_count", lambda: (0, 2))
    reports = []
    for name, report in (("kept", reports.append), ("printed", watching.print_report)):
        with gcjax.watch(python, folder=tmp_path, name=name, report=report) as watched:
            for _ in range(31):
                watched(1)
            (tmp_path / f"{name}.0.1.csv").write_text(other_process(30))
    assert [verdict.worker for verdict in reports[0].slow] == [1]
    (verdict,) = reports[-1].slow
    assert verdict.is_persistent and verdict.cost > WARNING and verdict.since == 1
    assert "gcjax: step 10, 2 processes, iteration 1500.0 ms: process 1 is slow since step 1" in capsys.readouterr().err


def test_other_processes_tell_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(gcjax.watching.wrapper, "_process_index_and_count", lambda: (1, 2))
    reports = []
    with gcjax.watch(python, folder=tmp_path, report=reports.append) as watched:
        for _ in range(31):
            watched(1)
        (tmp_path / "step.0.0.csv").write_text(re.sub("^1,", "0,", other_process(30), flags=re.MULTILINE))
        num_rows(watched, 30)
        assert [verdict.worker for verdict in watched.report().slow] == [0]
    assert not reports and not (tmp_path / "step.csv").exists()


def test_polling_the_report_makes_nobody_silent(tmp_path, monkeypatch):
    monkeypatch.setattr(gcjax.watching.wrapper, "_process_index_and_count", lambda: (0, 3))
    reports, file = [], tmp_path / "step.0.0.csv"
    with gcjax.watch(python, folder=tmp_path, every=1000.0, report=reports.append) as watched:
        watched(1)
        for num_steps in range(2, 7):
            num_lines, deadline = len(file.read_text().splitlines()), time.monotonic() + 30
            watched(num_steps)
            while len(file.read_text().splitlines()) == num_lines and time.monotonic() < deadline:
                watched.report()
        assert watched.report().silent == ()
        for worker in (1, 2):
            (tmp_path / f"step.0.{worker}.csv").write_text(rows_of(worker, num_steps - 1))
    assert not reports


@pytest.mark.parametrize("worker", [0, 1])
def test_who_is_dead_becomes_silent_while_the_report_is_polled(worker, tmp_path, monkeypatch):
    monkeypatch.setattr(gcjax.watching.wrapper, "_process_index_and_count", lambda: (worker, 2))
    with gcjax.watch(python, folder=tmp_path, every=0.01, report=None) as watched:
        deadline = time.monotonic() + 30
        while watched.report().silent != (1 - worker,) and time.monotonic() < deadline:
            watched(1)
            time.sleep(0.001)
        assert watched.report().silent == (1 - worker,)


def test_the_end_waits_for_the_last_rows_of_all_however_they_come(tmp_path, monkeypatch):
    """Process 0 is through; four others hand in their rows one by one, each while it looks away."""
    workers = iter(range(1, 5))

    def sleep(seconds):
        worker = next(workers)
        (tmp_path / f"step.0.{worker}.csv").write_text(rows_of(worker, 3))

    reports = []
    monkeypatch.setattr(gcjax.watching.wrapper, "_process_index_and_count", lambda: (0, 5))
    monkeypatch.setattr(gcjax.watching.wrapper, "time", types.SimpleNamespace(sleep=sleep))
    with gcjax.watch(python, folder=tmp_path, every=1000.0, report=reports.append) as watched:
        for _ in range(4):
            watched(1)
    trace = gcjax.stragglers.read_trace(tmp_path / "step.csv")
    assert trace.workers == tuple("01234") and not np.isnan(trace.compute).any()
    assert not any(report.silent for report in reports)


def test_the_end_does_not_wait_for_ever_for_who_never_comes(tmp_path, monkeypatch):
    monkeypatch.setattr(gcjax.watching.wrapper, "_process_index_and_count", lambda: (0, 2))
    monkeypatch.setattr(gcjax.watching.wrapper, "CLOSE_SECONDS", 0.2)
    with gcjax.watch(python, folder=tmp_path, every=1000.0, report=None) as watched:
        for _ in range(4):
            watched(1)
    assert gcjax.stragglers.read_trace(tmp_path / "step.csv").workers == ("0",)


def test_what_goes_wrong_beside_the_loop_is_said_and_does_not_end_it(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(gcjax.watching.shared_folder.SharedFolder, "append", lambda *_: 1 / 0)
    watched = gcjax.watch(python, folder=tmp_path, every=0.001)
    said, deadline = "", time.monotonic() + 30
    while "ZeroDivisionError" not in said and time.monotonic() < deadline:
        watched(1)
        time.sleep(0.01)
        said += capfd.readouterr().err
    assert "the record of gcjax.watch is not whole: ZeroDivisionError" in said
    watched(1)
    watched.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"step": 3}, "step must be callable; got 3"),
        ({"report": 3}, "report must be a function of one report, or None; got 3"),
        ({"name": "a/b"}, "name must be part of a file's name"),
        ({"name": 3}, "name must be part of a file's name, .*; got 3"),
        ({"waits": "no"}, "waits must be True or False; got 'no'"),
        ({"every": 0.0}, "every must be above 0 and finite; got 0"),
        ({"start": -1}, "start must be a whole number at least 0; got -1"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        gcjax.watch(**{"step": python, **arguments})


def test_the_first_calls_may_come_from_several_threads_at_once(tmp_path):
    starts, problems = threading.Barrier(8), []

    def calls(watched):
        starts.wait()
        try:
            for _ in range(5):
                watched(1.0)
        except ValueError as error:
            problems.append(error)

    for repetition in range(20):
        with gcjax.watch(python, folder=tmp_path / str(repetition)) as watched:
            threads = [threading.Thread(target=calls, args=(watched,)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not problems
            assert num_rows(watched, 39) == 39  # the first step is left out


def test_rows_that_could_not_be_written_are_written_later(tmp_path, monkeypatch):
    """The disk is full for a while; then the folder is gone."""
    folder = tmp_path / "watch"
    append, is_full = SharedFolder.append, True

    def full(self, rows):
        """Raises what a full disk does, as long as it is full."""
        if is_full:
            raise OSError(28, "No space left on device")
        append(self, rows)

    monkeypatch.setattr(SharedFolder, "append", full)
    with gcjax.watch(add, folder=folder, every=1000.0, report=None) as watched:
        for _ in range(4):
            jax.block_until_ready(watched(jnp.zeros(2), 1.0))
        with pytest.raises(OSError, match="No space"):
            num_rows(watched, 3)  # the rows come from another thread
        is_full = False
        assert num_rows(watched, 3) == 3  # the first step is left out
        shutil.rmtree(folder)
        for _ in range(3):
            jax.block_until_ready(watched(jnp.zeros(2), 1.0))
        assert num_rows(watched, 6) == 6
    assert gcjax.stragglers.read_trace(folder / "step.csv").steps.tolist() == [4, 5, 6]


@pytest.mark.parametrize(
    ("step_seconds", "pause"), [(0.01, 0.001), (1.0, 0.002), (np.inf, 0.0), (np.nan, 0.0), (-1.0, 0.0)]
)
def test_the_thread_looks_away_for_a_tenth_of_a_step_at_most(step_seconds, pause):
    assert recorder._pause(step_seconds) == pytest.approx(pause)
