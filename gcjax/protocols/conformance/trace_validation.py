"""What ran against what was promised: the events of a record, replayed as steps of a specification.

The specification is one of `gcjax.specifications`, of as many workers; it was checked on its own that programs
that keep to its guarantees have its property, and here it is checked that this run kept to them.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.protocols.conformance.events import Events, events
from gcjax.protocols.conformance.memberships import Membership, events_with_members
from gcjax.protocols.schedule import Schedule
from gcjax.specifications import Specification, shown, with_members
from gcjax.specifications.base import Action, Relation
from gcjax.specifications.events import COMMIT, KINDS, Event

VIOLATIONS = ("arrival", "guarantee", "property", "membership")
BLOCK_ENTRIES = 1 << 20
"""All states of a block have so many entries together, or up to twice as many."""
MIN_PADDED_ROWS = 64
"""Arrays of states or of events are padded to so many rows at least, and to a power of two."""

MEANT, AGREES, RESTS, FITS = range(4)  # how well an action fits an event

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

    def __bool__(self) -> bool:
        """Whether every step is in the guarantee of its component, and the property holds throughout."""
        return not self.violated

    def __str__(self) -> str:
        """In words."""
        if self:
            return f"All {self.num_events} steps keep to {self.specification.name}: {self.specification.claim}."
        why = {
            "guarantee": f"is not a step that the {self.actor.split()[0]} guarantees",
            "property": f"breaks the property: {self.specification.claim}",
            "arrival": "uses what was not there yet",
            "membership": "is of a turn in which the worker did not take part, or not throughout",
        }[self.violated]
        what = f"{self.actor}: {self.action} {self.unit} at {self.time:g} s {why}, in {self.specification.name}."
        return f"{what}\n  before: {shown(self.before)}\n  after:  {shown(self.after)}"


def check(
    schedule: Schedule, specification: Specification, *, memberships: Sequence[Membership] | None = None
) -> Conformance:
    """Whether a record keeps to a specification.

    The events of the record are replayed, one after the other: each must be a step that an action of the specification
    stands for and that agrees with what the record shows, of a version read or of the units in a commit; it must be in
    the guarantee of who takes it, and the property must hold at it and after it. So the commits of the record are made
    of the pushes of the record, and of nothing else.

    Args:
      schedule: of one run.
      specification: of the same number of workers, for example `gcjax.specifications.ssp(8)`.
      memberships: who joined and left when, in order of time, for example those of a live run: then nobody takes part
        who has not joined, and what is promised is promised of those who take part. If None, all do from the beginning.

    Raises:
      ValueError: if the numbers of workers differ, or the schedule is of a batch, or the specification does not say
        which events its actions stand for, or not what it promises if workers leave and join.

    Example:
      >>> schedule = gcjax.protocols.bsp()(jnp.ones((3, 2)))
      >>> result = gcjax.protocols.check(schedule, gcjax.protocols.bsp().specification(2))
      >>> bool(result)
      True
    """
    if memberships is not None:
        specification = with_members(specification)
    kinds = kinds_of(specification)
    trace = events(schedule, kinds) if memberships is None else events_with_members(schedule, kinds, memberships)
    if trace.num_workers != specification.num_workers:
        raise ValueError(
            f"the specification must have as many workers as the schedule; {specification.name} has "
            f"{specification.num_workers}, the schedule {trace.num_workers}."
        )
    return Validation(specification).replay(trace)


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
        self._state, self._programs = _as_int32(specification.initial), _programs(specification)
        entries_of_state = sum(np.size(x) for x in self._state)
        states_of_block = max(1 << (BLOCK_ENTRIES // entries_of_state).bit_length(), MIN_PADDED_ROWS)
        # The states of a block are those before each of its events, and the one after the last.
        self._block_size = states_of_block - 1 if block_size is None else block_size
        self._min_padded_rows = MIN_PADDED_ROWS if block_size is None else block_size + 1
        if block_size is not None:
            self._programs.warm_up(self._state, self._min_padded_rows)

    def replay(self, trace: Events) -> Conformance:
        """Whether the events that come next keep to the specification; nothing may come after one that does not."""
        for first_event in range(0, trace.time.size, self._block_size):
            in_block = slice(first_event, first_event + self._block_size)
            events_of_block = jax.tree.map(lambda x, in_block=in_block: x[in_block], trace.event)
            states = self._programs.states(self._state, events_of_block, self._min_padded_rows)
            breaks_promises = self._programs.violations(states, events_of_block, self._min_padded_rows)
            num_events = events_of_block.kind.size
            is_absent = np.zeros(num_events, bool) if trace.is_absent is None else trace.is_absent[in_block]
            violations = np.c_[trace.is_premature[in_block], breaks_promises, is_absent]  # columns as in VIOLATIONS
            if violations.any():
                first_violation = int(np.flatnonzero(violations.any(axis=1))[0])
                violation = VIOLATIONS[int(np.flatnonzero(violations[first_violation])[0])]
                state = _take_rows(states, first_violation)
                breaking_event = first_event + first_violation
                counterexample = _counterexample(self.specification, trace, breaking_event, violation, state)
                return counterexample._replace(num_events=self.num_events + first_violation + 1)
            self._state = _take_rows(states, -1)
            self.num_events += num_events
        return Conformance(self.specification, self.num_events)


def kinds_of(specification: Specification) -> set[str]:
    """The kinds of events that the actions of a specification stand for, or at which one must be allowed."""
    kinds = {kind for role, _ in specification.roles() for action in role.actions for kind in _kinds_of(action)}
    if not kinds:
        raise ValueError(
            f"the actions of {specification.name} stand for no events, so that no schedule can be held against it. Say "
            "Action(..., event=...), or check it on small instances with gcjax.specifications.model_checking."
        )
    return kinds


def _kinds_of(action: Action) -> set[str]:
    """The kind of events that an action stands for, and the kind at which it must be allowed; without empty names."""
    return {action.event, action.enabled_at or action.event} - {""}


def _as_int32(state: State) -> State:
    """The state with all its fields as numpy arrays of int32."""
    return type(state)(*(np.asarray(x, np.int32) for x in state))


def _take_rows(arrays: Any, rows: Any) -> Any:
    """The rows `rows`, which are indices, a slice or one index, of each array of a tree."""
    if isinstance(rows, np.ndarray):
        return jax.tree.map(lambda x: np.take(x, rows, axis=0, mode="clip"), arrays)  # faster than by an index
    return jax.tree.map(lambda x: x[rows], arrays)


def _padded_size(count: int, minimum: int = MIN_PADDED_ROWS) -> int:
    """The least power of two from `count` on, or the minimum: rows are filled to it, so that few sizes are compiled."""
    return max(minimum, 1 << (count - 1).bit_length())


class _Step(NamedTuple):
    """The step that an event stands for: where it leads, who takes it, and whether it agrees with the event.

    Attributes:
      after: the state that the step leads to.
      component: int32[], who takes it.
      agrees: bool[].
      next: the state in which the next event happens; the one before, if this event only asks for the step.
    """

    after: State
    component: jax.Array
    agrees: jax.Array
    next: State


class _Programs:
    """The compiled programs of a specification: the states between events, and what each event violates.

    There is a program for each kind of events, of the actions that stand for it alone.
    """

    def __init__(self, specification: Specification):
        """`actions_of_kind` are the actions that stand for each kind of events, with the numbers of their roles."""
        self.specification = specification
        self.actions_of_kind = {
            kind: [
                (role_number, action)
                for role_number, (role, _) in enumerate(specification.roles())
                for action in role.actions
                if kind in _kinds_of(action)
            ]
            for kind in KINDS
        }
        self._violations_programs = {
            kind: jax.jit(jax.vmap(partial(self._violations_of_one, kind)))
            for kind, actions in self.actions_of_kind.items()
            if any(_must_be_allowed_at(action, kind) for _, action in actions)
        }
        self._replay = jax.jit(lambda state, events: jax.lax.scan(self._advance, state, events)[1])

    def warm_up(self, state: State, size: int) -> None:
        """Compiles what takes up to so many events."""
        no_events = Event(*[np.full(size, -1, np.int32)] * len(Event._fields))._replace(waited=np.zeros(size, bool))
        num_events = size - 1  # between so many states
        states = self.states(state, _take_rows(no_events, slice(num_events)), min_padded_rows=size)
        first_states = _take_rows(states, np.zeros(size, np.int32))
        programs = self._violations_programs.values()
        jax.block_until_ready([program(first_states, first_states, no_events) for program in programs])

    def states(self, state: State, events: Event, min_padded_rows: int = MIN_PADDED_ROWS) -> State:
        """The states `[events + 1]` before each of the events and after the last, if `state` is the first.

        Programs take arrays that are padded to `min_padded_rows` rows at least, so that few sizes are compiled.
        """
        num_states = events.kind.size + 1
        num_rows = num_states if self.specification.replay is not None else _padded_size(num_states, min_padded_rows)
        # The padding, -1, is of no kind.
        padded_events = jax.tree.map(lambda x: np.append(x, np.full(num_rows - x.size, -1, x.dtype)), events)
        states = (self.specification.replay or self._replay)(state, padded_events)
        return _take_rows(_as_int32(states), slice(num_states))

    def violations(self, states: State, events: Event, min_padded_rows: int = MIN_PADDED_ROWS) -> np.ndarray:
        """bool[events, 2]: whether each event violates the guarantee, and the property.

        Args:
          states: `[events + 1]`, before each event and after the last one.
          events: `[events]`.
          min_padded_rows: as in `states`.
        """
        results_of_kinds = []
        for kind, violations_of in self._violations_programs.items():
            events_of_kind = np.flatnonzero(events.kind == KINDS.index(kind))
            if events_of_kind.size:
                num_padding = _padded_size(events_of_kind.size, min_padded_rows) - events_of_kind.size
                padded = np.append(events_of_kind, np.full(num_padding, events_of_kind[0]))
                before, after = _take_rows(states, padded), _take_rows(states, padded + 1)
                results_of_kinds.append((events_of_kind, violations_of(before, after, _take_rows(events, padded))))
        violations = np.zeros((events.kind.size, 2), bool)
        for events_of_kind, result in results_of_kinds:  # read only now: they are dispatched asynchronously
            violations[events_of_kind] = np.asarray(result)[: events_of_kind.size]
        return violations

    def _advance(self, state: State, event: Event) -> tuple[State, State]:
        """The state after an event, and the one before it: a step of a scan, which collects the second."""
        advancing_kinds = [kind for kind in self.actions_of_kind if self._advances(kind)]
        branches = [partial(self._next, kind) for kind in (None, *advancing_kinds)]
        # Branch 0, which changes nothing, is for the kinds that no action stands for, and for -1, no kind.
        branch_numbers = {kind: 1 + index for index, kind in enumerate(advancing_kinds)}
        branch_of_kind = np.array([*(branch_numbers.get(kind, 0) for kind in KINDS), 0], np.int32)
        branch = jnp.asarray(branch_of_kind)[event.kind]
        return jax.lax.switch(branch, branches, state, event), state

    def _advances(self, kind: str) -> bool:
        """Whether events of this kind are steps themselves, and do not only ask whether one may be taken."""
        return any(action.event == kind for _, action in self.actions_of_kind[kind])

    def _next(self, kind: str | None, state: State, event: Event) -> State:
        """The state in which the event after one of this kind happens; the same, if there is no such kind."""
        return state if kind is None else self.step_of_event(kind, state, event).next

    def _violations_of_one(self, kind: str, before: State, after: State, event: Event) -> jax.Array:
        """bool[2]: whether an event in one state, which should lead to another one, violates guarantee and property."""
        spec, step = self.specification, self.step_of_event(kind, before, event)
        is_unchanged = _are_equal(step.after, before)  # every guarantee allows doing nothing
        is_guaranteed = step.agrees & (is_unchanged | self._guarantee(kind)(before, step.after, step.component))
        has_property = spec.invariant(step.after) & spec.step_property(before, step.after, step.component)
        return jnp.stack([~(is_guaranteed & _are_equal(step.next, after)), ~has_property])

    def _guarantee(self, kind: str) -> Relation:
        """The guarantee that the steps of events of this kind must keep to.

        That of the one role whose actions stand for them; that of the whole specification where it is not known which.
        """
        role_numbers = {number if action.actor is None else None for number, action in self.actions_of_kind[kind]}
        (role_number,) = role_numbers if len(role_numbers) == 1 else (None,)
        if role_number is None:
            return self.specification.guarantee
        role, _ = self.specification.roles()[role_number]
        return role.allows

    def step_of_event(self, kind: str, state: State, event: Event) -> _Step:
        """The step of the action that can be meant by an event of this kind.

        That is the first that may be taken and agrees with the event; or nothing, if this agrees, as for those of a
        group behind the first; or the first that agrees, since a program may do less than is guaranteed; or the first.
        """
        best_step, *other_steps = (
            self._candidate_step(kind, role_number, action, state, event)
            for role_number, action in self.actions_of_kind[kind]
        )
        for candidate in other_steps:
            (fit, _, _), (best_fit, _, _) = candidate, best_step
            best_step = _choose(fit > best_fit, candidate, best_step)
        fit, after, component = best_step
        return _Step(after, component, agrees=fit >= AGREES, next=after if self._advances(kind) else state)

    def _candidate_step(
        self, kind: str, role_number: int, action: Action, state: State, event: Event
    ) -> tuple[jax.Array, State, jax.Array]:
        """How well an action of a role fits an event of this kind, the state that it leads to, and who takes it.

        The fit is int32[]: FITS: it is allowed and agrees with the event; RESTS: doing nothing agrees; AGREES: it
        agrees and is not allowed; MEANT: it does not agree.
        """
        if action.actor is not None:
            component = action.actor(state, event)
        else:
            is_worker = role_number == 0
            component = event.worker if is_worker else jnp.full_like(event.worker, self.specification.num_workers)
        after, is_allowed = action.move(state, component)
        after = jax.tree.map(lambda x, y: jnp.asarray(x).astype(y.dtype), after, state)
        if not _must_be_allowed_at(action, kind):
            return jnp.where(is_allowed, FITS, AGREES), after, component
        agrees, doing_nothing_agrees = action.matches(state, after, event), action.matches(state, state, event)
        fits = agrees & is_allowed
        fit_of_not_allowed = jnp.where(doing_nothing_agrees, RESTS, jnp.where(agrees, AGREES, MEANT))
        fit = jnp.where(fits, FITS, fit_of_not_allowed)
        return fit, _choose(fit == RESTS, state, after), component


@lru_cache(maxsize=32)
def _programs(specification: Specification) -> _Programs:
    """The programs of a specification, kept for equal ones, so that they are compiled once."""
    return _Programs(specification)


def _must_be_allowed_at(action: Action, kind: str) -> bool:
    """Whether an action must be allowed at events of this kind."""
    return kind == (action.enabled_at or action.event)


def _are_equal(state: State, other: State) -> jax.Array:
    """bool[]: whether two states are equal."""
    differences = [(x != y).any() for x, y in zip(state, other, strict=True) if x is not y]
    return ~jnp.stack([jnp.zeros((), bool), *differences]).any()


def _choose(condition: jax.Array, if_true: Any, if_false: Any) -> Any:
    """The tree of arrays `if_true` where the condition `bool[]` holds, otherwise `if_false`.

    An array that is the same object in both is taken as it is, so that `_are_equal` need not compare it.
    """
    return jax.tree.map(lambda x, y: x if x is y else jnp.where(condition, x, y), if_true, if_false)


def _counterexample(
    specification: Specification, trace: Events, index: int, violation: str, state: State
) -> Conformance:
    """What `check` returns if the first violation is at the event with this index, which happens in this state."""
    event = _take_rows(trace.event, index)
    kind = KINDS[int(event.kind)]
    step = _programs(specification).step_of_event(kind, *jax.tree.map(jnp.asarray, (state, event)))
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
        after=_as_int32(step.after),
    )
