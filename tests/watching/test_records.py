"""What `gcjax.watch` has written, of a job that did not come to its end."""

import numpy as np
import pytest

from gcjax import cli, watching
from gcjax.watching.shared_folder import SharedFolder


@pytest.fixture
def folder(tmp_path):
    """Two processes and 40 steps of 10 ms; the second one comes 4 ms late from step 20 on. No trace of all."""
    for worker in range(2):
        exchange = SharedFolder(tmp_path, "step", 0)
        exchange.open(worker)
        units = np.arange(40.0)
        host = np.where((units >= 20) & (worker == 1), 0.005, 0.001)
        columns = [np.full(40, worker), units, np.full(40, 0.01), np.full(40, np.nan), np.full(40, 0.01), host]
        exchange.append(np.column_stack([*columns, np.zeros(40)]))
    return tmp_path


def test_the_files_of_all_processes_are_one_trace(folder):
    trace = watching.record(folder)
    np.testing.assert_allclose(trace.compute[:20], 0.01)
    np.testing.assert_allclose(trace.compute[20:], [[0.006, 0.01]] * 20)
    np.testing.assert_allclose(trace.communication[20:], [[0.004, 0.0]] * 20, atol=1e-12)


def test_the_folder_is_described(folder, capsys):
    assert cli.main(["trace", "describe", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "worker 1 (" in out.splitlines()[0] and "since step 20" in out.replace("\n", " ")
    assert "40 steps (0 to 39) of 2 workers" in out


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_a_folder_without_a_record_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="must have been written by gcjax.watch"):
        watching.record(tmp_path / name)
    assert not (tmp_path / "nowhere").exists()
