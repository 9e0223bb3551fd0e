"""Ctrl-C and SIGTERM at a server or a worker: it ends as Python ends, and the others learn of it."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from gcjax import parameter_server
from gcjax.parameter_server import Disconnected
from tests.parameter_server.processes import Served
from tests.parameter_server.runs import NUM_WORKERS, setup
from tests.protocols.test_rules import PROTOCOLS

PROCESS = """
import sys
from gcjax import parameter_server
from tests.parameter_server.runs import setup
from tests.protocols.test_rules import PROTOCOLS
role, name, address = sys.argv[1:]
if role == "server":
    server = parameter_server.Server(setup(PROTOCOLS[name]), parameter_server.Limits(10**6, min_workers=1))
    print(server.address, flush=True)
    server.run()
else:
    print("worker", flush=True)
    parameter_server.work(setup(PROTOCOLS[name]), address, worker=0, throttle=lambda worker, unit: 0.02)
"""


def started(role, name, address=""):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, role, name, address],
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
