"""Workers that leave and join: a specification with the mask of those who take part in its state.

A specification says by `members` what it is if some workers only take part: nobody waits for the others, and a worker
that joins counts as slow as the slowest (`joined`). Here this becomes one specification, in which leaving and joining
are steps of the worker. Who has left takes no step.

Letters: W workers.
"""

from collections import namedtuple
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax.specifications.base import Action, Numbers, Role, Specification, State, zeros
from gcjax.specifications.events import JOIN, LEAVE, Event


@lru_cache(maxsize=32)
def with_members(specification: Specification) -> Specification:
    """The specification for workers that leave and join; its first state has none yet.

    Its states have one field more, `alive`: 1 for who takes part.

    Args:
      specification: one with `members`.

    Raises:
      ValueError: if it has none.
    """
    if specification.members is None:
        raise ValueError(
            f"the specification must say what it promises if workers leave and join; {specification.name} does not. "
            "Say Specification(..., members=...), or look at what does not depend on it: "
            "gcjax.protocols.check without memberships, for a run in which all stay."
        )
    nobody = specification.members(zeros(specification.num_workers) > 0)
    inside = _Inside(specification, _state_type(type(nobody.initial).__name__, type(nobody.initial)._fields))
    alive = {"alive": zeros(specification.num_workers)}
    return Specification(
        specification.name,
        specification.num_workers,
        initial=inside.state_type(*nobody.initial, **alive),
        sizes=inside.state_type(*nobody.sizes, alive=zeros(specification.num_workers) + 2),
        worker=inside.role(
            nobody.worker, 0, (Action("leave", _leave, LEAVE, _changes), Action("join", inside.join, JOIN, _changes))
        ),
        claim=f"{nobody.claim}, of those who take part",
        server=None if nobody.server is None else inside.role(nobody.server, 1, ()),
        num_servers=nobody.num_servers,
        invariant=lambda state: inside.given(state).invariant(inside.state(state)),
        step_property=lambda before, after, component: inside.given(before).step_property(
            inside.state(before), inside.state(after), component
        ),
    )


@lru_cache
def _state_type(name: str, fields: tuple[str, ...]) -> Any:
    """The type of states like another one, with the field `alive` behind the others."""
    return namedtuple(f"{name}WithMembers", (*fields, "alive"))


class _Inside(NamedTuple):
    """The parts of a specification, for states that say who takes part."""

    specification: Specification
    state_type: Any

    def given(self, state: State) -> Specification:
        """The specification if those take part who do so in this state."""
        assert self.specification.members is not None
        return self.specification.members(state.alive > 0)

    def state(self, state: State) -> State:
        """The state without who takes part."""
        return type(self.given(state).initial)(*state[:-1])

    def join(self, state: State, worker: jax.Array) -> tuple[State, jax.Array]:
        """The state in which the worker takes part, and whether it did not before."""
        after = self.given(state).joined(self.state(state), worker)
        return self.state_type(*after, alive=state.alive.at[worker].set(1)), state.alive[worker] == 0

    def role(self, role: Role, number: int, actions: tuple[Action, ...]) -> Role:
        """A role, and more actions; its number is that in `Specification.roles`."""
        own = tuple(self._action(action, number, index) for index, action in enumerate(role.actions))
        everything = self.state_type(*(True,) * len(self.state_type._fields))
        return Role((*own, *actions), lambda component: everything, partial(self._rule, number))

    def _action(self, action: Action, role: int, index: int) -> Action:
        """An action, by its place among those of its role."""

        def given(state: State) -> Action:
            """The action if those take part who do so in this state."""
            return self.given(state).roles()[role][0].actions[index]

        def move(state: State, component: jax.Array) -> tuple[State, jax.Array]:
            """Where the action leads, and whether it may be taken, by somebody who takes part."""
            after, enabled = given(state).move(self.state(state), component)
            return self.state_type(*after, alive=state.alive), enabled & self._takes_part(state, role, component)

        def matches(before: State, after: State, event: Event) -> jax.Array:
            """bool[]: whether the step is what the event shows."""
            return given(before).matches(self.state(before), self.state(after), event)

        actor: Callable[[State, Event], jax.Array] | None = None
        if action.actor is not None:

            def actor(state: State, event: Event) -> jax.Array:
                """Who takes the step of an event."""
                of_event = given(state).actor
                assert of_event is not None
                return of_event(self.state(state), event)

        return action._replace(move=move, matches=matches, actor=actor)

    def _takes_part(self, state: State, role: int, component: Numbers) -> jax.Array:
        """bool[]: whether a worker takes part; servers always do."""
        return state.alive[component] > 0 if role == 0 else jnp.ones((), bool)

    def _rule(self, role: int, before: State, after: State, component: jax.Array) -> jax.Array:
        """bool[]: whether a step is allowed if those take part who do so before it, or is leaving or joining."""
        allows = self.given(before).roles()[role][0].allows(self.state(before), self.state(after), component)
        is_step = allows & (before.alive == after.alive).all() & self._takes_part(before, role, component)
        if role != 0:
            return is_step
        has_left, _ = _leave(before, component)
        has_joined, _ = self.join(before, component)
        leaves = (before.alive[component] > 0) & _are_equal(after, has_left)
        joins = (before.alive[component] == 0) & _are_equal(after, has_joined)
        return is_step | leaves | joins


def _leave(state: State, worker: jax.Array) -> tuple[State, jax.Array]:
    """The state in which the worker takes part no longer, and whether it did."""
    return state._replace(alive=state.alive.at[worker].set(0)), state.alive[worker] > 0


def _changes(before: State, after: State, event: Event) -> jax.Array:
    """bool[]: whether the step changes whether the event's worker takes part."""
    return after.alive[event.worker] != before.alive[event.worker]


def _are_equal(state: State, other: State) -> jax.Array:
    """bool[]: whether two states are equal."""
    return jnp.stack([(jnp.asarray(x) == y).all() for x, y in zip(state, other, strict=True)]).all()
