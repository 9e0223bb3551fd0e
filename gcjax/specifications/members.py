"""Workers that leave and join: a specification with the mask of those who take part in its state.

A specification says by `members` what it is if some workers only take part: nobody waits for the others; and by
`state_after_join` what joining changes, for example that a clock is that of the slowest. Here this becomes one
specification, in which leaving and joining are steps of the worker. Who has left takes no step.

Letters: W workers.
"""

from collections import namedtuple
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.specifications.base import Action, Numbers, Role, Specification, State, any_step, are_equal, zeros
from gcjax.specifications.events import JOIN, LEAVE, Event

_WORKER_ROLE, _SERVER_ROLE = 0, 1
"""The numbers of the roles in `Specification.roles`."""


@lru_cache(maxsize=32)
def with_members(specification: Specification) -> Specification:
    """The specification for workers that leave and join; its first state has none yet.

    Its states have one field more, `alive`: 1 for who takes part. It is for runs to be held against, event by event,
    and not for exploring: so `canonicalise`, `is_explored`, `rely`, `replay` are left out, and numbers outgrow `sizes`;
    so are `begins_before_commits` and `only_counts_units`.

    Args:
      specification: one with `members`: `alive bool[W] -> Specification`.

    Raises:
      ValueError: if it has none.
    """
    if specification.members is None:
        raise ValueError(
            f"the specification must say what it promises if workers leave and join; {specification.name} does not. "
            "Say Specification(..., members=...), or look at what does not depend on it: "
            "gcjax.protocols.check without memberships, for a run in which all stay."
        )
    # First states, sizes and claims are the same whoever takes part.
    spec_of_nobody = specification.members(np.zeros(specification.num_workers, bool))
    inner_state_type = type(spec_of_nobody.initial)
    with_alive = _WithAlive(specification, _state_type(inner_state_type.__name__, inner_state_type._fields))
    zero_per_worker = zeros(specification.num_workers)
    leave = Action("leave", _leave, event=LEAVE, matches=_takes_part_no_longer_or_anew)
    join = Action("join", with_alive.join, event=JOIN, matches=_takes_part_no_longer_or_anew)
    server = spec_of_nobody.server
    # By its number a role is looked up again in the specification of those who take part in a state.
    if server is not None:
        server = with_alive.role_with_members(server, _SERVER_ROLE, more_actions=())
    return Specification(
        specification.name,
        specification.num_workers,
        initial=with_alive.state_type(*spec_of_nobody.initial, alive=zero_per_worker),
        sizes=with_alive.state_type(*spec_of_nobody.sizes, alive=zero_per_worker + 2),  # two values: 0, 1
        worker=with_alive.role_with_members(spec_of_nobody.worker, _WORKER_ROLE, more_actions=(leave, join)),
        claim=f"{spec_of_nobody.claim}, of those who take part",
        server=server,
        num_servers=spec_of_nobody.num_servers,
        invariant=lambda state: with_alive.specification_of_alive(state).invariant(with_alive.without_alive(state)),
        step_property=lambda before, after, component: with_alive.specification_of_alive(before).step_property(
            with_alive.without_alive(before), with_alive.without_alive(after), component
        ),
    )


@lru_cache
def _state_type(name: str, fields: tuple[str, ...]) -> Any:
    """The type of states like another one, with the field `alive` behind the others."""
    return namedtuple(f"{name}WithMembers", (*fields, "alive"))


class _WithAlive(NamedTuple):
    """The parts of a specification, for states of `state_type`, whose last field, `alive`, says who takes part."""

    specification: Specification
    state_type: Any

    def specification_of_alive(self, state: State) -> Specification:
        """The specification if those take part who do so in this state."""
        assert self.specification.members is not None
        return self.specification.members(state.alive > 0)

    def without_alive(self, state: State) -> State:
        """The state without who takes part."""
        return type(self.specification_of_alive(state).initial)(*state[:-1])

    def join(self, state: State, worker: jax.Array) -> tuple[State, jax.Array]:
        """The state in which the worker takes part (`alive` 1, not 0), and whether it did not before.

        Its other fields are as the specification wants them for who joins, for example a clock as the slowest one's.
        """
        after = self.specification_of_alive(state).state_after_join(self.without_alive(state), worker)
        return self.state_type(*after, alive=state.alive.at[worker].set(1)), state.alive[worker] == 0

    def role_with_members(self, role: Role, role_number: int, more_actions: tuple[Action, ...]) -> Role:
        """The role, and more actions, for states with `alive`; its number in `Specification.roles` is 0 or 1.

        Its frame lets all entries change: the rule asks the role's own frame. `more_actions` are for such states, too.
        """
        actions = [self._action_with_members(action, role_number, i) for i, action in enumerate(role.actions)]
        everything = self.state_type(*(True,) * len(self.state_type._fields))
        rule = partial(self._rule_with_members, role_number)
        return Role(actions=(*actions, *more_actions), frame=lambda component: everything, rule=rule)

    def _action_with_members(self, action: Action, role_number: int, index: int) -> Action:
        """An action, at the place `index` among those of its role, for states with `alive int[W]`, 1 who takes part.

        Its `move`, `matches`, `matches_effect` and `actor` are looked up anew in the specification of those who take
        part in the state that they get. The number of its role is 0 for workers, 1 for servers.
        """

        def action_of_alive(state: State) -> Action:
            """The action if those take part who do so in this state."""
            role, _ = self.specification_of_alive(state).roles()[role_number]
            return role.actions[index]

        def move(state: State, component: jax.Array) -> tuple[State, jax.Array]:
            """Where the action leads, and whether it may be taken, by somebody who takes part."""
            after, enabled = action_of_alive(state).move(self.without_alive(state), component)
            return self.state_type(*after, alive=state.alive), enabled & self._takes_part(state, role_number, component)

        def matches(before: State, after: State, event: Event) -> jax.Array:
            """bool[]: whether the step is what the event shows."""
            return action_of_alive(before).matches(self.without_alive(before), self.without_alive(after), event)

        def matches_effect(before: State, after: State, event: Event) -> jax.Array:
            """bool[]: whether the step is what the event at which it takes effect shows."""
            of_alive = action_of_alive(before)
            return of_alive.matches_effect(self.without_alive(before), self.without_alive(after), event)

        actor: Callable[[State, Event], jax.Array] | None = None
        if action.actor is not None:

            def actor(state: State, event: Event) -> jax.Array:
                """Who takes the step of an event."""
                of_event = action_of_alive(state).actor
                assert of_event is not None
                return of_event(self.without_alive(state), event)

        has_effect = action.matches_effect is not any_step  # else no event is asked about it
        return action._replace(
            move=move, matches=matches, matches_effect=matches_effect if has_effect else any_step, actor=actor
        )

    def _takes_part(self, state: State, role_number: int, component: Numbers) -> jax.Array:
        """bool[]: whether a worker takes part; servers always do."""
        return state.alive[component] > 0 if role_number == _WORKER_ROLE else jnp.ones((), bool)

    def _rule_with_members(self, role_number: int, before: State, after: State, component: jax.Array) -> jax.Array:
        """bool[]: whether a step is allowed if those who are `alive` before it take part, or is leaving or joining.

        Only workers leave and join, each itself; `role_number` is 0 for them, 1 for servers.
        """
        role, _ = self.specification_of_alive(before).roles()[role_number]
        allows = role.allows(self.without_alive(before), self.without_alive(after), component)
        is_step = allows & (before.alive == after.alive).all() & self._takes_part(before, role_number, component)
        if role_number != _WORKER_ROLE:
            return is_step
        state_if_left, _ = _leave(before, component)
        state_if_joined, _ = self.join(before, component)
        leaves = (before.alive[component] > 0) & are_equal(after, state_if_left)
        joins = (before.alive[component] == 0) & are_equal(after, state_if_joined)
        return is_step | leaves | joins


def _leave(state: State, worker: jax.Array) -> tuple[State, jax.Array]:
    """The state in which the worker takes part no longer, and whether it did."""
    return state._replace(alive=state.alive.at[worker].set(0)), state.alive[worker] > 0


def _takes_part_no_longer_or_anew(before: State, after: State, event: Event) -> jax.Array:
    """bool[]: whether the step changes whether the event's worker takes part."""
    return after.alive[event.worker] != before.alive[event.worker]
