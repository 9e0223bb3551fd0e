"""The live experiment in two processes: one is killed, all are started again, and every round is recorded."""

import json
import shutil
import time

import jax
import numpy as np
import optax
import pytest

from gcjax import codes, engine, saved_progress, stragglers, tasks
from gcjax.engine import checkpoint_files
from gcjax.engine.live import saving
from tests.devices import devices
from tests.processes.commands import ROOT, group

NUM_ROUNDS, LOAD = 15, 2
CONFIG = f"""
include '{ROOT}/configs/live.gin'
live.load = {LOAD}
live.num_rounds = {NUM_ROUNDS}
live.stop_seconds = 0.3
live.checkpoint_every = 3
"""
SECOND = "checkpoints/uncoded/one slow"


def steps(folder):
    return sorted(int(step.name) for step in folder.glob("[0-9]*") if step.name.isdigit())


def history(folder):
    """The rounds of the newest checkpoint, read in one process."""
    code, step = codes.uncoded(2, load=LOAD), steps(folder)[-1]
    task = tasks.digits(code.assignment.num_chunks)
    mesh = jax.sharding.Mesh(np.array(devices(2)), ("workers",))
    params = jax.device_put(
        task.init(jax.random.key(0)), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    )
    identity = checkpoint_files.read_record(folder / str(step))["identity"]
    with engine.Checkpoints(folder) as checkpoints:
        work = saved_progress.SavedProgress("the copy", NUM_ROUNDS, checkpoints.on_disk)
        place = saving.Storage(checkpoints, identity, code, NUM_ROUNDS, mesh, work)
        return saving.restore(place, saving.TrainingState(params, optax.sgd(0.1).init(params), [])).history


@pytest.mark.slow
def test_a_killed_worker_and_a_restart_lose_no_round(tmp_path):
    out = tmp_path / "out"
    with group(tmp_path, 2, config=CONFIG) as started:
        while not steps(out / SECOND):
            assert time.monotonic() - started.since < 200 and started.processes[0].poll() is None, started.end()
            time.sleep(0.02)
        started.processes[1].kill()
        end = started.end(120)[0]
    assert end.status == 3 and "process 1 was lost" in end.stderr and not (out / "live.json").exists()
    done = json.loads((out / "checkpoints/uncoded-nobody-slow.json").read_text())["body"]["row"]
    shutil.copytree(out / SECOND, tmp_path / "cut")
    before = history(tmp_path / "cut")
    assert 3 <= len(before) < NUM_ROUNDS
    with group(tmp_path, 2, "--resume", "--set", "live.pace = 0.03", config=CONFIG) as started:
        ends = started.end(120)
        assert {end.status for end in ends.values()} == {2}
        assert "-live.pace = 0.025" in ends[0].stderr and "+live.pace = 0.03" in ends[0].stderr
    with group(tmp_path, 3, "--resume", config=CONFIG) as started:
        ends = started.end(120)
        assert {end.status for end in ends.values()} == {2} and "2 processes" in ends[0].stderr
    with group(tmp_path, 2, "--resume", config=CONFIG) as started:
        assert {end.status for end in started.end(400).values()} == {0}
    rows = json.loads((out / "live.json").read_text())
    assert rows[0] == done and len(rows) == 10
    assert {row["num_rounds"] for row in rows} == {NUM_ROUNDS}
    trace = stragglers.read_trace(out / "uncoded-one-slow.csv").compute.reshape(NUM_ROUNDS, LOAD, 2)
    np.testing.assert_allclose(trace[: len(before)], [round.chunk_seconds for round in before], rtol=1e-6)
    assert np.isfinite(trace).all() and not (out / "checkpoints").exists()
