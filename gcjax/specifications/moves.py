"""The steps out of many states at once: those of the programs, and those that the environment may take.

Letters: n states or steps, N states at once, D entries of a state, A actions of all roles, S values that are tried.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.specifications.base import Layout, Role, Specification

MAX_TRIED = 1 << 18
"""The most ways to write entries that are tried out."""
ENTRIES_AT_ONCE = 1 << 20
"""Entries of states after steps, of all steps that are made at once."""
STEPS_AT_ONCE = 1 << 13
"""Steps that are judged at once."""
MIN_STATES_AT_ONCE, MAX_STATES_AT_ONCE = 8, 1024
"""Bounds of the states that are looked at together."""
ENVIRONMENT_ACTION = -1
"""The number of the action of a step of the environment."""


class Moves(NamedTuple):
    """Steps, one after the other.

    Attributes:
      state: int[n], which of the states they begin in.
      component: int[n], who takes them.
      action: int[n], what it does, counted through all roles; -1 for steps of the environment.
      after: int32[n, D], where they lead.
    """

    state: np.ndarray
    component: np.ndarray
    action: np.ndarray
    after: np.ndarray


class Judgement(NamedTuple):
    """What is known of steps.

    Attributes:
      is_guaranteed: bool[n], whether the component guarantees them.
      is_relied_on: bool[n], whether the component that is looked at relies on them.
      holds: bool[n], whether the property holds, of the step and the state after.
      is_explored: bool[n], whether what comes after is to be looked at.
      canonical_rows: int32[n, D], the canonical state after.
    """

    is_guaranteed: Any
    is_relied_on: Any
    holds: Any
    is_explored: Any
    canonical_rows: Any


class Stepper:
    """The steps out of states, by functions of arrays of fixed sizes, each of which is compiled once.

    Attributes:
      specification: whose steps.
      layout: how its states are written down.
      actions: of all roles, one after the other: the action, and the number of its role.
      states_at_once: N, the states that are looked at together.
    """

    def __init__(self, specification: Specification, layout: Layout):
        """Prepares the functions; nothing is compiled yet."""
        roles = specification.roles()
        self.specification, self.layout = specification, layout
        self.actions = [(action, role_number) for role_number, (role, _) in enumerate(roles) for action in role.actions]
        self._environments = [
            _EnvironmentOfRole(specification, layout, role, components)
            for role, components in roles
            if not role.takes_only_actions
        ]
        self._compiled_moves = jax.jit(jax.vmap(self._program_moves))
        self._compiled_judge_step = jax.jit(jax.vmap(self._judge_step, (0, 0, 0, None)))
        num_program_steps = specification.num_components * len(self.actions)
        num_steps = num_program_steps + sum(environment.num_steps for environment in self._environments)  # from a state
        entries_after_steps = num_steps * layout.sizes.size
        self.states_at_once = int(
            min(MAX_STATES_AT_ONCE, max(MIN_STATES_AT_ONCE, ENTRIES_AT_ONCE // entries_after_steps))
        )

    def moves_of_all(self, rows: np.ndarray) -> Moves:
        """The moves of all components from n <= N states, int32[n, D]; padded to N, for which a program is compiled."""
        after, enabled, _ = (
            np.asarray(x)[: rows.shape[0]] for x in self._compiled_moves(padded_to(rows, self.states_at_once))
        )
        return _moves_where(after, enabled)

    def moves_of_one(self, rows: np.ndarray, component: int) -> Moves:
        """The moves of one component, and what the others may do to it.

        The latter contains all that they guarantee and all that the component relies on, and more, which `judge` finds
        out.
        """
        padded_rows, num_rows = padded_to(rows, self.states_at_once), rows.shape[0]
        after, enabled, is_allowed_to_environment = (
            np.asarray(x)[:num_rows] for x in self._compiled_moves(padded_rows)
        )
        # `after` is int32[n, components, actions, D]; the masks are bool[n, components, actions].
        is_of_component = (np.arange(after.shape[1]) == component)[None, :, None]
        environment_moves = _moves_where(after, is_allowed_to_environment & ~is_of_component)
        moves_by_kind = [
            _moves_where(after, enabled & is_of_component),
            environment_moves._replace(action=np.full_like(environment_moves.action, ENVIRONMENT_ACTION)),
            *(environment.moves(padded_rows, num_rows, component) for environment in self._environments),
        ]
        return Moves(*(np.concatenate(arrays) for arrays in zip(*moves_by_kind, strict=True)))

    def judge(self, rows: np.ndarray, moves: Moves, observer: int = 0) -> Judgement:
        """What is known of the n steps `moves` from states int32[n, D], one each; `observer` is who relies on them."""
        judgements = []
        for first_step in range(0, rows.shape[0], STEPS_AT_ONCE):
            batch = slice(first_step, first_step + STEPS_AT_ONCE)
            arrays = [rows[batch], moves.after[batch], moves.component[batch].astype(np.int32)]
            judgement = self._compiled_judge_step(*(padded_to(x, STEPS_AT_ONCE) for x in arrays), observer)
            judgements.append([np.asarray(x)[: arrays[0].shape[0]] for x in judgement])
        if not judgements:
            return Judgement(*(np.zeros(0, bool),) * 4, canonical_rows=rows)  # no steps, so no rows
        return Judgement(*(np.concatenate(arrays) for arrays in zip(*judgements, strict=True)))

    def _judge_step(self, row: jax.Array, row_after: jax.Array, component: jax.Array, observer: jax.Array) -> Judgement:
        """What is known of one step of a component from a row int32[D] to another; `observer` is who relies on it.

        The fields are bool[], and one canonical row: `jax.vmap` makes arrays of many steps of them.
        """
        spec, layout = self.specification, self.layout
        before, after = layout.unflatten(row), layout.unflatten(row_after)
        is_guaranteed = spec.guarantee(before, after, component)
        is_relied_on = is_guaranteed if spec.rely is None else spec.rely(before, after, observer)
        holds = spec.invariant(after) & spec.step_property(before, after, component)
        return Judgement(
            is_guaranteed=is_guaranteed,
            is_relied_on=is_relied_on,
            holds=holds,
            is_explored=spec.is_explored(after),
            canonical_rows=layout.flatten(spec.canonicalise(after)),  # int32[D]
        )

    def _program_moves(self, row: jax.Array) -> tuple[jax.Array, ...]:
        """The steps of all actions from a state int32[D], and which of them there are.

        Returns:
          int32[components, actions, D], where they lead; bool[components, actions], which are enabled; and
          bool[components, actions], which an environment takes, enabled or not, of roles with `takes_only_actions`.
        """
        spec, layout = self.specification, self.layout
        state = layout.unflatten(row)
        roles = [role for role, _ in spec.roles()]
        role_number_of_action = [number for _, number in self.actions]

        def moves_of_component(component: jax.Array) -> tuple[jax.Array, ...]:
            """The same for one component: [A, D], [A] and [A], A the actions of all roles; those of its own count."""
            role_number = (component >= spec.num_workers).astype(jnp.int32)  # 0 workers, 1 servers
            moves = [action.move(state, component) for action, _ in self.actions]
            is_of_role = role_number == jnp.asarray(role_number_of_action)
            after = jnp.stack([layout.flatten(state_after) for state_after, _ in moves])
            enabled = jnp.stack([jnp.asarray(is_enabled) for _, is_enabled in moves])
            takes_only_actions = jnp.asarray([roles[number].takes_only_actions for number in role_number_of_action])
            return after, enabled & is_of_role, is_of_role & takes_only_actions

        return jax.vmap(moves_of_component)(jnp.arange(spec.num_components))


def _moves_where(after: np.ndarray, is_move: np.ndarray) -> Moves:
    """As lists, the steps for which bool[n, components, actions] is true.

    `after` is int32[n, components, actions, D]: the states that they lead to.
    """
    state, component, action = np.nonzero(is_move)
    return Moves(state, component, action, after[is_move])


class _EnvironmentOfRole:
    """The steps that components of one role may take as an environment, where all is tried out."""

    def __init__(self, specification: Specification, layout: Layout, role: Role, components: range):
        """`components`: those of the role."""
        self.specification, self.layout, self.role, self.components = specification, layout, role, components
        self.entries_by_component, self.values_to_write = writable_entries_and_values(
            specification, layout, role, components
        )
        self.num_steps = len(components) * self.values_to_write.shape[0]
        # The tables are arguments: as constants XLA would compute with them while it compiles.
        self._compiled_allowed_values = jax.jit(jax.vmap(self._allowed_values, (0, None, None, None, None)))

    def moves(self, rows: np.ndarray, num_rows: int, observer: int) -> Moves:
        """The steps from the first `num_rows` of the states int32[N, D] that others than `observer` may take.

        A step of component `components[i]` writes a row of `values_to_write` to its entries, `entries_by_component[i]`.
        """
        components = np.asarray(self.components)
        # bool[N, components, values]
        is_allowed_in_states = self._compiled_allowed_values(
            rows, observer, components, self.entries_by_component, self.values_to_write
        )
        is_allowed = np.array(is_allowed_in_states[:num_rows])
        is_allowed[:, components == observer] = False
        state_numbers, component_indices, value_numbers = np.nonzero(is_allowed)
        after = rows[state_numbers]
        move_index = np.arange(state_numbers.size)[:, None]
        after[move_index, self.entries_by_component[component_indices]] = self.values_to_write[value_numbers]
        return Moves(
            state_numbers,
            component_indices + self.components.start,
            action=np.full_like(state_numbers, ENVIRONMENT_ACTION),
            after=after,
        )

    def _allowed_values(
        self,
        row: jax.Array,
        observer: jax.Array,
        components: jax.Array,
        entries_by_component: jax.Array,
        values_to_write: jax.Array,
    ) -> jax.Array:
        """bool[components, S]: which values each component of `components` may write in a state int32[D].

        Those that it guarantees, or on which the component `observer` relies. A row of
        `values_to_write int32[S, entries]` is written to the entries that one of `entries_by_component
        int[components, entries]` names.
        """
        before, rely = self.layout.unflatten(row), self.specification.rely

        def is_allowed(row_after: jax.Array, component: jax.Array) -> jax.Array:
            """bool[]: whether a component's step from `before` to a row int32[D] is guaranteed, or relied on."""
            after = self.layout.unflatten(row_after)
            is_guaranteed = self.role.allows(before, after, component)
            return is_guaranteed if rely is None else is_guaranteed | rely(before, after, observer)

        def allowed_values(component: jax.Array, entries_to_write: jax.Array) -> jax.Array:
            """bool[S]: the same for all `values_to_write`, each written to the entries `entries_to_write` of `row`."""

            def is_allowed_to_write(entry_values: jax.Array) -> jax.Array:
                """bool[]: the same for one row of them, int32[entries]."""
                return is_allowed(row.at[entries_to_write].set(entry_values), component)

            return jax.vmap(is_allowed_to_write)(values_to_write)

        return jax.vmap(allowed_values)(components, entries_by_component)


def writable_entries_and_values(
    specification: Specification, layout: Layout, role: Role, components: range
) -> tuple[np.ndarray, np.ndarray]:
    """All that components could write: each entry from 0 to its size, which is one above what it may be.

    Returns:
      The entries that each may write, int[components, entries], and the values to try, int32[values, entries].

    Raises:
      ValueError: if there are too many.
    """
    with jax.ensure_compile_time_eval():  # numbers, also where this is traced
        entries_of_component = [np.flatnonzero(frame_entries(layout, role, component)) for component in components]
    writable_entries = np.stack(entries_of_component)
    max_values = layout.sizes[writable_entries].max(axis=0)  # int64[entries], of any component
    num_values = int(np.prod(max_values + 1.0))
    if num_values > MAX_TRIED:
        component_name = specification.component_name(components.start)
        raise ValueError(
            f"a {component_name} of {specification.name} must have at most {MAX_TRIED} ways "
            f"to write what it may, for all of them are tried out; it has {num_values}. Use fewer workers or smaller "
            f"parameters, or let the role take only the steps of its actions."
        )
    values_by_entry = np.indices(max_values + 1).reshape(max_values.size, -1)  # [entries, values], all combinations
    return writable_entries, values_by_entry.T.astype(np.int32)


def frame_entries(layout: Layout, role: Role, component: int) -> np.ndarray:
    """bool[D], which entries of a state a component of the role may change."""
    fields = zip(role.frame(np.int32(component)), layout.example, strict=True)
    return np.concatenate([np.broadcast_to(np.asarray(may_change), np.shape(x)).ravel() for may_change, x in fields])


def padded_to(rows: np.ndarray, size: int) -> np.ndarray:
    """The rows [n, ...], followed by copies of the first one, `size` in all."""
    return np.concatenate([rows, np.broadcast_to(rows[:1], (size - rows.shape[0], *rows.shape[1:]))])
