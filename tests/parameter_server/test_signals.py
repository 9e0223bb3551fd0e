"""Ctrl-C and SIGTERM at a server or a worker: it ends as Python ends, and the others learn of it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from gcjax import parameter_server
from gcjax.parameter_server import Disconnected
from tests.parameter_server.processes import Served
from tests.parameter_server.runs import NUM_WORKERS, setup
from tests.protocols.test_rules import PROTOCOLS

PROCESS = """
import sys
import jax
import jax.numpy as jnp
from gcjax import parameter_server
from gcjax.parameter_server import flight
from tests.parameter_server.runs import setup
from tests.protocols.test_rules import PROTOCOLS

def send(connection, message, send=flight._Exchange.send):
    if message.kind == "push":
        print("push", flush=True)
    send(connection, message)

flight._Exchange.send = send

def throttle(worker, unit):
    print("unit", flush=True)
    return 0.02 if size == "small" else 0.5

role, name, size, address = sys.argv[1:]
one = setup(PROTOCOLS[name])
if size == "large":  # pushes of 40 MB
    task = one.task._replace(
        init=lambda rng_key: jnp.ones(10**7, jnp.float32),
        loss=lambda params, batch, rng_key: (params**2).sum() + 0 * sum(x.sum() for x in jax.tree.leaves(batch)),
    )
    one = one._replace(task=task)
if role == "server":
    server = parameter_server.Server(one, parameter_server.Limits(10**6, min_workers=1, lease=1000.0))
    print(server.address, flush=True)
    server.run()
else:
    parameter_server.work(one, address, worker=0, throttle=throttle)
"""


def started(role, name, address="", size="small"):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, role, name, size, address],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def check_end(process, number):
    """The process ends by the signal, and no thread says anything."""
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -number, errors
    assert errors.count("Traceback") == (number == signal.SIGINT) and "Exception in thread" not in errors
    assert errors.endswith("KeyboardInterrupt\n" if number == signal.SIGINT else ""), errors


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["asp", "worker_busy overlap"])
def test_a_worker_that_gets_a_signal(name, number):
    served = Served(setup(PROTOCOLS[name]), parameter_server.Limits(10**6, seconds=100.0, min_workers=1))
    process = started("worker", name, served.server.address)
    try:
        served.wait_for_commits(3)
        check_end(process, number)
    finally:
        process.kill()
    served.wait_for(lambda: served.changes(0) == ["joined", "left"])
    served.server.stop()
    assert len(served.end().loss) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_gets_a_signal(number):
    process, results, has_begun = started("server", "asp"), [], threading.Event()
    assert process.stdout is not None
    address = process.stdout.readline().strip()

    def work():
        def throttle(worker, unit):
            if unit == 5:
                has_begun.set()
            return 0.02

        try:
            one = setup(PROTOCOLS["asp"])
            results.append(parameter_server.work(one, address, worker=NUM_WORKERS - 1, throttle=throttle, patience=1.0))
        except Disconnected as error:
            results.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        assert has_begun.wait(60)
        check_end(process, number)
    finally:
        process.kill()
    thread.join(60)
    # Ctrl-C ends the run for all; a server that is simply gone may come back, and is looked for.
    assert isinstance(results[0], parameter_server.Report if number == signal.SIGINT else Disconnected)


@pytest.mark.slow
def test_a_worker_that_gets_a_signal_in_a_push_to_a_server_that_is_stopped():
    """The push does not fit into what the system takes for a process that does not read, so sending it never ends."""
    with contextlib.ExitStack() as stack:
        server = started("server", "asp", size="large")
        stack.callback(server.kill)
        worker = started("worker", "asp", server.stdout.readline().strip(), size="large")
        stack.callback(worker.kill)
        assert worker.stdout.readline() == "unit\n"
        server.send_signal(signal.SIGSTOP)
        assert worker.stdout.readline() == "push\n"
        time.sleep(0.5)  # until it is under way
        check_end(worker, signal.SIGINT)
