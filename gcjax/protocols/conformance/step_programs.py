"""The programs of a specification with which events of a record are replayed as its steps."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax._padding import padded_size
from gcjax.protocols.conformance.lanes import Lanes
from gcjax.specifications import Specification
from gcjax.specifications.base import Action, any_step, are_equal
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
    """The compiled program of a specification: the states between events, and what each event violates."""

    def __init__(self, specification: Specification):
        """`actions_of_kind`: kind of event -> the actions that stand for it, with roles (0 workers, 1 servers).

        Kinds that none stands for are left out. `_replay` leads from state to state, `_compare` takes counted states.
        """
        self.specification = specification
        actions_of_kinds = {
            kind: [
                (role_number, action)
                for role_number, (role, _) in enumerate(specification.roles())
                for action in role.actions
                if kind in kinds_of_action(action)
            ]
            for kind in KINDS
        }
        self.actions_of_kind = {kind: actions for kind, actions in actions_of_kinds.items() if actions}
        self._replay, self._compare = jax.jit(self._replay_events), jax.jit(self._violations_between)
        self.lanes = None if specification.replay is None else Lanes(specification, self._checked_step)

    def warm_up(self, state: State, size: int) -> None:
        """Compiles what takes up to `size` states, one more than events, by running it on events of no kind, -1."""
        no_events = Event(*[np.full(size - 1, -1, np.int32)] * len(Event._fields))
        self.replay(state, no_events._replace(waited=np.zeros(size - 1, bool)), min_padded_rows=size)

    def replay(self, state: State, events: Event, min_padded_rows: int = MIN_PADDED_ROWS) -> tuple[State, np.ndarray]:
        """The states `[events + 1]` before each of the events and after the last, if `state` is the first.

        And bool[events, 2], whether each event violates the guarantee, and the property. A specification with a
        `replay` counts the states at once; without, one leads to the next. Programs take arrays that are padded to
        `min_padded_rows` rows at least, so that few sizes are compiled.
        """
        num_events = events.kind.size
        # One at least: the state before the first padding is that after the last event.
        num_padding = padded_size(num_events + 1, min_padded_rows) - num_events
        # The padding, -1, is of no kind.
        padded_events = jax.tree.map(lambda x: np.append(x, np.full(num_padding, -1, x.dtype)), events)
        if self.specification.replay is None:
            padded_states, violations = self._replay(state, padded_events)
            states = take_rows(as_int32(padded_states), slice(num_events + 1))
        else:
            states = as_int32(self.specification.replay(state, events, np.arange(num_events + 1)))
            violations = self._compare(take_rows(states, np.arange(num_events + num_padding + 1)), padded_events)
        return states, np.asarray(violations)[:num_events]

    def _replay_events(self, state: State, events: Event) -> tuple[State, jax.Array]:
        """The states before the events, and bool[events, 2], what each event violates; from one to the next."""

        def advance(state: State, event: Event) -> tuple[State, tuple[State, Step]]:
            """The state after an event; and the one before it, and the event's step, which the scan collects."""
            step = self._step(state, event)
            return step.next, (state, step)

        _, (states, steps) = jax.lax.scan(advance, state, events)
        return states, jnp.stack(jax.vmap(self._violations)(states, steps, events), axis=-1)

    def _violations_between(self, states: State, events: Event) -> jax.Array:
        """bool[events, 2]: what events violate, between the states `[events + 1]` before them and after the last."""
        before, after = (jax.tree.map(lambda x, rows=rows: x[rows], states) for rows in (slice(-1), slice(1, None)))
        next_states, (breaks_guarantee, breaks_property) = jax.vmap(self._checked_step)(before, events)
        leads_elsewhere = ~jax.vmap(are_equal)(next_states, after)
        return jnp.stack([breaks_guarantee | leads_elsewhere, breaks_property], axis=-1)

    def _checked_step(self, state: State, event: Event) -> tuple[State, tuple[jax.Array, jax.Array]]:
        """The state in which the event after this one happens, and two bool[]: what this one violates."""
        step = self._step(state, event)
        return step.next, self._violations(state, step, event)

    def _violations(self, before: State, step: Step, event: Event) -> tuple[jax.Array, jax.Array]:
        """Two bool[]: whether the step of an event is not guaranteed, and whether the property does not hold at it."""
        spec, after = self.specification, step.after
        is_unchanged = are_equal(before, after)  # every guarantee allows doing nothing
        is_guaranteed = step.agrees & (is_unchanged | spec.guarantee(before, after, step.component))
        has_property = spec.invariant(after) & spec.step_property(before, after, step.component)
        is_asked = _is_of_kinds(event, (kind for kind in self.actions_of_kind if self._is_asked(kind)))
        return is_asked & ~is_guaranteed, is_asked & ~has_property

    def _step(self, state: State, event: Event) -> Step:
        """The step of an event of any kind; nothing, by component 0, if it is of none that actions stand for."""
        step = Step(state, jnp.zeros((), jnp.int32), agrees=jnp.ones((), bool), next=state)
        for kind in self.actions_of_kind:
            step = _choose(_is_of_kinds(event, [kind]), self.step_of_event(kind, state, event), step)
        return step

    def _is_asked(self, kind: str) -> bool:
        """Whether events of this kind must keep to the promises, not only lead on: what they show is asked earlier."""
        actions = [action for _, action in self.actions_of_kind[kind]]
        return any(_must_be_allowed_at(action, kind) or _shows_effect_at(action, kind) for action in actions)

    def _advances(self, kind: str) -> bool:
        """Whether events of this kind are steps themselves (`Action.event`), not only ask whether one may be taken."""
        return any(action.event == kind for _, action in self.actions_of_kind[kind])

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


def _is_of_kinds(event: Event, kinds: Iterable[str]) -> jax.Array:
    """bool[]: whether the event is of one of these kinds."""
    return (event.kind == np.array([KINDS.index(kind) for kind in kinds], np.int32)).any()


def _choose(condition: jax.Array, if_true: Any, if_false: Any) -> Any:
    """The tree of arrays `if_true` where the condition `bool[]` holds, otherwise `if_false`.

    An array that is the same object in both is taken as it is, so that `are_equal` need not compare it.
    """
    return jax.tree.map(lambda x, y: x if x is y else jnp.where(condition, x, y), if_true, if_false)
