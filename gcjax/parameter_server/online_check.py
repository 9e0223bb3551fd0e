"""A run held against its protocol's specification while it goes on.

The events are those of `gcjax.protocols.check`, in the same order, and so are the words. What a unit or the beginning
of a turn shows depends on the commit that it gets into, so an event is held once it is decided which one that is: a
turn after its commit at the latest, as long as the slowest worker is not in a turn that it began before.
"""

import math
import time
from collections.abc import Sequence

import jax
import numpy as np

from gcjax.parameter_server.log_window import LogWindows, Window
from gcjax.parameter_server.setups import Setup
from gcjax.parameter_server.turn_log import TurnLog
from gcjax.protocols.conformance.events import Events, events
from gcjax.protocols.conformance.memberships import Membership, events_with_members
from gcjax.protocols.conformance.trace_validation import Conformance, Validation, kinds_of
from gcjax.specifications import with_members
from gcjax.specifications.events import COMMIT, JOIN, KINDS, LEAVE

MAX_COMMITS = 64
"""After so many commits the events are held against the specification."""
MAX_SECONDS = 1.0
"""Or after so long, if there is a commit."""
BLOCK_SIZE = 255
"""Events that are replayed at once; one less than a power of two, as there is one state more."""


class ViolationError(ValueError):
    """A run does not keep to what its protocol promises; the text has the event, as `gcjax.protocols.check` says it.

    Attributes:
      conformance: what was violated, by what, and when.
    """

    def __init__(self, conformance: Conformance) -> None:
        """`conformance`: what was found, with the first event that violates the specification."""
        super().__init__(
            f"a run must keep to what its protocol promises; this one has not, and ends.\n{conformance}\n"
            "The log and the checkpoints stay, if there are any; check=False goes on without this check."
        )
        self.conformance = conformance


class OnlineCheck:
    """The specification of a protocol along a log that grows.

    Attributes:
      seconds: that holding events against it has taken so far.
    """

    def __init__(self, setup: Setup, log: TurnLog) -> None:
        """Checks the record of `log`, which grows, and compiles what that takes.

        Raises:
          ValueError: if the protocol has no specification, or its actions stand for no events.
        """
        if setup.protocol.specification is None:
            raise ValueError(
                "check=True holds a run against the protocol's specification; this protocol has none. Use check=False, "
                "or Protocol(..., specification=...)."
            )
        specification = setup.protocol.specification(setup.num_workers)
        self.seconds = 0.0
        # Whether the specification says what it promises if workers leave and join.
        self._covers_membership_changes = specification.members is not None
        self._log = log
        self._specification = with_members(specification) if self._covers_membership_changes else specification
        self._kinds = kinds_of(self._specification)
        self._validation = Validation(self._specification, block_size=BLOCK_SIZE)
        self._log_windows = LogWindows(setup.protocol, setup.rule(), log)
        self._log_windows.window(-math.inf, 0.0)  # compiles the record of a window
        self._result = Conformance(self._specification, 0)
        self._checked_until, self._checkable_end = -math.inf, math.inf  # seconds
        self._num_checked_commits, self._last_check_time = 0, 0.0

    def check_if_due(self, now: float) -> None:
        """Holds the decided events against the specification, every `MAX_COMMITS` commits or `MAX_SECONDS` seconds.

        `now`: seconds of the run.

        Raises:
          ViolationError: if an event violates it.
        """
        num_commits = len(self._log.commit_times) - self._num_checked_commits  # since the last time
        if num_commits >= MAX_COMMITS or (num_commits and now >= self._last_check_time + MAX_SECONDS):
            self._num_checked_commits, self._last_check_time = len(self._log.commit_times), now
            self.check_until(self._log_windows.end_of_decided_events(), now)

    def end(self, now: float) -> None:
        """Holds all that has happened against the specification; the run has ended at `now` seconds."""
        self.check_until(math.inf, now)

    def check_until(self, end: float, now: float) -> None:
        """Holds the events before `end` seconds, which are decided, against the specification; `now`: seconds.

        Those before the last call's end have been. Raises a `ViolationError` if an event violates it.
        """
        end = min(end, self._end_of_checkable_events())
        if end <= self._checked_until:
            return
        perf_begin = time.perf_counter()
        trace = self._events(self._log_windows.window(self._checked_until, now))
        # Of either time, the first event that is not before it; behind the last one if there is none.
        begin_event, end_event = (
            int(np.argmax(np.append(trace.time, math.inf) >= seconds)) for seconds in (self._checked_until, end)
        )
        self._checked_until = end
        self._result = self._validation.replay(_events_in(trace, begin_event, end_event))
        self.seconds += time.perf_counter() - perf_begin
        if not self._result:
            raise ViolationError(self._result)

    def __str__(self) -> str:
        """In words, whether the events so far kept to the specification, and up to when it promises anything."""
        end = self._end_of_checkable_events()
        change = _first_change(self._log.memberships)
        if end == math.inf or change is None:
            return str(self._result)
        return (
            f"{self._result} That is all that was committed before worker {change.worker} {change.change} at "
            f"{change.time:g} s: the specification does not say what it promises if workers leave and join."
        )

    def _end_of_checkable_events(self) -> float:
        """Seconds, up to which the specification says something of all events; inf if it does throughout.

        If it does not cover leaving and joining, that is up to what was decided before the first worker left or joined.
        """
        change = None if self._covers_membership_changes else _first_change(self._log.memberships)
        is_found_already = math.isfinite(self._checkable_end)
        if change is not None and not is_found_already:
            self._checkable_end = self._log_windows.end_of_decided_events_at(change.time)
        return self._checkable_end

    def _events(self, window: Window) -> Events:
        """The events of a part of the log, with the numbers that commits, versions and units have in the whole log."""
        if self._covers_membership_changes:
            trace = events_with_members(window.schedule, self._kinds, self._log.memberships)
        else:
            trace = events(window.schedule, self._kinds)
        return _counted_from_begin(trace, window)


def _first_change(memberships: Sequence[Membership]) -> Membership | None:
    """The first change after all have joined at the beginning, if there is one."""
    return next((m for m in memberships if m.change != "joined" or m.time > 0), None)


def _counted_from_begin(trace: Events, window: Window) -> Events:
    """The events of a window with commits, versions and units counted from the beginning of the run.

    Those of leaving and joining have none, and a commit has no version; -1 is none and stays so. Where `recorded_unit`
    is set, `unit` leaves out units that were lost.
    """
    event = trace.event  # [events] in each field; of the window, `first_unit` and `num_lost` are int32[W]
    is_of_turn = ~np.isin(event.kind, [KINDS.index(LEAVE), KINDS.index(JOIN)])
    has_version = is_of_turn & (event.kind != KINDS.index(COMMIT)) & (event.version >= 0)
    first_unit = np.where(is_of_turn, window.first_unit[event.worker], 0)
    num_lost = 0 if trace.recorded_unit is None else np.where(is_of_turn, window.num_lost[event.worker], 0)
    counted = event._replace(
        commit=event.commit + np.where(is_of_turn & (event.commit >= 0), window.first_commit, 0),
        version=event.version + np.where(has_version, window.first_commit, 0),
        unit=event.unit + first_unit - num_lost,
    )
    return trace._replace(
        event=jax.tree.map(lambda x, old: x.astype(old.dtype), counted, event),  # sums may be wider
        recorded_unit=None if trace.recorded_unit is None else trace.recorded_unit + first_unit,
    )


def _events_in(trace: Events, begin: int, end: int) -> Events:
    """The events from number `begin` to before number `end`."""
    arrays = trace._replace(num_workers=0)
    return jax.tree.map(lambda x: x[begin:end] if np.ndim(x) else x, arrays)._replace(num_workers=trace.num_workers)
