"""One worker, a thousand, and two servers in one process."""

import threading
import time

import jax
import numpy as np
import optax
import pytest

from gcjax import engine, parameter_server, protocols, tasks
from gcjax.parameter_server import Limits, Server, Setup, flight, wire
from gcjax.parameter_server.server import _Event
from gcjax.parameter_server.setups import fingerprint
from gcjax.parameter_server.wire import Message
from tests.parameter_server.driven import Connection, Listener
from tests.parameter_server.runs import KEY

OPTIMIZER = optax.sgd(0.05)
ALONE = {
    "bsp": protocols.bsp(),
    "elastic_averaging": protocols.elastic_averaging(num_local_steps=2),
    "k_async": protocols.k_async(num_contributions=1),
    "local_sgd": protocols.local_sgd(num_local_steps=3),
    "ssp": protocols.ssp(staleness=1),
    "stsyn": protocols.stsyn(num_local_steps=2, num_waited=1),
    "worker_busy": protocols.worker_busy(),
    "worker_busy overlap": protocols.worker_busy(overlap=True),
}


def setup(protocol, num_workers, key=KEY):
    return Setup(tasks.linear_regression(num_chunks=4), protocol, OPTIMIZER, num_workers, key)


def started(one, num_workers):
    """A server whose workers are threads."""
    server = Server(one, Limits(6, seconds=60.0))
    for worker in range(num_workers):
        threading.Thread(
            target=parameter_server.work, args=(one, server.address), kwargs={"worker": worker}, daemon=True
        ).start()
    return server


def check(one, run):
    """The record keeps to its promise, and its replay gives the same parameters."""
    again = engine.replay(one.task, one.protocol, OPTIMIZER, run.schedule, rng_key=one.rng_key)
    np.testing.assert_allclose(*(jax.tree.leaves(x.params)[0] for x in (again, run)), rtol=1e-4, atol=1e-6)
    assert len(run.loss) == 6
    specification = one.protocol.specification(one.num_workers)
    kept = protocols.check(run.schedule, specification)
    assert kept, str(kept)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ALONE))
def test_one_worker(name):
    one = setup(ALONE[name], 1)
    check(one, started(one, 1).run())


@pytest.mark.slow
def test_two_servers_in_one_process():
    setups = [setup(protocols.ssp(staleness=1), 2), setup(protocols.bsp(), 2, jax.random.key(5))]
    servers, runs = [started(one, 2) for one in setups], {}

    def run(number):
        runs[number] = servers[number].run()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number, one in enumerate(setups):
        check(one, runs[number])


class Many:
    """A server with many workers that compute nothing, event by event."""

    def __init__(self, protocol, num_workers, monkeypatch):
        monkeypatch.setattr(flight, "listen", lambda *args, **options: Listener())
        one = setup(protocol, num_workers)
        self.server = Server(one, Limits(10**6, lease=1000.0))
        self.connections = [Connection() for _ in range(num_workers)]
        self.body = wire.to_bytes(jax.tree.map(np.ones_like, one.initial_params()))
        hello = {"kind": "hello", "incarnation": "", "fingerprint": fingerprint(one)}
        for worker, connection in enumerate(self.connections):
            self.deal(connection, Message({**hello, "worker": worker}))
            self.deal(connection, Message({"kind": "ready"}))

    def deal(self, connection, message):
        self.server._events.put(_Event(connection, message))
        self.server._handle_next_event()

    def push_all(self, workers):
        """Each answers its last order."""
        for worker in workers:
            orders = [m for m in self.connections[worker].sent if m.kind == "begin"]
            now = time.monotonic()
            header = {"turn": orders[-1].header["turn"], "compute_start": now, "unit_ends": [now], "send_start": now}
            header |= {"kind": "push", "loss": 1.0, "is_finite": True, "num_lost": 0}
            self.connections[worker].sent.clear()
            self.deal(self.connections[worker], Message(header, self.body))


def a_round_of_all(num_workers, monkeypatch):
    """Two rounds of BSP; before the second one a worker is lost."""
    many = Many(protocols.bsp(), num_workers, monkeypatch)
    many.push_all(range(num_workers))
    assert many.server.num_commits == 1
    many.deal(many.connections[3], None)
    many.push_all(worker for worker in range(num_workers) if worker != 3)
    assert many.server.num_commits == 2
    many.server.stop()
    return many.server.run()


def test_forty_workers(monkeypatch):
    run = a_round_of_all(40, monkeypatch)
    assert (np.asarray(run.schedule.worker) >= 0).sum(axis=1).tolist() == [40, 39]


@pytest.mark.slow
def test_a_thousand_workers(monkeypatch):
    run = a_round_of_all(1000, monkeypatch)
    assert (np.asarray(run.schedule.worker) >= 0).sum(axis=1).tolist() == [1000, 999]
    specification = protocols.bsp().specification(1000)
    assert protocols.check(run.schedule, specification, memberships=run.memberships)
