"""What follows from each event: the rule decides, turns begin and end, and pushes are committed.

No threads and no transport: whoever deals with events calls this with one after the other.

Letters: W workers.
"""

import math
from typing import Any

import numpy as np

from gcjax.parameter_server import wire
from gcjax.parameter_server.clock import EventClock
from gcjax.parameter_server.commits import Commits
from gcjax.parameter_server.limits import Limits
from gcjax.parameter_server.members import Members
from gcjax.parameter_server.message_times import STOP, MessageLog
from gcjax.parameter_server.setups import Setup
from gcjax.parameter_server.stops import Stops
from gcjax.parameter_server.turn_log import Turn
from gcjax.parameter_server.waiting import JOIN, LEAVE, MESSAGE, NO_EVENT, UNIT, Decision, Waiting
from gcjax.parameter_server.windows import Windows
from gcjax.parameter_server.wire import Message
from gcjax.protocols.conformance.memberships import Membership


class Coordinator:
    """The turns of the workers, by the protocol's rule.

    Attributes:
      waiting: what the rule knows.
      has_begun: whether enough have joined, and all have begun.
      num_late: pushes that came when their turn had been cut off.
      messages: when they were sent and dealt with; of those to the workers, the stops that were answered.
      rule_seconds: what the rule has taken so far.
      commit_seconds: what the updates of the parameters have taken so far.
    """

    def __init__(self, setup: Setup, limits: Limits, commits: Commits, members: Members, clock: EventClock) -> None:
        """Goes on after the last commit of `commits`, whose time the clock has."""
        self._setup, self._limits, self._rule = setup, limits, setup.rule()
        self._commits, self._members, self._clock = commits, members, clock
        self.waiting = Waiting(self._rule, setup.num_workers)
        self._stops, self._alarm = Stops(commits.coded), math.inf
        self._windows = Windows(setup.protocol.loss_feedback, limits.num_commits)
        self._early: list[int] = []  # workers that are there before all begin
        self._anew: set[int] = set()  # those that are to begin anew with their next turn
        self.has_begun, self.num_late = False, 0
        self.messages, self.rule_seconds, self.commit_seconds = MessageLog(), 0.0, 0.0
        self._stops_sent_at = math.nan

    def go_on(self) -> None:
        """Goes on after the last commit that the log has."""
        log = self._commits.log
        self.waiting.view = self._commits.restored_view(self.waiting.view)
        self.has_begun = any(log.turns)
        if log.commit_times:
            self._windows.go_on_at(log.commit_times[-1])

    @property
    def next_look(self) -> float:
        """Seconds, when to look again although nothing has happened; inf for never."""
        end = self._stops.end_of_patience
        return min(self._alarm, end if end > self._clock.now() else math.inf)

    def handle_timers(self) -> None:
        """Asks the rule if its alarm is due, and does without those who do not answer if the others are enough."""
        now = self._clock.now()
        if now >= self._alarm:
            self._alarm = math.inf
            self._ask_rule()
        if now < self._stops.end_of_patience:
            return
        silent = np.asarray(self.waiting.view.stopped)
        if silent.any() and self.waiting.would_stop_without(silent, self._clock.now()):
            self._do_without(silent)

    def hear(self, worker: int, message: Message) -> None:
        """Deals with a message of a worker that has been let in."""
        self.num_late += message.kind == "push" and not self._is_under_way(worker, message)
        if message.kind == "ready":
            self._join(worker)
        elif not self.waiting.alive[worker] and worker not in self._early:
            self._join(worker)  # it was silent for too long, and what it sends now is of a turn that was cut off
        elif not wire.is_complete(message, self._commits.layout.num_bytes):
            self._members.num_refused += 1
        elif message.kind == "unit" and self._is_of_round(worker, message):
            self._note_unit(worker, message)
            self.handle_timers()  # it may be enough without somebody who does not answer
        elif message.kind == "alive" or not self._is_under_way(worker, message):
            return
        elif message.kind == "pull":
            self._send_exchange(worker)
        elif message.kind == "push":
            self._take(worker, message)
        else:
            self._members.num_refused += 1

    def leave(self, worker: int, why: str) -> None:
        """Puts a worker out, if it takes part: its turn is cut off, and nobody waits for it any more."""
        if worker in self._early:
            self._early.remove(worker)
        if not self.waiting.alive[worker]:
            return
        now = self._clock.event()
        self._commits.log.member(Membership(now, worker, "left", why))
        if not self.waiting.idle[worker]:
            self._commits.log.cut_off(worker, now)
        if bool(self.waiting.view.stopped[worker]):
            self._go_on_without_stopped_push(worker, now, worker_leaves=True)
        self._carry_out(self._decide(LEAVE, worker, now), now)

    def _join(self, worker: int) -> None:
        """Lets a worker take part; the first ones begin together, once there are enough."""
        if self.waiting.alive[worker]:  # a new connection in the place of one that nobody has missed yet
            self.leave(worker, "it has a new connection")
        if self.has_begun:
            self._join_all([worker], self._clock.event())
            return
        if worker not in self._early:
            self._early.append(worker)
        if len(self._early) == self._limits.min_workers:
            self.has_begun, workers, self._early = True, self._early, []
            self._clock.restart()
            self._members.hear_all(0.0)
            self._join_all(workers, 0.0)

    def _join_all(self, workers: list[int], now: float) -> None:
        """Lets workers take part from this moment on."""
        for worker in workers:
            change = "came back" if self._commits.log.turns[worker] else "joined"
            why = self._meet_again(worker)
            membership = Membership(now, worker, change, why, anew=bool(why))
            self._commits.log.member(membership, self._members[worker].incarnation)
            self._carry_out(self._decide(JOIN, worker, now), now)

    def _meet_again(self, worker: int) -> str:
        """Notes what a worker has kept of its earlier turns; says it where that is not all that it needs."""
        log, member = self._commits.log, self._members[worker]
        last = log.last_arrived(worker)
        if self._setup.protocol.local is None or last < 0:
            return ""
        is_known = member.last_pushed <= log.turn_number(worker)
        if is_known and log.incarnations.get(worker) == member.incarnation and self._has_own_params(worker):
            self._note_version_of(worker)
            return ""
        self._anew.add(worker)
        why = "another process" if is_known else "its last turns are not in the log"
        return f"{why}: its own parameters and its optimizer state begin anew"

    def _has_own_params(self, worker: int) -> bool:
        """Whether a worker has parameters of its own, as after its last turn that arrived."""
        log = self._commits.log
        last = log.last_arrived(worker)
        return (
            self._setup.protocol.local is not None
            and last >= 0
            and log.turns[worker][last].begin >= log.last_anew(worker)
        )

    def _note_version_of(self, worker: int) -> None:
        """Notes the version of the parameters that a worker has had since its last turn that arrived."""
        log = self._commits.log
        if not self._rule.overlaps:  # else it may have pushed before it read
            self.waiting.has_read(worker, log.turns[worker][log.last_arrived(worker)].version)

    def _take(self, worker: int, message: Message) -> None:
        """Takes a push; one that answers no stop, or an earlier one, is none where turns are stopped."""
        header = message.header
        if self._rule.stop is not None and not self._stops.is_answer(header, self._clock.now()):
            return
        if not header["is_finite"]:
            self._skip(worker)
            return
        now = self._clock.event()
        self._note_push(worker, header, now)
        self._note_stop(worker, header)
        tree = wire.from_bytes(message.body, self._commits.layout)
        self._commits.add(worker, float(header["loss"]), tree)
        decision = self._decide(MESSAGE, worker, now)
        if not decision.is_accepted:
            self._commits.ignore(worker)
        self._carry_out(decision, now)

    def _note_push(self, worker: int, header: Any, now: float) -> None:
        """Writes down when a push was computed and sent, by the worker's clock, and that it arrives now."""
        log = self._commits.log
        turn = log.turns[worker][-1]
        latest = turn.send_start if self._rule.exchanges else now
        times = self._clock.of_machine_time([header["compute_start"], *header["ends"], header["send_start"]])
        times = np.maximum.accumulate(times.clip(log.earliest_start(worker, self._rule), latest)).tolist()
        send_start = turn.send_start if self._rule.exchanges else times[-1]
        stop, lost = (send_start, 1) if header["lost"] else (times[-2], 0)
        log.replace_last(
            worker,
            begin=min(turn.begin, times[0]),
            compute_start=times[0],
            first_on_version=header.get("first_on_version"),
            ends=tuple(times[1:-1]),
            stop=stop,
            send_start=send_start,
            arrive=now,
            lost=lost,
        )

    def _note_stop(self, worker: int, header: Any) -> None:
        """Writes down when the stop that a push answers was sent, heard and answered."""
        if header.get("stop_heard") is not None:
            heard, done = self._clock.of_machine_time([header["stop_heard"], header["send_start"]]).tolist()
            self.messages.add(STOP, worker, self._stops_sent_at, heard, done)

    def _note_unit(self, worker: int, message: Message) -> None:
        """Notes that a unit of a turn that will be stopped is done."""
        now, header = self._clock.event(), message.header
        turn = self._commits.log.turns[worker][-1]
        earliest = turn.ends[-1] if turn.ends else turn.begin
        start, end = self._clock.of_machine_time([header["compute_start"], header["end"]])
        start = turn.compute_start if turn.ends else float(np.clip(start, turn.begin, now))
        end = float(np.clip(end, max(start, earliest), now))
        if self._commits.coded is not None:
            self._commits.coded.note_loss(worker, len(turn.ends), float(header["loss"]))
        self._commits.log.replace_last(worker, compute_start=start, ends=(*turn.ends, end))
        self._carry_out(self._decide(UNIT, worker, now), now)

    def _skip(self, worker: int) -> None:
        """Drops a push that is not finite, or ends the run."""
        turn = self._commits.log.turns[worker][-1]
        if self._limits.non_finite == "stop":
            raise ValueError(
                f"gradients must be finite; that of worker {worker} on unit {turn.first} at version {turn.version} is "
                "not. Use a smaller step, or non_finite='skip' to go on without it."
            )
        if self._limits.non_finite == "refuse":
            why = f"gradients must be finite; unit {turn.first} at version {turn.version} is not."
            self._members.refuse(worker, why)
            self.leave(worker, why)
            return
        now = self._clock.event()
        self._commits.log.member(Membership(now, worker, "skipped", f"unit {turn.first} is not finite"))
        self._commits.log.cut_off(worker, now)
        if bool(self.waiting.view.stopped[worker]):
            self._go_on_without_stopped_push(worker, now, worker_leaves=False)
        self.waiting.make_idle(worker)
        if self._has_own_params(worker):
            self._note_version_of(worker)
        self._carry_out(self._decide(NO_EVENT, worker, now), now)

    def _decide(self, kind: int, worker: int, now: float) -> Decision:
        """What follows from an event, if the protocol has chosen anew at the end of each window before it."""
        if self._setup.protocol.loss_feedback is not None:
            memory = self._windows.controls_after(now, self._commits.log, self.waiting.view.memory)
            self.waiting.remember(memory)
        begin = self._clock.now()
        decision = self.waiting.decide(kind, worker, now)
        self.rule_seconds += self._clock.now() - begin
        return decision

    def _carry_out(self, decision: Decision, now: float) -> None:
        """Does what the rule has decided: a commit, turns that are cut off, begin, or are stopped."""
        self._alarm = float(decision.alarm)
        if decision.commits:
            begin = self._clock.now()
            self._commits.commit(decision.taken, now)
            self.commit_seconds += self._clock.now() - begin
        for cut_worker in np.flatnonzero(decision.cut):
            self._commits.log.cut_off(int(cut_worker), now)
        for new_worker in np.flatnonzero(decision.begins):
            self._begin_turn(int(new_worker), decision, now)
        if decision.stops:
            self._stop(decision, now)

    def _begin_turn(self, worker: int, decision: Decision, now: float) -> None:
        """Lets a worker begin a turn; the parameters go with the order, if it is to have them."""
        log, num_units = self._commits.log, int(decision.num_units[worker])
        first = self._commits.count * self._setup.protocol.round_units if self._rule.aligned else log.next_unit(worker)
        log.begin(worker, Turn(first=first, version=int(decision.version[worker]), begin=now, num_units=num_units))
        header = {
            "kind": "begin",
            "turn": log.turn_number(worker),
            "first": first,
            "num_units": num_units,
            "weight": 0.0 if callable(self._rule.weight) else float(self._rule.weight),
            "exchanges": self._rule.exchanges,
            "can_be_cut": self._rule.cuts is not None,
            "seconds": float(decision.turn_seconds[worker]),
            "until_stopped": self._rule.stop is not None,
            "last_taken": log.last_arrived(worker),
            "version": int(decision.version[worker]),
            "anew": worker in self._anew,
        }
        self._anew.discard(worker)
        self._members.send(worker, Message(header, self._commits.updates.body if decision.pulls[worker] else None))

    def _send_exchange(self, worker: int) -> None:
        """Sends the parameters to a worker that exchanges its own for them."""
        self._commits.log.replace_last(worker, version=self._commits.count, send_start=self._clock.event())
        self._members.send(worker, Message({"kind": "params"}, self._commits.updates.body))

    def _stop(self, decision: Decision, now: float) -> None:
        """Stops the turns under way: whoever has done something that counts is asked for it."""
        asked = self._stops.begin(decision.progress, decision.alive & ~decision.idle, now)
        self.waiting.stop(asked)
        self._send_stops(asked)

    def _send_stops(self, asked: np.ndarray) -> None:
        """Asks these workers, `bool[W]`, for a push."""
        self._stops_sent_at = self._clock.now()
        for worker in np.flatnonzero(asked).tolist():
            header = {**self._stops.request(worker), "turn": self._commits.log.turn_number(worker)}
            self._members.send(worker, Message(header))

    def _ask_rule(self) -> None:
        """Asks the rule although nothing has happened."""
        now = self._clock.event()
        self._carry_out(self._decide(NO_EVENT, 0, now), now)

    def _do_without(self, silent: np.ndarray) -> None:
        """Goes on without the push of workers, `bool[W]`, that have been stopped, as the others are enough.

        Where that takes somebody who had done nothing yet at the stop, it is asked now.
        """
        if self._commits.coded is not None:
            self.waiting.forget_progress(silent)
            self._drop_stopped_pushes()
            self._ask_rule()
        elif self.waiting.would_stop_without(silent | self._not_asked, self._clock.now()):
            self.waiting.stop(np.zeros_like(silent))
            self._ask_rule()
        else:
            asked = self._stops.ask_more(np.asarray(self.waiting.view.progress), self._not_asked, self._clock.now())
            self.waiting.stop(silent | asked)
            self._send_stops(asked)

    def _go_on_without_stopped_push(self, worker: int, now: float, *, worker_leaves: bool) -> None:
        """Goes on without the push of a worker that has been stopped: it leaves, or what it has pushed is skipped.

        The other messages of a code are worth nothing without it. Where they are no longer enough for a commit, the
        round begins again, from the same version.
        """
        if self._commits.coded is not None:
            self._drop_stopped_pushes()
        elif not self.waiting.is_enough_without(worker, self._not_asked, now, leaves=worker_leaves):
            self._stops.take_back()
            self._commits.drop_pending()
            for other in np.flatnonzero(self.waiting.alive & ~self.waiting.idle):
                self._commits.log.cut_off(int(other), now)
            self.waiting.begin_again()

    def _drop_stopped_pushes(self) -> None:
        """Drops messages of a code that are worth nothing without those of somebody else; their turns go on."""
        self._stops.take_back()
        self._commits.drop_pending()
        self.waiting.go_on()

    @property
    def _not_asked(self) -> np.ndarray:
        """bool[W]: who had done nothing when the others were asked for a push, and so has gone on."""
        return self.waiting.alive & ~self.waiting.idle & ~np.asarray(self.waiting.view.stopped)

    def _is_under_way(self, worker: int, message: Message) -> bool:
        """Whether a message belongs to the turn that the worker is in, and not to one that was cut off."""
        is_in_turn = bool(self.waiting.alive[worker] and not self.waiting.idle[worker])
        return is_in_turn and message.header.get("turn") == self._commits.log.turn_number(worker)

    def _is_of_round(self, worker: int, message: Message) -> bool:
        """Whether a unit belongs to the turn that the worker is in, or to one of a code that it has been asked for.

        A worker of a code goes on after its answer, since somebody else may not answer.
        """
        is_last_turn = message.header.get("turn") == self._commits.log.turn_number(worker)
        return (self._commits.coded is not None and is_last_turn) or self._is_under_way(worker, message)
