"""A server that is killed and started again with its folder: the run goes on, and nothing committed is lost."""

import errno
import itertools
import json
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import chex
import jax
import numpy as np
import pytest

from gcjax import codes, engine, parameter_server, protocols
from gcjax.codes import assignments
from gcjax.parameter_server import flight, recovery
from gcjax.parameter_server.commits import Commits
from gcjax.parameter_server.rule_state import first_view
from gcjax.parameter_server.saved_log import FILE_NAME
from gcjax.parameter_server.transport import Disconnected
from gcjax.parameter_server.turn_log import Turn
from gcjax.parameter_server.written_log import WrittenLog
from gcjax.protocols.conformance.memberships import Membership
from gcjax.protocols.conformance.structure import check_structure
from tests.parameter_server import driven
from tests.parameter_server.driven import Driven, problems
from tests.parameter_server.processes import Served, Workers, process_setup
from tests.parameter_server.runs import KEY, NUM_WORKERS, OPTIMIZER, live_run, replay, setup, start_workers
from tests.protocols.test_rules import PROTOCOLS

FINGERPRINT = {"gcjax": "1", "data": "a"}


def written_log(folder, fingerprint=FINGERPRINT):
    rule = PROTOCOLS["bsp"].rule(2)
    log = WrittenLog(folder / FILE_NAME, 2, fingerprint, lambda: first_view(rule, 2))
    log.go_on()
    return log


def filled_log(folder):
    """A log of a commit of two pushes, after which one worker has pushed, and the other one is under way."""
    log = written_log(folder)
    for worker in range(2):
        log.add_membership(Membership(0.0, worker, "joined"), f"process {worker}")
        log.add_turn(worker, Turn(first_unit=0, version=0, begin=0.0))
    for worker in range(2):
        end = 1.0 + worker
        log.update_last_turn(worker, compute_start=0.0, unit_ends=(end,), compute_end=end, send_start=end, arrive=end)
    log.add_commit(0, [(0, 0), (1, 0)], 0.5, 2.0)
    for worker in range(2):
        log.add_turn(worker, Turn(first_unit=1, version=1, begin=2.0))
    log.update_last_turn(0, compute_start=2.0, unit_ends=(3.0,), compute_end=3.0, send_start=3.0, arrive=3.0)
    log.close()
    return log


def test_a_log_is_read_again_without_what_is_in_no_commit(tmp_path):
    before, after = filled_log(tmp_path), written_log(tmp_path)
    assert after.commit_times == [2.0] and after.losses == [0.5]
    assert [turns[0] for turns in after.turns] == [turns[0] for turns in before.turns]
    assert [turns[1].num_sent_units for turns in after.turns] == [0, 0] and [after.next_unit(w) for w in range(2)] == [
        2,
        2,
    ]
    assert [(m.worker, m.change) for m in after.memberships] == [(0, "joined"), (1, "joined"), (0, "left"), (1, "left")]
    assert after.incarnations == {0: "process 0", 1: "process 1"}
    after.close()
    once_more = written_log(tmp_path)
    assert once_more.turns == after.turns and once_more.memberships == after.memberships


def test_a_turn_that_the_server_stopped_ends_after_its_units(tmp_path):
    filled_log(tmp_path)
    log = written_log(tmp_path)
    log.add_membership(Membership(4.0, 1, "joined"), "process 2")
    log.add_turn(1, Turn(first_unit=2, version=1, begin=4.0))
    log.update_last_turn(1, compute_start=4.5, unit_ends=(5.0, 6.0))
    log.close()
    log = written_log(tmp_path)
    assert log.turns[1][-1].compute_end == log.memberships[-1].time == log.last_time > 6.0


@pytest.mark.parametrize(("num_units", "num_lost"), [(2, 0), (3, 1)])
def test_a_turn_that_went_on_after_it_was_stopped_ends_after_its_last_unit(num_units, num_lost, tmp_path):
    filled_log(tmp_path)
    log = written_log(tmp_path)
    log.add_membership(Membership(4.0, 1, "joined"), "process 2")
    log.add_turn(1, Turn(first_unit=2, version=1, begin=4.0, num_units=num_units))
    log.update_last_turn(
        1, compute_start=4.5, unit_ends=(5.0,), compute_end=5.5, send_start=5.5, arrive=5.6, num_lost=1
    )
    log.update_last_turn(1, unit_ends=(5.0, 6.0))
    log.close()
    turn = written_log(tmp_path).turns[1][-1]
    assert turn.compute_end >= 6.0 and (turn.num_begun, turn.num_lost) == (num_units, num_lost)


def test_a_last_line_that_is_not_whole_is_dropped(tmp_path):
    filled_log(tmp_path)
    file = tmp_path / FILE_NAME
    whole = file.read_bytes()
    for damaged in (whole[:-5], whole + b'{"turn": [0, 1', whole + b"garbage\n"):
        file.write_bytes(damaged)
        log = written_log(tmp_path)
        log.close()
        assert log.commit_times == [2.0] and all(json.loads(line) for line in file.read_text().splitlines())


def test_a_process_whose_turns_were_lost_is_another_one_after_a_second_restart_too(tmp_path):
    """It has pushed two turns that are in no commit, and can go back by one only."""
    log = written_log(tmp_path)
    log.add_membership(Membership(0.0, 0, "joined"), "process 0")
    for unit in range(2):
        log.add_turn(0, Turn(first_unit=unit, version=0, begin=float(unit)))
        log.update_last_turn(0, compute_end=unit + 0.5, send_start=unit + 0.5, arrive=unit + 0.6)
    for _ in range(3):
        log.close()
        log = written_log(tmp_path)
        assert log.incarnations[0] != "process 0"
    log.close()


def test_one_server_at_a_time_writes_to_a_folder(tmp_path):
    log = written_log(tmp_path)
    content = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(ValueError, match="another one writes to .*Wait until it has ended"):
        written_log(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == content
    log.close()
    written_log(tmp_path).close()


def test_a_server_that_is_closed_without_a_run_leaves_its_folder_to_another(tmp_path):
    servers = []  # that are still there
    for _ in range(2):
        servers.append(
            parameter_server.Server(setup(PROTOCOLS["asp"]), parameter_server.Limits(1), checkpoints=tmp_path)
        )
        servers[-1].close()


def test_what_did_not_fit_onto_the_disk_is_not_written_later(tmp_path):
    log, limits = written_log(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    full_bytes = (tmp_path / FILE_NAME).stat().st_size + 30
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (full_bytes, limits[1]))
        with pytest.raises(OSError, match="the log cannot go on"):
            log.add_turn(0, Turn(first_unit=0, version=0, begin=0.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / FILE_NAME).stat().st_size == full_bytes
    log.close()
    assert (tmp_path / FILE_NAME).stat().st_size == full_bytes
    log = written_log(tmp_path)  # without the line of which only a part is there
    log.add_membership(Membership(1.0, 0, "joined"), "process 0")
    log.close()
    assert [m.worker for m in written_log(tmp_path).memberships] == [0, 0]


def test_a_worker_that_has_begun_a_turn_which_the_log_has_not_begins_anew_also_if_none_has_arrived(monkeypatch):
    run = Driven("local_sgd", monkeypatch, min_workers=2)
    run.join(0)
    run.join(1)
    for last_turn, is_anew in ((0, False), (7, True)):
        run.leave(0)
        run.join(0, last_turn=last_turn)
        assert run.server.memberships[-1].anew == is_anew == run.orders(0)[-1].header["begins_anew"]


@pytest.mark.parametrize(("num_pushes", "is_anew"), [(0, False), (1, True), (2, True)])
def test_a_worker_that_has_lost_several_turns_begins_anew_also_if_none_was_in_a_commit(
    num_pushes, is_anew, tmp_path, monkeypatch
):
    """It can go back by one only."""
    for last_turn in (-1, num_pushes):
        run = Driven("worker_busy", monkeypatch, min_workers=2)
        run.server._recover(tmp_path, 100, 1.0)
        run.server._commits.log.go_on()
        run.join(0, last_turn=last_turn)
        run.join(1)
        for _ in range(num_pushes):
            run.push(0)
        run.server._commits.log.close()
    (came_back,) = [m for m in run.server.memberships if (m.worker, m.change) == (0, "came back")]
    assert came_back.anew == is_anew


def test_a_worker_that_is_gone_before_it_hears_that_it_begins_anew_hears_it_again(monkeypatch):
    run = Driven("worker_busy", monkeypatch, min_workers=1)
    run.join(0)
    for last_turn in (7, 1):  # then the log has as many turns
        run.leave(0)
        run.join(0, last_turn=last_turn)
        assert run.server.memberships[-1].anew and run.orders(0)[-1].header["begins_anew"]


@pytest.fixture
def coded(tmp_path, monkeypatch):
    """A function that starts a server of a code of which two workers are enough, on one folder."""
    repetition = codes.fractional_repetition(NUM_WORKERS, num_stragglers=1)
    monkeypatch.setitem(driven.PROTOCOLS, "repetition", protocols.coded(repetition))

    def start(workers, min_workers):
        """The server, and these workers."""
        run = Driven("repetition", monkeypatch, min_workers=min_workers)
        run.server._recover(tmp_path, 100, 1.0)
        run.server._commits.log.go_on()
        for worker in workers:
            run.join(worker)
        return run

    return start


def make_round(run, computing):
    """A round in which these workers compute all that they hold."""
    for worker in (*computing, *computing):
        run.unit(worker)
    for worker in computing:
        run.answer(worker)


def record(run):
    commits = run.server._commits
    return jax.device_get(commits.schedule(commits.log.commit_times[-1]))


def test_rounds_of_a_code_stay_in_the_log_of_a_server_that_is_started_again(coded):
    run = coded(range(4), min_workers=4)
    for _ in range(3):
        make_round(run, range(4))  # all have done everything, and two are asked for it
    before, num_commits = record(run), run.server.num_commits
    assert num_commits == 3
    for _ in range(2):
        run.server._commits.log.close()
        run = coded((), min_workers=4)
        after = record(run)
        check_structure(after, driven.PROTOCOLS["repetition"])
        for name in ("time", "worker", "unit", "work", "version", "weight"):  # of the commits
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
        sent_before = np.isfinite(before.send_start) & (before.send_start < before.time[-1])
        np.testing.assert_array_equal(after.finish[sent_before], before.finish[sent_before])
    run.server._commits.log.close()


@pytest.mark.slow
def test_a_worker_of_a_code_that_came_back_within_a_round_is_in_the_log_twice(coded):
    """It begins with the unit that it had begun before."""
    run = coded(range(4), min_workers=4)
    make_round(run, range(4))
    run.leave(0)
    run.join(0)
    turns = run.server._commits.log.turns[0]
    assert turns[-1].first_unit == turns[-2].first_unit
    run.server._commits.log.close()
    run = coded((), min_workers=4)
    assert run.server.num_commits == 1
    run.server._commits.log.close()


def test_what_a_round_of_a_code_would_have_used_counts_only_once_that_is_committed(coded, tmp_path):
    run = coded(range(4), min_workers=4)
    make_round(run, (0, 2))
    run.server._commits.log.close()
    file = tmp_path / FILE_NAME
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(itertools.takewhile(lambda line: not line.startswith('{"commit"'), lines)))
    run = coded((1, 2, 3), min_workers=1)  # worker 0 does not come back
    make_round(run, (1, 2))
    np.testing.assert_array_equal(record(run).work[0], [0, 2, 2, 0])
    run.server._commits.log.close()


def test_another_line_that_is_damaged_and_a_log_of_another_setup_are_refused(tmp_path):
    filled_log(tmp_path)
    with pytest.raises(ValueError, match=r"data: b at the server, a in the log"):
        written_log(tmp_path, {"gcjax": "1", "data": "b"})
    file = tmp_path / FILE_NAME
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], "garbage", *lines[3:]]) + "\n")
    with pytest.raises(ValueError, match="line 3 is not"):
        written_log(tmp_path)
    first_commit = next(i for i, line in enumerate(lines) if line.startswith('{"commit"'))
    for damaged in ([*lines, lines[first_commit]], [*lines[:first_commit], *lines[first_commit + 1 :]]):
        file.write_text("\n".join(damaged) + "\n")
        with pytest.raises(ValueError, match="must be as it was written"):
            written_log(tmp_path)
    file.write_text("garbage\n{}\n")
    with pytest.raises(ValueError, match="must begin with what is trained"):
        written_log(tmp_path)


def test_a_disk_that_is_full_is_said(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    checkpoints = recovery.Checkpoints(tmp_path, 1)
    monkeypatch.setattr("gcjax.engine.checkpoint_files.save", full)
    with pytest.raises(OSError, match=r"commit 1 must be written.*No space left.*is in the log"):
        checkpoints.save(1, recovery.Parameters({"w": jax.numpy.ones(3)}, ()))
    from gcjax.cli import machine_errors

    with pytest.raises(OSError, match="No space left") as raised:
        checkpoints.save(1, recovery.Parameters({"w": jax.numpy.ones(3)}, ()))
    assert "no space left" in machine_errors.explanation(raised.value)


@pytest.mark.slow
def test_a_server_goes_on_where_another_one_has_ended(tmp_path):
    """With the checkpoint of the last commit, and also without it, by a replay."""
    protocol = PROTOCOLS["ssp"]
    first, _ = live_run(protocol, 8, checkpoints=tmp_path, checkpoint_every=3)
    server = parameter_server.Server(setup(protocol), parameter_server.Limits(9), checkpoints=tmp_path)
    chex.assert_trees_all_equal(jax.device_get(server._commits.updates.params), jax.device_get(first.params))
    again = recovery.replayed(setup(protocol), server._commits.schedule(server._commits.log.commit_times[-1]), ())
    chex.assert_trees_all_close(again.params, first.params, rtol=1e-5)
    server.close()
    with pytest.raises(ValueError, match="number of workers"):
        parameter_server.Server(
            setup(protocol)._replace(num_workers=3), parameter_server.Limits(9), checkpoints=tmp_path
        )


def ended_run(protocol, folder, num_commits=11, **arguments):
    """A run with a checkpoint after each three commits, and one after the last."""
    run, _ = live_run(protocol, num_commits, checkpoints=folder, checkpoint_every=3, **arguments)
    return run


def started_again(protocol, folder, monkeypatch):
    """The parameters of a server that goes on, and the commits after which it has started to compute."""
    starts, plain = [], engine.replay
    monkeypatch.setattr(
        engine, "replay", lambda *args, start=None, **rest: (starts.append(start), plain(*args, start=start, **rest))[1]
    )
    server = parameter_server.Server(setup(protocol), parameter_server.Limits(100), checkpoints=folder)
    server.close()
    monkeypatch.setattr(engine, "replay", plain)
    return jax.device_get(server._commits.updates.params), [start and start.commit for start in starts]


def damage(folder, commit):
    """Changes a byte of each file of a checkpoint's arrays."""
    for file in (folder / recovery.FOLDER / str(commit) / "arrays").rglob("*"):
        if file.is_file() and file.stat().st_size:
            content = bytearray(file.read_bytes())
            content[-1] ^= 255
            file.write_bytes(bytes(content))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ssp", "bsp", "local_sgd", "coded"])
def test_only_the_commits_after_the_newest_whole_checkpoint_are_computed_again(name, tmp_path, monkeypatch):
    protocol = {**PROTOCOLS, "coded": protocols.coded(codes.partial(assignments.cyclic(4, load=2)))}[name]
    with jax.enable_x64(True):
        run = ended_run(protocol, tmp_path)
        shutil.rmtree(tmp_path / recovery.FOLDER / "11")
        params, starts = started_again(protocol, tmp_path, monkeypatch)
        assert starts == [9]
        chex.assert_trees_all_close(params, run.params, rtol=1e-9)
        damage(tmp_path, 9)
        params, starts = started_again(protocol, tmp_path, monkeypatch)
        assert starts == [None]  # of two checkpoints that are kept, one is gone and one is damaged
        chex.assert_trees_all_close(params, run.params, rtol=1e-9)


@pytest.mark.slow
def test_an_older_checkpoint_is_taken_if_the_newest_is_damaged(tmp_path, monkeypatch):
    with jax.enable_x64(True):
        run = ended_run(PROTOCOLS["ssp"], tmp_path)
        damage(tmp_path, 11)
        params, starts = started_again(PROTOCOLS["ssp"], tmp_path, monkeypatch)
        assert starts == [9]
        chex.assert_trees_all_close(params, run.params, rtol=1e-9)


@pytest.mark.slow
def test_where_workers_keep_something_all_commits_are_computed_again(tmp_path, monkeypatch):
    with jax.enable_x64(True):
        run = ended_run(PROTOCOLS["elastic_averaging"], tmp_path)
        shutil.rmtree(tmp_path / recovery.FOLDER / "11")
        params, starts = started_again(PROTOCOLS["elastic_averaging"], tmp_path, monkeypatch)
        assert starts == [None]
        chex.assert_trees_all_close(params, run.params, rtol=1e-9)


@pytest.mark.slow
def test_a_log_that_lost_its_end_goes_on_without_later_checkpoints(tmp_path, monkeypatch):
    """As if the machine had failed before the last lines were on the disk."""
    protocol = PROTOCOLS["ssp"]
    with jax.enable_x64(True):
        run = ended_run(protocol, tmp_path)
        lines = (tmp_path / FILE_NAME).read_text().splitlines(keepends=True)
        last = next(number for number, line in enumerate(lines) if line.startswith('{"commit": 10,'))
        (tmp_path / FILE_NAME).write_text("".join(lines[:last]))
        params, starts = started_again(protocol, tmp_path, monkeypatch)
        assert starts == [9] and not (tmp_path / recovery.FOLDER / "11").exists()
        expected = engine.replay(setup(protocol).task, protocol, OPTIMIZER, run.schedule, rng_key=KEY, num_commits=10)
        chex.assert_trees_all_close(params, expected.params, rtol=1e-9)


@pytest.mark.parametrize(("sync_seconds", "num_syncs"), [(0.0, 3), (1e6, 1), (float("inf"), 0)])
def test_the_log_is_forced_onto_the_disk_at_commits(sync_seconds, num_syncs, tmp_path, monkeypatch):
    syncs = []
    monkeypatch.setattr(os, "fsync", lambda number: syncs.append((tmp_path / FILE_NAME).read_text().count('{"commit"')))
    rule = PROTOCOLS["bsp"].rule(1)
    view = lambda: first_view(rule, 1)  # noqa: E731
    log = WrittenLog(tmp_path / FILE_NAME, 1, FINGERPRINT, view, sync_seconds=sync_seconds)
    log.add_membership(Membership(0.0, 0, "joined"), "process")
    for commit in range(3):
        log.add_turn(0, Turn(first_unit=commit, version=commit, begin=float(commit)))
        log.add_commit(commit, [(0, commit)], 0.5, commit + 0.5)
    log.close()
    assert syncs == [1, 2, 3][:num_syncs]


@pytest.mark.slow
def test_a_worker_that_knows_of_turns_that_the_log_has_lost_begins_anew(monkeypatch):
    with jax.enable_x64(True):
        run = Driven("local_sgd", monkeypatch, min_workers=NUM_WORKERS)
        for worker in range(NUM_WORKERS):
            run.join(worker)
        for worker in range(NUM_WORKERS):
            run.push(worker)
        for last_turn in (0, 7):
            run.leave(0)
            run.join(0, last_turn=last_turn)
            for worker in range(NUM_WORKERS):
                run.push(worker)
        result = run.end()
        first, second = [m for m in result.memberships if m.change == "came back"]
        assert problems("local_sgd", result) == {}
    assert not first.anew and second.anew and "its last turns are not in the log" in second.why


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _serve(protocol, port, folder, queue):
    """What the process of a server does."""
    limits = parameter_server.Limits(60, seconds=100.0, lease=2.0)
    server = parameter_server.Server(
        process_setup(protocol, {}), limits, address=f"127.0.0.1:{port}", checkpoints=folder, checkpoint_every=7
    )
    run = server.run()
    queue.put(jax.device_get((run.params, run.schedule, run.memberships, run.loss)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bsp", "ssp", "local_sgd"])
def test_a_killed_server_is_started_again_and_the_workers_come_back(name, tmp_path):
    port, context = free_port(), multiprocessing.get_context("spawn")
    queue = context.Queue()

    def num_commits():
        file = tmp_path / FILE_NAME
        return file.read_bytes().count(b'"commit": ') if file.is_file() else 0

    def start():
        process = context.Process(target=_serve, args=(name, port, tmp_path, queue), daemon=True)
        process.start()
        return process

    server = start()
    with Workers(f"127.0.0.1:{port}", name, unit_seconds=0.05) as workers:
        workers.start(0, 1, 2, 3)
        committed = []
        for goal in (12, 30):
            end = time.monotonic() + 60
            while num_commits() < goal:
                assert time.monotonic() < end and server.is_alive()
                time.sleep(0.02)
            os.kill(server.pid, signal.SIGKILL)
            server.join(10)
            lines = (tmp_path / FILE_NAME).read_text().splitlines()
            committed += [line for line in lines if line.startswith('{"commit"') and line not in committed]
            server = start()
        params, schedule, memberships, loss = queue.get(timeout=90)
    protocol, lines = PROTOCOLS[name], (tmp_path / FILE_NAME).read_text().splitlines()
    assert len(loss) == 60 and set(committed) <= set(lines)
    check_structure(schedule, protocol)
    kept = protocols.check(schedule, protocol.specification(4), memberships=memberships)
    assert kept, str(kept)
    assert sum("started again" in m.why for m in memberships) >= 2
    run = parameter_server.LiveRun(params, None, schedule, np.asarray(loss), memberships, np.zeros(0), 0)
    chex.assert_trees_all_close(params, replay(protocol, run).params, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("file, folder", [("file", "file"), (recovery.FOLDER, "")])
def test_a_folder_that_is_a_file_is_refused_in_words(file, folder, tmp_path):
    """That of the log, and that of the checkpoints in it; the log can be opened again."""
    (tmp_path / file).write_text("")
    for _ in range(2):
        with pytest.raises(ValueError, match=f"checkpoints must be a folder that can be written; .*{file} cannot"):
            parameter_server.Server(setup(PROTOCOLS["asp"]), parameter_server.Limits(1), checkpoints=tmp_path / folder)


@pytest.mark.slow("ctrl-c", "disk")
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "the disk is full")], ids=["ctrl-c", "disk"]
)
def test_workers_wait_for_a_server_that_something_else_has_ended(error, tmp_path):
    """As for one that was killed: nobody tells them that the run is done."""
    limits, one = parameter_server.Limits(60, lease=2.0), setup(PROTOCOLS["asp"])
    first = Served(one, limits, checkpoints=tmp_path)
    address = first.server.address

    def work(worker):
        return parameter_server.work(one, address, worker=worker, patience=60.0, throttle=lambda worker, unit: 0.005)

    with ThreadPoolExecutor(NUM_WORKERS) as threads:
        reports = [threads.submit(work, worker) for worker in range(NUM_WORKERS)]
        first.wait_for_commits(5)

        def fail():
            raise error

        first.server._handle_next_event = fail
        first.thread.join(60)
        assert first.error is error
        second = Served(one, limits, checkpoints=tmp_path, address=address)
        assert len(second.end().loss) == 60
        assert [report.result().num_connections for report in reports] == [2] * NUM_WORKERS


def test_workers_wait_for_a_server_that_still_computes_what_it_goes_on_with(tmp_path, monkeypatch):
    """Longer than their patience, which is for one that does not answer; if it fails at that, it answers no more."""
    one, address = setup(PROTOCOLS["asp"]), f"127.0.0.1:{free_port()}"
    computes, may_go_on, warm_up = threading.Event(), threading.Event(), Commits.warm_up

    def slow_warm_up(commits):
        computes.set()
        assert may_go_on.wait(60)
        warm_up(commits)

    monkeypatch.setattr(Commits, "warm_up", slow_warm_up)

    def serve():
        limits = parameter_server.Limits(20, seconds=60.0)
        return parameter_server.Server(one, limits, address=address, checkpoints=tmp_path).run()

    with ThreadPoolExecutor(NUM_WORKERS + 1) as threads:
        run = threads.submit(serve)
        assert computes.wait(60)
        reports = [
            threads.submit(parameter_server.work, one, address, worker=worker, patience=0.2)
            for worker in range(NUM_WORKERS)
        ]
        time.sleep(2.0)
        assert not any(report.done() for report in reports)
        may_go_on.set()
        assert len(run.result().loss) == 20
        assert [report.result().num_connections for report in reports] == [1] * NUM_WORKERS


def test_a_server_that_cannot_go_on_answers_no_more(tmp_path):
    live_run(PROTOCOLS["asp"], 8, checkpoints=tmp_path)
    limits, address = parameter_server.Limits(9), f"127.0.0.1:{free_port()}"
    with pytest.raises(ValueError, match=r"differs in\nrule: "):
        other = setup(PROTOCOLS["ssp"])
        parameter_server.Server(other, limits, address=address, checkpoints=tmp_path)
    with pytest.raises(Disconnected, match="nobody answers"):
        flight.connect(address, max_bytes=0)
    parameter_server.Server(setup(PROTOCOLS["asp"]), limits, address=address, checkpoints=tmp_path).close()


def test_a_worker_whose_number_is_taken_gives_up():
    """Though the server answers: it says why it does not let the second one in."""
    one = setup(PROTOCOLS["asp"])
    served = Served(one, parameter_server.Limits(10**6, seconds=60.0))
    threads, _ = start_workers(served.server.address, PROTOCOLS["asp"])
    served.wait_for_commits(1)
    with pytest.raises(Disconnected, match=r"worker 0 is there already. .* It was looked for for 0.5 s"):
        parameter_server.work(one, served.server.address, worker=0, patience=0.5)
    served.server.stop()
    served.end()
    for thread in threads:
        thread.join(10)
