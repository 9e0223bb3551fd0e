"""The events of a record in which workers leave and join.

Letters: T units of a worker, W workers.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from gcjax.protocols.conformance.events import Events, events
from gcjax.protocols.conformance.structure import ROUNDING
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
    trace = _with_begins_in_order(events(schedule, kinds))
    _check(memberships, trace.num_workers)
    changes = [[m for m in memberships if m.worker == worker] for worker in range(trace.num_workers)]
    num_units = np.asarray(schedule.start).shape[0]
    lost = num_lost(schedule, memberships)[trace.event.unit.clip(0, num_units), trace.event.worker]
    event = trace.event._replace(unit=trace.event.unit - lost, waited=_waited(trace, changes))
    trace = trace._replace(event=event, absent=_is_absent(trace, schedule, changes), unit=trace.event.unit)
    return _with_changes(trace, [m for m in memberships if CHANGES[m.change]])


def _check(memberships: Sequence[Membership], num_workers: int) -> None:
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


def _with_begins_in_order(trace: Events) -> Events:
    """The events where begins are in order of time, too: others may leave and join between them.

    And a commit that a worker's leaving brings is not that of the push before it.
    """
    order = np.argsort(trace.time, kind="stable")
    event = Event(*(np.asarray(values)[order] for values in trace.event))
    return trace._replace(event=event, time=trace.time[order], late=trace.late[order])


def _with_changes(trace: Events, memberships: Sequence[Membership]) -> Events:
    """The events with those of leaving and joining, which come before all others of their moment."""
    assert trace.absent is not None and trace.unit is not None
    place = np.searchsorted(trace.time, [m.time for m in memberships], side="left")
    columns = {name: np.zeros(len(memberships), np.int32) for name in Event._fields}
    columns["kind"] = np.array([KINDS.index(CHANGES[m.change]) for m in memberships], np.int32)
    columns["worker"] = np.array([m.worker for m in memberships], np.int32)

    def inserted(values: np.ndarray, new: object) -> np.ndarray:
        """The values with new ones at their places."""
        return np.insert(values, place, np.asarray(new, values.dtype))

    return Events(
        Event(*(inserted(values, columns[name]) for name, values in trace.event._asdict().items())),
        inserted(trace.time, [m.time for m in memberships]),
        inserted(trace.late, False),
        trace.num_workers,
        inserted(trace.absent, False),
        inserted(trace.unit, 0),
    )


def num_lost(schedule: Schedule, memberships: Sequence[Membership]) -> np.ndarray:
    """int32[T + 1, W]: the units of each worker before each one that were lost when it left or was skipped."""
    start, finish = np.asarray(schedule.start), np.asarray(schedule.finish)
    lost = np.zeros((start.shape[0] + 1, start.shape[1]), np.int32)
    for worker in range(start.shape[1]):
        ends = np.array([m.time for m in memberships if m.worker == worker and CHANGES[m.change] != JOIN])
        begin = start[:, worker]
        next_begin = np.append(begin[1:], np.inf)
        was_ended = np.searchsorted(ends, begin, side="right") < np.searchsorted(ends, next_begin, side="right")
        is_lost = np.isfinite(begin) & ~np.isfinite(finish[:, worker]) & was_ended
        lost[1:, worker] = np.cumsum(is_lost)
    return lost


def _waited(trace: Events, changes: list[list[Membership]]) -> np.ndarray:
    """bool[events]: whether the worker has waited, since its last message and since it joined or lost a turn."""
    last_change = np.zeros(trace.time.size)
    for worker, own in enumerate(changes):
        times = np.array([0.0, *(m.time for m in own)])
        is_own = trace.event.worker == worker
        last_change[is_own] = times[np.searchsorted(times, trace.time[is_own], side="right") - 1]
    return trace.event.waited & (trace.time > last_change * (1 + ROUNDING))


def _is_absent(trace: Events, schedule: Schedule, changes: list[list[Membership]]) -> np.ndarray:
    """bool[events]: whether the worker did not take part from the beginning of the event's unit to the event."""
    absent = np.zeros(trace.time.size, bool)
    start = np.asarray(schedule.start)
    is_of_turn = np.isin(trace.event.kind, [KINDS.index(BEGIN), KINDS.index(UNIT)])
    for worker, own in enumerate(changes):
        times = np.array([m.time for m in own if CHANGES[m.change]])
        rows = np.flatnonzero(is_of_turn & (trace.event.worker == worker))
        begin = start[trace.event.unit[rows], worker]
        num_begin, num_end = (np.searchsorted(times, x, side="right") for x in (begin, trace.time[rows]))
        absent[rows] = (num_begin != num_end) | (num_begin % 2 == 0)  # it joins, leaves, joins, ...
    return absent
