"""`gcjax run` that gets SIGINT or SIGTERM: its status, one line, whole files, and the line says how to go on."""

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from matplotlib.image import imread

from tests.cli.test_main import CONFIG, ROOT
from tests.test_interrupts import STATUS, WORDS, default_handlers
from tests.test_resume import assert_same_bits, newest_checkpoints

SETTINGS = "study.num_units = 400\nstudy.num_evals = 40\nstudy.checkpoint_every = 4\n"
# The command with more time for its last checkpoint, as a busy machine may need it; it waits for the signal at one
# moment, so that it is not done before.
WAITING = """
import sys, time
from gcjax import cli, interrupts
from gcjax.engine import Checkpoints

interrupts.SAVING_SECONDS = dict.fromkeys(interrupts.EXIT_STATUS, 90.0)
save, restore, folders = Checkpoints.save, Checkpoints.restore, []

def wait_for_signal():
    while not interrupts.stop_requested():
        time.sleep(0.01)
{moment}
sys.exit(cli.main())
"""
WAITING_AT_CHECKPOINT = WAITING.format(
    moment="""
def save_and_wait(self, step, *rest):
    save(self, step, *rest)
    self.wait()
    if step == 4:
        wait_for_signal()

Checkpoints.save = save_and_wait
"""
)
WAITING_IN_SECOND_TRAINING = WAITING.format(
    moment="""
def restore_and_wait(self, *rest):
    folders.append(self.folder)
    if len(folders) == 2:
        (self.folder.parent / "waits").touch()
        wait_for_signal()
    return restore(self, *rest)

Checkpoints.restore = restore_and_wait
"""
)
NUM_MOMENTS = 3 * int(os.environ.get("GCJAX_FUZZ", "1"))
READERS = {".gin": Path.read_text, ".md": Path.read_text, ".json": lambda path: json.loads(path.read_text())}
READERS |= {".parquet": pq.read_table, ".png": imread}
LINUX = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    file = tmp_path_factory.mktemp("interrupted") / "small.gin"
    file.write_text(CONFIG.replace("study.num_units = 60\n", SETTINGS).replace("'partial': @coded()", "'BSP': @bsp()"))
    return file


def environment(config, *, cached):
    """With compiled programs from a folder, or with the compiler at work."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(config.parent / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    switch = {"JAX_ENABLE_COMPILATION_CACHE": str(cached).lower()}
    return {**os.environ, **cache, **switch, "XLA_FLAGS": "", "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}


def start(arguments, env, program=("-m", "gcjax")):
    command = [sys.executable, *program, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, env=env, text=True, preexec_fn=default_handlers, **pipes)


def wait_until(true, process):
    limit = time.monotonic() + 100
    while not true() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.005)


def in_main(process):
    """Whether it catches SIGTERM, which is the first thing that `gcjax.cli.main` does."""
    line = next(x for x in Path(f"/proc/{process.pid}/status").read_text().splitlines() if x.startswith("SigCgt"))
    return int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1


def end(process, number=None):
    try:
        if number is not None:
            process.send_signal(number)
        out, errors = process.communicate(timeout=200)
    finally:
        process.kill()
    return process.returncode, out, errors


def said(errors):
    """The last line of what was said: no more than a line a scheme comes before it."""
    lines = errors.splitlines()
    assert len(lines) <= 3 and "Traceback" not in errors, errors
    assert all(": done in " in line for line in lines[:-1]), errors
    return lines[-1]


def assert_whole(out):
    """Every file of a run can be read, and none has a name that it would not have in the end."""
    for file in out.iterdir() if out.exists() else ():
        if file.is_file():
            READERS[file.suffix](file)
            assert not file.name.startswith(".")


@LINUX
def test_as_soon_as_the_command_runs(config, tmp_path):
    process = start(["run", config, "--out", tmp_path / "out"], environment(config, cached=False))
    wait_until(lambda: in_main(process), process)
    status, out, errors = end(process, signal.SIGINT)
    assert (status, out) == (130, "")
    assert errors in ("gcjax: interrupted\n", "gcjax: interrupted; start it again\n")


def test_before_anything_is_written_no_folder_is_left(config, tmp_path):
    out = tmp_path / "runs" / "one"
    process = start(["run", config, "--out", out], environment(config, cached=True))
    wait_until((out / ".lock").exists, process)
    status, _, errors = end(process, signal.SIGINT)
    assert status == 130
    if out.exists():  # it was faster than the signal
        assert any(out.iterdir())
    else:
        assert not out.parent.exists() and said(errors).endswith("; there is no checkpoint yet, so start it again")


@pytest.mark.slow
def test_a_run_that_has_a_checkpoint_says_how_to_go_on(config, tmp_path):
    out, alone = tmp_path / "a folder", ["--set", "compare.schemes = {'ASP': @asp()}"]
    env = environment(config, cached=True)
    process = start(["run", config, *alone, "--out", out], env, program=("-c", WAITING_AT_CHECKPOINT))
    wait_until(lambda: any(newest_checkpoints(out).values()), process)
    status, _, errors = end(process, signal.SIGTERM)
    assert status == 143 and not (out / "run.json").exists()
    begin, _, command = said(errors).partition(": gcjax run ")
    assert re.fullmatch(
        r"gcjax: terminated; a checkpoint was written at \d+% of ASP, so nothing is lost; go on with", begin
    )
    assert shlex.split(command) == [str(config), *alone, "--resume", "--out", str(out)]
    status, _, errors = end(start(["run", *shlex.split(command)], env))
    assert status == 0, errors
    assert_whole(out)


@pytest.mark.slow
@pytest.mark.parametrize("number", STATUS, ids=lambda number: number.name)
def test_a_sweep_saves_a_checkpoint_and_says_how_to_go_on(config, tmp_path, number):
    """In the second combination, whose first checkpoint would be its last one."""
    settings = ["--set", "compare.schemes = {'ASP': @asp()}", "--set", "study.checkpoint_every = 1000"]
    command = ["sweep", config, "--over", "study.seed=0,1", *settings]
    env, out, whole = environment(config, cached=True), tmp_path / "out", tmp_path / "whole"
    assert end(start([*command, "--out", whole], env))[0] == 0
    process = start([*command, "--out", out], env, program=("-c", WAITING_IN_SECOND_TRAINING))
    wait_until(lambda: list((out / "study.seed=1").rglob("waits")), process)
    status, _, errors = end(process, number)
    assert status == STATUS[number] and not (out / "sweep.parquet").exists()
    begin, _, going_on = errors.splitlines()[-1].partition(": gcjax ")
    said = rf"gcjax: {WORDS[number]}; a checkpoint was written at \d+% of ASP, so nothing is lost; combinations that .*"
    assert re.fullmatch(said, begin), errors
    status, _, errors = end(start(shlex.split(going_on), env))
    assert status == 0, errors
    assert pq.read_table(out / "sweep.parquet").equals(pq.read_table(whole / "sweep.parquet"))


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("number", STATUS, ids=lambda number: number.name)
def test_at_random_moments(config, tmp_path, number):
    """From the first moment of the command to the last, with the compiler at work; then it goes on as it was told."""
    compiling, cached = (environment(config, cached=which) for which in (False, True))
    whole = tmp_path / "whole"
    assert end(start(["run", config, "--out", whole], cached))[0] == 0  # whose programs the resumed ones take
    begin = time.monotonic()
    assert end(start(["run", config, "--out", tmp_path / "timed"], compiling))[0] == 0
    seconds, moments = time.monotonic() - begin, random.Random(int(number))
    for i in range(NUM_MOMENTS):
        out = tmp_path / str(i)
        process = start(["run", config, "--out", out], compiling)
        wait_until(lambda process=process: in_main(process), process)
        time.sleep(moments.uniform(0, seconds))
        sent = time.monotonic()
        status, _, errors = end(process, number)
        print(i, f"{time.monotonic() - sent:.2f} s", newest_checkpoints(out), errors.splitlines()[-1:])
        assert_whole(out)
        if status == 0:  # it was done before
            assert_same_bits(whole, out)
            continue
        assert status == STATUS[number], errors
        line = said(errors)
        assert line.startswith(f"gcjax: {WORDS[number]}; ")
        if "go on with" in line:
            assert end(start(["run", *shlex.split(line.partition(": gcjax run ")[2])], cached))[0] == 0
            assert_same_bits(whole, out)
        elif "everything was written" in line:
            assert_same_bits(whole, out)
        else:
            assert not any(newest_checkpoints(out).values())
