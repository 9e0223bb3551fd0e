"""What happened, turn by turn, and the record of it: the same as that of a simulated run.

Letters: T units of a worker, W workers, J turns of a worker, E commits.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.parameter_server.run_end import RunEnd
from gcjax.protocols.conformance.memberships import Membership
from gcjax.protocols.schedule import Schedule
from gcjax.protocols.simulation.event_schedule import rule_record
from gcjax.protocols.simulation.rules import Rule, View
from gcjax.protocols.simulation.turns import Turns, Work


class Turn(NamedTuple):
    """A turn of a worker; numbers as in `gcjax.protocols.simulation.turns.Turns`.

    Attributes:
      first_unit: the first of its units, counted from the worker's first one.
      version: that was read, or is read in the exchange.
      begin: seconds, when the server let it begin.
      compute_start: seconds, when the first unit began.
      unit_ends: seconds, when each unit ended.
      compute_end: seconds, when computing ended or was cut off.
      send_start: seconds; inf if nothing was sent.
      arrive: seconds; inf if nothing has arrived.
      commit: that the message is in; -1 for none.
      position: among the messages of the commit.
      num_units: of the turn at most; 0 if it has no such number.
      num_lost: the units that were begun and did not end.
      num_counted: the units that the plan of a code takes; None for all that ended, if the message has arrived.
      first_unit_on_version: the first unit that was computed on the version; None for all.
      is_ignored: whether the message has arrived, and the rule has ignored it.
      code_row: the row of the code that the worker has in it; that of its own number if None.
    """

    first_unit: int
    version: int
    begin: float
    compute_start: float = math.inf
    unit_ends: tuple[float, ...] = ()
    compute_end: float = math.inf
    send_start: float = math.inf
    arrive: float = math.inf
    commit: int = -1
    position: int = 0
    num_units: int = 0
    num_lost: int = 0
    num_counted: int | None = None
    first_unit_on_version: int | None = None
    is_ignored: bool = False
    code_row: int | None = None

    @property
    def num_begun(self) -> int:
        """The units that were begun; one at least, as whoever begins a turn begins a unit."""
        return max(1, len(self.unit_ends) + self.num_lost)

    @property
    def num_sent_units(self) -> int:
        """The units of the turn that count: those a code's plan takes, or all that ended if the push has arrived."""
        if self.num_counted is not None:
            return self.num_counted
        return len(self.unit_ends) if math.isfinite(self.arrive) else 0

    def ended(self, now: float) -> "Turn":
        """The turn if it is over at `now` seconds: a unit that is under way is lost."""
        if self.unit_ends and len(self.unit_ends) == self.num_units:
            return self._replace(compute_end=self.unit_ends[-1], num_lost=0)
        return self._replace(compute_end=now, num_lost=1)


class TurnLog:
    """The turns of all workers, the times of the commits, who came and went, and who took a worker's last turns."""

    def __init__(self, num_workers: int) -> None:
        """Nothing has happened yet."""
        self.turns: list[list[Turn]] = [[] for _ in range(num_workers)]  # of each worker
        self.commit_times: list[float] = []  # seconds
        self.losses: list[float] = []  # of commits
        self.memberships: list[Membership] = []
        self.incarnations: dict[int, str] = {}  # worker -> the process that took its last turns
        self.late_pushes: set[tuple[int, int]] = set()  # (worker, number of its turn)

    # What a log in a file does otherwise.

    def go_on(self) -> None:
        """Goes on with what the log has from an earlier server: turns end, and workers leave. Here it has nothing."""

    def restored_view(self, view: View) -> View:
        """The view after the last commit that the log has from an earlier server; the one that is given without it."""
        return view

    def end_seconds(self, now: float) -> float:
        """When the run has ended: at `now` seconds."""
        return now

    def write_end(self, end: RunEnd) -> RunEnd:
        """Writes down how the run has ended; returns it, or what the log says of it already."""
        return end

    def close(self) -> None:
        """Closes the file, if there is one; afterwards another server may go on with it."""

    def next_unit(self, worker: int) -> int:
        """The unit after those that the worker has begun."""
        last_turn = self.turns[worker][-1] if self.turns[worker] else None
        return 0 if last_turn is None else last_turn.first_unit + last_turn.num_begun

    def compute_seconds(self, worker: int) -> float:
        """How many seconds the worker has computed in its last turn; 0 without a turn, or before it has ended."""
        if not self.turns[worker] or math.isinf(self.turns[worker][-1].compute_end):
            return 0.0
        return self.turns[worker][-1].compute_end - self.turns[worker][-1].compute_start

    def last_turn_number(self, worker: int) -> int:
        """The number of the worker's last turn; -1 if there is none."""
        return len(self.turns[worker]) - 1

    def earliest_start(self, worker: int, rule: Rule) -> float:
        """Seconds, before which the worker cannot have begun the units of its last turn."""
        last_turn, turn_before = self.turns[worker][-1], self.turns[worker][-2:-1]  # the latter in a list, or none
        if rule.overlaps and turn_before and math.isfinite(turn_before[0].arrive):
            return turn_before[0].compute_end  # it went on while the push before travelled
        return last_turn.begin

    def add_turn(self, worker: int, turn: Turn) -> None:
        """Writes down that a worker begins a turn."""
        self.turns[worker].append(turn)

    def add_membership(self, membership: Membership, incarnation: str = "") -> None:
        """Writes down who came or went, and the `incarnation`: which process it is."""
        self.memberships.append(membership)
        if incarnation:
            self.incarnations[membership.worker] = incarnation

    def has_own_params(self, worker: int) -> bool:
        """Whether a worker has parameters from its last turn that arrived, and has not begun anew since.

        That is for protocols in which workers take steps of their own.
        """
        return self.last_arrived_turn(worker) >= 0 and not self.has_begun_anew(worker)

    def has_begun_anew(self, worker: int) -> bool:
        """Whether a worker has begun anew since its last turn that arrived; ever, if none has."""
        number = self.last_arrived_turn(worker)
        begin = self.turns[worker][number].begin if number >= 0 else -math.inf
        return any(m.worker == worker and m.anew and m.time > begin for m in self.memberships)

    def last_arrived_turn(self, worker: int) -> int:
        """The number of the worker's last turn whose message has arrived; -1 if there is none."""
        numbers = range(self.last_turn_number(worker), -1, -1)
        return next((number for number in numbers if math.isfinite(self.turns[worker][number].arrive)), -1)

    def last_arrived_version(self, worker: int) -> int:
        """The version that the worker's last turn whose message has arrived has read; there must be one."""
        return self.turns[worker][self.last_arrived_turn(worker)].version

    def update_last_turn(self, worker: int, **fields: Any) -> Turn:
        """Sets fields of the worker's last turn; returns the turn."""
        self.turns[worker][-1] = turn = self.turns[worker][-1]._replace(**fields)
        return turn

    def cut_off(self, worker: int, now: float) -> None:
        """Ends the worker's turn; the unit that it has begun is lost."""
        turn = self.turns[worker][-1].ended(now)
        self.update_last_turn(worker, compute_end=turn.compute_end, num_lost=turn.num_lost)

    def note_late_push(self, worker: int, turn_number: Any) -> None:
        """Notes a push of a turn that was cut off, once; not one that has arrived before and was sent once more."""
        turns = self.turns[worker]
        if isinstance(turn_number, int) and 0 <= turn_number < len(turns) and math.isinf(turns[turn_number].arrive):
            self.late_pushes.add((worker, turn_number))

    def end_round(self, progress: np.ndarray, now: float) -> None:
        """Ends a code's round at `now` seconds: of each turn on the newest version `progress int32[W]` units count.

        A worker whose chunks count although it has sent no push gets as arrival the end of its last unit that counts.
        """
        for worker, turns in enumerate(self.turns):
            num_units = int(progress[worker])
            # The newest version has the number of the commits so far.
            if not turns or turns[-1].version != len(self.commit_times) or not num_units:
                continue
            turn = turns[-1].ended(now)
            arrive = turn.arrive if math.isfinite(turn.arrive) else turn.unit_ends[num_units - 1]
            self.update_last_turn(
                worker, compute_end=turn.compute_end, num_lost=turn.num_lost, num_counted=num_units, arrive=arrive
            )

    def add_commit(self, commit: int, messages: list[tuple[int, int]], loss: float, now: float) -> None:
        """Writes down commit number `commit`, at `now` seconds, of messages, each a worker and the number of its turn.

        `loss`: the mean over the units of the commit.
        """
        for position, (worker, turn_number) in enumerate(messages):
            turn = self.turns[worker][turn_number]
            self.turns[worker][turn_number] = turn._replace(commit=commit, position=position)
        self.commit_times.append(now)
        self.losses.append(loss)


def schedule_of(log: TurnLog, rule: Rule, end: float) -> Schedule:
    """The record of a run that has ended at `end` seconds; T is the most units that a worker has begun."""
    num_units = max(1, *(log.next_unit(worker) for worker in range(len(log.turns))))
    # As one program, which is compiled sooner than its operations one by one.
    return record(log, record_program(with_room_for_log(rule, log)), end, num_units=num_units)


def with_room_for_log(rule: Rule, log: TurnLog) -> Rule:
    """The rule with room for as many contributions as the commits of a log have.

    Only where all pushes of a worker to a commit are one contribution (`one_contribution_per_worker`) may they be more
    than the rule says: a turn that was lost as the worker left divides them.
    """
    if not rule.one_contribution_per_worker:
        return rule
    num_workers = len(log.turns)
    contributions_per_worker = max(map(_num_contributions, log.turns), default=0)
    num_contributions = max(rule.num_contributions, contributions_per_worker * num_workers)
    return rule._replace(num_contributions=num_contributions)


def _num_contributions(turns: list[Turn]) -> int:
    """The most contributions of a worker to a commit; units that follow each other, on one version, are one.

    `turns`: all of the worker.
    """
    last_turn, num_so_far, max_num = None, 0, 0
    for turn in turns:
        if turn.commit < 0:
            continue
        # The version and the unit with which a turn goes on with the last one that is in a commit.
        after_last = None if last_turn is None else (last_turn.version, last_turn.first_unit + last_turn.num_sent_units)
        follows_last = after_last == (turn.version, turn.first_unit)
        if last_turn is None or turn.commit != last_turn.commit:
            num_so_far = 1
        elif not follows_last:
            num_so_far += 1
        last_turn, max_num = turn, max(max_num, num_so_far)
    return max_num


def record_program(rule: Rule) -> Callable[..., Schedule]:
    """The record of turns by a rule, as a program: `(turns, seconds, times, horizon) -> Schedule`."""

    @jax.jit
    def program(turns: Turns, seconds: jax.Array, times: jax.Array, horizon: jax.Array) -> Schedule:
        """The record, from the arrays [J, W] of turns, float[T, W] seconds of units and float[E] times of commits.

        It ends at `horizon float[]` seconds.
        """
        if rule.pulls_before_push:  # without the push nobody knows when its units ended, and the exchange began
            turns = turns._replace(version=jnp.where(jnp.isfinite(turns.arrive), turns.version, -1))
        return rule_record(rule, turns, Work.of(seconds), times, horizon)

    return program


def record(
    log: TurnLog,
    program: Callable[..., Schedule],
    end: float,
    *,
    num_units: int,
    size: Callable[[int], int] = lambda count: count,
) -> Schedule:
    """The record of a run.

    Args:
      log: what has happened.
      program: that of the rule (`record_program`).
      end: seconds, when the run has ended.
      num_units: T, at least those that a worker has begun.
      size: `(count) -> size` of arrays for so many commits or turns, `count` at least; those beyond do not happen.
    """
    dtype = jnp.result_type(float)
    times = padded_commit_times(log, size(len(log.commit_times)), dtype)
    horizon = jnp.asarray(max([end, *log.commit_times]), dtype)
    turns = turns_of(log, num_units, dtype, size(max(1, *map(len, log.turns))))
    return program(turns, jnp.asarray(unit_seconds(log, num_units), dtype), times, horizon)


def padded_commit_times(log: TurnLog, num_commits: int, dtype: Any) -> jax.Array:
    """dtype[num_commits]: the seconds of the commits of a log, and inf for those behind, which do not happen."""
    num_missing = num_commits - len(log.commit_times)
    return jnp.asarray(np.asarray(log.commit_times + [math.inf] * num_missing, np.float64), dtype)


def unit_seconds(log: TurnLog, num_units: int) -> np.ndarray:
    """float64[T, W]: the seconds that each of the T = `num_units` units took; inf for one that did not end."""
    seconds = np.full((num_units, len(log.turns)), np.inf)
    for worker, turns in enumerate(log.turns):
        for turn in turns:
            if turn.unit_ends:
                times = np.diff([turn.compute_start, *turn.unit_ends])
                seconds[turn.first_unit : turn.first_unit + times.size, worker] = times
    return seconds


def turns_of(log: TurnLog, num_units: int, dtype: Any, num_turns: int | None = None) -> Turns:
    """The arrays [J, W] of all turns, J = `num_turns` (default: the most of a worker).

    Turns that do not exist come last, with T = `num_units` as first unit. `dtype` is that of seconds.
    """
    shape = num_turns or max(1, *map(len, log.turns)), len(log.turns)

    def values(value_of: Callable[[Turn], float], default: float, dtype: Any = np.int32) -> jax.Array:
        """dtype[J, W]: `value_of(turn)` for each turn, and the default where there is none."""
        array = np.full(shape, default, np.int32 if dtype == np.int32 else np.float64)
        for worker, turns in enumerate(log.turns):
            array[: len(turns), worker] = [value_of(turn) for turn in turns]
        return jnp.asarray(array, dtype)

    return Turns(
        first_unit=values(lambda turn: turn.first_unit, num_units),
        num_begun=values(lambda turn: turn.num_begun, 0),
        num_sent_units=values(lambda turn: turn.num_sent_units, 0),
        first_unit_on_version=values(_first_unit_on_version, 0),
        version=values(lambda turn: turn.version, -1),
        commit=values(lambda turn: turn.commit, -1),
        position=values(lambda turn: turn.position, 0),
        begin=values(lambda turn: turn.begin, np.inf, dtype),
        compute_start=values(lambda turn: turn.compute_start, np.inf, dtype),
        stop=values(lambda turn: turn.compute_end, np.inf, dtype),
        send_start=values(lambda turn: turn.send_start, np.inf, dtype),
        arrive=values(lambda turn: turn.arrive, np.inf, dtype),
    )


def _first_unit_on_version(turn: Turn) -> int:
    """The first unit of a turn that was computed on its version."""
    return turn.first_unit if turn.first_unit_on_version is None else turn.first_unit_on_version
