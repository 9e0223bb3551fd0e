"""Runs with workers in threads, over connections in memory that can be cut and held up."""

import contextlib
import json
import threading
import time
from typing import Any, NamedTuple

import chex
import jax

from gcjax import parameter_server, protocols
from gcjax.parameter_server import flight
from gcjax.parameter_server.transport import Disconnected
from gcjax.parameter_server.wire import Message
from gcjax.protocols.conformance.structure import check_structure
from tests.parameter_server.runs import NUM_WORKERS, replay, setup

LEASE = 0.3
CHANGES = ("cut", "kill", "start", "stop", "go on")


class Change(NamedTuple):
    """What happens to a worker so many milliseconds after the change before."""

    milliseconds: int
    kind: str
    worker: int


class Killed(BaseException):
    """Ends the thread of a worker, as a signal ends a process."""


class Link:
    """Two queues of messages, which both ends see no more once it is cut, and not for now while it is held up."""

    def __init__(self):
        self.changed = threading.Condition()
        self.queues = {"server": [], "worker": []}
        self.is_cut = self.is_held = False

    def set(self, **fields):
        with self.changed:
            for name, value in fields.items():
                setattr(self, name, value)
            self.changed.notify_all()

    def send(self, to, message):
        with self.changed:
            if self.is_cut:
                raise Disconnected("cut.")
            self.queues[to].append(Message(json.loads(json.dumps(message.header)), message.body))
            self.changed.notify_all()

    def receive(self, at):
        with self.changed:
            while not self.is_cut and (self.is_held or not self.queues[at]):
                self.changed.wait()
            if self.is_cut and (self.is_held or not self.queues[at]):
                raise Disconnected("cut.")
            return self.queues[at].pop(0)


class End:
    """A `Connection`: one end of a link."""

    def __init__(self, link, here, there):
        self.link, self.here, self.there = link, here, there

    def send(self, message):
        self.link.send(self.there, message)

    def receive(self):
        return self.link.receive(self.here)

    def close(self):
        self.link.set(is_cut=True)


class Network:
    """A `Listener`, and the links of the workers, whose threads are known by their names."""

    def __init__(self):
        self.address, self.num_refused = "memory", 0
        self.links, self.killed, self.is_open = {}, set(), False

    def listen(self, address, on_connection, **options):
        self.on_connection, self.is_open = on_connection, True
        return self

    def connect(self, address, **options):
        name = threading.current_thread().name
        if name in self.killed:
            raise Killed
        if not self.is_open:
            raise Disconnected("nobody listens.")
        link = self.links[name] = Link()
        threading.Thread(target=self.on_connection, args=(End(link, "server", "worker"),), daemon=True).start()
        return End(link, "worker", "server")

    def close(self):
        self.is_open = False
        time.sleep(0.01)
        for link in list(self.links.values()):
            link.set(is_cut=True)


class ChaosRun:
    """A server, its workers, and what happens to them."""

    def __init__(self, protocol, monkeypatch, *, num_commits=10_000, seconds=30.0, **limits):
        self.protocol, self.network, self.names = protocol, Network(), {}
        self.results: dict[str, Any] = {}
        monkeypatch.setattr(flight, "listen", self.network.listen)
        monkeypatch.setattr(flight, "connect", self.network.connect)
        limits = parameter_server.Limits(num_commits, seconds=seconds, lease=LEASE, **limits)
        self.server = parameter_server.Server(setup(protocol), limits)
        self.thread = threading.Thread(target=self._in_thread, args=("server", self.server.run), daemon=True)
        for worker in range(NUM_WORKERS):
            self.start(worker)
        self.thread.start()

    def _in_thread(self, name, function):
        try:
            with jax.enable_x64(True):
                self.results[name] = function()
        except BaseException as error:
            self.results[name] = error

    def start(self, worker):
        if worker in self.names and self.names[worker] not in self.network.killed:
            return
        name = self.names[worker] = f"worker {worker}, process {len(self.network.killed)}"

        def work():
            return parameter_server.work(
                setup(self.protocol),
                "memory:1",
                worker=worker,
                throttle=lambda worker, unit: 0.002 * (1 + worker % 2),
                patience=1.0,
            )

        threading.Thread(target=self._in_thread, args=(name, work), name=name, daemon=True).start()

    def change(self, change):
        """Does what is to happen, where it can."""
        time.sleep(change.milliseconds / 1000)
        name = self.names[change.worker]
        if change.kind == "start":
            self.start(change.worker)
        elif change.kind == "kill":
            self.network.killed.add(name)
        link = self.network.links.get(name)
        if link is not None and change.kind != "start":
            fields = {"cut": {"is_cut": True}, "kill": {"is_cut": True}, "stop": {"is_held": True}}
            link.set(**fields.get(change.kind, {"is_held": False}))

    def wait(self, condition, seconds=10.0):
        """Whether the condition comes about in time."""
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end and self.thread.is_alive():
            time.sleep(0.005)
        return condition()

    def end(self, num_commits=5):
        """Lets everybody take part again, and stops the run after some more commits."""
        for worker in range(NUM_WORKERS):
            self.change(Change(0, "go on", worker))
            self.change(Change(0, "start", worker))
        goal = self.server.num_commits + num_commits
        assert self.wait(lambda: self.server.num_commits >= goal), f"stuck: {self.results}"
        self.server.stop()
        self.thread.join(60)
        if isinstance(self.results["server"], BaseException):
            raise self.results["server"]
        return self.results["server"]


def chaos(protocol, changes, monkeypatch, **limits):
    """The run in which these changes happen once there are some commits."""
    run = ChaosRun(protocol, monkeypatch, **limits)
    assert run.wait(lambda: run.server.num_commits >= 3, 20.0), f"does not begin: {run.results}"
    for change in changes:
        run.change(change)
    return run.end()


def problems(protocol, run):
    """By name, what finds that a run is not what it must be."""
    problems = {}
    with _reported(problems, "structure"):
        check_structure(run.schedule, protocol)
    specification = protocol.specification(NUM_WORKERS)
    if specification.members is not None:
        with _reported(problems, "promise"):
            kept = protocols.check(run.schedule, specification, memberships=run.memberships)
            assert kept, str(kept)
    with _reported(problems, "replay"):
        chex.assert_trees_all_close(run.params, replay(protocol, run).params, rtol=1e-9, atol=1e-12)
    return problems


@contextlib.contextmanager
def _reported(problems, name):
    """Puts an error of the block into the dict."""
    try:
        yield
    except (ValueError, AssertionError) as error:
        problems[name] = str(error)[:600]
