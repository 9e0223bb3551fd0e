"""Workers as processes of their own, which can be killed, stopped and started again."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time

import jax

from gcjax import parameter_server
from tests.parameter_server.runs import setup
from tests.protocols.test_rules import PROTOCOLS

UNIT_SECONDS = 0.01


def process_setup(protocol, options):
    """The setup of a protocol, whose name is what a process is told."""
    return setup(PROTOCOLS[protocol], **options)


def _work(address, protocol, worker, unit_seconds, options):
    """What a process does."""
    parameter_server.work(
        process_setup(protocol, options),
        address,
        worker=worker,
        throttle=lambda worker, unit: unit_seconds,
        patience=60.0,
    )


class Workers:
    """Processes by the number of the worker; all end with the block."""

    def __init__(self, address, protocol, unit_seconds=UNIT_SECONDS, **options):
        self.arguments = address, protocol
        self.unit_seconds, self.options = unit_seconds, options
        self.processes = {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.processes.values():
            with contextlib.suppress(ValueError, AttributeError):
                process.kill()
                process.join(10)

    def start(self, *workers):
        context = multiprocessing.get_context("spawn")
        for worker in workers:
            arguments = (*self.arguments, worker, self.unit_seconds, self.options)
            self.processes[worker] = context.Process(target=_work, args=arguments, daemon=True)
            self.processes[worker].start()

    def send(self, worker, number):
        os.kill(self.processes[worker].pid, number)

    def kill(self, worker):
        self.send(worker, signal.SIGKILL)
        self.processes[worker].join(10)


class Served:
    """A server that runs in a thread, and what it returns."""

    def __init__(self, setup, limits, **arguments):
        self.server = parameter_server.Server(setup, limits, **arguments)
        self.result = self.error = None
        self.thread = threading.Thread(target=self._run, args=(jax.config.jax_enable_x64,), daemon=True)
        self.thread.start()

    def _run(self, wide):
        try:
            with jax.enable_x64(wide):
                self.result = self.server.run()
        except BaseException as error:
            self.error = error

    def wait_for(self, condition, seconds=60.0):
        """Waits until the condition holds; fails if it never does."""
        end = time.monotonic() + seconds
        while not condition():
            assert self.thread.is_alive(), f"the run has ended: {self.error!r}"
            assert time.monotonic() < end, "the condition did not come about"
            time.sleep(0.01)

    def wait_for_commits(self, count):
        goal = self.server.num_commits + count
        self.wait_for(lambda: self.server.num_commits >= goal)

    def changes(self, worker):
        return [membership.change for membership in self.server.memberships if membership.worker == worker]

    def end(self, seconds=90.0):
        self.thread.join(seconds)
        assert not self.thread.is_alive(), "the run has not ended"
        if self.error is not None:
            raise self.error
        return self.result
