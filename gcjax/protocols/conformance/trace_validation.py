"""What ran against what was promised: the events of a record, replayed as steps of a specification.

The specification is one of `gcjax.specifications`, of as many workers; it was checked on its own that programs
that keep to its guarantees have its property, and here it is checked that this run kept to them.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.protocols.conformance.committed_units import on_host, time_of_version
from gcjax.protocols.conformance.events import Events, events
from gcjax.protocols.conformance.memberships import Membership, events_with_members
from gcjax.protocols.conformance.step_programs import (
    MIN_PADDED_ROWS,
    as_int32,
    kinds_of_action,
    programs_of,
    take_rows,
)
from gcjax.protocols.conformance.structure import check_times_of_units, check_work_done, latest_equal
from gcjax.protocols.schedule import Schedule
from gcjax.specifications import Specification, shown, with_members
from gcjax.specifications.events import COMMIT, KINDS, MESSAGE, SEND, Event
from gcjax.wording import counted

VIOLATIONS = ("arrival", "guarantee", "property", "membership")
BLOCK_ENTRIES = 1 << 20
"""All states of a block have so many entries together, or up to twice as many."""

State = Any


class Conformance(NamedTuple):
    """Whether a run kept to a specification; true in a condition if it did.

    Attributes:
      specification: what it was held against.
      num_events: the steps that were looked at.
      violated: what the first bad one breaks: "guarantee", "property", "arrival" or "membership"; empty if none.
      time: float seconds, when it happened.
      actor: the worker, or the server.
      action: what it did.
      unit: of the worker, or the commit of the server.
      before: the state before the step.
      after: the state after it.
      record: what else the record shows of a commit, in words; empty for other events.
    """

    specification: Specification
    num_events: int
    violated: str = ""
    time: float = 0.0
    actor: str = ""
    action: str = ""
    unit: int = -1
    before: Any = None
    after: Any = None
    record: str = ""

    def __bool__(self) -> bool:
        """Whether every step is in the guarantee of its component, and the property holds throughout."""
        return not self.violated

    def __str__(self) -> str:
        """In words; true if nothing is violated, otherwise it names the event, and the states before and after it."""
        if self:
            return f"All {self.num_events} steps keep to {self.specification.name}: {self.specification.claim}."
        why = {
            "guarantee": f"is not a step that the {self.actor.split()[0]} guarantees",
            "property": f"breaks the property: {self.specification.claim}",
            "arrival": "uses what was not there yet",
            "membership": "is of a turn in which the worker did not take part, or not throughout",
        }[self.violated]
        what = f"{self.actor}: {self.action} {self.unit} at {self.time:g} s {why}, in {self.specification.name}."
        states = f"  before: {shown(self.before)}\n  after:  {shown(self.after)}"
        return f"{what}\n{states}" + (f"\n  record: {self.record}" if self.record else "")


def check(
    schedule: Schedule, specification: Specification, *, memberships: Sequence[Membership] | None = None
) -> Conformance:
    """Whether a record keeps to a specification.

    The events of the record are replayed, one after the other: each must be a step that an action of the specification
    stands for and that agrees with what the record shows, of a version read or of the units in a commit; it must be in
    the guarantee of who takes it, and the property must hold at it and after it. So the commits of the record are made
    of the pushes of the record, and of nothing else. Not looked at are weights, which of the versions that were there
    units in no commit have read, when the last unit of a push was sent, and where a worker has begun before its last
    message arrived: it counts as begun at that arrival. Nor is it asked whether a unit in no commit was begun at all.

    Args:
      schedule: of one run.
      specification: of the same number of workers, for example `gcjax.specifications.ssp(8)`.
      memberships: who joined and left when, in order of time, for example those of a live run: then nobody takes part
        who has not joined, and what is promised is promised of those who take part. If None, all do from the beginning.

    Raises:
      ValueError: if the numbers of workers differ, or the schedule is of a batch, or the specification does not say
        which events its actions stand for, or not what it promises if workers leave and join; or if a record that keeps
        to it cannot be: the times of a unit, or the units of a worker, do not follow each other, units are used that
        have never ended, or a version is read that was not there.

    Example:
      >>> schedule = gcjax.protocols.bsp()(jnp.ones((3, 2)))
      >>> result = gcjax.protocols.check(schedule, gcjax.protocols.bsp().specification(2))
      >>> bool(result)
      True
    """
    if memberships is not None:
        specification = with_members(specification)
    kinds = kinds_of(specification)
    if memberships is None:
        trace = events(
            schedule,
            kinds,
            begins_before_commits=specification.begins_before_commits,
            only_counts_units=specification.only_counts_units,
        )
    else:
        trace = events_with_members(schedule, kinds, memberships)
    if trace.num_workers != specification.num_workers:
        raise ValueError(
            f"the specification must have as many workers as the schedule; {specification.name} has "
            f"{specification.num_workers}, the schedule {trace.num_workers}."
        )
    validation = Validation(specification)
    result = validation.replay(trace)
    if result and COMMIT not in kinds:
        result = validation.check_commits_have_work(schedule)
    if result:
        _check_what_no_event_shows(on_host(schedule), kinds, only_counts_units=specification.only_counts_units)
    return result


def _check_what_no_event_shows(record: Schedule, kinds: Collection[str], *, only_counts_units: bool) -> None:
    """Raises an error if the times of a unit do not follow each other, or what is used was never done or read.

    That work was never done shows where units are events themselves. Where messages are, no more can be used than have
    ended.
    """
    check_times_of_units(record)
    _check_units_follow_each_other(record)
    _check_versions_were_made(record, exchanges=SEND in kinds and MESSAGE not in kinds)
    if only_counts_units:
        _check_commits_are_of_one_job(record)
    if MESSAGE in kinds:
        check_work_done(record, num_commits=int(np.isfinite(record.time).sum()))


def _check_commits_are_of_one_job(record: Schedule) -> None:
    """Raises an error if the contributions to a commit, in which units are only counted, begin at several units."""
    is_contribution = (record.worker >= 0) & (record.work > 0)
    is_of_other_job = is_contribution & (record.unit != record.unit.max(axis=1, keepdims=True))
    if is_of_other_job.any():
        commit, column = np.argwhere(is_of_other_job)[0]
        raise ValueError(
            "all contributions to a commit must be of the job that begins with its highest unit, "
            f"{record.unit[commit].max()}; commit {commit}, contribution {column} has unit "
            f"{record.unit[commit, column]}. Correct the protocol's schedule."
        )


def _check_versions_were_made(record: Schedule, *, exchanges: bool) -> None:
    """Raises an error if a unit has read a version that was not there yet when it ended, in a commit or not.

    Where parameters are exchanged, all units since the exchange before have read in the next one, and nothing (-1) if
    that has not begun by the horizon. What is read after the last commit is left out, as a record may be cut off there.
    """
    reading_ends: Any = record.compute_end
    if exchanges:
        reading_ends = np.minimum.accumulate(record.send_start[::-1], axis=0)[::-1]  # [T, W], the next of the worker
    last_commit_time = record.time[np.isfinite(record.time)].max(initial=-np.inf)
    was_not_there = time_of_version(record, record.read) > latest_equal(reading_ends)
    is_wrong = np.isfinite(record.start) & was_not_there & (latest_equal(reading_ends) < last_commit_time)
    if exchanges:
        is_wrong |= (record.read >= 0) & ~(np.isfinite(reading_ends) & (reading_ends <= latest_equal(record.horizon)))
    if is_wrong.any():
        unit, worker = np.argwhere(is_wrong)[0]
        value = f"has read version {record.read[unit, worker]}"
        rule = "a unit must have read a version that was there"
        if exchanges:
            rule += " when its exchange began, and none (-1) if that has not begun"
        raise ValueError(f"{rule}; unit {unit} of worker {worker} {value}. Correct the protocol's schedule.")


def _check_units_follow_each_other(record: Schedule) -> None:
    """Raises an error if a worker begins to compute a unit before it has ended, or cut off, those in front of it."""
    begins = np.isfinite(record.compute_start)  # [T, W]
    end_before = np.maximum.accumulate(np.where(begins, record.compute_end, -np.inf), axis=0)[:-1]
    begins_early = begins[1:] & (end_before > latest_equal(record.compute_start[1:]))
    if begins_early.any():
        unit_before, worker = np.argwhere(begins_early)[0]
        start = record.compute_start[unit_before + 1, worker]
        raise ValueError(
            f"a worker must compute one unit after the other; worker {worker} begins unit {unit_before + 1} at "
            f"{start:g} s, and those in front of it end at {end_before[unit_before, worker]:g} s. Correct the "
            "protocol's schedule."
        )


class Validation:
    """The state of a specification along the events of a run, which come in one trace, or one after the other.

    Attributes:
      specification: with members if the traces have events of leaving and joining.
      num_events: that were held against it so far.
    """

    def __init__(self, specification: Specification, *, block_size: int | None = None) -> None:
        """At the first state.

        Args:
          specification: of as many workers as the traces.
          block_size: events of a block, which are replayed at once. If given, shorter blocks are padded to it, and the
            programs are compiled here, so that none is compiled later; if None, blocks are as long as is quick for a
            long trace, shorter ones are padded less, and a program is compiled when it is needed.
        """
        self.specification, self.num_events = specification, 0
        self._state, self._programs = as_int32(specification.initial), programs_of(specification)
        entries_of_state = sum(np.size(x) for x in self._state)
        states_of_block = max(1 << (BLOCK_ENTRIES // entries_of_state).bit_length(), MIN_PADDED_ROWS)
        # The states of a block are those before each of its events, and the one after the last.
        self._block_size = states_of_block - 1 if block_size is None else block_size
        self._in_lanes = block_size is None  # their program is compiled for long traces only
        self._min_padded_rows = MIN_PADDED_ROWS if block_size is None else block_size + 1
        if block_size is not None:
            self._programs.warm_up(self._state, self._min_padded_rows)

    def replay(self, trace: Events) -> Conformance:
        """Whether the next events keep to it; none may follow one that does not. Premature: before what it uses."""
        for first_event in range(self._replay_in_lanes(trace), trace.time.size, self._block_size):
            in_block = slice(first_event, first_event + self._block_size)
            events_of_block = jax.tree.map(lambda x, in_block=in_block: x[in_block], trace.event)
            states, breaks_promises = self._programs.replay(self._state, events_of_block, self._min_padded_rows)
            num_events = events_of_block.kind.size
            is_absent = np.zeros(num_events, bool) if trace.is_absent is None else trace.is_absent[in_block]
            violations = np.c_[trace.is_premature[in_block], breaks_promises, is_absent]  # columns as in VIOLATIONS
            if violations.any():
                first_violation = int(np.flatnonzero(violations.any(axis=1))[0])
                violation = VIOLATIONS[int(np.flatnonzero(violations[first_violation])[0])]
                state = take_rows(states, first_violation)
                breaking_event = first_event + first_violation
                counterexample = _counterexample(self.specification, trace, breaking_event, violation, state)
                return counterexample._replace(num_events=self.num_events + first_violation + 1)
            self._state = take_rows(states, -1)
            self.num_events += num_events
        return Conformance(self.specification, self.num_events)

    def check_commits_have_work(self, schedule: Schedule) -> Conformance:
        """Whether each commit of a record that keeps to it has some work in it, where none but units stand for commits.

        The state of a violation is that at the end of the record.
        """
        is_contribution = (np.asarray(schedule.worker) >= 0) & (np.asarray(schedule.work) > 0)
        is_empty = np.isfinite(schedule.time) & ~is_contribution.any(axis=1)
        if not is_empty.any():
            return Conformance(self.specification, self.num_events)
        commit, state = int(np.flatnonzero(is_empty)[0]), self._state
        return Conformance(
            self.specification,
            self.num_events,
            violated="arrival",
            time=float(schedule.time[commit]),
            actor="server",
            action=COMMIT,
            unit=commit,
            before=state,
            after=state,
            record="no unit in the commit",
        )

    def _replay_in_lanes(self, trace: Events) -> int:
        """How many events, from the first on, keep to the specification as seen in lanes (stretches that run at once).

        The state goes on behind them. What is in the first wrong block is left to the slower way, which says what.
        """
        lanes = self._programs.lanes if self._in_lanes else None
        if lanes is None or trace.time.size < lanes.block_size:
            return 0
        is_wrong = trace.is_premature if trace.is_absent is None else trace.is_premature | trace.is_absent
        num_events = 0
        for state in lanes.kept_blocks(self._state, trace.event, is_wrong):
            self._state, num_events = state, num_events + lanes.block_size
        self.num_events += num_events
        return num_events


def kinds_of(specification: Specification) -> set[str]:
    """The kinds of events that the actions of a specification stand for, or at which one must be allowed.

    Raises:
      ValueError: if there are none.
    """
    kinds = {kind for role, _ in specification.roles() for action in role.actions for kind in kinds_of_action(action)}
    if not kinds:
        raise ValueError(
            f"the actions of {specification.name} stand for no events, so that no schedule can be held against it. Say "
            "Action(..., event=...), or check it on small instances with gcjax.specifications.model_checking."
        )
    return kinds


def _counterexample(
    specification: Specification, trace: Events, index: int, violation: str, state: State
) -> Conformance:
    """What `check` returns if the first violation is at the event with this index, which happens in this state."""
    event = take_rows(trace.event, index)
    kind = KINDS[int(event.kind)]
    step = programs_of(specification).step_of_event(kind, *jax.tree.map(jnp.asarray, (state, event)))
    unit = event.unit if trace.recorded_unit is None else trace.recorded_unit[index]
    return Conformance(
        specification,
        num_events=index + 1,
        violated=violation,
        time=float(trace.time[index]),
        actor=specification.component_name(int(step.component)),
        action=kind,
        unit=int(event.commit if kind == COMMIT else unit),
        before=state,
        after=as_int32(step.after),
        record=_commit_in_words(event) if kind == COMMIT else "",
    )


def _commit_in_words(event: Event) -> str:
    """What the record shows of the event of a commit: its units, and the messages that are in no commit."""
    parts = [f"{counted(int(event.size), 'unit')} in the commit"]
    if event.num_unused_messages:
        messages = counted(int(event.num_unused_messages), "message")
        parts.append(f"{messages} arrived since the commit before, in no commit with the unit they were sent with")
    if event.num_skipped_messages:
        parts.append(f"{counted(int(event.num_skipped_messages), 'earlier message')} of its workers in no commit")
    return "; ".join(parts)
