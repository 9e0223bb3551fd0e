"""The events of a record in which workers leave and join.

Letters: T units of a worker, W workers.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from gcjax.protocols.conformance.events import Events, events
from gcjax.protocols.conformance.structure import latest_equal
from gcjax.protocols.schedule import Schedule
from gcjax.specifications.events import BEGIN, JOIN, KINDS, LEAVE, UNIT, Event

CHANGES = {"joined": JOIN, "came back": JOIN, "left": LEAVE, "skipped": ""}
"""The event that a change stands for; none where only the turn under way is lost."""


class Membership(NamedTuple):
    """A change in who takes part.

    Attributes:
      time: seconds.
      worker: its number.
      change: "joined", "left", "came back", or "skipped" (its turn is lost, as for numbers that are not finite).
      why: in words.
      anew: whether the worker's own parameters and its optimizer state begin anew, as those of another process.
    """

    time: float
    worker: int
    change: str
    why: str = ""
    anew: bool = False


def events_with_members(schedule: Schedule, kinds: Collection[str], memberships: Sequence[Membership]) -> Events:
    """The events of a run, with those in which workers leave and join.

    Units are numbered without those that were lost when their worker left, and a worker that begins at once when it
    joins has not waited.

    Args:
      schedule: of one run.
      kinds: which events there are to be.
      memberships: in order of time.

    Raises:
      ValueError: as for `events`, or if a change is none.
    """
    trace = _events_sorted_by_time(events(schedule, kinds))
    _check_memberships(memberships, trace.num_workers)
    memberships_of_worker = [[m for m in memberships if m.worker == worker] for worker in range(trace.num_workers)]
    num_units = np.asarray(schedule.start).shape[0]
    # [events]: of the worker before the unit of each event.
    num_lost_before = num_lost(schedule, memberships)[trace.event.unit.clip(0, num_units), trace.event.worker]
    waited = _has_waited(trace, memberships_of_worker, np.asarray(schedule.time).dtype)
    event = trace.event._replace(unit=trace.event.unit - num_lost_before, waited=waited)
    is_absent = _is_absent(trace, schedule, memberships_of_worker)
    trace = trace._replace(event=event, is_absent=is_absent, recorded_unit=trace.event.unit)
    joins_and_leaves = [m for m in memberships if CHANGES[m.change]]
    return _with_membership_events(trace, joins_and_leaves)


def _check_memberships(memberships: Sequence[Membership], num_workers: int) -> None:
    """Raises an error unless these are changes of workers, in order of time."""
    times = [membership.time for membership in memberships]
    if times != sorted(times):
        raise ValueError("memberships must be in order of time; these are not.")
    for membership in memberships:
        if membership.change not in CHANGES or not 0 <= membership.worker < num_workers:
            raise ValueError(
                f"memberships must be of the {num_workers} workers, with a change of {', '.join(CHANGES)}; got "
                f"{membership}."
            )


def _events_sorted_by_time(trace: Events) -> Events:
    """The events sorted by time, those of one time in the order that they have.

    Without members, a begin stands behind the commit that it has read, and a commit behind its last push. Where workers
    leave and join, something else can happen between them.
    """
    time_order = np.argsort(trace.time, kind="stable")
    event = Event(*(np.asarray(values)[time_order] for values in trace.event))
    return trace._replace(event=event, time=trace.time[time_order], is_premature=trace.is_premature[time_order])


def _with_membership_events(trace: Events, memberships: Sequence[Membership]) -> Events:
    """The events with those of leaving and joining, which come before all others of their moment.

    Of such an event all but the time, the kind and the worker is 0.
    """
    assert trace.is_absent is not None and trace.recorded_unit is not None
    event_position = np.searchsorted(trace.time, [m.time for m in memberships], side="left")
    columns = {name: np.zeros(len(memberships), np.int32) for name in Event._fields}
    columns["kind"] = np.array([KINDS.index(CHANGES[m.change]) for m in memberships], np.int32)
    columns["worker"] = np.array([m.worker for m in memberships], np.int32)

    def with_inserted(values: np.ndarray, new_values: object) -> np.ndarray:
        """The values [events] with `new_values`, one for each change or one for all, in front of `event_position`."""
        return np.insert(values, event_position, np.asarray(new_values, values.dtype))

    return Events(
        Event(*(with_inserted(values, columns[name]) for name, values in trace.event._asdict().items())),
        time=with_inserted(trace.time, [m.time for m in memberships]),
        is_premature=with_inserted(trace.is_premature, new_values=False),
        num_workers=trace.num_workers,
        is_absent=with_inserted(trace.is_absent, new_values=False),
        recorded_unit=with_inserted(trace.recorded_unit, new_values=0),
    )


def num_lost(schedule: Schedule, memberships: Sequence[Membership]) -> np.ndarray:
    """int32[T + 1, W]: the units of each worker before unit n that were begun and lost when it left or was skipped."""
    start, finish = np.asarray(schedule.start), np.asarray(schedule.finish)
    num_lost_before = np.zeros((start.shape[0] + 1, start.shape[1]), np.int32)
    for worker in range(start.shape[1]):
        end_times = np.array([m.time for m in memberships if m.worker == worker and CHANGES[m.change] != JOIN])
        begin_time = start[:, worker]  # float[T] seconds; inf if a unit never begins
        next_begin_time = np.append(begin_time[1:], np.inf)
        num_ends = np.searchsorted(end_times, begin_time, side="right")
        num_ends_by_next = np.searchsorted(end_times, next_begin_time, side="right")
        was_ended = num_ends < num_ends_by_next  # after it had begun, and before or when the next one begins
        is_lost = np.isfinite(begin_time) & ~np.isfinite(finish[:, worker]) & was_ended
        num_lost_before[1:, worker] = np.cumsum(is_lost)
    return num_lost_before


def _has_waited(trace: Events, memberships_of_worker: list[list[Membership]], dtype: np.dtype) -> np.ndarray:
    """bool[events]: whether the worker has waited, since its last message and since it joined or lost a turn.

    `memberships_of_worker`: the changes of each worker, in order of time; `dtype`: of the times in the record.
    """
    last_change = np.zeros(trace.time.size, dtype)  # seconds, of the worker of each event; 0 before its first one
    for worker, own_memberships in enumerate(memberships_of_worker):
        change_times = np.array([0.0, *(m.time for m in own_memberships)])
        is_of_worker = trace.event.worker == worker
        num_changes = np.searchsorted(change_times, trace.time[is_of_worker], side="right")
        last_change[is_of_worker] = change_times[num_changes - 1]
    return trace.event.waited & (trace.time > latest_equal(last_change))


def _is_absent(trace: Events, schedule: Schedule, memberships_of_worker: list[list[Membership]]) -> np.ndarray:
    """bool[events]: whether the worker was away at some time from the beginning of the event's unit to the event.

    It is asked of the events BEGIN and UNIT, and false for the others. `memberships_of_worker`: the changes of each
    worker, in order of time.
    """
    absent = np.zeros(trace.time.size, bool)
    start = np.asarray(schedule.start)
    is_of_turn = np.isin(trace.event.kind, [KINDS.index(BEGIN), KINDS.index(UNIT)])
    for worker, own_memberships in enumerate(memberships_of_worker):
        change_times = np.array([m.time for m in own_memberships if CHANGES[m.change]])
        turn_events = np.flatnonzero(is_of_turn & (trace.event.worker == worker))
        begin_time = start[trace.event.unit[turn_events], worker]
        num_changes_at_begin, num_changes_at_event = (
            np.searchsorted(change_times, time, side="right") for time in (begin_time, trace.time[turn_events])
        )
        was_out_at_begin = num_changes_at_begin % 2 == 0  # it joins, leaves, joins, ...
        absent[turn_events] = (num_changes_at_begin != num_changes_at_event) | was_out_at_begin
    return absent
