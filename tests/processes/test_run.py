"""`gcjax run --distributed` with real processes on this machine."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.parameters import one_in
from tests.processes.commands import ROOT, free_port, group

ENDLESS = ("--set", "rounds.num_rounds = 1000000", "--set", "rounds.pause = 0.01")
PAUSING = ("--set", "rounds.pause = 0.3")


def check_refused(ends, *parts):
    """Status 2, no traceback, and what every process says."""
    for rank, end in ends.items():
        assert end.status == 2, (rank, end)
        assert end.stderr.startswith("gcjax: ")
        assert "Traceback" not in end.stderr
        assert all(part in end.stderr for part in parts), (rank, end)


def check_lost(ends, lost, seconds, how="was lost"):
    """Status 3 and a message that names the lost process, in all others, in time."""
    for rank, end in ends.items():
        if rank != lost:
            assert end.status == 3, (rank, end)
            assert end.stderr.startswith(f"gcjax: process {lost} {how}"), (rank, end)
            assert "--resume" in end.stderr
            assert "stack trace" not in end.stderr  # JAX's own end
            assert end.seconds < seconds, (rank, end)


@pytest.mark.slow
@pytest.mark.parametrize("number", one_in(2, [2, 4]))
def test_a_run_gives_the_right_result_and_only_process_0_prints_and_writes(tmp_path, number):
    out = "out" if number == 2 else None
    with group(tmp_path, number, out=out) as started:
        ends = started.end()
    assert {rank: (end.status, end.stderr) for rank, end in ends.items()} == dict.fromkeys(range(number), (0, ""))
    (folder,) = (tmp_path / "runs").iterdir() if out is None else (tmp_path / out,)
    assert float((folder / "total").read_text()) == 10 * number * (number + 1) / 2
    assert {f"seen{rank}" for rank in range(number)} <= {file.name for file in folder.iterdir()}
    assert ends[0].stdout.splitlines()[-3:] == [
        "printed by the experiment",
        f"True {float((folder / 'total').read_text())}",
        f"Written to {folder.relative_to(tmp_path)}",
    ]
    assert all(end.stdout == "" for rank, end in ends.items() if rank)


@pytest.mark.slow
def test_different_configs_end_all_with_the_difference(tmp_path):
    with group(tmp_path, 3, own={2: ["--set", "rounds.num_rounds = 11"]}) as started:
        ends = started.end()
    parts = ("same config; that of process 2", "-rounds.num_rounds = 10", "+rounds.num_rounds = 11")
    check_refused(ends, *parts)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_what_one_process_objects_to_ends_all(tmp_path):
    with group(tmp_path, 2, own={1: ["--set", "rounds.num_round = 11"]}) as started:
        ends = started.end()
    check_refused(ends, "rounds has no parameter 'num_round'. Did you mean num_rounds?")
    assert ends[0].stderr.startswith("gcjax: Process 1: ")


@pytest.mark.slow
def test_a_folder_that_is_not_empty_ends_all(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "something").touch()
    with group(tmp_path, 2) as started:
        check_refused(started.end(), "must be new or empty")


@pytest.mark.slow
def test_an_error_of_all_is_shown_by_all(tmp_path):
    with group(tmp_path, 3, "--set", "rounds.bad = 'all'", "--set", "rounds.error = 'too few'") as started:
        check_refused(started.end(), "gcjax: too few")


@pytest.mark.slow
def test_processes_that_do_not_come_are_named_after_the_time_out(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        group(tmp_path / "a", 3, "--timeout", "2", ranks=[1]) as alone,
        group(tmp_path / "b", 3, "--timeout", "2", ranks=[0]) as waiting,
    ):
        member, first = alone.end(), waiting.end()
    check_refused(member, "process 0 at 127.0.0.1:", "must be reachable within 2 s")
    check_refused(first, "must reach process 0 at 127.0.0.1:", "missing: process 1, 2")


def connection(port, host="127.0.0.1", seconds=60.0):
    """Connects as soon as somebody listens."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection((host, port))
        except OSError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.05)


@pytest.mark.slow
def test_a_stranger_is_counted_and_only_the_interface_of_the_coordinator_is_open(tmp_path, monkeypatch):
    monkeypatch.setenv("GCJAX_SECRET", secrets.token_hex())
    port = free_port()
    with group(tmp_path, 2, *PAUSING, ranks=[0], port=port) as first:
        with connection(port) as stranger:
            stranger.sendall(b'{"process": 1, "of": 2}\n')
            while stranger.recv(1000):
                pass
        with group(tmp_path, 2, *PAUSING, ranks=[1], port=port) as other:
            first.wait_for_round(2)
            connection(port).close()  # JAX's service
            with pytest.raises(OSError):
                connection(port, "127.0.0.2", seconds=0.0)
            ends = {**first.end(), **other.end()}
    assert {end.status for end in ends.values()} == {0}
    assert ends[1].stderr == ""
    assert ends[0].stderr == (
        "gcjax: 1 connection was closed that did not prove to belong to the group, the last from 127.0.0.1.\n"
    )


@pytest.mark.slow
def test_a_process_with_another_secret_stays_outside(tmp_path):
    files = [tmp_path / name for name in ("one", "other")]
    for file in files:
        file.write_text(secrets.token_hex())
    own = {rank: ["--secret-file", str(file)] for rank, file in enumerate(files)}
    with group(tmp_path, 2, "--timeout", "5", own=own) as started:
        ends = started.end()
    check_refused(ends)
    assert "missing: process 1" in ends[0].stderr and "did not prove to belong to the group" in ends[0].stderr
    assert "do all have the same secret?" in ends[1].stderr
    assert all(file.read_text() not in ends[0].stderr + ends[1].stderr for file in files)


@pytest.mark.slow
@pytest.mark.parametrize("lost", one_in(2, [2, 0]))
def test_a_killed_process_ends_the_others_at_once(tmp_path, lost):
    with group(tmp_path, 3, *ENDLESS) as started:
        started.wait_for_round(3)
        started.processes[lost].kill()
        ends = started.end()
    assert ends[lost].status == -signal.SIGKILL
    check_lost(ends, lost, seconds=5)  # a fraction of a second where nothing else runs


@pytest.mark.slow
def test_a_suspended_process_is_not_lost_and_sigterm_ends_one(tmp_path):
    with group(tmp_path, 2, *ENDLESS) as started:
        for rank in (1, 0):
            started.wait_for_round(started.round() + 3)
            started.suspend(rank, 2.0)
        started.wait_for_round(started.round() + 3)
        started.processes[1].terminate()
        ends = started.end()
    assert ends[1].status == 143
    assert ends[1].stderr.startswith("gcjax: terminated; ") and ends[1].stderr.count("\n") == 1
    check_lost(ends, lost=1, seconds=10, how="ended with an error: interrupted")


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 2])
def test_a_silent_process_is_lost_after_a_while(tmp_path, lost):
    with group(tmp_path, 3, *ENDLESS, "--lost-after", "3") as started:
        started.wait_for_round(3)
        started.suspend(lost)
        ends = started.end(without=[lost])
        assert min(end.seconds for end in ends.values()) > 2
        check_lost(ends, lost, seconds=12)
        started.processes[lost].send_signal(signal.SIGCONT)
        assert started.end()[lost].status == 3  # it finds the others gone


@pytest.mark.slow
@pytest.mark.parametrize("bad", [0, 2])
def test_an_error_in_one_process_ends_the_others(tmp_path, bad):
    with group(tmp_path, 3, "--set", f"rounds.bad = {bad}", "--set", "rounds.error = 'boom'") as started:
        ends = started.end()
    assert ends[bad].status == 1
    assert "gcjax: unexpected RuntimeError: boom" in ends[bad].stderr
    check_lost(ends, bad, seconds=60, how="ended with an error: RuntimeError: boom")


@pytest.mark.slow
def test_ctrl_c_in_one_process_ends_all(tmp_path):
    with group(tmp_path, 2, *ENDLESS) as started:
        started.wait_for_round(3)
        started.processes[0].send_signal(signal.SIGINT)
        ends = started.end()
    assert ends[0].status == 130
    assert ends[0].stderr == "gcjax: interrupted; there is no checkpoint to resume, so empty out and start it again\n"
    check_lost(ends, 0, seconds=10, how="ended with an error: interrupted")


LEAVING = """
import jax, os, signal, sys, time
from gcjax import interrupts, processes

def interrupted_shutdown():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)
    print("shut down", flush=True)

jax.distributed.initialize, jax.distributed.shutdown = lambda *args, **options: None, interrupted_shutdown
with interrupts.end_on_signals(), processes.group(coordinator="127.0.0.1:9", num_processes=1, process_id=0):
    pass
"""


LEFT_ALONE = """
import jax, time
from gcjax import processes

jax.distributed.initialize, jax.distributed.shutdown = lambda *args, **options: None, lambda: time.sleep(1000)
with processes.group(coordinator="127.0.0.1:9", num_processes=1, process_id=0, lost_after=1.0):
    pass
"""


def test_who_waits_in_vain_for_the_others_to_part_ends():
    """One was killed at the very end; JAX's own watch would end the others after 100 seconds."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", LEFT_ALONE]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 3
    assert ended.stderr.startswith("gcjax: another process was lost when all were done")


def test_ctrl_c_at_the_very_end_waits_until_the_processes_have_parted():
    """The others would wait for who has left, for the 100 seconds of JAX's own watch."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run([sys.executable, "-c", LEAVING], env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "shut down\n", "gcjax: interrupted\n")
