"""The newest part of a log, as a record of its own, so that a long run need not be looked at from its beginning.

Letters: T units of a worker, W workers.
"""

import bisect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from gcjax._padding import padded_size
from gcjax.parameter_server import coded_record, turn_log
from gcjax.parameter_server.turn_log import Turn, TurnLog
from gcjax.protocols.base import Protocol
from gcjax.protocols.conformance.memberships import num_lost
from gcjax.protocols.schedule import Schedule
from gcjax.protocols.simulation.rules import Rule

_padded_size = partial(padded_size, minimum=128)


class Window(NamedTuple):
    """A part of a log.

    Attributes:
      schedule: its record; commits, versions and units are counted from those that follow.
      first_commit: the commit that is number 0 in it.
      first_unit: int32[W], the unit of each worker that is number 0 in it.
      num_lost: int32[W], the units of each worker before that one that were lost when it left.
    """

    schedule: Schedule
    first_commit: int
    first_unit: np.ndarray
    num_lost: np.ndarray


class LogWindows:
    """Parts of one log, each with all that the events from some time on are made of."""

    def __init__(self, protocol: Protocol, rule: Rule, log: TurnLog) -> None:
        """`log`: of a run by `rule`; it may grow between two calls."""
        self._log, self._rule, self._record = log, rule, record_function(protocol, rule)
        self._round_units, self._is_coded = protocol.round_units, protocol.code is not None  # units of a round
        num_workers = len(log.turns)
        # Of each worker, the number of its first turn in the window, and of the first that may still get into a commit.
        self._first_turn, self._first_undecided_turn = [0] * num_workers, [0] * num_workers
        # Of each worker, the unit that is number 0 in the window, and the units before that which were lost.
        self._first_unit, self._num_lost_before_window = np.zeros((2, num_workers), np.int32)
        # int32[T + 1, W]: of the units of the last window, how many were lost before each; the last row has them all.
        self._num_lost_before_unit = np.zeros((1, num_workers), np.int32)

    def end_of_decided_events(self) -> float:
        """Seconds, up to which all events are decided; -inf if there is no commit.

        An event is decided if it is known which commit its turn is in, or that it is in none. The last commit is not:
        what its event shows of the next one is not known yet.
        """
        log = self._log
        for worker, turns in enumerate(log.turns):
            while self._first_undecided_turn[worker] < len(turns) and self._is_decided(
                turns[self._first_undecided_turn[worker]]
            ):
                self._first_undecided_turn[worker] += 1
        begins = [
            turns[number].begin
            for turns, number in zip(log.turns, self._first_undecided_turn, strict=True)
            if number < len(turns)
        ]
        return min([*begins, log.commit_times[-1]], default=-math.inf) if log.commit_times else -math.inf

    def end_of_decided_events_at(self, time: float) -> float:
        """Seconds, up to which all events are decided by the commits before `time` seconds; -inf if there is none.

        An event is decided if it is known which commit its turn is in, or that it is in none. The last of these commits
        is not: what its event shows of the next one is not known then.
        """
        log = self._log
        num_commits = bisect.bisect_left(log.commit_times, time)
        begins = [
            turn.begin
            for worker, turns in enumerate(log.turns)
            for turn in turns[self._first_turn[worker] :]
            if not (0 <= self._commit_of(turn) < num_commits or self._is_left_out_before(turn, time))
        ]
        return min([*begins, time, log.commit_times[num_commits - 1]]) if num_commits else -math.inf

    def window(self, begin: float, end: float) -> Window:
        """The part of the log that tells all events from `begin` seconds on; `end` seconds is now.

        A later call has a later begin, and there is no event before it that was not made of an earlier window.
        """
        log, workers = self._log, range(len(self._log.turns))
        next_commit = bisect.bisect_left(log.commit_times, begin)
        needed_turns = [self._first_needed_turn(worker, begin) for worker in workers]
        versions = [turn.version for w in workers for turn in log.turns[w][needed_turns[w] :] if turn.version >= 0]
        # One commit more, which has what came before, and those whose versions were read.
        first_commit = max(min([next_commit - 1, *versions]), 0)
        turns: list[list[Turn]] = []
        for worker in workers:
            first_turn = self._last_arrived_turn_before(worker, needed_turns[worker])
            self._move_window(worker, first_turn, first_commit)
            shift = -first_commit, -int(self._first_unit[worker])  # of the numbers of commits and units
            turns.append([_with_shifted_numbers(turn, *shift) for turn in log.turns[worker][first_turn:]])
        log_part = TurnLog(len(turns))
        log_part.turns, log_part.commit_times = turns, log.commit_times[first_commit:]
        schedule = self._record(log_part, end)
        self._num_lost_before_unit = num_lost(schedule, log.memberships)
        return Window(schedule, first_commit, self._first_unit.copy(), self._num_lost_before_window.copy())

    def _is_decided(self, turn: Turn) -> bool:
        """Whether it is known in which commit the turn is, or that it is in none.

        In none is what was computed and never arrives. Before that is known, the commit is -1 and `compute_end` inf.
        """
        if self._is_coded:  # a turn of a code is of the round after the commits it has read, also if nothing was sent
            return turn.version < len(self._log.commit_times)
        is_lost = math.isfinite(turn.compute_end) and math.isinf(turn.arrive)
        return turn.commit >= 0 or turn.is_ignored or is_lost

    def _is_left_out_before(self, turn: Turn, time: float) -> bool:
        """Whether it was known before `time` seconds that the turn is in no commit: it was lost, or ignored."""
        if turn.is_ignored:
            return turn.arrive < time
        return turn.compute_end < time and math.isinf(turn.arrive)

    def _first_needed_turn(self, worker: int, begin: float) -> int:
        """The number of the worker's first turn that has an event from `begin` seconds on, or may have one."""
        turns, number = self._log.turns[worker], self._first_turn[worker]
        while number < self._first_undecided_turn[worker] and self._last_event_time(turns[number]) < begin:
            number += 1
        return number

    def _last_event_time(self, turn: Turn) -> float:
        """Seconds of the last event of a turn of which it is decided which commit it is in."""
        commit = self._commit_of(turn)
        commit_time = self._log.commit_times[commit] if commit >= 0 else -math.inf
        return max(commit_time, turn.arrive if math.isfinite(turn.arrive) else turn.compute_end)

    def _commit_of(self, turn: Turn) -> int:
        """The commit that the turn is in; -1 if none. A code uses what is done on a version, sent or not."""
        return turn.version if self._is_coded else turn.commit

    def _last_arrived_turn_before(self, worker: int, number: int) -> int:
        """The number of the worker's last turn before number `number` whose push has arrived.

        The first turn of the window if there is none in it; `number` itself where a turn has the units of its
        round, whatever was done before.
        """
        turns = self._log.turns[worker]
        if self._rule.skips_undone_units:
            return number
        first_turn = self._first_turn[worker]
        return next((n for n in range(number - 1, first_turn - 1, -1) if math.isfinite(turns[n].arrive)), first_turn)

    def _move_window(self, worker: int, first_turn: int, first_commit: int) -> None:
        """Lets the window begin with the worker's turn number `first_turn` and commit number `first_commit`.

        Units were lost that the worker had begun when it left, or when its push was skipped. Events count units without
        them, so it is noted how many there were before the window: those before the last window, and in that one those
        before the new one, by its `_num_lost_before_unit int32[T + 1, W]`.
        """
        turns = self._log.turns[worker]
        if self._rule.skips_undone_units:  # commit e is of round e, which has its own units, done or not
            first_unit = first_commit * self._round_units
        else:
            first_unit = turns[first_turn].first_unit if first_turn < len(turns) else self._log.next_unit(worker)
        last_row = self._num_lost_before_unit.shape[0] - 1
        # In the last window: its first row at least; behind it the last one, which has all that were lost.
        row = min(max(first_unit - int(self._first_unit[worker]), 0), last_row)
        self._num_lost_before_window[worker] += self._num_lost_before_unit[row, worker]
        self._first_turn[worker], self._first_unit[worker] = first_turn, first_unit


def record_function(protocol: Protocol, rule: Rule) -> Callable[[TurnLog, float], Schedule]:
    """`(log, end) -> Schedule` in NumPy arrays, of a run that is at `end` seconds.

    The sizes of arrays are powers of two, so that few programs are compiled.
    """
    code = protocol.code
    if code is not None:
        assignment, weight = code.assignment, rule.weight

        def record_of_coded_rounds(log: TurnLog, end: float) -> Schedule:
            """The record of rounds of a code."""
            num_rounds = _padded_size(len(log.commit_times))
            return jax.device_get(coded_record.schedule_of(log, assignment, weight, end, size=num_rounds))

        return record_of_coded_rounds
    programs: dict[int, Callable[..., Schedule]] = {}  # by the contributions that there is room for

    def record_of_turns(log: TurnLog, end: float) -> Schedule:
        """The record of turns; units, turns and commits beyond those of the log do not happen."""
        num_units = _padded_size(max(log.next_unit(worker) for worker in range(len(log.turns))))
        rule_with_room = turn_log.with_room_for_log(rule, log)
        num_contributions = rule_with_room.num_contributions
        program = programs.get(num_contributions) or turn_log.record_program(rule_with_room)
        programs[num_contributions] = program
        return jax.device_get(turn_log.record(log, program, end, num_units=num_units, size=_padded_size))

    return record_of_turns


def _with_shifted_numbers(turn: Turn, commit_offset: int, unit_offset: int) -> Turn:
    """The turn with `commit_offset` added to its commit and version, and `unit_offset` to its units.

    A commit that falls below 0 is -1, none; a version that does is 0, and one that was -1, none, stays so.
    """
    first_unit_on_version = None if turn.first_unit_on_version is None else turn.first_unit_on_version + unit_offset
    fields: dict[str, Any] = {
        "first_unit": turn.first_unit + unit_offset,
        "first_unit_on_version": first_unit_on_version,
        "commit": max(turn.commit + commit_offset, -1),
    }
    return turn._replace(version=max(turn.version + commit_offset, min(turn.version, 0)), **fields)
