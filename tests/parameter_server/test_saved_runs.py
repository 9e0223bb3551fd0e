"""The run in a server's folder, read again: what the server has returned, or what had happened until it was killed."""

import json
import shutil
from types import SimpleNamespace

import chex
import jax
import numpy as np
import pytest

from gcjax import parameter_server
from gcjax.parameter_server.saved_log import FILE_NAME
from tests.parameter_server.runs import NUM_WORKERS, live_run, setup
from tests.protocols.test_rules import PROTOCOLS

ASP = PROTOCOLS["asp"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of 8 commits, and its folder, which no test changes."""
    folder = tmp_path_factory.mktemp("finished")
    run, _ = live_run(ASP, 8, checkpoints=folder, checkpoint_every=3)
    return SimpleNamespace(run=run, folder=folder)


def copied(finished, tmp_path):
    return shutil.copytree(finished.folder, tmp_path / "copy")


def lines_of(folder):
    return (folder / FILE_NAME).read_text().splitlines(keepends=True)


def keep_lines(folder, num_lines):
    (folder / FILE_NAME).write_text("".join(lines_of(folder)[:num_lines]))


def served_again(folder, num_commits, **limits):
    limits = parameter_server.Limits(num_commits, **{"seconds": 60.0, **limits})
    return parameter_server.Server(setup(ASP), limits, checkpoints=folder).run()


def assert_same(run, other):
    """All fields are the same, number by number."""
    assert run.memberships == other.memberships
    chex.assert_trees_all_equal(*(jax.device_get(r._replace(memberships=(), messages=None)) for r in (run, other)))
    for values, other_values in zip(run.messages, other.messages, strict=True):
        np.testing.assert_array_equal(values, other_values)


def test_a_finished_run_is_the_same_when_a_server_is_started_on_its_folder_again(finished, tmp_path):
    folder = copied(finished, tmp_path)
    for _ in range(2):
        assert_same(served_again(folder, 8), finished.run)
    assert lines_of(folder) == lines_of(finished.folder)


def test_a_run_whose_seconds_are_over_is_finished_too(finished, tmp_path):
    folder = copied(finished, tmp_path)
    assert_same(served_again(folder, 1000, seconds=float(finished.run.schedule.horizon)), finished.run)


def test_a_server_that_is_closed_without_a_run_leaves_a_finished_one_as_it_was(finished, tmp_path):
    folder = copied(finished, tmp_path)
    parameter_server.Server(setup(ASP), parameter_server.Limits(20), checkpoints=folder).close()
    assert lines_of(folder) == lines_of(finished.folder)


def test_a_server_that_is_killed_after_the_last_commit_leaves_a_run_in_which_nobody_has_left(finished, tmp_path):
    folder = copied(finished, tmp_path)
    assert json.loads(lines_of(folder)[-1]).keys() == {"end"}
    keep_lines(folder, -1)
    run = served_again(folder, 8)
    assert run.memberships == finished.run.memberships
    np.testing.assert_array_equal(run.loss, finished.run.loss)
    assert json.loads(lines_of(folder)[-1]).keys() == {"end"}
    assert float(run.schedule.horizon) == run.schedule.time[-1]  # the last event that the log has


def test_workers_have_left_where_a_run_goes_on_beyond_its_end(finished, tmp_path):
    folder = copied(finished, tmp_path)
    run, _ = live_run(ASP, 12, checkpoints=folder)
    num_before = len(finished.run.memberships)
    left = [m for m in run.memberships[num_before:] if m.why == "the server was started again"]
    assert run.memberships[:num_before] == finished.run.memberships and len(left) == NUM_WORKERS
    assert len(run.loss) == 12 and {m.time for m in left} < {m.time for m in run.memberships}
    assert min(m.time for m in left) > float(finished.run.schedule.horizon)
