"""Messages over Flight to a process that has stopped reading: nobody waits for it, and none is lost."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

from gcjax.parameter_server import flight
from gcjax.parameter_server.transport import Disconnected
from gcjax.parameter_server.wire import Message

MAX_BYTES = 1 << 20
SIZES = [40_000, 0, 40_000, *[MAX_BYTES] * 16, 0, 40_000]  # of bodies; more in all than any buffer on the way holds

READER = """
import os, signal, sys
from gcjax.parameter_server import flight
from gcjax.parameter_server.wire import Message

connection = flight.connect(sys.argv[1], max_bytes=1 << 20)
connection.send(Message({"kind": "stopped"}))
os.kill(os.getpid(), signal.SIGSTOP)
while (message := connection.receive()).kind != "end":
    print(message.header["number"], 0 if message.body is None else message.body.size, flush=True)
connection.close()
"""


def test_nobody_waits_for_who_has_stopped_reading_and_all_messages_come_in_order():
    can_send, is_sent = threading.Event(), threading.Event()

    def send_all(connection):
        connection.receive()
        can_send.wait()
        for number, size in enumerate(SIZES):
            connection.send(Message({"kind": "numbered", "number": number}, np.zeros(size, np.uint8)))
        connection.send(Message({"kind": "end"}))
        connection.close()  # as a server does whose run is done
        is_sent.set()

    listener = flight.listen("127.0.0.1:0", send_all, max_bytes=MAX_BYTES)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", READER, listener.address], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # until it has stopped itself
        can_send.set()
        assert is_sent.wait(30.0)  # while the other side reads nothing
        process.send_signal(signal.SIGCONT)
        lines, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        listener.close()
    assert [tuple(map(int, line.split())) for line in lines.splitlines()] == list(enumerate(SIZES))


SUSPENDED = """
import os, signal, time
from gcjax.parameter_server import flight

def suspend(connection):
    connection.receive()
    time.sleep(5)  # gRPC of itself asks for a sign of life when messages have come; later it does not
    os.kill(os.getpid(), signal.SIGSTOP)

print(flight.listen("127.0.0.1:0", suspend, max_bytes=1).address, flush=True)
time.sleep(1000)
"""


@pytest.mark.slow
def test_a_server_that_is_suspended_is_missed(monkeypatch):
    monkeypatch.setattr(flight, "KEEPALIVE_SECONDS", 10.0)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", SUSPENDED], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        connection = flight.connect(process.stdout.readline().strip(), max_bytes=1)
        connection.send(Message({"kind": "alive"}))
        watchdog = threading.Timer(200.0, process.kill)  # which would end the connection, too, with other words
        watchdog.start()
        with pytest.raises(Disconnected, match="ping timeout"):
            connection.receive()
        watchdog.cancel()
    finally:
        process.kill()


def test_a_worker_asks_for_signs_of_life_as_often_as_servers_bear(monkeypatch):
    asked = {}
    monkeypatch.setattr(flight.flight, "connect", lambda location, **options: asked.update(options) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        flight.connect("127.0.0.1:1", max_bytes=1)
    assert 300_000 < dict(asked["generic_options"])["grpc.keepalive_time_ms"] < 600_000


class OneAtATime:
    """A writer that, as gRPC's, must not be used by two threads at once, nor after its end."""

    def __init__(self):
        self.lock, self.is_closing, self.is_closed, self.mistakes = threading.Lock(), threading.Event(), False, []

    def write_metadata(self, header):
        if self.is_closed or not self.lock.acquire(blocking=False):
            self.mistakes.append(header)
            return
        time.sleep(0.001)
        self.lock.release()

    def close(self):
        with self.lock:
            self.is_closing.set()
            time.sleep(0.1)
            self.is_closed = True


def test_nothing_is_written_while_an_exchange_ends_or_afterwards():
    writer = OneAtATime()
    exchange = flight._Exchange(None, writer, max_bytes=100)
    exchange.send(Message({"kind": "order"}))
    exchange.close()
    closing = threading.Thread(target=exchange.wait_until_written)
    closing.start()
    writer.is_closing.wait(5)
    with pytest.raises(Disconnected):
        exchange.send(Message({"kind": "end"}))
    closing.join(5)
    with pytest.raises(Disconnected):
        exchange.send(Message({"kind": "end"}))
    assert writer.is_closed and not writer.mistakes and not closing.is_alive()


def batch(column):
    return pa.record_batch([column], names=["bytes"])


def test_the_bytes_of_a_batch_are_read_where_they_are():
    np.testing.assert_array_equal(flight._array(batch(pa.array(range(10), pa.uint8()).slice(3, 4))), [3, 4, 5, 6])
    assert flight._array(batch(pa.array([], pa.uint8()))).size == 0


@pytest.mark.parametrize("column", [pa.array([1, None], pa.uint8()), pa.array([1, 2], pa.uint16())])
def test_a_batch_that_is_not_what_it_says_is_refused(column):
    with pytest.raises(ValueError):
        flight._array(batch(column))
