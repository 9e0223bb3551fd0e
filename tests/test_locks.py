"""One process at a time writes to a folder, and its death frees it."""

import errno
import fcntl
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gcjax import locks
from tests.test_interrupts import START, interrupted

HOLDING = """
from pathlib import Path
from gcjax import locks
with interrupts.end_on_signals(), locks.lock(Path.cwd()):
    ready()
    time.sleep(1000)
"""


def test_who_holds_it_is_said(tmp_path):
    with locks.lock(tmp_path):
        said = f"{tmp_path} is held by process {os.getpid()} on {socket.gethostname()} since 2"
        with pytest.raises(locks.HeldError, match="One process at a time") as error, locks.lock(tmp_path):
            pass
        assert said in str(error.value)
        with pytest.raises(locks.HeldError), locks.lock(tmp_path):  # who was refused has taken nothing away
            pass
    assert not list(tmp_path.iterdir())
    with locks.lock(tmp_path):
        pass


def test_a_thread_knows_what_it_holds(tmp_path):
    assert not locks.is_held_by_this_thread(tmp_path)
    with locks.lock(tmp_path), ThreadPoolExecutor(1) as other_thread:
        assert locks.is_held_by_this_thread(tmp_path / "." / "x" / "..")
        assert not other_thread.submit(locks.is_held_by_this_thread, tmp_path).result()
    assert not locks.is_held_by_this_thread(tmp_path)


def test_the_death_of_a_process_frees_it(tmp_path):
    command = [sys.executable, "-c", START + HOLDING]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr.readline() == "ready\n"
            with pytest.raises(locks.HeldError, match=f"held by process {process.pid} on"), locks.lock(tmp_path):
                pass
        finally:
            process.kill()
    assert (tmp_path / locks.LOCK_FILE).exists()  # nobody was left to delete it
    with locks.lock(tmp_path):
        pass


def test_a_signal_leaves_no_file(tmp_path):
    assert interrupted(HOLDING, 15, cwd=tmp_path)[0] == 143
    assert not list(tmp_path.iterdir())


def test_a_file_deleted_just_before_it_was_locked_is_not_the_lock(tmp_path, monkeypatch):
    """The holder deletes its file and goes, between the opening and the locking of the next one."""
    flock, opened = fcntl.flock, []

    def slow(descriptor, operation):
        opened.append(descriptor)
        if len(opened) == 1:
            (tmp_path / locks.LOCK_FILE).unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", slow)
    with locks.lock(tmp_path), pytest.raises(locks.HeldError), locks.lock(tmp_path):
        pass
    assert len(opened) == 3


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch):
    def missing(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", missing)
    with pytest.warns(UserWarning, match="has no locks"), locks.lock(tmp_path):
        pass
