"""The experiment that stops processes: its counting, and real processes."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from experiments import watch
from gcjax.watching import WINDOW

HEAD = "worker,unit,seconds,communication,interval,host,stalled\n"


@pytest.fixture
def recorded(tmp_path):
    """A run in which process 1 is late from step 100 to 149, and process 2 in 20 before; called at half seconds."""
    late = np.zeros((300, watch.NUM_PROCESSES))
    late[100:150, 1] = late[60:80, 2] = 0.02
    intervals = 0.01 + late.max(axis=1)
    for worker in range(watch.NUM_PROCESSES):
        lines = [
            f"{worker},{unit},0.01,,{intervals[unit]:.3f},{late[unit, worker]:.3f},0\n" for unit in range(1, len(late))
        ]
        (tmp_path / f"step.0.{worker}.csv").write_text(HEAD + "".join(lines))
        np.save(tmp_path / f"calls.{worker}.npy", np.arange(len(late)) - 0.5)
    return tmp_path


def test_delays_count_from_the_step_that_was_under_way(recorded):
    delays = watch.delays(recorded, [watch.Episode(1, 100.0, 149.0)])
    assert delays.steps[0] <= WINDOW and delays[1:] == (0, 0, 1)
    late = watch.delays(recorded, [watch.Episode(1, 90.0, 149.0)])
    assert late.steps == [delays.steps[0] + 10]


def test_who_is_not_named_and_who_is_named_instead(recorded):
    assert watch.delays(recorded, [watch.Episode(3, 100.0, 149.0)]) == ([None], 0, 1, 0)
    assert watch.delays(recorded, [watch.Episode(2, 75.0, 95.0)]).num_before == 1


def test_a_stopped_process_is_left_running():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        watch.stop_and_continue(process, stopped=0.01, running=0.01, seconds=0.05)
        process.communicate(b"\n", timeout=60)
        assert process.returncode == 0
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("kind", watch.KINDS)
def test_a_process_that_is_stopped_in_turn_is_named(tmp_path, kind):
    folder = tmp_path / kind
    episodes = watch.run(kind, folder, 600, 4, (0.02, 0.02))
    delays = watch.delays(folder, episodes)
    assert len(episodes) >= 2
    assert sum(step is not None and step <= WINDOW for step in delays.steps) + delays.num_before == len(episodes)
    told = json.loads((folder / "told.json").read_text())
    assert {episode.worker for episode in episodes} <= {worker for _, workers in told for worker in workers}


def test_names_count_by_window_and_by_whether_linux_says_the_same(recorded):
    steps = np.arange(300)
    is_late = ((steps >= 60) & (steps < 80)) | ((steps >= 100) & (steps < 150))
    for worker in range(watch.NUM_PROCESSES):
        waits = np.zeros(300)
        waits[100:] = np.minimum(np.arange(200), 50) * 0.02 * (worker == 1)  # of 1, not of 2
        np.save(recorded / f"waits.{worker}.npy", waits)
        np.save(recorded / f"calls.{worker}.npy", np.cumsum(np.where(is_late, 0.03, 0.01)))
    named, persistent, not_said, persistent_not_said = watch.windows_with_names(recorded)
    assert persistent <= named and persistent_not_said <= not_said <= named
    assert {3, 5, 6, 7} <= named and not named & {1, 2, 10, 11, 12, 13}
    assert 3 in not_said and not not_said & {5, 6, 7}
