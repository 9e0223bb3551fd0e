"""The workers at the server: who is connected, what was heard of each when, and what each is told.

Letters: W workers.
"""

import contextlib
import math
import reprlib
from typing import Any, NamedTuple

import numpy as np

from gcjax.parameter_server.clock import EventClock
from gcjax.parameter_server.setups import Setup, differences, fingerprint
from gcjax.parameter_server.transport import Disconnected, Sender
from gcjax.parameter_server.wire import Message


class Member(NamedTuple):
    """A worker that is connected, or has been.

    Attributes:
      connection: None while it has none.
      incarnation: which process it is.
      last_heard: seconds.
      last_turn: the number of the last turn that it has begun, as it said when it came; -1 for none.
    """

    connection: Sender | None
    incarnation: str
    last_heard: float
    last_turn: int = -1


class Members:
    """The workers that have said who they are.

    Attributes:
      num_refused: messages and workers that were not let in.
      fingerprint: of the setup, which whoever comes must have, too.
    """

    def __init__(self, setup: Setup) -> None:
        """Nobody is connected yet. Whoever comes must run this setup."""
        self.num_refused = 0
        self.fingerprint = fingerprint(setup)
        self._num_workers = setup.num_workers
        self._members: dict[int, Member] = {}
        self._worker_of_connection: dict[Sender, int] = {}
        self._arrival_times: dict[Sender, float] = {}  # of the last message on each connection, seconds

    def __getitem__(self, worker: int) -> Member:
        """The worker of this number, which has been connected."""
        return self._members[worker]

    def worker_of(self, connection: Sender) -> int | None:
        """The number of the worker with this connection; None if it has not been let in."""
        return self._worker_of_connection.get(connection)

    def is_current(self, worker: int, connection: Sender) -> bool:
        """Whether the connection is the worker's, and not one of a process that was replaced."""
        return self._members[worker].connection is connection

    def greet(self, connection: Sender, message: Message, alive: np.ndarray, now: float) -> None:
        """Lets in a worker that runs the same setup, and tells any other one why not.

        `alive bool[W]`: who takes part; `now`: seconds. Another process with the same number is put out.
        """
        if message.kind == "alive":
            return  # of a worker that was refused, and does not know it yet
        worker, incarnation = message.header.get("worker"), _text(message.header.get("incarnation"))
        why, may_try_again = self._reason_to_refuse(message, alive)
        if why or not isinstance(worker, int):
            self.num_refused += 1
            with contextlib.suppress(Disconnected):  # it may have hung up by now
                connection.send(Message({"kind": "refused", "why": why, "may_try_again": may_try_again}))
            return
        if worker in self._members and self._members[worker].incarnation != incarnation:
            why = f"another process has taken the number {worker} meanwhile."
            self.send(worker, Message({"kind": "refused", "why": why}))
        last_turn = message.header.get("last_turn")
        self._members[worker] = Member(connection, incarnation, now, last_turn if isinstance(last_turn, int) else -1)
        self._worker_of_connection[connection] = worker

    def _reason_to_refuse(self, message: Message, alive: np.ndarray) -> tuple[str, bool]:
        """Why the sender of a "hello" is not let in, "" if it is; and whether it may try again."""
        header, worker = message.header, message.header.get("worker")
        is_number = isinstance(worker, int) and not isinstance(worker, bool) and 0 <= worker < self._num_workers
        if message.kind != "hello" or not isinstance(worker, int) or not is_number:
            return f"a worker must say its number, 0, ..., {self._num_workers - 1}; got {reprlib.repr(worker)}.", False
        worker_fingerprint = header.get("fingerprint")
        worker_fingerprint = (
            {name: _text(value) for name, value in worker_fingerprint.items()}
            if isinstance(worker_fingerprint, dict)
            else {}
        )
        if difference_lines := differences(self.fingerprint, worker_fingerprint):
            return f"server and worker must run the same; they differ in\n{difference_lines}", False
        if alive[worker] and self._members[worker].incarnation != _text(header.get("incarnation")):
            # It may have ended, and its lease not yet.
            return f"worker {worker} is there already. Give each process another number.", True
        return "", False

    def note_heard(self, worker: int, now: float) -> None:
        """Notes that something was heard of a worker."""
        self._members[worker] = self._members[worker]._replace(last_heard=now)

    def note_arrival(self, connection: Sender, now: float) -> None:
        """Notes that a message has come, which may wait to be dealt with; any thread may call it.

        `now`: seconds by the clock of the machine.
        """
        self._arrival_times[connection] = now

    def note_all_heard(self, now: float) -> None:
        """Notes that something was heard of everybody."""
        for worker in self._members:
            self.note_heard(worker, now)

    def silent_seconds(self, alive: np.ndarray, clock: EventClock) -> dict[int, float]:
        """Seconds for which nothing has come, of each worker that takes part, `alive bool[W]`.

        What has come and waits to be dealt with counts.
        """
        return {
            worker: clock.now() - max(member.last_heard, self._last_arrival(member.connection, clock))
            for worker, member in self._members.items()
            if alive[worker]
        }

    def _last_arrival(self, connection: Sender | None, clock: EventClock) -> float:
        """Seconds by the run's clock, when the last message has come on a connection; -inf for none."""
        arrival_time = None if connection is None else self._arrival_times.get(connection)
        return -math.inf if arrival_time is None else float(clock.from_machine_time(arrival_time))

    def refuse(self, worker: int, why: str) -> None:
        """Tells a worker that it is out for good, and forgets its connection."""
        self.num_refused += 1
        self.send(worker, Message({"kind": "refused", "why": why}))
        connection = self._members[worker].connection
        if connection is not None:
            self.disconnect(connection)

    def disconnect(self, connection: Sender) -> int | None:
        """Forgets a connection; returns its worker's number, None if the worker has a newer one, or nobody has this."""
        self._arrival_times.pop(connection, None)
        worker = self._worker_of_connection.pop(connection, None)
        if worker is None or not self.is_current(worker, connection):
            return None
        self._members[worker] = self._members[worker]._replace(connection=None)
        return worker

    def send(self, worker: int, message: Message) -> None:
        """Sends a message, in vain if the worker is gone: it is put out when its connection's end is dealt with."""
        connection = self._members[worker].connection
        if connection is not None:
            with contextlib.suppress(Disconnected):
                connection.send(message)

    def send_end(self) -> None:
        """Tells all workers that the run is done."""
        for worker in self._members:
            self.send(worker, Message({"kind": "end"}))

    def close(self) -> None:
        """Ends the connections, after what was sent."""
        for member in self._members.values():
            if member.connection is not None:
                member.connection.close()


def _text(value: Any) -> str:
    """A text as it is; anything else that JSON can be, however deep, in words that are short."""
    return value if isinstance(value, str) else reprlib.repr(value)
