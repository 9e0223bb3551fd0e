"""Runs in which workers leave and join, for comparison: a rule that is asked event by event, and K-async in Python."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.parameter_server import turn_log
from gcjax.parameter_server.rule_state import JOIN, LEAVE, MESSAGE, NO_EVENT, RuleState
from gcjax.parameter_server.turn_log import Turn, TurnLog


def changes_of(absences):
    """[(time, whether it leaves, worker)] in order, so that who joins comes first; at 0 nobody leaves."""
    leave, join = (np.asarray(x).tolist() for x in absences)
    changes = [(time, True, w) for w, times in enumerate(leave) for time in times if 0 < time < math.inf]
    return sorted(changes + [(time, False, w) for w, times in enumerate(join) for time in times if time < math.inf])


class Served:
    """A run of a rule as the parameter server makes it: every message, leaving and joining is an event at its time.

    Messages take no time. It ends when somebody is to begin a unit that there is not, as a simulation does.
    """

    def __init__(self, protocol, durations, absences):
        self.durations, (self.num_units, num_workers) = np.asarray(durations), np.shape(durations)
        self.rule, self.is_local = protocol.rule(num_workers), protocol.local is not None
        self.rule_state, self.log = RuleState(self.rule, num_workers), TurnLog(num_workers)
        self.pending, self.arrivals, self.horizon, self.alarm = [], {}, math.inf, math.inf
        for worker in np.flatnonzero(np.asarray(absences.is_present)):
            self._event(JOIN, int(worker), 0.0)
        changes = changes_of(absences)
        while math.isinf(self.horizon) and (changes or self.arrivals):
            arrival = min(((time, worker) for worker, time in self.arrivals.items()), default=(math.inf, 0))
            change = changes[0][0] if changes else math.inf
            if self.alarm < arrival[0] and self.alarm <= change:
                self._event(NO_EVENT, 0, self.alarm)
            elif changes and changes[0][0] <= arrival[0]:
                time, leaves, worker = changes.pop(0)
                self._leave(worker, time) if leaves else self._join(worker, time)
            elif math.isfinite(arrival[0]):
                self._push(arrival[1], arrival[0])
            else:
                break

    def _join(self, worker, now):
        last = self.log.last_arrived_turn(worker)
        if self.is_local and last >= 0:
            self.rule_state.set_read_version(worker, self.log.turns[worker][last].version)
        self._event(JOIN, worker, now)

    def _leave(self, worker, now):
        self.arrivals.pop(worker, None)
        if not self.rule_state.idle[worker]:
            self.log.cut_off(worker, now)
        self._event(LEAVE, worker, now)

    def _push(self, worker, now):
        del self.arrivals[worker]
        turn = self.log.turns[worker][-1]
        ends = turn.begin + np.cumsum(self.durations[turn.first_unit : turn.first_unit + turn.num_units, worker])
        times = {"unit_ends": tuple(ends.tolist()), "compute_end": now, "send_start": now, "arrive": now}
        version = len(self.log.commit_times) if self.rule.pulls_before_push else turn.version  # that the server answers
        self.log.update_last_turn(worker, compute_start=turn.begin, version=version, **times)
        self.pending.append((worker, len(self.log.turns[worker]) - 1))
        self._event(MESSAGE, worker, now)

    def _event(self, kind, worker, now):
        decision = self.rule_state.decide(kind, worker, now, self.log.compute_seconds(worker))
        self.alarm = float(decision.alarm_time)
        if kind == MESSAGE and not decision.is_accepted:
            self.pending.pop()
        if decision.has_commit:
            messages = [message for message in self.pending if decision.is_committed[message[0]]]
            self.pending = [message for message in self.pending if not decision.is_committed[message[0]]]
            self.log.add_commit(len(self.log.commit_times), messages, 0.0, now)
        for other in np.flatnonzero(decision.is_cut_off):
            self.log.cut_off(int(other), now)
            self.arrivals.pop(int(other), None)
        for other in np.flatnonzero(decision.begins):
            first, count = self.log.next_unit(other), int(decision.num_units[other])
            if first + count > self.num_units:
                self.horizon = min(self.horizon, now)
                continue
            turn = Turn(first_unit=first, version=int(decision.version[other]), begin=now, num_units=count)
            self.log.add_turn(int(other), turn)
            seconds = float(self.durations[first : first + count, other].sum())
            if math.isfinite(seconds):
                self.arrivals[int(other)] = now + seconds

    @property
    def schedule(self):
        return jax.device_get(turn_log.schedule_of(self.log, self.rule, self.rule_state.view.now))


class Unit(NamedTuple):
    """A unit of a worker: its number, when it began, when it ends, and the version it read."""

    number: int
    begin: float
    end: float
    version: int


def k_async(durations, absences, count):
    """[(time, [(worker, unit, version)])] of the commits of K-async, the lost units, and the horizon."""
    durations, changes = np.asarray(durations).tolist(), changes_of(absences)
    num_units, num_workers = len(durations), len(durations[0])
    present = set(np.flatnonzero(np.asarray(absences.is_present)).tolist())
    used, doing, pushed, commits, lost, now = [0] * num_workers, {}, [], [], [], 0.0
    while True:
        for w in sorted(present - set(doing) - {w for w, _, _ in pushed}):
            if used[w] == num_units:
                return commits, lost, now
            doing[w] = Unit(used[w], now, now + durations[used[w]][w], len(commits))
            used[w] += 1
        now = min([unit.end for unit in doing.values()] + [time for time, _, _ in changes[:1]], default=math.inf)
        if math.isinf(now):
            return commits, lost, now
        happening = [("leave" if leaves else "join", w) for time, leaves, w in changes if time == now]
        changes = [change for change in changes if change[0] > now]
        leaving = {w for what, w in happening if what == "leave"}
        happening += [("push", w) for w, unit in sorted(doing.items()) if unit.end == now and w not in leaving]
        for what, w in happening:
            if what == "join":
                present.add(w)
                continue
            if what == "leave":
                present.discard(w)
                lost += [(w, doing.pop(w).number)] if w in doing else []
            else:
                unit = doing.pop(w)
                pushed.append((w, unit.number, unit.version))
            waited_for = present - {w for w, _, _ in pushed}
            if pushed and (len(pushed) >= count or not waited_for):
                commits.append((now, pushed))
                pushed = []


def exponential(seed, shape):
    """Durations that are hardly ever equal."""
    return jnp.asarray(np.random.default_rng(seed).exponential(size=shape))
