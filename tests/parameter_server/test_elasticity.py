"""Workers that are killed, stopped, started again, or join later: the run goes on, and nothing counts twice."""

import queue
import signal
from types import SimpleNamespace

import chex
import jax
import numpy as np
import pytest

from gcjax import parameter_server
from gcjax.protocols.conformance.structure import check_structure
from tests.parameter_server.driven import Driven, problems
from tests.parameter_server.processes import Served, Workers, process_setup
from tests.parameter_server.runs import NUM_WORKERS, replay, setup
from tests.protocols.test_rules import PROTOCOLS

LEASE = 1.0


def limits(num_commits=10_000, **fields):
    return parameter_server.Limits(num_commits, **{"seconds": 60.0, "lease": LEASE, **fields})


def check_run(name, run):
    """Nothing is committed twice, and a replay gives the same parameters."""
    check_structure(run.schedule, PROTOCOLS[name])
    used = [
        (int(worker), int(unit) + offset)
        for worker, unit, work in zip(*(np.ravel(x) for x in run.schedule[1:4]), strict=True)
        for offset in range(work if worker >= 0 else 0)
    ]
    assert len(used) == len(set(used)) > 0
    chex.assert_trees_all_close(run.params, replay(PROTOCOLS[name], run).params, rtol=1e-4, atol=1e-6)


def finish(served):
    """Ends the run soon."""
    served.server.stop()
    return served.end()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bsp", "ssp", "local_sgd"])
def test_a_killed_worker_is_waited_for_no_longer_and_can_be_started_again(name):
    served = Served(process_setup(name, {}), limits())
    with Workers(served.server.address, name) as workers:
        workers.start(0, 1, 2, 3)
        served.wait_for_commits(10)
        workers.kill(2)
        served.wait_for(lambda: served.changes(2) == ["joined", "left"])
        served.wait_for_commits(10)
        workers.start(2)
        served.wait_for(lambda: served.changes(2)[-1] == "came back")
        served.wait_for_commits(20)
        run = finish(served)
    check_run(name, run)
    left, back = (m.time for m in run.memberships if m.worker == 2 and m.change != "joined")
    starts = np.asarray(run.schedule.start)[:, 2]
    assert not ((starts > left) & (starts < back)).any()
    later = np.asarray(run.schedule.time) > back
    assert (np.asarray(run.schedule.worker)[later] == 2).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["asp", "worker_busy"])
def test_a_stopped_worker_is_put_out_and_its_old_push_is_refused(name):
    served = Served(process_setup(name, {}), limits())
    with Workers(served.server.address, name, unit_seconds=0.2) as workers:
        workers.start(0, 1, 2, 3)
        served.wait_for_commits(3)
        while served.server.num_commits < 10_000 and not served.server.num_late:
            workers.send(1, signal.SIGSTOP)
            count = served.changes(1).count("left")
            served.wait_for(lambda count=count: served.changes(1).count("left") > count)
            served.wait_for_commits(3)
            workers.send(1, signal.SIGCONT)
            served.wait_for(lambda: served.changes(1)[-1] == "came back")
            served.wait_for_commits(6)
        run = finish(served)
    check_run(name, run)
    assert run.num_late >= 1
    assert any("nothing was heard" in m.why for m in run.memberships)


def changes_of(run):
    return [m.change for m in run.server.memberships if m.time > 0]


def test_a_sign_of_life_that_waits_behind_a_busy_server_counts(monkeypatch):
    run = Driven("bsp", monkeypatch, min_workers=2, lease=5.0)
    times = Times(run, monkeypatch)
    run.join(0)
    run.join(1)
    times.seconds += 8.0  # the server is busy, and worker 0 says that it is there
    run.server._members.note_arrival(run.connections[0], times())
    run.server._end_leases(run.server._clock.now())
    assert [(m.worker, m.change) for m in run.server.memberships if m.time > 0] == [(1, "left")]
    times.seconds += 8.0
    run.server._end_leases(run.server._clock.now())
    assert changes_of(run) == ["left", "left"]


def test_nobody_is_put_out_since_the_server_was_stopped(monkeypatch):
    run = Driven("bsp", monkeypatch, min_workers=1, lease=5.0)
    times = Times(run, monkeypatch)
    run.join(0)
    times.seconds += 4.0
    waits = iter([60.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])  # it is stopped for a minute within a wait

    def wait(timeout):
        times.seconds += next(waits)
        raise queue.Empty

    monkeypatch.setattr(run.server, "_events", SimpleNamespace(get=wait))
    run.server._handle_next_event()
    assert changes_of(run) == []
    for _ in range(6):
        run.server._handle_next_event()
    assert changes_of(run) == ["left"]


class Times:
    """The clock of a server's machine, set by hand."""

    def __init__(self, run, monkeypatch):
        self.seconds = 100.0
        monkeypatch.setattr(run.server._clock, "_clock", self)
        run.server._clock.restart()

    def __call__(self):
        return self.seconds


@pytest.mark.slow
def test_another_worker_joins_later():
    served = Served(process_setup("ssp", {}), limits(min_workers=2))
    with Workers(served.server.address, "ssp") as workers:
        workers.start(0, 1)
        served.wait_for_commits(20)
        workers.start(3)
        served.wait_for(lambda: served.changes(3) == ["joined"])
        served.wait_for_commits(20)
        run = finish(served)
    check_run("ssp", run)
    joined = next(m.time for m in run.memberships if m.worker == 3)
    assert joined > 0 and np.isinf(np.asarray(run.schedule.start)[:, 2]).all()
    assert np.asarray(run.schedule.start)[0, 3] >= joined


class Scripted:
    """A worker without a process: what it receives is looked at, and what it sends is what the test says."""

    def __init__(self, server, worker, incarnation="first"):
        from gcjax.parameter_server import flight, wire
        from gcjax.parameter_server.setups import fingerprint

        self.wire, self.worker = wire, worker
        self.connection = flight.connect(server.address, max_bytes=1 << 20)
        self.send("hello", worker=worker, incarnation=incarnation, fingerprint=fingerprint(server.setup))
        self.send("ready")

    def send(self, kind, body=None, **header):
        self.connection.send(self.wire.Message({"kind": kind, **header}, body))

    def receive(self, kind):
        """The next message of this kind."""
        while (message := self.connection.receive()).kind != kind:
            pass
        return message

    def push(self, order, value=1.0):
        """Answers an order with a gradient that is one number everywhere."""
        body = self.wire.to_bytes(jax.tree.map(lambda x: np.full(x.shape, value, x.dtype), shapes()))
        times = {"compute_start": 0.0, "unit_ends": [0.0] * order.header["num_units"], "send_start": 0.0}
        self.send("push", body, turn=order.header["turn"], loss=1.0, num_lost=0, is_finite=True, **times)


def shapes():
    task = setup(PROTOCOLS["asp"]).task
    return jax.eval_shape(task.init, jax.random.key(0))


def test_a_silent_worker_is_put_out_and_a_push_of_its_old_turn_is_in_no_commit():
    served = Served(setup(PROTOCOLS["asp"]), limits(3, lease=0.6, min_workers=1))
    worker = Scripted(served.server, 1)
    first = worker.receive("begin")
    served.wait_for(lambda: served.changes(1) == ["joined", "left"])
    worker.push(first)
    second = worker.receive("begin")
    assert served.changes(1)[-1] == "came back" and served.server.num_commits == 0
    assert second.header["turn"] == 1 and second.header["first_unit"] == 1 and second.header["last_arrived_turn"] == -1
    worker.push(first)
    worker.push(second)
    worker.push(second)
    third = worker.receive("begin")
    assert third.header["last_arrived_turn"] == 1
    worker.push(third)
    worker.push(worker.receive("begin"))
    run = served.end()  # although the worker has not hung up
    # The turn that was cut off, whose push came twice; that of the second turn arrived before it came once more.
    assert run.num_late == 1 and len(run.loss) == 3
    np.testing.assert_array_equal(run.schedule.unit[:, 0], [1, 2, 3])
    worker.connection.close()


@pytest.mark.slow
def test_a_push_that_lacks_a_field_is_refused():
    served = Served(setup(PROTOCOLS["asp"]), limits(1, min_workers=1))
    worker = Scripted(served.server, 0)
    order = worker.receive("begin")
    worker.send("push", turn=order.header["turn"], loss=1.0)
    worker.push(order)
    run = served.end()
    assert run.num_refused == 1 and len(run.loss) == 1
    worker.connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["worker_busy", pytest.param("worker_busy overlap", marks=pytest.mark.slow)])
def test_a_push_that_is_skipped_between_two_pushes_to_one_commit_leaves_the_record_whole(name, monkeypatch):
    with jax.enable_x64(True):
        run = Driven(name, monkeypatch, non_finite="skip")
        for worker in range(NUM_WORKERS):
            run.join(worker)
        for _ in range(2):
            for is_finite in (True, False, True, True):
                run.push(0, is_finite=is_finite)
            for worker in range(1, NUM_WORKERS):
                run.push(worker)
        result = run.end()
        assert problems(name, result) == {}
    assert any(m.change == "skipped" for m in result.memberships)


def test_a_worker_that_connects_twice_before_all_begin_counts_once(monkeypatch):
    run = Driven("bsp", monkeypatch, min_workers=2)
    for _ in range(2):
        run.connections.clear()
        run.join(0)
    assert run.server.memberships == ()
    run.join(1)
    assert [m.worker for m in run.server.memberships] == [0, 1]
    run.end()
