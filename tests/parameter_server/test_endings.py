"""How a worker learns that a run is done, or that it is not wanted."""

import queue
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import optax
import pytest

from gcjax import protocols
from gcjax.parameter_server import Disconnected, Limits, Refused, Server, flight, wire, work
from gcjax.parameter_server.wire import Message
from gcjax.parameter_server.worker import NUM_PINGS, _Worker
from tests.parameter_server.runs import live_run, setup


def test_the_record_ends_when_the_run_does(monkeypatch):
    """Telling the workers, and waiting for them to hang up, is not in it."""
    close = Server.close

    def slow_close(server):
        close(server)
        time.sleep(1.0)

    monkeypatch.setattr(Server, "close", slow_close)
    run, _ = live_run(protocols.asp(), num_commits=10)
    assert run.schedule.time[9] <= run.schedule.horizon < run.schedule.time[9] + 0.9


class Connection:
    """Says what it is told to; after its last message it is lost, and nothing can be sent but pings and hello."""

    is_done_before = False

    def __init__(self, *messages):
        self.messages, self.sent, self.is_lost = list(messages), [], threading.Event()

    def send(self, message):
        if message.kind == "push":
            self.is_lost.wait(5)
            raise Disconnected("gone")
        self.sent.append(message.kind)

    def receive(self):
        if "ready" not in self.sent and not self.is_done_before:
            return Message({"kind": "pong", "now": 0.0, "lease": 1000.0, "is_ready": True})
        if not self.messages:
            self.is_lost.set()
            raise Disconnected("gone")
        return self.messages.pop(0)

    def close(self):
        pass


def serve(*messages):
    layout = wire.layout_of(jax.eval_shape(SETUP.task.init, SETUP.init_key))
    _Worker(SETUP, 0, lambda worker, unit: 0.0).serve(Connection(*messages), layout)


SETUP = setup(protocols.asp())


def begin():
    header = {
        "turn": 0,
        "first_unit": 0,
        "num_units": 1,
        "code_row": 0,
        "weight": 1.0,
        "pulls_before_push": False,
        "can_be_cut_off": False,
    }
    header |= {
        "turn_seconds": 0.0,
        "lasts_until_stopped": False,
        "last_arrived_turn": -1,
        "version": 0,
        "begins_anew": False,
    }
    return Message({"kind": "begin", **header}, wire.to_bytes(jax.tree.map(np.asarray, SETUP.initial_params())))


def test_a_run_that_is_done_while_a_turn_is_under_way_is_done():
    serve(begin(), Message({"kind": "end"}))
    with pytest.raises(Disconnected):
        serve(begin())


def test_a_run_that_is_done_before_a_worker_has_joined_is_done(monkeypatch):
    monkeypatch.setattr(Connection, "is_done_before", True)
    serve(Message({"kind": "end"}))


def test_a_worker_whose_first_message_still_waits_learns_that_the_run_is_done():
    server = Server(SETUP, Limits(1))
    worker = threading.Thread(target=lambda: reports.append(work(SETUP, server.address, worker=0, patience=1.0)))
    reports = []
    worker.start()
    while server._events.empty():  # nobody deals with what is in there
        time.sleep(0.01)
    server.close()
    worker.join(30)
    assert len(reports) == 1 and reports[0].num_units == 0


def test_a_worker_that_writes_after_the_end_of_its_connection_learns_that_the_run_is_done(monkeypatch):
    server, reports = Server(SETUP, Limits(1)), []
    is_done, send = server._is_done, flight._Exchange.send

    class Events(queue.SimpleQueue):
        def put(self, event):
            super().put(event)
            if event.message is not None:
                is_done.wait(30)  # the connection's thread looks at it next, and reads no more

    def send_hello_slowly(connection, message):
        send(connection, message)
        if message.kind == "hello":
            is_done.wait(30)
            time.sleep(0.3)  # the server ends the connection, unless it waits for the worker

    monkeypatch.setattr(server, "_events", Events())
    monkeypatch.setattr(flight._Exchange, "send", send_hello_slowly)
    worker = threading.Thread(target=lambda: reports.append(work(SETUP, server.address, worker=0, patience=1.0)))
    worker.start()
    while server._events.empty():
        time.sleep(0.01)
    server.close()
    worker.join(30)
    assert len(reports) == 1 and reports[0].num_units == 0


class VirtualTime:
    """A clock that only sleeping moves, of the thread that has made it; it stands for the module `time`.

    Workers of other tests may still look for their server, and sleep meanwhile.
    """

    def __init__(self):
        self.seconds, self.thread = 0.0, threading.current_thread()

    def monotonic(self):
        return self.seconds

    def sleep(self, seconds):
        if threading.current_thread() is self.thread:
            self.seconds += seconds
        else:
            time.sleep(seconds)


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_server_that_is_gone_is_looked_for_from_then_on(comes_back, monkeypatch):
    virtual_time, patience = VirtualTime(), 0.3

    class LongConnection(Connection):
        """It is lost after more than `patience`."""

        def receive(self):
            if not self.messages and "ready" in self.sent:
                virtual_time.seconds += 2 * patience
            return super().receive()

    answers = [LongConnection(), None, *[Connection(Message({"kind": "end"}))] * comes_back]

    def connect(address, **options):
        """The next connection, or nobody answers; nor for workers of other tests that still look for their server."""
        is_ours = threading.current_thread() is virtual_time.thread
        if connection := answers.pop(0) if answers and is_ours else None:
            return connection
        raise Disconnected("nobody answers.")

    monkeypatch.setattr(flight, "connect", connect)
    monkeypatch.setattr("gcjax.parameter_server.worker.time", virtual_time)
    if comes_back:
        assert work(SETUP, "127.0.0.1:1", worker=0, patience=patience).num_connections == 2
    else:
        with pytest.raises(Disconnected, match="nobody answers. It was looked for for 0.3 s"):
            work(SETUP, "127.0.0.1:1", worker=0, patience=patience)
    assert not answers


class ConnectionThatPushes(Connection):
    """It is lost once a push has been sent."""

    def send(self, message):
        self.sent.append(message.kind)

    def receive(self):
        while "ready" in self.sent and not self.messages and "push" not in self.sent:
            time.sleep(0.001)
        return super().receive()


class ConnectionThatIsLostAtPush(ConnectionThatPushes):
    """It is lost before a push is sent."""

    def send(self, message):
        super().send(message)
        if message.kind == "push":
            raise Disconnected("gone")


@pytest.mark.parametrize(("connection", "is_kept"), [(ConnectionThatPushes, True), (ConnectionThatIsLostAtPush, False)])
def test_what_was_pushed_is_kept_if_the_connection_is_lost_and_what_was_not_is_given_up(connection, is_kept):
    momentum = optax.sgd(0.1, momentum=0.9)
    one = setup(protocols.local_sgd(num_local_steps=1))._replace(optimizer=momentum)
    worker = _Worker(one, 0, lambda worker, unit: 0.0)
    with pytest.raises(Disconnected):
        worker.serve(connection(begin()), wire.layout_of(jax.eval_shape(one.task.init, one.init_key)))
    (trace,) = jax.tree.leaves(worker._program._opt_state)
    assert (np.asarray(trace) != 0).any() == is_kept
    assert worker._last_pushed_turn == (0 if is_kept else -1) and worker._last_turn == 0


@pytest.mark.parametrize(
    "protocol", [protocols.local_sgd(num_local_steps=1), protocols.worker_busy(overlap=True)], ids=["local", "overlap"]
)
def test_a_worker_says_which_turn_it_has_begun_last_also_if_it_has_not_pushed(protocol):
    hellos = []

    class Remembering(Connection):
        """It is lost before a push, and remembers how the worker has said who it is."""

        def send(self, message):
            if message.kind == "hello":
                hellos.append(message.header["last_turn"])
            super().send(message)

    one = setup(protocol)
    worker = _Worker(one, 0, lambda worker, unit: 0.0)
    layout = wire.layout_of(jax.eval_shape(one.task.init, one.init_key))
    for _ in range(2):
        with pytest.raises(Disconnected):
            worker.serve(Remembering(begin()), layout)
    assert hellos == [-1, 0]


def test_an_order_that_comes_before_a_worker_has_joined_again_is_none():
    class Early(Connection):
        """An order comes before the answers to pings."""

        def receive(self):
            if "ping" in self.sent and not self.is_lost.is_set():
                self.is_lost.set()
                return begin()
            return super().receive()

    early = Early(Message({"kind": "end"}))
    _Worker(SETUP, 0, lambda worker, unit: 0.0).serve(
        early, wire.layout_of(jax.eval_shape(SETUP.task.init, SETUP.init_key))
    )
    assert early.sent == ["hello", *["ping"] * NUM_PINGS, "ready"]


def test_answers_of_a_server_that_is_not_ready_say_nothing_of_its_clock():
    class NotReady(Connection):
        """Its first three answers are of another clock."""

        def receive(self):
            answer = super().receive()
            if self.sent.count("ping") <= 3 and answer.kind == "pong":
                return Message({**answer.header, "now": 1e6, "is_ready": False})
            return answer

    connection = NotReady(Message({"kind": "end"}))
    _, offset = _Worker(SETUP, 0, lambda worker, unit: 0.0)._join_server(connection)
    assert connection.sent == ["hello", *["ping"] * (3 + NUM_PINGS), "ready"]
    assert offset == pytest.approx(-time.monotonic(), abs=60)


def test_a_refusal_that_comes_late_is_one():
    with pytest.raises(Refused, match="something else"):
        serve(Message({"kind": "refused", "why": "the server runs something else"}))


SOMEBODY_HANGS_ON = """
from gcjax.parameter_server import flight
listener = flight.listen("127.0.0.1:0", lambda connection: connection.receive(), max_bytes=1)
connection = flight.connect(listener.address, max_bytes=1)
listener.close()
print("closed")
"""


@pytest.mark.slow
def test_a_process_whose_listener_is_closed_ends_although_somebody_has_not_hung_up():
    result = subprocess.run(
        [sys.executable, "-c", SOMEBODY_HANGS_ON], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (0, "closed\n"), result.stderr
