"""A signal lets a run in pieces save a checkpoint; the last line says what is lost; it goes on with the same bits."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gcjax import saved_progress
from gcjax.engine import Checkpoints
from tests.test_interrupts import STATUS, WORDS, default_handlers

ROOT = Path(__file__).parents[2]
STOPPED = r"gcjax: (\w+); a checkpoint was written at (\d+)% of a child, so nothing is lost"


def child(folder, every, seconds, *numbers):
    """Its status, the lines that it printed and its last word, if it gets signals after its third piece."""
    command = [sys.executable, "-m", "tests.engine.interrupted_child", str(folder), str(every), str(seconds)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "preexec_fn": default_handlers}
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "XLA_FLAGS": ""}, **pipes) as process:
        try:
            lines = []
            while numbers and len(lines) < 3:
                lines.append(process.stdout.readline().strip())
                assert lines[-1].startswith("ready"), process.communicate()
            for number in numbers:
                process.send_signal(number)
            out, errors = process.communicate(timeout=100)
        finally:
            process.kill()
    return process.returncode, [*lines, *out.splitlines()], errors


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    status, lines, errors = child(tmp_path_factory.mktemp("whole"), 1000, 0)
    assert status == 0, errors
    return lines[-1]


def signalled_step(folder, number):
    """The step whose checkpoint a signal has left; there would be none before the end."""
    status, lines, errors = child(folder, 1000, 0.2, number)
    assert status == STATUS[number], errors
    word, percent = re.fullmatch(STOPPED, errors.strip()).groups()
    step = int(lines[-1].removeprefix("ready "))
    assert word == WORDS[number] and int(percent) == 2 * step < 100
    assert Checkpoints(folder).on_disk() == [step]
    return step


def test_the_first_signal_saves(tmp_path):
    signalled_step(tmp_path, signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("number", STATUS, ids=lambda number: number.name)
def test_after_the_first_signal_nothing_is_lost(tmp_path, whole, number):
    step = signalled_step(tmp_path, number)
    status, lines, errors = child(tmp_path, 1000, 0)
    assert status == 0, errors
    assert lines[0] == f"ready {step + 1}" and lines[-1] == whole


@pytest.mark.slow
def test_what_a_piece_that_takes_too_long_loses_is_said(tmp_path, whole):
    """The second signal is the impatient one."""
    status, _, errors = child(tmp_path, 2, 1.0, signal.SIGINT, signal.SIGTERM)
    assert status in STATUS.values()
    assert re.fullmatch(r"gcjax: (\w+); lost is the work of \d+ s since the checkpoint at 4% of a child\n", errors)
    assert Checkpoints(tmp_path).on_disk() == [2]
    assert child(tmp_path, 2, 0)[1][-1] == whole


def test_what_is_lost_before_the_first_checkpoint(tmp_path):
    work = saved_progress.SavedProgress("ASP", 10, Checkpoints(tmp_path).on_disk)
    assert saved_progress.lost_work_text() == work.lost_work_text() == "lost is the work of 0 s on ASP"
    work.record_stop()
    assert saved_progress.lost_work_text() == "lost is the work of 0 s on ASP"
    saved_progress.forget_run()
    assert not saved_progress.lost_work_text()
