"""The run in a server's folder, read again: what the server has returned, or what had happened until it was killed."""

import json
import shutil
from types import SimpleNamespace

import chex
import jax
import numpy as np
import pytest

from gcjax import parameter_server, protocols
from gcjax.parameter_server import launch, recovery
from gcjax.parameter_server.saved_log import FILE_NAME
from gcjax.parameter_server.wire import Message
from gcjax.protocols.conformance.structure import check_structure
from tests.parameter_server import driven
from tests.parameter_server.driven import Driven
from tests.parameter_server.processes import Served, process_setup
from tests.parameter_server.runs import NUM_WORKERS, live_run, replay, setup, start_workers
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


def files_in(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


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


def test_no_worker_is_started_for_a_finished_run(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "workers", None)
    arguments = {"protocol": "asp", "options": {}}
    limits = parameter_server.Limits(8, seconds=60.0)
    folder = copied(finished, tmp_path)
    assert_same(
        parameter_server.local_run(process_setup, limits, arguments=arguments, checkpoints=folder), finished.run
    )


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


@pytest.mark.slow
def test_workers_have_left_where_a_run_goes_on_beyond_its_end(finished, tmp_path):
    folder = copied(finished, tmp_path)
    run, _ = live_run(ASP, 12, checkpoints=folder)
    num_before = len(finished.run.memberships)
    left = [m for m in run.memberships[num_before:] if m.why == "the server was started again"]
    assert run.memberships[:num_before] == finished.run.memberships and len(left) == NUM_WORKERS
    assert len(run.loss) == 12 and {m.time for m in left} < {m.time for m in run.memberships}
    assert min(m.time for m in left) > float(finished.run.schedule.horizon)
    assert finished.run.measured_from == 0 and {m.time for m in left} == {run.measured_from}
    arrival = np.asarray(run.schedule.finish)
    num_measured = (np.isfinite(arrival) & (arrival > run.measured_from)).sum()
    assert 0 < num_measured == run.service_seconds.size < np.isfinite(arrival).sum()
    assert_same(parameter_server.load_run(setup(ASP), folder), run)


def test_a_finished_run_is_loaded_as_the_server_has_returned_it(finished):
    before = files_in(finished.folder)
    loaded = parameter_server.load_run(setup(ASP), str(finished.folder))
    assert_same(loaded, finished.run)
    assert files_in(finished.folder) == before
    chex.assert_trees_all_close(replay(ASP, loaded).params, finished.run.params, rtol=1e-5)
    assert parameter_server.calibration(loaded).service_seconds > 0


def test_the_log_alone_is_enough(finished, tmp_path):
    shutil.copy(finished.folder / FILE_NAME, tmp_path)
    loaded = parameter_server.load_run(setup(ASP), tmp_path)
    chex.assert_trees_all_close(loaded.params, finished.run.params, rtol=1e-5)
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]


def test_a_run_whose_server_was_killed_is_loaded_up_to_the_last_event(finished, tmp_path):
    folder = copied(finished, tmp_path)
    last_commit = next(i for i, line in enumerate(lines_of(folder)) if line.startswith('{"commit": 7,'))
    keep_lines(folder, last_commit)
    with (folder / FILE_NAME).open("a") as file:
        file.write('{"turn": [0, 1')
    before = files_in(folder)
    loaded = parameter_server.load_run(setup(ASP), folder)
    assert files_in(folder) == before
    np.testing.assert_array_equal(loaded.loss, finished.run.loss[:7])
    np.testing.assert_array_equal(loaded.schedule.time, finished.run.schedule.time[:7])
    assert loaded.memberships == finished.run.memberships and loaded.messages is None
    assert loaded.schedule.horizon >= loaded.schedule.time[-1]  # a push came that is in no commit yet, maybe at once
    assert np.float32(loaded.measured_from) == loaded.schedule.horizon
    check_structure(loaded.schedule, ASP)
    chex.assert_trees_all_close(loaded.params, replay(ASP, loaded).params, rtol=1e-5)
    with pytest.raises(ValueError, match="must say what the server took .*has not ended"):
        parameter_server.calibration(loaded)


def test_a_run_under_way_is_loaded_while_its_server_writes(tmp_path):
    served = Served(setup(ASP), parameter_server.Limits(10**6, seconds=60.0), checkpoints=tmp_path)
    threads, _ = start_workers(served.server.address, ASP)
    served.wait_for_commits(5)
    loaded = parameter_server.load_run(setup(ASP), tmp_path)
    served.wait_for_commits(1)
    served.server.stop()
    run = served.end()
    for thread in threads:
        thread.join(10)
    assert 5 <= len(loaded.loss) < len(run.loss)
    np.testing.assert_array_equal(loaded.loss, run.loss[: len(loaded.loss)])
    assert not any(m.change == "left" for m in loaded.memberships)


@pytest.mark.slow
def test_a_version_that_a_worker_has_got_for_a_push_which_never_came_is_not_in_the_record(monkeypatch):
    """When its units ended is not known, nor that the exchange has begun after them."""
    run = Driven("elastic_averaging", monkeypatch)
    for worker in range(NUM_WORKERS):
        run.join(worker)
    for worker in (*range(NUM_WORKERS), 1):
        run.push(worker)
    order = run.orders(0)[-1].header
    run.deal(run.connections[0], Message({"kind": "pull", "turn": order["turn"]}))
    record = run.end().schedule
    assert record.read[order["first_unit"], 0] == -1
    assert protocols.check(record, PROTOCOLS["elastic_averaging"].specification(NUM_WORKERS))


@pytest.mark.slow
def test_a_round_of_a_code_that_ended_without_its_commit_is_under_way(tmp_path, monkeypatch):
    """The server was killed between two lines: no unit of the round counts."""
    run = Driven("coded", monkeypatch, min_workers=NUM_WORKERS)
    run.server._recover(tmp_path, 100, 1.0)
    for worker in range(NUM_WORKERS):
        run.join(worker)
    while run.server.num_commits < 2:
        for worker in range(NUM_WORKERS):
            run.unit(worker)
            run.answer(worker)
    run.server._commits.log.close()
    keep_lines(tmp_path, max(i for i, line in enumerate(lines_of(tmp_path)) if line.startswith('{"commit"')))
    loaded = parameter_server.load_run(run.setup, tmp_path)
    check_structure(loaded.schedule, driven.PROTOCOLS["coded"])
    assert len(loaded.loss) == 1 and np.isinf(loaded.schedule.finish[-2:]).all()


def test_a_folder_of_no_run_or_of_another_setup_is_refused_in_words(finished, tmp_path):
    one = setup(ASP)
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(ValueError, match=rf"that of a run, .*; .*{FILE_NAME} cannot be read: No such file"):
            parameter_server.load_run(one, folder)
    with pytest.raises(ValueError, match=r"setup that it was written with; .*differs in\nrule: \w+ here, \w+ in the"):
        parameter_server.load_run(setup(protocols.ssp(staleness=1)), finished.folder)
    with pytest.raises(ValueError, match="number of workers: 3 here, 4 in the log"):
        parameter_server.load_run(one._replace(num_workers=3), finished.folder)
    with pytest.raises(ValueError, match=r"setup must be a gcjax.parameter_server.Setup"):
        parameter_server.load_run(finished.folder, one)
    (tmp_path / FILE_NAME).write_text("")
    with pytest.raises(ValueError, match="must begin with what is trained"):
        parameter_server.load_run(one, tmp_path)


def test_a_run_of_other_versions_is_loaded_if_they_compute_the_same(finished, tmp_path):
    folder = copied(finished, tmp_path)
    first, *others = lines_of(folder)
    names = json.loads(first)["fingerprint"]
    text = json.dumps({"fingerprint": {**names, "gcjax": "0.0.9", "jax": "0.9.0"}}) + "\n"
    (folder / FILE_NAME).write_text("".join([text, *others]))
    assert_same(parameter_server.load_run(setup(ASP), folder), finished.run)
    with pytest.raises(ValueError, match=r"gcjax: .* at the server, 0\.0\.9 in the log"):
        served_again(folder, 8)
    shutil.rmtree(folder / recovery.FOLDER)
    chex.assert_trees_all_close(parameter_server.load_run(setup(ASP), folder).params, finished.run.params, rtol=1e-5)
