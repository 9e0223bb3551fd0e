"""The programs of a specification with which events of a record are replayed as its steps."""

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax._padding import padded_size
from gcjax.protocols.conformance.lanes import Lanes
from gcjax.specifications import Specification
from gcjax.specifications.base import Action, Relation, any_step
from gcjax.specifications.events import KINDS, Event

MIN_PADDED_ROWS = 64
"""Arrays of states or of events are padded to so many rows at least, and to a power of two."""

MEANT, AGREES, RESTS, FITS = range(4)  # how well an action fits an event

State = Any


def kinds_of_action(action: Action) -> set[str]:
    """The kind of events that an action stands for, and the kind at which it must be allowed; without empty names."""
    return {action.event, action.enabled_at or action.event} - {""}


def as_int32(state: State) -> State:
    """The state with all its fields as numpy arrays of int32."""
    return type(state)(*(np.asarray(x, np.int32) for x in state))


def take_rows(arrays: Any, rows: Any) -> Any:
    """The rows `rows`, which are indices, a slice or one index, of each array of a tree."""
    if isinstance(rows, np.ndarray):
        return jax.tree.map(lambda x: np.take(x, rows, axis=0, mode="clip"), arrays)  # faster than by an index
    return jax.tree.map(lambda x: x[rows], arrays)


class Step(NamedTuple):
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


class Programs:
    """The compiled programs of a specification: the states between events, and what each event violates.

    There is a program for each kind of events, of the actions that stand for it alone.
    """

    def __init__(self, specification: Specification):
        """`actions_of_kind`: kind of event -> the actions that stand for it, with roles (0 workers, 1 servers).

        `_violations_programs`: kind at which an action must be allowed -> the function of the states before n events,
        those after them, and the events, to bool[n, 2]; `_replay`: a state and events -> the states before them.
        """
        self.specification = specification
        self.actions_of_kind = {
            kind: [
                (role_number, action)
                for role_number, (role, _) in enumerate(specification.roles())
                for action in role.actions
                if kind in kinds_of_action(action)
            ]
            for kind in KINDS
        }
        self._violations_programs = {
            kind: jax.jit(jax.vmap(partial(self._violations_of_one, kind)))
            for kind, actions in self.actions_of_kind.items()
            if any(_must_be_allowed_at(action, kind) or _shows_effect_at(action, kind) for _, action in actions)
        }
        self._replay = jax.jit(lambda state, events: jax.lax.scan(self._advance, state, events)[1])
        self.lanes = None if specification.replay is None else Lanes(specification, self._checked_step)

    def warm_up(self, state: State, size: int) -> None:
        """Compiles what takes up to `size` states, one more than events, by running it on events of no kind, -1."""
        no_events = Event(*[np.full(size, -1, np.int32)] * len(Event._fields))._replace(waited=np.zeros(size, bool))
        num_events = size - 1  # between so many states
        states = self.states(state, take_rows(no_events, slice(num_events)), min_padded_rows=size)
        first_states = take_rows(states, np.zeros(size, np.int32))
        programs = self._violations_programs.values()
        jax.block_until_ready([program(first_states, first_states, no_events) for program in programs])

    def states(self, state: State, events: Event, min_padded_rows: int = MIN_PADDED_ROWS) -> State:
        """The states `[events + 1]` before each of the events and after the last, if `state` is the first.

        A specification with a `replay` counts them at once; without, one leads to the next. Programs take arrays that
        are padded to `min_padded_rows` rows at least, so that few sizes are compiled.
        """
        num_states = events.kind.size + 1
        if self.specification.replay is not None:
            return as_int32(self.specification.replay(state, events, np.arange(num_states)))
        # One at least: the state before the first padding is that after the last event.
        num_padding = padded_size(num_states, min_padded_rows) - events.kind.size
        # The padding, -1, is of no kind.
        padded_events = jax.tree.map(lambda x: np.append(x, np.full(num_padding, -1, x.dtype)), events)
        return take_rows(as_int32(self._replay(state, padded_events)), slice(num_states))

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
                num_padding = padded_size(events_of_kind.size, min_padded_rows) - events_of_kind.size
                padded_events = np.append(events_of_kind, np.full(num_padding, events_of_kind[0]))  # the first, again
                before, after = take_rows(states, padded_events), take_rows(states, padded_events + 1)
                results_of_kinds.append(
                    (events_of_kind, violations_of(before, after, take_rows(events, padded_events)))
                )
        violations = np.zeros((events.kind.size, 2), bool)
        for events_of_kind, violations_of_kind in results_of_kinds:  # read only now: they are dispatched asynchronously
            violations[events_of_kind] = np.asarray(violations_of_kind)[: events_of_kind.size]
        return violations

    def _advance(self, state: State, event: Event) -> tuple[State, State]:
        """The state after an event, and the one before it: a step of a scan, which collects the second."""
        advancing_kinds = [kind for kind in self.actions_of_kind if self._advances(kind)]
        branches = [partial(self._next, kind) for kind in (None, *advancing_kinds)]
        # Branch 0, which changes nothing, is for kinds that no action stands for, and for no kind, -1: the last entry.
        branch_numbers = {kind: 1 + index for index, kind in enumerate(advancing_kinds)}
        branch_of_kind = np.array([*(branch_numbers.get(kind, 0) for kind in KINDS), 0], np.int32)
        branch = jnp.asarray(branch_of_kind)[event.kind]
        return jax.lax.switch(branch, branches, state, event), state

    def _advances(self, kind: str) -> bool:
        """Whether events of this kind are steps themselves (`Action.event`), not only ask whether one may be taken."""
        return any(action.event == kind for _, action in self.actions_of_kind[kind])

    def _next(self, kind: str | None, state: State, event: Event) -> State:
        """The state in which the event after one of this kind happens; the same, if there is no such kind."""
        return state if kind is None else self.step_of_event(kind, state, event).next

    def _violations_of_one(self, kind: str, before: State, after: State, event: Event) -> jax.Array:
        """bool[2]: whether an event in one state, which should lead to another one, violates guarantee and property."""
        step = self.step_of_event(kind, before, event)
        is_guaranteed, has_property = self._promises_kept(kind, before, step)
        return jnp.stack([~(is_guaranteed & _are_equal(step.next, after)), ~has_property])

    def _promises_kept(self, kind: str, before: State, step: Step) -> tuple[jax.Array, jax.Array]:
        """bool[] each: whether the step of an event is guaranteed, and whether the property holds at it and after."""
        spec = self.specification
        is_unchanged = _are_equal(step.after, before)  # every guarantee allows doing nothing
        is_guaranteed = step.agrees & (is_unchanged | self._guarantee(kind)(before, step.after, step.component))
        return is_guaranteed, spec.invariant(step.after) & spec.step_property(before, step.after, step.component)

    def _checked_step(self, state: State, event: Event) -> tuple[State, jax.Array]:
        """The state in which the event after this one happens, and bool[], whether this one breaks a promise."""
        next_state, is_broken = state, jnp.zeros((), bool)
        for kind in (kind for kind, actions in self.actions_of_kind.items() if actions):
            is_of_kind, step = event.kind == KINDS.index(kind), self.step_of_event(kind, state, event)
            next_state = _choose(is_of_kind, step.next, next_state)
            if kind in self._violations_programs:
                is_guaranteed, has_property = self._promises_kept(kind, state, step)
                is_broken |= is_of_kind & ~(is_guaranteed & has_property)
        return next_state, is_broken

    def _guarantee(self, kind: str) -> Relation:
        """The guarantee that the steps of events of this kind must keep to.

        That of the one role whose actions stand for them; that of the whole specification where roles differ, or an
        action says itself who takes it (`actor`).
        """
        role_numbers = {number if action.actor is None else None for number, action in self.actions_of_kind[kind]}
        (role_number,) = role_numbers if len(role_numbers) == 1 else (None,)
        if role_number is None:
            return self.specification.guarantee
        role, _ = self.specification.roles()[role_number]
        return role.allows

    def step_of_event(self, kind: str, state: State, event: Event) -> Step:
        """The step of the action that can be meant by an event of this kind.

        That is the first that may be taken and agrees with the event; or nothing, if this agrees, as for those of a
        group behind the first; or the first that agrees, since a program may do less than is guaranteed; or the first.
        So the highest `fit` wins; from AGREES on the step agrees with the event.
        """
        best_step, *other_steps = (
            self._candidate_step(kind, role_number, action, state, event)
            for role_number, action in self.actions_of_kind[kind]
        )
        for candidate in other_steps:
            (fit, _, _), (best_fit, _, _) = candidate, best_step
            best_step = _choose(fit > best_fit, candidate, best_step)
        fit, after, component = best_step
        return Step(after, component, agrees=fit >= AGREES, next=after if self._advances(kind) else state)

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
        if not _must_be_allowed_at(action, kind):  # that is asked at another event
            agrees = action.matches_effect(state, after, event)
            return jnp.where(agrees, jnp.where(is_allowed, FITS, AGREES), MEANT), after, component
        agrees, doing_nothing_agrees = action.matches(state, after, event), action.matches(state, state, event)
        fits = agrees & is_allowed
        rests = doing_nothing_agrees & ~fits
        fit = jnp.where(fits, FITS, jnp.where(rests, RESTS, jnp.where(agrees, AGREES, MEANT)))
        return fit, _choose(rests, state, after), component


@lru_cache(maxsize=32)
def programs_of(specification: Specification) -> Programs:
    """The programs of a specification, kept for equal ones, so that they are compiled once."""
    return Programs(specification)


def _must_be_allowed_at(action: Action, kind: str) -> bool:
    """Whether an action must be allowed at events of this kind."""
    return kind == (action.enabled_at or action.event)


def _shows_effect_at(action: Action, kind: str) -> bool:
    """Whether events of this kind show more of the action than those at which it must be allowed."""
    return kind == action.event and action.matches_effect is not any_step


def _are_equal(state: State, other: State) -> jax.Array:
    """bool[]: whether two states are equal."""
    differences = [(x != y).any() for x, y in zip(state, other, strict=True) if x is not y]
    return ~jnp.stack([jnp.zeros((), bool), *differences]).any()


def _choose(condition: jax.Array, if_true: Any, if_false: Any) -> Any:
    """The tree of arrays `if_true` where the condition `bool[]` holds, otherwise `if_false`.

    An array that is the same object in both is taken as it is, so that `_are_equal` need not compare it.
    """
    return jax.tree.map(lambda x, y: x if x is y else jnp.where(condition, x, y), if_true, if_false)
