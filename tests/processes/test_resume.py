"""A comparison on a mesh over several processes: one is lost, and it goes on with another number of processes."""

import signal
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.cli.test_main import CONFIG
from tests.processes.commands import group

LONG = f"""{CONFIG}
study.mesh = @mesh()
study.num_units = 200
study.checkpoint_every = 5
"""


def has_checkpoint(out):
    return any(step.name.isdigit() for step in out.glob("checkpoints/*/*/*"))


@pytest.mark.slow
def test_a_lost_process_and_a_restart_with_fewer(tmp_path):
    with group(tmp_path, 1, config=LONG, out="whole") as started:
        assert started.end(200)[0].status == 0
    with group(tmp_path, 4, config=LONG) as started:
        while not has_checkpoint(tmp_path / "out"):
            assert time.monotonic() - started.since < 200 and started.processes[0].poll() is None
            time.sleep(0.02)
        started.processes[2].kill()
        ends = started.end(300)
    assert not (tmp_path / "out" / "run.json").exists()
    for rank in (0, 1, 3):
        assert ends[rank].status == 3 and "process 2 was lost" in ends[rank].stderr and "--resume" in ends[rank].stderr
    with group(tmp_path, 2, "--resume", config=LONG) as started:
        assert {end.status for end in started.end(200).values()} == {0}
    one, other = (pq.read_table(tmp_path / name / "metrics.parquet") for name in ("whole", "out"))
    for name in one.column_names:
        if one[name].type == "double" or one[name].type == "float":
            np.testing.assert_allclose(one[name].to_numpy(), other[name].to_numpy(), atol=1e-4, rtol=1e-4)
        else:
            assert one[name].equals(other[name])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [(1,), (0, 1)])
def test_all_save_a_checkpoint_if_one_gets_a_signal(tmp_path, ranks):
    """When the first checkpoint is there, so that no time goes into compiling."""
    with group(tmp_path, 2, config=LONG) as started:
        while not has_checkpoint(tmp_path / "out"):
            assert time.monotonic() - started.since < 200 and started.processes[0].poll() is None
            time.sleep(0.02)
        started.since = time.monotonic()
        for rank in ranks:
            started.processes[rank].send_signal(signal.SIGTERM)
        ends = started.end(100)
    said = "".join(end.stderr for end in ends.values())
    assert all(ends[rank].status in (3, 143) for rank in (0, 1)) and 143 in {end.status for end in ends.values()}
    assert "so nothing is lost" in said, said
    with group(tmp_path, 2, "--resume", config=LONG) as started:
        assert {end.status for end in started.end(200).values()} == {0}
