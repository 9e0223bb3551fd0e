"""Checkpoints of processes that are killed, and of several processes that share a run."""

import json
import os
import random
import socket
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax.engine import checkpoint_files
from gcjax.engine.checkpoint import Checkpoints
from tests.engine import checkpoint_child

FUZZ = int(os.environ.get("GCJAX_FUZZ", "1"))
CHILD = Path(checkpoint_child.__file__)


def grown(step):
    return jax.tree.map(jnp.asarray, checkpoint_child.grown(step))


def bits(tree):
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


def restored(folder, like):
    with Checkpoints(folder) as checkpoints:
        return checkpoints.restore(like, checkpoint_child.IDENTITY)


def kill_while_saving(folder, seconds):
    """Starts a process that saves, kills it after its first save and so many seconds, returns what it had reported."""
    child = subprocess.Popen([sys.executable, str(CHILD), "grow", str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        first = int(child.stdout.readline())
        time.sleep(seconds)
        child.kill()
        return max([first, *map(int, child.stdout.read().split("\n")[:-1])])
    finally:
        child.kill()
        child.communicate(timeout=20)


def check_kills(folder, num_kills):
    like, draw, before = grown(0), random.Random(num_kills), 0
    for _ in range(num_kills):
        reported = kill_while_saving(folder, draw.uniform(0, 0.5))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = restored(folder, like)
        step = found.step if found else 0
        assert step >= max(before, reported)
        assert found is None or bits(found.state) == bits(grown(step))
        before = step


@pytest.mark.slow
def test_kill(tmp_path):
    check_kills(tmp_path, num_kills=1)


@pytest.mark.slow
def test_kill_at_random_moments(tmp_path):
    check_kills(tmp_path, num_kills=6 * FUZZ)


def run_processes(folder, num_processes):
    """Runs processes that share a folder, and returns the step that they restored."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = partial(subprocess.Popen, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # several processes, some of them killed
    children = []
    try:
        for i in range(num_processes):
            arguments = [sys.executable, str(CHILD), "share", str(folder), str(num_processes), str(i), str(port)]
            children.append(start(arguments, env=environment))
        outputs = [child.communicate(timeout=90) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait(timeout=20)
    assert [child.returncode for child in children] == [0] * num_processes, outputs
    (step,) = {out.split("restored ")[1].strip() for out, _ in outputs}
    assert sum("DamagedCheckpointWarning" in err for _, err in outputs) <= 1
    return step


@pytest.mark.slow
def test_two_processes(tmp_path):
    assert run_processes(tmp_path, 2) == "None"
    like = grown(0) | {"empty": jnp.zeros((0, 2))}
    found = restored(tmp_path, like)
    found.state.pop("empty")
    assert bits(found.state) == bits(grown(2))


@pytest.mark.slow
def test_other_numbers_of_processes_and_damage_that_one_of_them_sees(tmp_path):
    assert run_processes(tmp_path, 2) == "None"
    assert run_processes(tmp_path, 4) == "2"
    assert run_processes(tmp_path, 1) == "4"
    for i, step in enumerate((6, 5)):  # the files are shared out: each of the two is checked by another process
        arrays = tmp_path / str(step) / "arrays"
        files = sorted(json.loads((arrays / checkpoint_files.DIGESTS).read_bytes())["body"])
        (arrays / files[i]).write_bytes(b"")
    assert run_processes(tmp_path, 2) == "4"
