"""Workers as processes of this machine: they do their work, their errors are shown, and none is left behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import chex
import jax
import numpy as np
import pytest

from gcjax import parameter_server, protocols
from gcjax.parameter_server import launch
from tests.parameter_server import targets
from tests.parameter_server.runs import NUM_WORKERS, replay, setup


def ssp_setup():
    return setup(protocols.ssp(staleness=2))


def asp_setup():
    return setup(protocols.asp())


def paced(worker, unit):
    return 0.01


def killed_once(worker, unit):
    """Worker 1 is killed in its fifth unit; the process after it begins with a later one."""
    if worker == 1 and unit == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0.02


def asp_setup_of_all_but_one():
    """The process of worker 1 is killed before it has joined."""
    if multiprocessing.current_process().name == "worker-1":
        os.kill(os.getpid(), signal.SIGKILL)
    return asp_setup()


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_processes_return_what_they_have_made():
    with launch.processes(targets.one_number, {3: {"number": 30}}) as children:
        assert children.join(60)
    assert children.results[3]["number"] == 30 and children.results[3]["pid"] != os.getpid()


def test_an_error_is_shown_and_raised(capsys):
    calls = []
    with (
        pytest.raises(launch.WorkerError, match="worker 2: there is nothing to find"),
        launch.processes(targets.nothing_to_find, {2: {}}, on_error=lambda: calls.append(1)) as children,
    ):
        assert children.join(60)
    assert "worker 2: there is nothing to find" in capsys.readouterr().err and calls == [1]


@pytest.mark.slow
def test_what_is_more_than_a_pipe_takes_is_returned_and_the_end_of_all_by_signals_is_an_error(capsys):
    count, calls = 20_000, []
    with launch.processes(targets.many_numbers, {0: {"count": count}}) as children:
        assert children.join(60)
    assert children.results == {0: list(range(count))}
    with (
        pytest.raises(launch.WorkerError, match="all workers: signals have ended them"),
        launch.processes(targets.killed_at_first, {0: {}, 1: {}}, on_error=lambda: calls.append(1)) as children,
    ):
        assert children.join(60)
    assert calls == [1] and "all workers" in capsys.readouterr().err


def test_no_processes_are_no_error():
    """As of the server's process, where each worker is started elsewhere."""
    calls = []
    with launch.processes(targets.endless, {}, on_error=lambda: calls.append(1)) as children:
        assert children.join(5)
    assert calls == [] and children.results == {}


def test_a_process_knows_that_it_was_started_again():
    with launch.processes(targets.killed_at_first, {0: {}}, restart=True) as children:
        assert children.join(100)
    assert children.results == {0: "alive"} and children.num_restarts == 1


def test_none_is_left_behind_when_this_one_raises():
    with pytest.raises(ZeroDivisionError), launch.processes(targets.endless, {0: {}, 1: {}}) as children:
        pids = [child.process.pid for child in children._children.values()]
        children.send_signal(0, signal.SIGSTOP)  # one that is stopped is ended too
        assert all(map(is_alive, pids))
        _ = 1 / 0
    assert not any(map(is_alive, pids))


PARENT = """
import os, signal
from gcjax.parameter_server import launch
from tests.parameter_server import targets
if __name__ == "__main__":
    with launch.processes(targets.endless, {0: {}}) as children:
        print(children._children[0].process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_none_is_left_behind_when_this_one_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], env=environment, stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while is_alive(int(done.stdout)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(int(done.stdout))


@pytest.mark.parametrize(
    ("target", "arguments", "words"),
    [
        (lambda: 0, {}, "must be one that can be imported|told what it can make itself"),
        (targets.one_number, {"number": np.zeros(100_000)}, "must take at most 65536 bytes; got 8"),
    ],
)
def test_what_cannot_go_to_a_process_is_refused(target, arguments, words):
    with pytest.raises(ValueError, match=words), launch.processes(target, {0: arguments}):
        pass


@pytest.mark.slow
def test_a_run_with_processes_is_kept_and_can_be_replayed(tmp_path):
    limits = parameter_server.Limits(30, seconds=60.0)
    run = launch.local_run(ssp_setup, limits, throttle=paced, checkpoints=tmp_path)
    kept = parameter_server.load_run(ssp_setup(), tmp_path)
    assert len(run.loss) == 30 and (kept.loss == run.loss).all()
    assert protocols.check(run.schedule, protocols.ssp(staleness=2).specification(NUM_WORKERS))
    chex.assert_trees_all_close(run.params, replay(protocols.ssp(staleness=2), run).params, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_started_again():
    limits = parameter_server.Limits(10**6, seconds=100.0, lease=5.0)
    server = parameter_server.Server(asp_setup(), limits)

    def stop_after_the_return():
        while not any(change.change == "came back" for change in server.memberships):
            time.sleep(0.05)
        time.sleep(1.0)
        server.stop()

    threading.Thread(target=stop_after_the_return, daemon=True).start()
    numbers = range(NUM_WORKERS)
    with launch.workers(asp_setup, server.address, numbers, throttle=killed_once, restart=True) as children:
        run = server.run()
    assert children.num_restarts == 1
    changes = [(change.worker, change.change) for change in run.memberships if change.worker == 1]
    assert changes == [(1, "joined"), (1, "left"), (1, "came back")]
    record = jax.device_get(run.schedule)
    assert record.unit[record.worker == 1].max() > 6 and 5 not in record.unit[record.worker == 1]


@pytest.mark.slow
def test_an_error_of_a_worker_ends_the_run():
    with pytest.raises(launch.WorkerError, match=r"worker \d: boom"):
        launch.local_run(ssp_setup, parameter_server.Limits(10, seconds=60.0), throttle=broken)


def broken(worker, unit):
    raise ValueError("boom")


def test_the_end_of_one_that_is_needed_by_a_signal_is_an_error():
    with (
        pytest.raises(launch.WorkerError, match="worker 1: signal 9 has ended it"),
        launch.processes(targets.killed_at_first, {1: {}}, is_needed=lambda number: number == 1) as children,
    ):
        assert children.join(60)


@pytest.mark.slow
def test_a_run_that_cannot_begin_without_a_worker_that_is_killed_ends():
    with pytest.raises(launch.WorkerError, match="worker 1: signal 9 has ended it, and the others cannot go on"):
        launch.local_run(asp_setup_of_all_but_one, parameter_server.Limits(10, join_seconds=200.0))


@pytest.mark.slow
def test_a_run_begins_without_a_worker_that_is_killed_if_the_others_are_enough():
    limits = parameter_server.Limits(10, seconds=100.0, min_workers=NUM_WORKERS - 1)
    run = launch.local_run(asp_setup_of_all_but_one, limits, throttle=paced)
    assert len(run.loss) == 10 and 1 not in np.asarray(run.schedule.worker)
