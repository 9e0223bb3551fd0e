"""The server: parameters, the rule and the clock, in one thread that deals with one event after the other.

Letters: W workers, E commits.
"""

import contextlib
import math
import queue
import threading
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from gcjax import _validate
from gcjax.parameter_server import coded_record, flight, turn_log, wire, written_log
from gcjax.parameter_server.clock import EventClock
from gcjax.parameter_server.coded_rounds import CodedRounds
from gcjax.parameter_server.recovery import Checkpoints, Parameters, replayed
from gcjax.parameter_server.setups import Setup, check_setup, differences, fingerprint
from gcjax.parameter_server.stops import Stops
from gcjax.parameter_server.transport import NO_SECURITY, Connection, Disconnected, Security
from gcjax.parameter_server.turn_log import Turn, TurnLog
from gcjax.parameter_server.updates import Contribution, Updates
from gcjax.parameter_server.waiting import JOIN, LEAVE, LOOK, MESSAGE, UNIT, Decision, Waiting
from gcjax.parameter_server.windows import Windows
from gcjax.parameter_server.wire import Message
from gcjax.parameter_server.written_log import WrittenLog
from gcjax.protocols.conformance.memberships import Membership
from gcjax.protocols.schedule import Schedule

FIELDS = {
    "push": ("compute_start", "ends", "is_finite", "loss", "lost", "send_start"),
    "unit": ("compute_start", "end", "loss"),
}
"""What a message must say, by its kind; one that does not is refused."""
NON_FINITE = ("stop", "skip", "refuse")
LOOPBACK = ("127.", "localhost", "[::1]", "::1")


class LiveRun(NamedTuple):
    """What a server returns.

    Attributes:
      params: the parameters at the end.
      opt_state: of the server's optimizer.
      schedule: the record of what happened, as of a simulated run, in seconds since the first worker began.
      loss: float64[E], the training loss of each commit.
      memberships: who came and went, in order of time.
      service_seconds: float64[messages], what the server took for each push.
      num_refused: calls and messages that were refused.
      num_late: pushes that came when their turn had been cut off; they are in no commit.
    """

    params: Any
    opt_state: Any
    schedule: Schedule
    loss: np.ndarray
    memberships: tuple[Membership, ...]
    service_seconds: np.ndarray
    num_refused: int
    num_late: int = 0


class Limits(NamedTuple):
    """When a run ends, and what it bears with.

    Attributes:
      num_commits: that are made at most.
      seconds: after which it ends, from the moment that all begin, or until then from the first; inf for never.
      join_seconds: after which it ends if not enough have joined; `seconds` if None.
      lease: seconds for which a worker of which nothing is heard still takes part.
      min_workers: so many must have joined before anybody begins; all W if None.
      non_finite: what a gradient that is not finite leads to: "stop" ends the run with an error, "skip" drops it,
        "refuse" puts out the worker, which ends with the error, while the others go on.
    """

    num_commits: int
    seconds: float = math.inf
    lease: float = 5.0
    min_workers: int | None = None
    non_finite: str = "stop"
    join_seconds: float | None = None

    def validated(self, num_workers: int) -> "Limits":
        """The same, if the numbers are in their ranges."""
        _validate.integer("num_commits", self.num_commits, minimum=1)
        _validate.single_number("seconds", self.seconds, above=True)
        _validate.single_number("lease", self.lease, above=True, finite=True)
        if self.min_workers is not None:
            _validate.integer("min_workers", self.min_workers, minimum=1, maximum=num_workers)
        _validate.choice("non_finite", self.non_finite, NON_FINITE)
        if self.join_seconds is not None:
            _validate.single_number("join_seconds", self.join_seconds, above=True)
        return self._replace(min_workers=self.min_workers or num_workers)


class _Event(NamedTuple):
    """Something that a connection's thread has seen: a message, or None for the end of the connection."""

    connection: Connection
    message: Message | None


class _Member(NamedTuple):
    """A worker that is connected, or has been.

    Attributes:
      connection: None while it has none.
      incarnation: which process it is.
      last_heard: seconds.
    """

    connection: Connection | None
    incarnation: str
    last_heard: float


class Server:
    """Listens from the moment it is made; `run` serves until the run is done."""

    def __init__(
        self,
        setup: Setup,
        limits: Limits,
        *,
        address: str = "127.0.0.1:0",
        security: Security = NO_SECURITY,
        checkpoints: str | Path | None = None,
        checkpoint_every: int = 100,
    ) -> None:
        """Listens at an address; goes on with the run that a folder has.

        Args:
          setup: what is trained.
          limits: when the run ends.
          address: HOST:PORT; port 0 for any free one.
          security: the token and the certificate.
          checkpoints: a folder for the log and the checkpoints, with which a server that was killed is started again.
          checkpoint_every: commits between two checkpoints. After the last one they are computed again at a start.

        Raises:
          ValueError: if the protocol cannot be served, nobody can listen at the address, or the folder is of another
            setup.
        """
        check_setup(setup)
        self._setup, self._limits = setup, limits.validated(setup.num_workers)
        _check_security(address, security)
        if setup.protocol.code is not None and limits.non_finite == "skip":
            raise ValueError(
                "non_finite='skip' is for protocols without a code: the sum of a code's round cannot be decoded "
                "without what is skipped. Use non_finite='stop'."
            )
        self._rule = setup.rule()
        self._fingerprint = fingerprint(setup)
        self._waiting = Waiting(self._rule, setup.num_workers)
        self._updates = Updates(setup.protocol, setup.optimizer, self._rule.weight, setup.initial_params())
        code = setup.protocol.code
        self._coded = None if code is None else CodedRounds(code, self._updates.params)
        self._stops, self._alarm = Stops(self._coded), math.inf
        self._windows = Windows(setup.protocol.adaptive, limits.num_commits)
        self._log = TurnLog(setup.num_workers)
        self._checkpoints: Checkpoints | None = None
        self._clock = EventClock()
        self._pending: list[Contribution] = []
        self._members: dict[int, _Member] = {}
        self._workers: dict[int, int] = {}  # by the id of a connection
        self._service_seconds: list[float] = []
        self._num_refused = self._num_late = 0
        self._next_look = math.inf
        self._early: list[int] = []  # workers that are there before all begin
        self._has_begun = self._is_stopped = False
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._is_done = threading.Event()
        if checkpoints is not None:
            self._recover(Path(checkpoints), checkpoint_every)
        self._waiting.warm_up()
        self._updates.warm_up()
        num_bytes = self._updates.layout.num_bytes
        if self._coded is not None:
            self._coded.warm_up(self._updates.params)
            num_bytes = max(num_bytes, self._coded.layout.num_bytes)
        self._listener = flight.listen(address, self._on_connection, max_bytes=num_bytes, security=security)
        self.address = self._listener.address

    def run(self) -> LiveRun:
        """Serves until all commits are made, or the time is over."""
        try:
            while not self._is_over():
                self._deal_with_next()
            self._save(is_last=True)
        finally:
            self._end()
        end = max([self._clock.now(), *self._log.commit_times[-1:]])
        return LiveRun(
            params=self._updates.params,
            opt_state=self._updates.opt_state,
            schedule=jax.device_get(self._schedule(end)),
            loss=np.asarray(self._log.losses),
            memberships=tuple(self._log.memberships),
            service_seconds=np.asarray(self._service_seconds),
            num_refused=self._num_refused + self._listener.num_refused,
            num_late=self._num_late,
        )

    def _schedule(self, end: float) -> Schedule:
        """The record of the run, which has ended at `end` seconds."""
        code = self._setup.protocol.code
        if code is None:
            return turn_log.schedule_of(self._log, self._rule, end)
        return coded_record.schedule_of(self._log, code.assignment, self._rule.weight, end)

    @property
    def setup(self) -> Setup:
        """What is trained."""
        return self._setup

    @property
    def num_commits(self) -> int:
        """The commits so far."""
        return len(self._log.commit_times)

    @property
    def num_late(self) -> int:
        """The pushes so far that came when their turn had been cut off."""
        return self._num_late

    @property
    def memberships(self) -> tuple[Membership, ...]:
        """Who came and went so far."""
        return tuple(self._log.memberships)

    def stop(self) -> None:
        """Ends the run within a second, as if the time were over; any thread may call it."""
        self._is_stopped = True

    def _recover(self, folder: Path, checkpoint_every: int) -> None:
        """Goes on with what a folder has, and writes there from now on."""
        _validate.integer("checkpoint_every", checkpoint_every, minimum=1)
        self._checkpoints = checkpoints = Checkpoints(folder, checkpoint_every)
        file, num_workers = folder / written_log.NAME, self._setup.num_workers
        self._log = log = WrittenLog(file, num_workers, self._fingerprint, lambda: self._waiting.view)
        self._waiting.view = log.restored(self._waiting.view)
        self._has_begun = any(log.turns)
        self._clock = EventClock(begin=log.last_time)
        if log.commit_times:
            now = Parameters(self._updates.params, self._updates.opt_state)
            kept = checkpoints.read(len(log.commit_times), now)
            self._updates.params, self._updates.opt_state = kept or replayed(
                self._setup, self._schedule(log.commit_times[-1])
            )
            self._windows.go_on_at(log.commit_times[-1])

    # What connections' threads do.

    def _on_connection(self, connection: Connection) -> None:
        """Puts the messages of a connection into the queue, until it ends or the run is done."""
        try:
            while not self._is_done.is_set():
                message = connection.receive()
                if message.kind == "ping":  # answered here: its time is to be short
                    answer = {"kind": "pong", "now": self._clock.machine_time(), "lease": self._limits.lease}
                    connection.send(Message({**answer, "identity": self._setup.identity}))
                else:
                    self._events.put(_Event(connection, message))
        except Disconnected:
            pass
        finally:
            self._events.put(_Event(connection, None))

    # What the server's thread does.

    def _is_over(self) -> bool:
        """Whether all commits are made, the time is over, or somebody has stopped it."""
        waits = not self._has_begun and self._limits.join_seconds is not None
        seconds = self._limits.join_seconds if waits else self._limits.seconds
        is_late = self._is_stopped or self._clock.now() >= (seconds or math.inf)
        return is_late or len(self._log.commit_times) >= self._limits.num_commits

    def _deal_with_next(self) -> None:
        """Waits for the next event, or for the next lease or alarm, and deals with it."""
        next_look = min(self._next_look, self._alarm, self._end_of_patience())
        try:
            event = self._events.get(timeout=float(np.clip(next_look - self._clock.now(), 1e-3, 1.0)))
        except queue.Empty:
            event = None
        begin = self._clock.now()
        self._look(begin)
        if begin >= self._next_look or event is None:
            self._end_leases(begin)
        if event is None:
            return
        worker = self._workers.get(id(event.connection))
        if event.message is None:
            self._disconnect(event.connection, worker)
        elif worker is None:
            self._greet(event.connection, event.message)
        elif self._members[worker].connection is event.connection:  # not of a process that was replaced
            self._members[worker] = self._members[worker]._replace(last_heard=begin)
            self._hear(worker, event.message)
            if event.message.kind == "push":
                self._service_seconds.append(self._clock.now() - begin)

    def _end_leases(self, now: float) -> None:
        """Puts out the workers of which nothing was heard for longer than their lease, and says when to look again."""
        for worker, member in list(self._members.items()):
            silence = now - member.last_heard
            if self._waiting.alive[worker] and silence >= self._limits.lease:
                self._leave(worker, f"nothing was heard of it for {silence:.2f} s")
        heard = [member.last_heard for worker, member in self._members.items() if self._waiting.alive[worker]]
        next_end = min(heard, default=now) + self._limits.lease
        self._next_look = min(next_end, self._limits.seconds if self._has_begun else now + 1.0)

    def _end_of_patience(self) -> float:
        """Seconds, when who has been stopped and has not answered may be done without; inf if that is over, or none."""
        end = self._stops.end_of_patience
        return end if end > self._clock.now() else math.inf

    def _look(self, now: float) -> None:
        """Asks the rule if its alarm is due, and does without those who do not answer if the others are enough."""
        if now >= self._alarm:
            self._alarm = math.inf
            self._look_again()
        if now < self._stops.end_of_patience:
            return
        silent = np.asarray(self._waiting.view.stopped)
        if silent.any() and self._waiting.would_stop_without(silent, self._clock.now()):
            self._do_without(silent)

    def _look_again(self) -> None:
        """Asks the rule although nothing has happened."""
        now = self._clock.event()
        self._carry_out(self._decide(LOOK, 0, now), now)

    def _do_without(self, workers: np.ndarray) -> None:
        """Goes on without the push of workers, `bool[W]`, that have been stopped."""
        if self._coded is None:
            self._waiting.stop(np.asarray(self._waiting.view.stopped) & ~workers)
        else:
            self._waiting.forget_progress(workers)
            self._drop_answers()
        self._look_again()

    def _drop_answers(self) -> None:
        """Drops messages of a code that are worth nothing without those of somebody else; their turns go on."""
        for contribution in self._pending:
            self._log.replace_last(contribution.worker, send_start=math.inf, arrive=math.inf)
        self._pending = []
        self._waiting.go_on()

    def _decide(self, kind: int, worker: int, now: float) -> Decision:
        """What follows from an event, if the protocol has chosen anew at the end of each window before it."""
        if self._setup.protocol.adaptive is not None:
            memory = self._windows.controls_after(now, self._log, self._waiting.view.memory)
            self._waiting.remember(memory)
        return self._waiting.decide(kind, worker, now)

    def _hear(self, worker: int, message: Message) -> None:
        """Deals with a message of a worker."""
        self._num_late += message.kind == "push" and not self._is_under_way(worker, message)
        if message.kind == "ready":
            self._join(worker)
        elif not self._waiting.alive[worker] and worker not in self._early:
            self._join(worker)  # it was silent for too long, and what it sends now is of a turn that was cut off
        elif any(name not in message.header for name in FIELDS.get(message.kind, ())):
            self._num_refused += 1
        elif message.kind == "unit" and self._is_of_round(worker, message):
            self._note_unit(worker, message)
            self._look(self._clock.now())  # it may be enough without somebody who does not answer
        elif message.kind == "alive" or not self._is_under_way(worker, message):
            return
        elif message.kind == "pull":
            self._send_exchange(worker)
        elif message.kind == "push":
            self._take(worker, message)
        else:
            self._num_refused += 1

    def _greet(self, connection: Connection, message: Message) -> None:
        """Lets in a worker that runs the same, and tells any other one why not."""
        if message.kind == "alive":
            return  # of a worker that was refused, and does not know it yet
        header = message.header
        why, worker, may_try_again = "", header.get("worker"), False
        if message.kind != "hello" or not isinstance(worker, int) or not 0 <= worker < self._setup.num_workers:
            worker = -1
            why = f"a worker must say its number, 0, ..., {self._setup.num_workers - 1}; got {worker!r}."
        elif different := differences(self._fingerprint, dict(header.get("fingerprint") or {})):
            why = f"server and worker must run the same; they differ in\n{different}"
        elif self._waiting.alive[worker] and self._members[worker].incarnation != header.get("incarnation"):
            why = f"worker {worker} is there already. Give each process another number."
            may_try_again = True  # it may have ended, and its lease not yet
        if why:
            self._num_refused += 1
            connection.send(Message({"kind": "refused", "why": why, "may_try_again": may_try_again}))
            return
        if worker in self._members and self._members[worker].incarnation != header.get("incarnation"):
            why = f"another process has taken the number {worker} meanwhile."
            self._send(worker, Message({"kind": "refused", "why": why}))
        self._members[worker] = _Member(connection, str(header.get("incarnation")), self._clock.now())
        self._workers[id(connection)] = worker

    def _disconnect(self, connection: Connection, worker: int | None) -> None:
        """Forgets a connection; its worker leaves at once, since nobody holds the other end any more."""
        self._workers.pop(id(connection), None)
        if worker is None or self._members[worker].connection is not connection:
            return
        self._members[worker] = self._members[worker]._replace(connection=None)
        if worker in self._early:
            self._early.remove(worker)
        if self._waiting.alive[worker]:
            self._leave(worker, "its connection has ended")

    def _join(self, worker: int) -> None:
        """Lets a worker take part; the first ones begin together, once there are enough."""
        if self._waiting.alive[worker]:  # a new connection in the place of one that nobody has missed yet
            self._leave(worker, "it has a new connection")
        if not self._has_begun:
            self._early.append(worker)
            if len(self._early) < (self._limits.min_workers or 1):
                return
            self._has_begun, self._clock = True, EventClock()
            self._join_all(self._early, 0.0)
            self._early = []
            heard = {w: member._replace(last_heard=0.0) for w, member in self._members.items()}
            self._members, self._next_look = heard, 0.0
        else:
            self._join_all([worker], self._clock.event())

    def _join_all(self, workers: list[int], now: float) -> None:
        """Lets workers take part from this moment on."""
        for worker in workers:
            change = "came back" if self._log.turns[worker] else "joined"
            membership = Membership(now, worker, change, self._meet_again(worker))
            self._log.member(membership, self._members[worker].incarnation)
            self._carry_out(self._decide(JOIN, worker, now), now)

    def _meet_again(self, worker: int) -> str:
        """Notes what a worker has kept of its earlier turns; says it where that is not all that it needs."""
        last, incarnation = self._log.last_arrived(worker), self._members[worker].incarnation
        is_same = self._log.incarnations.get(worker) == incarnation
        if self._setup.protocol.local is None or last < 0:
            return ""
        if is_same:  # it has its own parameters and its optimizer state as they were after that turn
            self._waiting.has_read(worker, self._log.turns[worker][last].version)
            return ""
        return "another process: its own parameters and its optimizer state begin anew, and not in a replay"

    def _leave(self, worker: int, why: str) -> None:
        """Puts a worker out: its turn is cut off, and nobody waits for it any more."""
        now = self._clock.event()
        self._log.member(Membership(now, worker, "left", why))
        if not self._waiting.idle[worker]:
            self._log.cut_off(worker, now)
        if self._coded is not None and bool(self._waiting.view.stopped[worker]):
            self._drop_answers()
        self._carry_out(self._decide(LEAVE, worker, now), now)

    def _take(self, worker: int, message: Message) -> None:
        """Takes a push; one that answers no stop, or an earlier one, is none where turns are stopped."""
        header = message.header
        if self._rule.stop is not None and not self._stops.is_answer(header, self._clock.now()):
            return
        if not header["is_finite"]:
            self._skip(worker)
            return
        layout = self._updates.layout if self._coded is None else self._coded.layout
        tree = wire.from_bytes(message.body, layout)
        now = self._clock.event()
        turn = self._log.turns[worker][-1]
        latest = turn.send_start if self._rule.exchanges else now
        times = self._clock.of_machine_time([header["compute_start"], *header["ends"], header["send_start"]])
        times = np.clip(times, turn.begin, latest)
        times = np.maximum.accumulate(times).tolist()
        send_start = turn.send_start if self._rule.exchanges else times[-1]
        turn = self._log.replace_last(
            worker, compute_start=times[0], ends=tuple(times[1:-1]), stop=times[-2], send_start=send_start, arrive=now
        )
        if header["lost"]:
            self._log.replace_last(worker, stop=send_start, lost=1)
        self._pending.append(
            Contribution(
                worker=worker,
                turn=self._turn_number(worker),
                version=turn.version,
                work=len(turn.ends),
                loss=float(header["loss"]),
                tree=tree,
            )
        )
        self._carry_out(self._decide(MESSAGE, worker, now), now)

    def _note_unit(self, worker: int, message: Message) -> None:
        """Notes that a unit of a turn that will be stopped is done."""
        now, header = self._clock.event(), message.header
        turn = self._log.turns[worker][-1]
        earliest = turn.ends[-1] if turn.ends else turn.begin
        start, end = self._clock.of_machine_time([header["compute_start"], header["end"]])
        start = turn.compute_start if turn.ends else float(np.clip(start, turn.begin, now))
        end = float(np.clip(end, max(start, earliest), now))
        if self._coded is not None:
            self._coded.note_loss(worker, len(turn.ends), float(header["loss"]))
        self._log.replace_last(worker, compute_start=start, ends=(*turn.ends, end))
        self._carry_out(self._decide(UNIT, worker, now), now)

    def _skip(self, worker: int) -> None:
        """Drops a push that is not finite, or ends the run."""
        turn = self._log.turns[worker][-1]
        if self._limits.non_finite == "stop":
            raise ValueError(
                f"gradients must be finite; that of worker {worker} on unit {turn.first} at version {turn.version} is "
                "not. Use a smaller step, or non_finite='skip' to go on without it."
            )
        if self._limits.non_finite == "refuse":
            self._refuse(worker, f"gradients must be finite; unit {turn.first} at version {turn.version} is not.")
            return
        now = self._clock.event()
        self._log.member(Membership(now, worker, "skipped", f"unit {turn.first} is not finite"))
        self._log.cut_off(worker, now)
        self._waiting.make_idle(worker)
        self._carry_out(self._decide(LOOK, worker, now), now)

    def _refuse(self, worker: int, why: str) -> None:
        """Puts a worker out for good, and tells it why."""
        self._num_refused += 1
        self._send(worker, Message({"kind": "refused", "why": why}))
        self._leave(worker, why)
        connection = self._members[worker].connection
        if connection is not None:
            self._disconnect(connection, worker)

    def _carry_out(self, decision: Decision, now: float) -> None:
        """Does what the rule has decided: a commit, turns that are cut off, begin, or are stopped."""
        self._alarm = float(decision.alarm)
        if decision.commits:
            self._commit(decision.taken, now)
        for cut_worker in np.flatnonzero(decision.cut):
            self._log.cut_off(int(cut_worker), now)
        for new_worker in np.flatnonzero(decision.begins):
            self._begin_turn(int(new_worker), decision, now)
        if decision.stops:
            self._stop(decision, now)

    def _stop(self, decision: Decision, now: float) -> None:
        """Stops the turns under way: whoever has done something that counts is asked for it."""
        asked = self._stops.begin(decision.progress, decision.alive & ~decision.idle, now)
        self._waiting.stop(asked)
        for worker in np.flatnonzero(asked):
            header = {**self._stops.request(int(worker)), "turn": self._turn_number(int(worker))}
            self._send(int(worker), Message(header))

    def _commit(self, taken: np.ndarray, now: float) -> None:
        """Makes the commit of the messages of the workers `taken bool[W]`."""
        commit = len(self._log.commit_times)
        contributions = [c for c in self._pending if taken[c.worker]]
        self._pending = [c for c in self._pending if not taken[c.worker]]
        messages = [(c.worker, c.turn) for c in contributions]
        if self._coded is not None:
            self._log.end_round(self._coded.plan.progress, now)
            contributions = [self._coded.estimate(contributions, self._updates.params)]
        loss = self._updates.commit(contributions, commit)
        self._log.commit(commit, messages, loss, now)
        self._save()

    def _save(self, *, is_last: bool = False) -> None:
        """Writes a checkpoint, if there are to be any and it is time for one."""
        if self._checkpoints is not None:
            parameters = Parameters(self._updates.params, self._updates.opt_state)
            self._checkpoints.save(len(self._log.commit_times), parameters, is_last=is_last)

    def _begin_turn(self, worker: int, decision: Decision, now: float) -> None:
        """Lets a worker begin a turn; the parameters go with the order, if it is to have them."""
        first, num_units = self._log.next_unit(worker), int(decision.num_units[worker])
        if self._rule.aligned:
            first = len(self._log.commit_times) * self._setup.protocol.round_units
        turn = Turn(first=first, version=int(decision.version[worker]), begin=now, num_units=num_units)
        self._log.begin(worker, turn)
        header = {
            "kind": "begin",
            "turn": self._turn_number(worker),
            "first": first,
            "num_units": num_units,
            "weight": 0.0 if callable(self._rule.weight) else float(self._rule.weight),
            "exchanges": self._rule.exchanges,
            "can_be_cut": self._rule.cuts is not None,
            "seconds": float(decision.turn_seconds[worker]),
            "until_stopped": self._rule.stop is not None,
            "last_taken": self._log.last_arrived(worker),
        }
        self._send(worker, Message(header, self._updates.body if decision.pulls[worker] else None))

    def _send_exchange(self, worker: int) -> None:
        """Sends the parameters to a worker that exchanges its own for them."""
        now, version = self._clock.event(), len(self._log.commit_times)
        self._log.replace_last(worker, version=version, send_start=now)
        self._send(worker, Message({"kind": "params"}, self._updates.body))

    def _send(self, worker: int, message: Message) -> None:
        """Sends a message; a worker that is gone is put out when its connection's end is dealt with."""
        connection = self._members[worker].connection
        if connection is not None:
            with contextlib.suppress(Disconnected):
                connection.send(message)

    def _end(self) -> None:
        """Tells all workers that the run is done, and closes the connections."""
        self._is_done.set()
        for worker in self._members:
            self._send(worker, Message({"kind": "end"}))
        for member in self._members.values():
            if member.connection is not None:
                member.connection.close()  # once that is written
        self._listener.close()

    def _is_under_way(self, worker: int, message: Message) -> bool:
        """Whether a message belongs to the turn that the worker is in, and not to one that was cut off."""
        is_in_turn = bool(self._waiting.alive[worker] and not self._waiting.idle[worker])
        return is_in_turn and message.header.get("turn") == self._turn_number(worker)

    def _is_of_round(self, worker: int, message: Message) -> bool:
        """Whether a unit belongs to the turn that the worker is in, or to one of a code that it has been asked for.

        A worker of a code goes on after its answer, since somebody else may not answer.
        """
        has_answered = self._coded is not None and message.header.get("turn") == self._turn_number(worker)
        return has_answered or self._is_under_way(worker, message)

    def _turn_number(self, worker: int) -> int:
        """The number of the worker's last turn; -1 if there is none."""
        return len(self._log.turns[worker]) - 1


def _check_security(address: str, security: Security) -> None:
    """Raises an error if others can reach the address, and there is no token."""
    if not security.token and not address.startswith(LOOPBACK):
        raise ValueError(
            f"others can reach {address!r}, so server and workers need a token in common; got none. Give "
            "Security(token=...), or listen at 127.0.0.1."
        )
