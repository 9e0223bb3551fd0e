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
from gcjax.parameter_server.rule_state import JOIN, LEAVE, MESSAGE, NO_EVENT, UNIT, Decision, RuleState
from gcjax.parameter_server.setups import Setup
from gcjax.parameter_server.stops import Stops
from gcjax.parameter_server.turn_log import Turn
from gcjax.parameter_server.windows import Windows
from gcjax.parameter_server.wire import Message
from gcjax.protocols.conformance.memberships import Membership


class Coordinator:
    """The turns of the workers, by the protocol's rule.

    Attributes:
      rule_state: what the rule knows of the workers.
      has_begun: whether enough have joined, and all have begun.
      messages: when they were sent and dealt with; of those to the workers, the stops that were answered.
      rule_seconds: what the rule has taken so far.
      commit_seconds: what the updates of the parameters have taken so far.
    """

    def __init__(self, setup: Setup, limits: Limits, commits: Commits, members: Members, clock: EventClock) -> None:
        """Nobody takes part yet; `clock` gives seconds since the run began."""
        self._setup, self._limits, self._rule = setup, limits, setup.rule()
        self._commits, self._members, self._clock = commits, members, clock
        self.rule_state = RuleState(self._rule, setup.num_workers)
        self._stops, self._alarm_time = Stops(commits.coded_rounds), math.inf
        self._windows = Windows(setup.protocol.loss_feedback, limits.num_commits)
        self._workers_before_begin: list[int] = []  # that are there before the run begins
        self._workers_to_begin_anew: set[int] = set()  # with parameters and optimizer state of their own as at first
        self.has_begun = False
        self.messages, self.rule_seconds, self.commit_seconds = MessageLog(), 0.0, 0.0
        self._stop_sent_time = math.nan  # seconds

    def resume_from_log(self) -> None:
        """Goes on after the last commit that the log has."""
        log = self._commits.log
        self.rule_state.view = self._commits.log.restored_view(self.rule_state.view)
        self.has_begun = any(log.turns)
        if log.commit_times:
            self._windows.go_on_at(log.commit_times[-1])

    @property
    def next_timer(self) -> float:
        """Seconds by the run's clock, when `handle_timers` is to be called if nothing happens before; inf for never."""
        deadline = self._stops.answer_deadline  # once it is over, it is looked at with each event
        return min(self._alarm_time, deadline if deadline > self._clock.now() else math.inf)

    def handle_timers(self) -> None:
        """Asks the rule if its alarm is due, and does without those who do not answer a stop if the others suffice."""
        now = self._clock.now()
        if now >= self._alarm_time:
            self._alarm_time = math.inf
            self._ask_rule()
        if now >= self._stops.answer_deadline:
            silent = self.rule_state.view.stopped  # bool[W], who owes an answer
            if silent.any() and self.rule_state.would_stop_without(silent, self._clock.now()):
                self._go_on_without_silent(silent)

    def handle_message(self, worker: int, message: Message) -> None:
        """Deals with a message of a worker that has been let in; one that belongs to no turn under way is ignored."""
        if message.kind == "push" and not self._is_under_way(worker, message):
            self._commits.log.note_late_push(worker, message.header.get("turn"))
        if message.kind in ("push", "unit") and self._commits.coded_rounds is not None:
            self._count_all_progress(worker)
        if message.kind == "ready":
            self._join(worker)
        elif not self.rule_state.alive[worker] and worker not in self._workers_before_begin:
            self._join(worker)  # it was silent for too long, and what it sends now is of a turn that was cut off
        elif not wire.is_complete(message, self._commits.push_sizes):
            self._members.num_refused += 1
        elif message.kind == "unit" and self._is_report_that_counts(worker, message):
            self._note_unit(worker, message)
            self.handle_timers()  # it may be enough without somebody who does not answer
        elif message.kind == "alive" or not self._is_under_way(worker, message):
            return
        elif message.kind == "pull":
            self._send_exchange(worker)
        elif message.kind == "push":
            self._handle_push(worker, message)
        else:
            self._members.num_refused += 1

    def leave(self, worker: int, why: str) -> None:
        """Puts a worker out if it takes part, `why` in words: its turn is cut off, and nobody waits for it any more."""
        if worker in self._workers_before_begin:
            self._workers_before_begin.remove(worker)
        if not self.rule_state.alive[worker]:
            return
        now = self._clock.next_event_time()
        self._commits.log.add_membership(Membership(now, worker, "left", why))
        if not self.rule_state.idle[worker]:
            self._commits.log.cut_off(worker, now)
        if bool(self.rule_state.view.stopped[worker]):
            self._go_on_without_stopped_push(worker, now, worker_leaves=True)
        self._carry_out(self._decide(LEAVE, worker, now), now)

    def _join(self, worker: int) -> None:
        """Lets a worker take part; the first ones begin together, once there are enough."""
        if self.rule_state.alive[worker]:  # a new connection in the place of one that nobody has missed yet
            self.leave(worker, "it has a new connection")
        if self.has_begun:
            self._join_all([worker], self._clock.next_event_time())
            return
        if worker not in self._workers_before_begin:
            self._workers_before_begin.append(worker)
        if len(self._workers_before_begin) == self._limits.min_workers:
            self.has_begun, workers, self._workers_before_begin = True, self._workers_before_begin, []
            self._clock.restart()
            self._members.note_all_heard(0.0)  # seconds by the clock that has begun anew
            self._join_all(workers, 0.0)

    def _join_all(self, workers: list[int], now: float) -> None:
        """Lets workers take part from `now` seconds on."""
        for worker in workers:
            change = "came back" if self._commits.log.turns[worker] else "joined"
            why_anew = self._reason_to_begin_anew(worker)
            membership = Membership(now, worker, change, why_anew, anew=bool(why_anew))
            self._commits.log.add_membership(membership, self._members[worker].incarnation)
            self._carry_out(self._decide(JOIN, worker, now), now)

    def _reason_to_begin_anew(self, worker: int) -> str:
        """Why a worker that joins must begin anew; "" if it may go on with parameters of its own.

        If it goes on with these, the version that it has read last is noted. Otherwise the worker is noted as one that
        begins anew.
        """
        log, member = self._commits.log, self._members[worker]
        has_arrived = log.last_arrived_turn(worker) >= 0
        if self._setup.protocol.local is None or (member.last_turn < 0 and not has_arrived):
            return ""
        is_known = member.last_turn <= log.last_turn_number(worker)  # to the log, the last turn that it has begun
        if is_known and log.incarnations.get(worker) == member.incarnation and not log.has_begun_anew(worker):
            if has_arrived:
                self._note_version_of(worker)
            return ""
        self._workers_to_begin_anew.add(worker)
        why = "another process, or several of its turns are lost" if is_known else "its last turns are not in the log"
        return f"{why}: its own parameters and its optimizer state begin anew"

    def _note_version_of(self, worker: int) -> None:
        """Notes the version of the parameters that a worker has had since its last turn that arrived."""
        if not self._rule.overlaps:  # else it may have pushed before it read
            self.rule_state.set_read_version(worker, self._commits.log.last_arrived_version(worker))

    def _handle_push(self, worker: int, message: Message) -> None:
        """Hands a push to the rule. Where turns are stopped, a push that does not answer the last stop is ignored."""
        header, num_units = message.header, self._commits.log.turns[worker][-1].num_units
        if self._commits.coded_rounds is not None and len(header["unit_ends"]) > num_units:
            self._members.num_refused += 1
            return
        tree = self._commits.pushed_tree(worker, message.body)
        if self._rule.stop is not None and not self._stops.accept_answer(header, tree, self._clock.now()):
            return
        if not header["is_finite"]:
            self._handle_non_finite_push(worker)
            return
        now = self._clock.next_event_time()
        self._note_push(worker, header, now)
        self._note_stop(worker, header)
        self._commits.add_push(worker, float(header["loss"]), tree)
        decision = self._decide(MESSAGE, worker, now)
        if not decision.is_accepted:
            self._commits.ignore_push(worker)
        self._carry_out(decision, now)

    def _note_push(self, worker: int, header: Any, now: float) -> None:
        """Writes down when a push was computed and sent, by the worker's clock, and that it arrives at `now` seconds.

        Times that contradict each other or the log, as clocks may, are moved by the least.
        """
        log = self._commits.log
        turn = log.turns[worker][-1]
        latest_time = turn.send_start if self._rule.pulls_before_push else now  # noted when the parameters were sent
        machine_times = header["compute_start"], *header["unit_ends"], header["send_start"]
        times = self._clock.in_order(machine_times, log.earliest_start(worker, self._rule), latest_time)
        send_start = turn.send_start if self._rule.pulls_before_push else times[-1]
        compute_end, num_lost = (send_start, 1) if header["num_lost"] else (times[-2], 0)  # the end of the last unit
        log.update_last_turn(
            worker,
            begin=min(turn.begin, times[0]),  # who computes while it sends may have begun before the order
            compute_start=times[0],
            first_unit_on_version=header.get("first_unit_on_version"),
            unit_ends=tuple(times[1:-1]),
            compute_end=compute_end,
            send_start=send_start,
            arrive=now,
            num_lost=num_lost,
        )

    def _note_stop(self, worker: int, header: Any) -> None:
        """Writes down when the stop that a push with this header answers was sent, heard and answered, if it does."""
        if header.get("stop_heard") is not None:
            handle_start, handle_end = map(self._clock.from_machine_time, (header["stop_heard"], header["send_start"]))
            self.messages.add(STOP, worker, self._stop_sent_time, handle_start, handle_end)

    def _note_unit(self, worker: int, message: Message) -> None:
        """Notes that a unit is done, of a turn that lasts until the server stops it, and asks the rule.

        Its times are moved by the least so that they are in order, after the turn's begin and before now.
        """
        now, header = self._clock.next_event_time(), message.header
        turn = self._commits.log.turns[worker][-1]
        unit_begin = turn.unit_ends[-1] if turn.unit_ends else turn.begin
        compute_start, unit_end = map(self._clock.from_machine_time, (header["compute_start"], header["unit_end"]))
        compute_start = turn.compute_start if turn.unit_ends else min(max(compute_start, turn.begin), now)
        unit_end = min(max(unit_end, compute_start, unit_begin), now)
        if self._commits.coded_rounds is not None:
            self._commits.coded_rounds.note_loss(worker, len(turn.unit_ends), float(header["loss"]))
        self._commits.log.update_last_turn(worker, compute_start=compute_start, unit_ends=(*turn.unit_ends, unit_end))
        self._carry_out(self._decide(UNIT, worker, now), now)

    def _handle_non_finite_push(self, worker: int) -> None:
        """Skips a push with numbers that are not finite, refuses its worker, or ends the run by an error.

        `Limits.non_finite` says which. A worker whose push is skipped may begin another turn at once.
        """
        turn = self._commits.log.turns[worker][-1]
        if self._limits.non_finite == "stop":
            raise ValueError(
                f"gradients must be finite; that of worker {worker} on unit {turn.first_unit} at version "
                f"{turn.version} is not. Use a smaller step, or non_finite='skip' to go on without it."
            )
        if self._limits.non_finite == "refuse":
            why = f"gradients must be finite; unit {turn.first_unit} at version {turn.version} is not."
            self._members.refuse(worker, why)
            self.leave(worker, why)
            return
        now = self._clock.next_event_time()
        self._commits.log.add_membership(Membership(now, worker, "skipped", f"unit {turn.first_unit} is not finite"))
        self._commits.log.cut_off(worker, now)
        if bool(self.rule_state.view.stopped[worker]):
            self._go_on_without_stopped_push(worker, now, worker_leaves=False)
        self.rule_state.make_idle(worker)
        if self._setup.protocol.local is not None and self._commits.log.has_own_params(worker):
            self._note_version_of(worker)
        self._carry_out(self._decide(NO_EVENT, worker, now), now)

    def _decide(self, kind: int, worker: int, now: float) -> Decision:
        """What follows from an event of a worker, `kind` `MESSAGE`, `LEAVE`, ..., at `now` seconds.

        A protocol that looks at the loss has chosen its controls anew at the end of each window before.
        """
        if self._setup.protocol.loss_feedback is not None:
            memory = self._windows.controls_after(now, self._commits.log, self.rule_state.view.memory)
            self.rule_state.set_memory(memory)
        begin = self._clock.now()
        decision = self.rule_state.decide(kind, worker, now, self._commits.log.compute_seconds(worker))
        self.rule_seconds += self._clock.now() - begin
        return decision

    def _carry_out(self, decision: Decision, now: float) -> None:
        """Does what the rule has decided at `now` seconds: a commit; turns that are cut off, begin, or are stopped."""
        self._alarm_time = float(decision.alarm_time)
        if decision.has_commit:
            begin = self._clock.now()
            self._commits.commit(decision.is_committed, now)
            self.commit_seconds += self._clock.now() - begin
        for cut_off_worker in decision.is_cut_off.nonzero()[0].tolist():
            self._commits.log.cut_off(cut_off_worker, now)
        for beginning_worker in decision.begins.nonzero()[0].tolist():
            self._begin_turn(beginning_worker, decision, now)
        if decision.stops_turns:
            self._stop_turns(decision, now)

    def _begin_turn(self, worker: int, decision: Decision, now: float) -> None:
        """Lets a worker begin a turn; the parameters go with the order, if it is to have them."""
        log, num_units = self._commits.log, int(decision.num_units[worker])
        version, code_row = int(decision.version[worker]), int(decision.code_row[worker])
        round_units = self._setup.protocol.round_units  # of a worker, whether it does all of them or not
        first_unit = self._commits.count * round_units if self._rule.skips_undone_units else log.next_unit(worker)
        turn = Turn(first_unit=first_unit, version=version, begin=now, num_units=num_units, code_row=code_row)
        log.add_turn(worker, turn)
        if self._commits.coded_rounds is not None:
            self._commits.coded_rounds.set_row(worker, code_row)
        header = {
            "kind": "begin",
            "turn": log.last_turn_number(worker),
            "first_unit": first_unit,
            "num_units": num_units,
            "code_row": code_row,
            "weight": 0.0 if callable(self._rule.weight) else float(self._rule.weight),  # 0: known at the commit only
            "pulls_before_push": self._rule.pulls_before_push,
            "can_be_cut_off": self._rule.cuts_off is not None,
            "turn_seconds": float(decision.turn_seconds[worker]),
            "lasts_until_stopped": self._rule.stop is not None,
            "last_arrived_turn": log.last_arrived_turn(worker),
            "version": version,
            "begins_anew": worker in self._workers_to_begin_anew,
        }
        self._workers_to_begin_anew.discard(worker)
        params_bytes = self._commits.updates.params_bytes if decision.pulls[worker] else None
        self._members.send(worker, Message(header, params_bytes))

    def _send_exchange(self, worker: int) -> None:
        """Sends the newest parameters to a worker that asks for them before it pushes; its turn has this version."""
        now = self._clock.next_event_time()
        self._commits.log.update_last_turn(worker, version=self._commits.count, send_start=now)
        self._members.send(worker, Message({"kind": "params"}, self._commits.updates.params_bytes))

    def _stop_turns(self, decision: Decision, now: float) -> None:
        """Stops the turns under way: whoever has done something that counts is asked for it."""
        is_asked = self._stops.request_pushes(decision.progress, decision.alive & ~decision.idle, now)
        self.rule_state.set_stopped(is_asked)
        self._send_stops(is_asked)

    def _send_stops(self, is_asked: np.ndarray) -> None:
        """Asks the workers `is_asked bool[W]`, whose turns are stopped, for a push."""
        self._stop_sent_time = self._clock.now()
        for worker in np.flatnonzero(is_asked).tolist():
            turn_number = self._commits.log.last_turn_number(worker)
            self._members.send(worker, Message({**self._stops.header(worker), "turn": turn_number}))

    def _ask_rule(self) -> None:
        """Asks the rule although nothing has happened."""
        now = self._clock.next_event_time()
        self._carry_out(self._decide(NO_EVENT, 0, now), now)

    def _go_on_without_silent(self, is_silent: np.ndarray) -> None:
        """Goes on without the push of workers, `bool[W]`, that were told to stop and do not answer.

        The others are enough for a commit. If they are so only with workers that had done nothing yet at the stop, and
        were not asked, these are told to stop now. The messages of a code are worth nothing without those that are
        missing, so its turns go on.
        """
        if self._commits.coded_rounds is not None:
            self.rule_state.reset_progress(is_silent)
            self._drop_stopped_pushes()
            self._ask_rule()
        elif self.rule_state.would_stop_without(is_silent | self.rule_state.not_asked, self._clock.now()):
            self.rule_state.set_stopped(np.zeros_like(is_silent))
            self._ask_rule()
        else:
            progress, now = self.rule_state.view.progress, self._clock.now()
            is_asked = self._stops.request_more_pushes(progress, self.rule_state.not_asked, now)
            self.rule_state.set_stopped(is_silent | is_asked)
            self._send_stops(is_asked)

    def _count_all_progress(self, worker: int) -> None:
        """Counts all that a worker has done in its turn, also if it was silent at a stop: it is heard of again."""
        if self.rule_state.in_turn[worker]:
            num_units = len(self._commits.log.turns[worker][-1].unit_ends)
            if self.rule_state.view.progress[worker] < num_units:
                self.rule_state.set_progress(worker, num_units)
                self._ask_rule()

    def _go_on_without_stopped_push(self, worker: int, now: float, *, worker_leaves: bool) -> None:
        """Goes on without the push of a worker that has been stopped: it leaves, or what it has pushed is skipped.

        The other messages of a code are worth nothing without it, and its turns go on. Where the others' pushes are no
        longer enough for a commit, the round begins again, from the same version.
        """
        if self._commits.coded_rounds is not None:
            self._drop_stopped_pushes()
        elif not self.rule_state.would_stop_without_worker(
            worker, self.rule_state.not_asked, now, leaves=worker_leaves
        ):
            self._stops.withdraw()
            self._commits.drop_pending()
            for other in np.flatnonzero(self.rule_state.in_turn):
                self._commits.log.cut_off(int(other), now)
            self.rule_state.restart_turns()

    def _drop_stopped_pushes(self) -> None:
        """Drops messages of a code that are worth nothing without those of somebody else; their turns go on."""
        self._stops.withdraw()
        self._commits.drop_pending()
        self.rule_state.resume_turns()

    def _is_under_way(self, worker: int, message: Message) -> bool:
        """Whether a message belongs to the turn that the worker is in, and not to one that was cut off."""
        is_last_turn = message.header.get("turn") == self._commits.log.last_turn_number(worker)
        return bool(self.rule_state.in_turn[worker]) and is_last_turn

    def _is_report_that_counts(self, worker: int, message: Message) -> bool:
        """Whether the report of a unit belongs to the turn that the worker is in.

        A worker of a code goes on with its turn after it has answered a stop, since somebody else may not answer.
        """
        turns, may_go_on = self._commits.log.turns[worker], self._commits.coded_rounds is not None
        is_last_turn = bool(turns) and message.header.get("turn") == len(turns) - 1
        goes_on = (may_go_on and self.rule_state.alive[worker]) or self.rule_state.in_turn[worker]
        return bool(is_last_turn and goes_on and not 0 < turns[-1].num_units <= len(turns[-1].unit_ends))
