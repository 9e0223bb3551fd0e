"""What happened, turn by turn, and the record of it: the same as that of a simulated run.

Letters: T units of a worker, W workers, J turns of a worker, E commits.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.protocols.conformance.memberships import Membership
from gcjax.protocols.schedule import Schedule
from gcjax.protocols.simulation.event_schedule import rule_record
from gcjax.protocols.simulation.rules import Rule
from gcjax.protocols.simulation.turns import FLOATS, INTEGERS, Turns, Work


class Turn(NamedTuple):
    """A turn of a worker; numbers as in `gcjax.protocols.simulation.turns.Turns`.

    Attributes:
      first: the first unit.
      version: that was read, or is read in the exchange.
      begin: seconds, when the server let it begin.
      compute_start: seconds, when the first unit began.
      ends: seconds, when each unit ended.
      stop: seconds, when computing ended or was cut off.
      send_start: seconds; inf if nothing was sent.
      arrive: seconds; inf if nothing has arrived.
      commit: that the message is in; -1 for none.
      position: among the messages of the commit.
      num_units: of the turn at most; 0 if it has no such number.
      lost: the units that were begun and did not end.
      num_sent: the units that were sent; None for all that ended, if the message has arrived.
      first_on_version: the first unit that was computed on the version; None for all.
      is_ignored: whether the message has arrived, and the rule has ignored it.
    """

    first: int
    version: int
    begin: float
    compute_start: float = math.inf
    ends: tuple[float, ...] = ()
    stop: float = math.inf
    send_start: float = math.inf
    arrive: float = math.inf
    commit: int = -1
    position: int = 0
    num_units: int = 0
    lost: int = 0
    num_sent: int | None = None
    first_on_version: int | None = None
    is_ignored: bool = False

    @property
    def num_begun(self) -> int:
        """The units that were begun; one at least, as whoever begins a turn begins a unit."""
        return max(1, len(self.ends) + self.lost)

    @property
    def work(self) -> int:
        """The units that were sent."""
        if self.num_sent is not None:
            return self.num_sent
        return len(self.ends) if math.isfinite(self.arrive) else 0

    def ended(self, now: float) -> "Turn":
        """The turn if it is over now: a unit that is under way is lost."""
        if self.ends and len(self.ends) == self.num_units:
            return self._replace(stop=self.ends[-1], lost=0)
        return self._replace(stop=now, lost=1)


class TurnLog:
    """The turns of all workers, the times of the commits, who came and went, and who took a worker's last turns."""

    def __init__(self, num_workers: int) -> None:
        """Nothing has happened yet."""
        self.turns: list[list[Turn]] = [[] for _ in range(num_workers)]
        self.commit_times: list[float] = []
        self.losses: list[float] = []
        self.memberships: list[Membership] = []
        self.incarnations: dict[int, str] = {}

    def next_unit(self, worker: int) -> int:
        """The unit after those that the worker has begun."""
        last = self.turns[worker][-1] if self.turns[worker] else None
        return 0 if last is None else last.first + last.num_begun

    def turn_number(self, worker: int) -> int:
        """The number of the worker's last turn; -1 if there is none."""
        return len(self.turns[worker]) - 1

    def earliest_start(self, worker: int, rule: Rule) -> float:
        """Seconds, before which the worker cannot have begun the units of its last turn."""
        last, before = self.turns[worker][-1], self.turns[worker][-2:-1]
        if rule.overlaps and before and math.isfinite(before[0].arrive):
            return before[0].stop  # it went on while the push before travelled
        return last.begin

    def begin(self, worker: int, turn: Turn) -> None:
        """Writes down that a worker begins a turn."""
        self.turns[worker].append(turn)

    def member(self, membership: Membership, incarnation: str = "") -> None:
        """Writes down who came or went, and which process it is."""
        self.memberships.append(membership)
        if incarnation:
            self.incarnations[membership.worker] = incarnation

    def last_anew(self, worker: int) -> float:
        """Seconds, when the worker's last process began anew; 0 if none did."""
        return max((m.time for m in self.memberships if m.worker == worker and m.anew), default=0.0)

    def last_arrived(self, worker: int) -> int:
        """The number of the worker's last turn whose message has arrived; -1 if there is none."""
        numbers = range(self.turn_number(worker), -1, -1)
        return next((number for number in numbers if math.isfinite(self.turns[worker][number].arrive)), -1)

    def replace_last(self, worker: int, **fields: Any) -> Turn:
        """The worker's last turn, with other fields."""
        self.turns[worker][-1] = turn = self.turns[worker][-1]._replace(**fields)
        return turn

    def cut_off(self, worker: int, now: float) -> None:
        """Ends the worker's turn; the unit that it has begun is lost."""
        turn = self.turns[worker][-1].ended(now)
        self.replace_last(worker, stop=turn.stop, lost=turn.lost)

    def end_round(self, progress: np.ndarray, now: float) -> None:
        """Ends the turns on the newest version, of which `progress int32[W]` units count.

        Those of a worker without a message of its own count from when they ended.
        """
        for worker, turns in enumerate(self.turns):
            num_units = int(progress[worker])
            if not turns or turns[-1].version != len(self.commit_times) or not num_units:
                continue
            turn = turns[-1].ended(now)
            arrive = turn.arrive if math.isfinite(turn.arrive) else turn.ends[num_units - 1]
            self.replace_last(worker, stop=turn.stop, lost=turn.lost, num_sent=num_units, arrive=arrive)

    def commit(self, commit: int, messages: list[tuple[int, int]], loss: float, now: float) -> None:
        """Writes down a commit of messages, each a worker and the number of its turn."""
        for position, (worker, number) in enumerate(messages):
            turn = self.turns[worker][number]
            self.turns[worker][number] = turn._replace(commit=commit, position=position)
        self.commit_times.append(now)
        self.losses.append(loss)


def schedule_of(log: TurnLog, rule: Rule, end: float) -> Schedule:
    """The record of a run that has ended at `end` seconds; T is the most units that a worker has begun."""
    num_units = max(1, *(log.next_unit(worker) for worker in range(len(log.turns))))
    # As one program, which is compiled sooner than its operations one by one.
    return record(log, record_program(with_room(rule, log)), end, num_units=num_units)


def with_room(rule: Rule, log: TurnLog) -> Rule:
    """The rule with as many contributions as the commits of a log have.

    Where all pushes of a worker to a commit are one contribution, there is one more for each turn between them that was
    lost as the worker left.
    """
    if not rule.by_worker:
        return rule
    num_workers = len(log.turns)
    passes = max(map(_num_stretches, log.turns), default=0)
    return rule._replace(num_contributions=max(rule.num_contributions, passes * num_workers))


def _num_stretches(turns: list[Turn]) -> int:
    """The most stretches of units of a worker in a commit, each of units that follow each other, on one version."""
    last, number, most = None, 0, 0
    for turn in turns:
        if turn.commit < 0:
            continue
        follows = last is not None and (turn.version, turn.first) == (last.version, last.first + last.work)
        if last is None or turn.commit != last.commit:
            number = 1
        elif not follows:
            number += 1
        last, most = turn, max(most, number)
    return most


def record_program(rule: Rule) -> Callable[..., Schedule]:
    """The record of turns by a rule, as a program: `(turns, seconds, times, horizon) -> Schedule`."""

    @jax.jit
    def program(turns: Turns, seconds: jax.Array, times: jax.Array, horizon: jax.Array) -> Schedule:
        """From the seconds of the units and the times of the commits."""
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
      size: of arrays for so many commits or turns, at least as many; those more do not happen.
    """
    dtype = jnp.result_type(float)
    times = np.full(size(len(log.commit_times)), np.inf)
    times[: len(log.commit_times)] = log.commit_times
    horizon = jnp.asarray(max([end, *log.commit_times]), dtype)
    turns = turns_of(log, num_units, dtype, size(max(1, *map(len, log.turns))))
    return program(turns, jnp.asarray(unit_seconds(log, num_units), dtype), jnp.asarray(times, dtype), horizon)


def unit_seconds(log: TurnLog, num_units: int) -> np.ndarray:
    """float64[T, W]: the seconds of each unit; inf for one that did not end."""
    seconds = np.full((num_units, len(log.turns)), np.inf)
    for worker, turns in enumerate(log.turns):
        for turn in turns:
            if turn.ends:
                times = np.diff([turn.compute_start, *turn.ends])
                seconds[turn.first : turn.first + times.size, worker] = times
    return seconds


def turns_of(log: TurnLog, num_units: int, dtype: Any, num_turns: int | None = None) -> Turns:
    """The arrays [J, W] of all turns; those that do not exist come last, with T as first unit."""
    shape = num_turns or max(1, *map(len, log.turns)), len(log.turns)
    integers = {name: np.zeros(shape, np.int32) for name in INTEGERS}
    floats = {name: np.full(shape, np.inf) for name in FLOATS}
    integers["first"][:], integers["commit"][:], integers["version"][:] = num_units, -1, -1
    for worker, turns in enumerate(log.turns):
        for number, turn in enumerate(turns):
            for name, values in {**integers, **floats}.items():
                value = getattr(turn, name)
                values[number, worker] = turn.first if value is None else value
    return Turns(
        **{name: jnp.asarray(values) for name, values in integers.items()},
        **{name: jnp.asarray(values, dtype) for name, values in floats.items()},
    )
