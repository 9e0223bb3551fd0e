"""SIGINT and SIGTERM: the process ends soon, with its status and one line, whatever it is doing."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.parameters import one_in, some

ROOT = Path(__file__).parent.parent

# The package without what its __init__ imports, which takes seconds.
START = f"""
import contextlib, ctypes, os, signal, sys, threading, time, types
package = types.ModuleType("gcjax")
package.__path__ = [{str(ROOT / "gcjax")!r}]
sys.modules["gcjax"] = package
from gcjax import files, interrupts

def ready():
    os.write(2, b"ready\\n")
"""
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
BOTH = pytest.mark.parametrize("number", STATUS, ids=lambda number: number.name)
ONE = pytest.mark.parametrize("number", one_in(2, STATUS), ids=lambda number: number.name)


def default_handlers():
    """As a shell starts a command in the foreground, whatever started these tests."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(code, **options):
    command = [sys.executable, "-c", START + code]
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    return subprocess.Popen(
        command, env=buffered, stderr=subprocess.PIPE, text=True, preexec_fn=default_handlers, **options
    )


def interrupted(code, *numbers, pause=0.0, **options):
    """How a program ends that gets signals, with pauses between, when it has said that it is ready."""
    with started(code, **options) as process:
        try:
            assert process.stderr.readline() == "ready\n"
            for number in numbers:
                process.send_signal(number)
                time.sleep(pause)
            out, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, out, errors


IN_C = "ctypes.PyDLL(None).usleep(100_000); ctypes.CDLL(None).sleep(1000)"  # the first holds Python's lock
SWALLOWING = """
while True:
    with contextlib.suppress(BaseException):
        time.sleep(1000)
"""
IN_A_CALLBACK = "ctypes.CFUNCTYPE(None)(lambda: time.sleep(1000))()"
HOLDING_STDOUT = "sys.stdout.write('x' * 10**7)"  # nobody reads the pipe
WITHOUT_END = "threading.Event().wait()"


@ONE
@pytest.mark.parametrize("work", some([IN_C, SWALLOWING, HOLDING_STDOUT], [IN_A_CALLBACK, WITHOUT_END]))
def test_it_ends_whatever_it_is_doing(number, work):
    options = {"stdout": subprocess.PIPE} if work is HOLDING_STDOUT else {}
    code = f"with interrupts.end_on_signals():\n    ready()\n    exec({work!r})"
    with started(code, **options) as process:
        try:
            assert process.stderr.readline() == "ready\n"
            time.sleep(0.3)  # until it is in the middle of it
            process.send_signal(number)
            assert process.wait(timeout=60) == STATUS[number]
            assert process.stderr.read() == f"gcjax: {WORDS[number]}\n"
        finally:
            process.kill()


@BOTH
def test_it_says_how_to_go_on_after_what_was_printed(number):
    code = (
        "with interrupts.end_on_signals():\n    print('said', end='')\n    interrupts.set_advice(lambda: '; go on')\n"
    )
    status, out, errors = interrupted(code + "    ready()\n    time.sleep(1000)", number, stdout=subprocess.PIPE)
    assert (status, out, errors) == (STATUS[number], "said", f"gcjax: {WORDS[number]}; go on\n")


def test_bad_advice_and_bad_last_actions_do_not_stop_it():
    code = "with interrupts.end_on_signals(), interrupts.before_end(lambda: 1 / 0):\n"
    code += "    interrupts.set_advice(lambda: 1 / 0)\n"
    code += "    ready()\n    time.sleep(1000)"
    assert interrupted(code, signal.SIGINT)[::2] == (130, "gcjax: interrupted\n")


@pytest.mark.parametrize(("until_exit", "status"), [(True, 130), (False, -signal.SIGINT)])
def test_after_the_block(until_exit, status):
    """While a program of its own goes down, it is still covered; a caller's handlers come back."""
    code = f"with interrupts.end_on_signals(until_exit={until_exit}):\n    pass\nready()\ntime.sleep(1000)"
    assert interrupted(code, signal.SIGINT)[0] == status


@ONE
def test_a_command_that_is_over_keeps_its_status(number):
    """In the end Python gives signals back, while libraries of C++ still clean up: here, one that waits for stdin."""
    code = """
import atexit
libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.getchar, None, None)
atexit.register(ready)  # the last that Python does
with interrupts.end_on_signals(until_exit=True):
    pass
"""
    assert interrupted(code, number, pause=0.5, stdin=subprocess.PIPE)[::2] == (0, "")


def test_what_is_started_to_ignore_a_signal_ignores_it():
    code = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code += "with interrupts.end_on_signals():\n    ready()\n    time.sleep(1000)"
    assert interrupted(code, signal.SIGINT, signal.SIGTERM, pause=0.2)[0] == 143


def test_in_a_block_of_grace_a_loop_saves_what_it_has():
    code = """
with interrupts.end_on_signals(), interrupts.grace_period(interrupts.SAVING_SECONDS):
    ready()
    while not interrupts.stop_requested():
        time.sleep(0.01)
    os.write(2, b"saved\\n")
"""
    assert interrupted(code, signal.SIGTERM)[::2] == (143, "saved\ngcjax: terminated\n")


@pytest.mark.parametrize(("seconds", "numbers"), [(0.3, 1), (1000, 2)])
def test_grace_has_an_end(seconds, numbers):
    code = f"with interrupts.end_on_signals(), interrupts.grace_period({{signal.SIGINT: {seconds}}}):\n    ready()\n"
    code += f"    exec({SWALLOWING!r})"
    assert interrupted(code, *[signal.SIGINT] * numbers, pause=0.2)[::2] == (130, "gcjax: interrupted\n")


def test_a_signal_without_grace_ends_at_once_also_in_a_block_for_the_other():
    code = "with interrupts.end_on_signals(), interrupts.grace_period({signal.SIGINT: 1000}):\n    ready()\n"
    code += f"    exec({SWALLOWING!r})"
    assert interrupted(code, signal.SIGTERM)[::2] == (143, "gcjax: terminated\n")


@BOTH
def test_a_file_that_is_being_written_is_there_as_before_or_not_at_all(tmp_path, number):
    code = """
files.write_text("old", "as before")
with interrupts.end_on_signals(), files.atomic_write("old") as old, files.atomic_write("new.png") as new:
    old.write_text("half")
    new.write_text("half")
    assert new.suffix == ".png"
    ready()
    time.sleep(1000)
"""
    assert interrupted(code, number, cwd=tmp_path)[0] == STATUS[number]
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"old": "as before"}


def test_the_cursor_is_shown_again_on_a_terminal():
    leader, follower = pty.openpty()
    code = "with interrupts.end_on_signals():\n    os.write(1, b'\\x1b[?25l 10 %')\n    ready()\n    time.sleep(1000)"
    status, _, errors = interrupted(code, signal.SIGINT, stdout=follower)
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # the error is the end of what was written
        while part := os.read(leader, 1000):
            shown += part
    os.close(leader)
    assert (status, errors) == (130, "gcjax: interrupted\n")
    assert shown.endswith(b"10 %\r\x1b[2K\x1b[?25h")


def test_a_person_at_a_terminal_is_told_what_time_is_for():
    code = "interrupts.os.isatty = lambda file: True\nwith interrupts.end_on_signals():\n"
    code += "    with interrupts.grace_period({signal.SIGINT: 0.3}, purpose='parting'):\n"
    code += "        ready()\n        time.sleep(99)"
    status, _, errors = interrupted(code, signal.SIGINT)
    assert status == 130
    assert "gcjax: parting, for at most 0.3 s; again to end at once\n" in errors
