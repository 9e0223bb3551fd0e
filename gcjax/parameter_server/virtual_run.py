"""The server in virtual time, for protocols whose turns it stops: its own decisions, on seconds that were measured.

Reports, stops and pushes take time, and the server deals with one message after the other. No gradient is computed.

Letters: T units of a worker, W workers.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax.parameter_server.clock import EventClock
from gcjax.parameter_server.commits import Commits
from gcjax.parameter_server.coordinator import Coordinator
from gcjax.parameter_server.limits import Limits
from gcjax.parameter_server.members import Members
from gcjax.parameter_server.setups import Setup
from gcjax.parameter_server.virtual_worker import Environment, VirtualWorker
from gcjax.parameter_server.wire import Message
from gcjax.protocols.base import Protocol
from gcjax.protocols.schedule import Schedule
from gcjax.stragglers.absences import Absences
from gcjax.tasks.base import Task


class Delays(NamedTuple):
    """What messages and the server take.

    Attributes:
      send: float64[W] seconds from the end of a worker's computing to the server's dealing with its push, of the size
        of a full gradient.
      receive: float64[W], from the server's order with the parameters to the first unit.
      latency: float64[W], of a message without parameters, in either direction.
      report: for which the server is busy with the report of a unit.
      push: for which it is busy with a push.
      commit: for which it is busy with a commit besides.
    """

    send: np.ndarray
    receive: np.ndarray
    latency: np.ndarray
    report: float
    push: float
    commit: float


class _Event(NamedTuple):
    """What is to happen; events are in order of these, and no two have the same number.

    Attributes:
      time: seconds, when it happens.
      arrival: seconds, when it would if the server were free.
      number: counted as they are noted.
      is_at_server: whether it waits until the server is free.
      action: `(now) -> None`.
    """

    time: float
    arrival: float
    number: int
    is_at_server: bool
    action: Callable[[float], None]


def virtual_schedule(
    protocol: Protocol,
    durations: np.ndarray,
    held_up_seconds: np.ndarray,
    delays: Delays,
    absences: Absences | None = None,
) -> Schedule:
    """The record of a run of the server in virtual time, until a worker has no unit any more.

    A worker that is told to stop, or to begin anew, hears of it in its unit; one that is held up does so later. When a
    worker leaves, the server knows at once, and what it has sent and the server has not dealt with is lost.

    Args:
      protocol: with a rule that stops turns (`Rule.stop`).
      durations: float[T, W] seconds; inf for a unit that never ends.
      held_up_seconds: float[T, W] seconds, from the begin of each unit, in which its worker is held up.
      delays: of messages and of the server.
      absences: when workers are away; never if None.

    Raises:
      ValueError: if nobody is there at the beginning.
    """
    run = _VirtualRun(protocol, np.asarray(durations, np.float64), np.asarray(held_up_seconds, np.float64), delays)
    return run.schedule(absences)


class _Connection:
    """To a worker: messages wait for the moment at which the server is done with what led to them."""

    def __init__(self) -> None:
        """Nothing waits."""
        self.outbox: list[Message] = []

    def send(self, message: Message) -> None:
        """Lets a message wait."""
        self.outbox.append(message)

    def close(self) -> None:
        """Nothing is to be done."""


class _VirtualRun:
    """The server and its workers; events are dealt with in the order of their time, and then in that of arrival."""

    def __init__(self, protocol: Protocol, durations: np.ndarray, held_up_seconds: np.ndarray, delays: Delays) -> None:
        """Durations and held-up seconds are float64[T, W]; `delays` are those of messages and of the server."""
        self._setup, self._delays = _setup(protocol, durations.shape[1]), delays
        self._now = self._server_free_time = 0.0
        self._clock = EventClock(lambda: self._now)
        self._commits, self._members = Commits(self._setup), Members(self._setup)
        self._events: list[_Event] = []  # a heap
        self._event_numbers, self._is_over = itertools.count(), False
        self._connections: dict[int, _Connection] = {}
        self._process_numbers = [0] * durations.shape[1]  # the number of the process that each worker is
        code, message_bytes = protocol.code, min(self._commits.push_sizes)  # bytes of a push of one message
        self._gradient_bytes = message_bytes * (1 if code is None else code.num_blocks)
        self._workers = [
            VirtualWorker(
                durations[:, worker],
                held_up_seconds[:, worker],
                message_bytes,
                continues_after_stop=code is not None,
                environment=self._environment_of_worker(worker),
            )
            for worker in range(durations.shape[1])
        ]

    def schedule(self, absences: Absences | None) -> Schedule:
        """Runs until a worker has no unit any more or nothing happens; returns the record."""
        self._begin(absences)
        while not self._is_over:
            timer_time = max(self._coordinator.next_timer, self._server_free_time)
            if timer_time < (self._events[0].time if self._events else math.inf):
                # The server sees to its timers only, which keeps it busy as long as a report does.
                self._act_at_server(timer_time, lambda now: None, self._delays.report)
                continue
            if not self._events or math.isinf(self._events[0].time):
                break
            event = heapq.heappop(self._events)
            if event.is_at_server and event.time < self._server_free_time:  # it waits; its arrival keeps its place
                heapq.heappush(self._events, event._replace(time=self._server_free_time))
            else:
                self._now = event.time
                event.action(event.time)
        return jax.device_get(self._commits.schedule(self._now))

    def _begin(self, absences: Absences | None) -> None:
        """Lets everybody join who is there, and notes who leaves and joins later."""
        num_workers = self._setup.num_workers
        is_present: np.ndarray = np.ones(num_workers, bool)
        changes: Iterable[tuple[float, int, bool]] = ()
        if absences is not None:
            absences = absences.validated(num_workers)
            is_present, changes = (
                np.asarray(absences.is_present),
                zip(*map(np.asarray, absences.changes()), strict=True),
            )
        if not is_present.any():
            raise ValueError("somebody must be there at the beginning; all workers are away then.")
        # As many commits as an int32 can count: no limit.
        limits = Limits(np.iinfo(np.int32).max, min_workers=int(is_present.sum())).validated(num_workers)
        self._coordinator = Coordinator(self._setup, limits, self._commits, self._members, self._clock)
        for worker in np.flatnonzero(is_present).tolist():
            self._join(worker, 0.0)
        for time, worker, joins in changes:
            self._add_event(float(time), partial(self._join if joins else self._leave, int(worker)), is_at_server=True)

    def _add_event(self, time: float, action: Callable[[float], None], *, is_at_server: bool) -> None:
        """Notes what happens at a time; what happens at the server waits until that is free."""
        heapq.heappush(self._events, _Event(time, time, next(self._event_numbers), is_at_server, action))

    def _environment_of_worker(self, worker: int) -> Environment:
        """What a worker acts on: the events of this run, after the seconds that its messages take."""
        # Seconds: of any message, and of the bytes of a full gradient besides.
        latency = float(self._delays.latency[worker])
        gradient_seconds = max(float(self._delays.send[worker]) - latency, 0.0)

        def send_push(now: float, message: Message) -> None:
            """Lets a push arrive at the server after the latency and its share in the seconds of a full gradient."""
            assert message.body is not None
            seconds = latency + gradient_seconds * message.body.size / self._gradient_bytes
            self._send_to_server(worker, now + seconds, message, self._delays.push)

        return Environment(
            call_at=lambda time, action: self._add_event(time, action, is_at_server=False),
            send_report=lambda now, message: self._send_to_server(worker, now + latency, message, self._delays.report),
            send_push=send_push,
            end_run=self._end_run,
        )

    def _end_run(self, now: float) -> None:
        """Ends the run."""
        self._now, self._is_over = now, True

    def _send_to_server(self, worker: int, arrival: float, message: Message, service_seconds: float) -> None:
        """Lets a message arrive at the server at `arrival` seconds, unless its worker is gone by then.

        The server is busy with it for `service_seconds`; not so with a message of a turn that is over.
        """
        process_number = self._process_numbers[worker]

        def handle(now: float) -> None:
            """The server deals with the message, if the process that has sent it is still there."""
            if process_number == self._process_numbers[worker]:
                is_late = message.header["turn"] != self._commits.log.last_turn_number(worker)
                self._act_at_server(
                    now,
                    lambda now: self._coordinator.handle_message(worker, message),
                    0.0 if is_late else service_seconds,
                )

        self._add_event(arrival, handle, is_at_server=True)

    def _act_at_server(self, now: float, action: Callable[[float], None], service_seconds: float) -> None:
        """Lets the server do `action(now)`, which takes `service_seconds`, and more for each commit.

        Before that it does what is due by its timers; then the messages leave that it has put into the outboxes of the
        connections.
        """
        self._now, num_commits = now, self._commits.count
        self._coordinator.handle_timers()
        action(now)
        self._server_free_time = now + service_seconds + self._delays.commit * (self._commits.count - num_commits)
        for worker, connection in self._connections.items():
            for message in connection.outbox:
                # A body has the parameters; both are float64[W].
                seconds = (self._delays.latency if message.body is None else self._delays.receive)[worker]
                self._send_to_worker(worker, self._server_free_time + float(seconds), message)
            connection.outbox.clear()

    def _send_to_worker(self, worker: int, arrival: float, message: Message) -> None:
        """Lets a message of the server arrive at `arrival` seconds, unless the worker is another process by then."""
        process_number = self._process_numbers[worker]

        def hear(now: float) -> None:
            """Gives the message to the worker, if that is the same process still."""
            if process_number == self._process_numbers[worker]:
                self._workers[worker].hear(now, message)

        self._add_event(arrival, hear, is_at_server=False)

    def _join(self, worker: int, now: float) -> None:
        """At `now` seconds, a new process takes part as this worker: it says hello, and then that it is ready."""
        self._process_numbers[worker] += 1
        connection = self._connections[worker] = _Connection()
        hello = {
            "kind": "hello",
            "worker": worker,
            "incarnation": str(self._process_numbers[worker]),
            "fingerprint": self._members.fingerprint,
            "last_turn": -1,  # none
        }
        self._members.greet(connection, Message(hello), self._coordinator.rule_state.alive, now)
        # The action is called with the same time, and keeps the server busy for 0 s.
        self._act_at_server(now, lambda now: self._coordinator.handle_message(worker, Message({"kind": "ready"})), 0.0)

    def _leave(self, worker: int, now: float) -> None:
        """At `now` seconds, the process of a worker is gone, with what it has not sent."""
        self._process_numbers[worker] += 1
        self._workers[worker].forget_turn()
        self._members.disconnect(self._connections.pop(worker))
        self._act_at_server(now, lambda now: self._coordinator.leave(worker, "it is away"), 0.0)  # in 0 s


def _setup(protocol: Protocol, num_workers: int) -> Setup:
    """A setup of the protocol whose model is one number a block, with loss 0: only its times are looked at."""
    num_blocks = 1 if protocol.code is None else protocol.code.num_blocks
    task = Task(
        data=(),
        init=lambda rng_key: jnp.zeros(num_blocks),
        loss=lambda params, batch, rng_key: jnp.zeros(()),
        unit_batch=lambda data, rng_key, worker, unit: (),
        chunk_batch=lambda data, rng_key, chunk, round_number: (),
        metrics=lambda params, data: {},
        num_chunks=1 if protocol.code is None else protocol.code.assignment.num_chunks,
    )
    return Setup(task, protocol, optax.sgd(1.0), num_workers, jax.random.key(0))
