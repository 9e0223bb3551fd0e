"""The server: parameters, the rule and the clock, in one thread that deals with one event after the other.

Letters: W workers, E commits.
"""

import contextlib
import math
import queue
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gcjax import _validate
from gcjax.parameter_server import flight, wire
from gcjax.parameter_server.clock import EventClock
from gcjax.parameter_server.commits import Commits
from gcjax.parameter_server.coordinator import Coordinator
from gcjax.parameter_server.limits import Limits
from gcjax.parameter_server.live_run import LiveRun, live_run
from gcjax.parameter_server.members import Members
from gcjax.parameter_server.message_times import PUSH, REPORT, SIGN
from gcjax.parameter_server.online_check import OnlineCheck, ViolationError
from gcjax.parameter_server.run_end import RunEnd
from gcjax.parameter_server.security import NO_SECURITY, Security, check_server
from gcjax.parameter_server.setups import Setup, check_setup
from gcjax.parameter_server.transport import Connection, Disconnected, Listener
from gcjax.parameter_server.wire import Message
from gcjax.protocols.conformance.memberships import Membership

_SEND_TIME_FIELDS = {PUSH: "send_start", REPORT: "unit_end", SIGN: "sent"}
"""By the kind of a message, the entry of its header that says when it was sent."""


_END = Message({"kind": "end"})


class _Event(NamedTuple):
    """Something that a connection's thread has seen: a message, or None for the end of the connection."""

    connection: Connection
    message: Message | None


class Server:
    """Listens from the moment it is made; `run` serves until the run is done.

    Attributes:
      setup: what is trained.
      address: HOST:PORT that it listens at.
    """

    def __init__(
        self,
        setup: Setup,
        limits: Limits,
        *,
        address: str = "127.0.0.1:0",
        security: Security = NO_SECURITY,
        checkpoints: str | Path | None = None,
        checkpoint_every: int = 100,
        sync_seconds: float = 1.0,
        check: bool = False,
    ) -> None:
        """Listens at an address; goes on with the run that a folder has.

        Args:
          setup: what is trained.
          limits: when the run ends.
          address: HOST:PORT; port 0 for any free one.
          security: the token and the certificate.
          checkpoints: a folder for the log and the checkpoints, with which a server that was killed is started again.
          checkpoint_every: commits between two checkpoints. After the last one they are computed again at a start.
          sync_seconds: the log is forced onto the disk at the first commit this long after the last time, before
            anybody learns of the commit: 0 at each commit, inf never. If the machine fails, later ones can be lost.
          check: whether the run is held against the protocol's specification while it goes on; what violates it ends
            the run with a `ViolationError`.

        Raises:
          ValueError: if the protocol cannot be served, or has no specification that a run could be held against; if
            nobody can listen at the address, or not with this security; if the folder is of another setup, or another
            server writes to it.
        """
        check_setup(setup)
        _validate.instance("limits", limits, Limits, "gcjax.parameter_server.Limits(200)")
        self.setup, self._limits = setup, limits.validated(setup.num_workers)
        check_server(address, security)
        _check_non_finite(setup, limits)
        self._clock, self._commits, self._members = EventClock(), Commits(setup), Members(setup)
        self._coordinator = Coordinator(setup, self._limits, self._commits, self._members, self._clock)
        self._service_seconds: list[float] = []
        self._measured_from = 0.0
        self._next_lease_end = math.inf
        self._is_stopped = self._is_serving = False
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._is_done = threading.Event()
        self._has_checkpoints, self._says_end = checkpoints is not None, False
        num_bytes = max(self._commits.updates.layout.num_bytes, self._commits.push_sizes[-1])
        self._is_ready = False
        self._listener: Listener = flight.listen(address, self._on_connection, max_bytes=num_bytes, security=security)
        try:  # workers that come now wait, as long as it takes
            if checkpoints is not None:
                self._recover(Path(checkpoints), checkpoint_every, sync_seconds)
            self._check = OnlineCheck(setup, self._commits.log) if check else None
            self._coordinator.rule_state.warm_up()
            self._commits.warm_up()
        except BaseException:
            self._close_connections()
            raise
        self._is_ready = True
        self.address = self._listener.address

    def run(self) -> LiveRun:
        """Serves until all commits are made, the time is over, or it is stopped; returns what has happened.

        If anything else ends it, for example Ctrl-C, and it has a folder of checkpoints, the workers are not told that
        the run is done: they wait for a server that goes on with the folder, as long as their patience says.

        Raises:
          ViolationError: if an event violates the protocol's specification, where the run is checked.
        """
        self._is_serving, can_go_on = True, self._has_checkpoints
        try:
            if not self.is_over:  # else it is the run that the folder has, in which nothing happens any more
                self._commits.log.go_on()
            while not self.is_over:
                self._handle_next_event()
            # Telling workers so, and waiting for them to hang up, comes after it.
            end_seconds = self._commits.log.end_seconds(self._clock.now())
            if self._check is not None:
                self._check.end(end_seconds)
            can_go_on = False
            self._commits.save(is_last=True)
            end = self._commits.log.write_end(self._end_at(end_seconds))
        except ViolationError:
            can_go_on = False
            self._commits.save(is_last=True)
            raise
        finally:
            self._is_serving = False
            if can_go_on:
                self._close_connections()
            else:
                self.close()
        return live_run(self.setup, self._commits, end)

    def _end_at(self, seconds: float) -> RunEnd:
        """The end of the run, at these seconds, with what was counted and measured until then."""
        return RunEnd(
            seconds=seconds,
            service_seconds=np.asarray(self._service_seconds),
            measured_from=self._measured_from,
            num_refused=self._members.num_refused + self._listener.num_refused,
            num_late=self.num_late,
            check_text="" if self._check is None else str(self._check),
            check_seconds=0.0 if self._check is None else self._check.seconds,
            messages=self._coordinator.messages.times(),
        )

    @property
    def num_commits(self) -> int:
        """The commits so far."""
        return self._commits.count

    @property
    def is_over(self) -> bool:
        """Whether all commits are made, the time is over (also that for joining), or somebody has stopped the run."""
        max_seconds, join_seconds = self._limits.seconds, self._limits.join_seconds
        if join_seconds is not None and not self._coordinator.has_begun:
            max_seconds = join_seconds
        is_time_over = self._clock.now() >= max_seconds
        return self._is_stopped or is_time_over or self.num_commits >= self._limits.num_commits

    @property
    def has_begun(self) -> bool:
        """Whether enough workers have joined, and all have begun."""
        return self._coordinator.has_begun

    @property
    def num_late(self) -> int:
        """The pushes so far that came when their turn had been cut off, each counted once."""
        return len(self._commits.log.late_pushes)

    @property
    def memberships(self) -> tuple[Membership, ...]:
        """Who came and went so far."""
        return tuple(self._commits.log.memberships)

    def stop(self) -> None:
        """Ends the run within a second, as if the time were over; any thread may call it."""
        self._is_stopped = True

    def close(self) -> None:
        """Tells all workers that the run is done, and listens no more; `run` does it by itself."""
        self._members.send_end()
        self._says_end = True
        self._is_done.set()  # from now on a connection ends with its next message, so that all must have been told
        self._send_end_to_ungreeted()
        self._close_connections()

    def _close_connections(self) -> None:
        """Ends all connections and the log, and listens no more."""
        self._is_done.set()
        self._members.close()
        self._listener.close()
        if not self._is_serving:  # else `run` still writes to the log, and calls this at its end
            self._commits.log.close()

    def _recover(self, folder: Path, checkpoint_every: int, sync_seconds: float) -> None:
        """Goes on with the log and checkpoints of a folder, and writes there from now on.

        A checkpoint is due every `checkpoint_every` commits; the first commit `sync_seconds` after the log was forced
        onto the disk does so again.
        """
        checkpoint_every = _validate.integer("checkpoint_every", checkpoint_every, minimum=1)
        _validate.single_number("sync_seconds", sync_seconds)
        coordinator, fingerprint = self._coordinator, self._members.fingerprint
        last_time = self._commits.recover(
            folder,
            fingerprint,
            lambda: coordinator.rule_state.view,
            checkpoint_every=checkpoint_every,
            sync_seconds=sync_seconds,
        )
        self._clock.restart(last_time)
        coordinator.resume_from_log()
        self._measured_from = last_time if coordinator.has_begun else 0.0

    def _send_end_to_ungreeted(self) -> None:
        """Tells the workers whose first message waits in the queue that the run is done."""
        with contextlib.suppress(queue.Empty):
            while True:
                connection, message = self._events.get_nowait()
                if message is not None and message.kind == "hello":
                    with contextlib.suppress(Disconnected):
                        connection.send(_END)

    # What connections' threads do.

    def _on_connection(self, connection: Connection) -> None:
        """Puts the messages of a connection into the queue, until it ends (then None) or the run is done."""
        try:
            while not self._is_done.is_set():
                message = connection.receive()
                self._members.note_arrival(connection, self._clock.machine_time())
                if message.kind == "ping":  # answered here: its time is to be short
                    answer = {"kind": "pong", "now": self._clock.machine_time(), "lease": self._limits.lease}
                    connection.send(Message({**answer, "identity": self.setup.identity, "is_ready": self._is_ready}))
                else:
                    self._events.put(_Event(connection, message))
            if self._says_end:
                with contextlib.suppress(Disconnected):
                    connection.send(_END)  # it may be of a worker that nobody has greeted
                _wait_for_hang_up(connection)
        except Disconnected:
            pass
        finally:
            self._events.put(_Event(connection, message=None))

    # What the server's thread does.

    def _handle_next_event(self) -> None:
        """Waits for the next message, end of a connection, end of a lease, or timer, and deals with it."""
        if self._check is not None:
            self._check.check_if_due(self._clock.now())
        next_time = min(self._next_lease_end, self._coordinator.next_timer)  # seconds; the wait ends after 1 s anyway
        wait_start = self._clock.now()
        longest_wait = min(max(next_time - wait_start, 1e-3), 1.0)
        try:
            event = self._events.get(timeout=longest_wait)
        except queue.Empty:
            event = None
        now = self._clock.now()
        if now - wait_start > longest_wait + self._limits.lease / 4:  # this process was stopped, or its machine
            self._members.note_all_heard(now)  # what they have sent meanwhile may still be on its way
        self._coordinator.handle_timers()
        if now >= self._next_lease_end or event is None:
            self._end_leases(now)
        if event is None:
            return
        connection, message = event
        worker = self._members.worker_of(connection)
        if message is None:
            self._handle_end_of_connection(connection)
        elif worker is None:
            self._members.greet(connection, message, self._coordinator.rule_state.alive, now)
        elif self._members.is_current(worker, connection):
            self._members.note_heard(worker, now)
            self._handle_and_time_message(worker, message, handle_start=now)
            if message.kind == "ready":
                self._next_lease_end = 0.0  # there is one lease more, and the clock may begin anew
            if message.kind == PUSH:
                self._service_seconds.append(self._clock.now() - now)

    def _handle_and_time_message(self, worker: int, message: Message, handle_start: float) -> None:
        """Deals with a message of a worker that has been let in, and writes down when, from `handle_start` seconds on.

        A message whose kind has no field for when it was sent is not written down.
        """
        coordinator = self._coordinator
        rule_seconds, commit_seconds = coordinator.rule_seconds, coordinator.commit_seconds  # so far
        coordinator.handle_message(worker, message)
        send_time = message.header.get(_SEND_TIME_FIELDS.get(message.kind, ""))
        if wire.is_time(send_time) and coordinator.has_begun:
            coordinator.messages.add(
                message.kind, worker, self._clock.from_machine_time(send_time), handle_start, self._clock.now(),
                rule_seconds=coordinator.rule_seconds - rule_seconds,
                commit_seconds=coordinator.commit_seconds - commit_seconds,
            )  # fmt: skip

    def _handle_end_of_connection(self, connection: Connection) -> None:
        """Forgets a connection; its worker leaves at once, since nobody holds the other end any more."""
        worker = self._members.disconnect(connection)
        if worker is not None:
            self._coordinator.leave(worker, "its connection has ended")

    def _end_leases(self, now: float) -> None:
        """Puts out the workers of which nothing was heard for as long as the lease, and notes when to look again."""
        rule_state, lease = self._coordinator.rule_state, self._limits.lease
        for worker, silence in self._members.silent_seconds(rule_state.alive, self._clock).items():
            if silence >= lease:
                self._coordinator.leave(worker, f"nothing was heard of it for {silence:.2f} s")
        longest_silence = max(self._members.silent_seconds(rule_state.alive, self._clock).values(), default=0.0)
        next_lease_end = now - longest_silence + lease
        # At the end of the run at the latest; a second from now while it has not begun.
        self._next_lease_end = min(next_lease_end, self._limits.seconds if self._coordinator.has_begun else now + 1.0)


def _wait_for_hang_up(connection: Connection) -> None:
    """Reads on until `Disconnected`, for `CLOSE_SECONDS` at most.

    A worker that writes to a connection that has ended does not get the message any more that the run is done.
    """
    deadline = time.monotonic() + flight.CLOSE_SECONDS
    while time.monotonic() < deadline:
        connection.receive()


def _check_non_finite(setup: Setup, limits: Limits) -> None:
    """Raises an error if pushes that are not finite are to be skipped under a code, which needs each push."""
    if setup.protocol.code is not None and limits.non_finite == "skip":
        raise ValueError(
            "non_finite='skip' is for protocols without a code: the sum of a code's round cannot be decoded "
            "without what is skipped. Use non_finite='stop'."
        )
