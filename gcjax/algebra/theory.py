"""Specifications as commands of the algebra: the same conclusions, by refinement of automata.

The shared states are the canonical ones that guarantees can lead to. Every component becomes an automaton that takes
steps of its program, or lets its environment do anything, and may end at any time, so that a specification of how it
ends says what holds always. For tiny instances: an automaton has all pairs of states as steps.

Letters: S states.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.algebra import automata
from gcjax.algebra.automata import Automaton
from gcjax.algebra.steps import shared_memory
from gcjax.specifications.base import Specification, layout
from gcjax.specifications.moves import ENVIRONMENT_ACTION, Judgement, Moves, Stepper

MAX_STATES = 64
ENVIRONMENT_ONLY = -1
"""The number of no component: all of them are its environment."""


class Theory(NamedTuple):
    """A specification as commands.

    Attributes:
      goal: what all are to do together: the property, from the first state, if the environment does nothing.
      promises: of each component, `guarantee & rely & specification`.
      programs: of each component, what it does.
    """

    goal: Automaton
    promises: tuple[Automaton, ...]
    programs: tuple[Automaton, ...]

    def introduced(self) -> bool:
        """Whether all promises together refine the goal, as the law for parallel introduction says."""
        return bool(automata.refines(self.goal, _in_parallel(self.promises)))

    def kept(self) -> tuple[bool, ...]:
        """Whether each program refines its promise."""
        pairs = zip(self.promises, self.programs, strict=True)
        return tuple(bool(automata.refines(promise, program)) for promise, program in pairs)

    def achieved(self) -> bool:
        """Whether all programs together refine the goal."""
        return bool(automata.refines(self.goal, _in_parallel(self.programs)))


class Relations(NamedTuple):
    """What a specification says of its canonical states, the first of which it begins with.

    Attributes:
      programs: bool[components, S, S], the steps of each component.
      guarantees: bool[components, S, S], what each promises.
      relies: bool[components, S, S], what each relies on.
      holds: bool[S], where the property holds.
    """

    programs: np.ndarray
    guarantees: np.ndarray
    relies: np.ndarray
    holds: np.ndarray


def theory(specification: Specification) -> Theory:
    """The commands of a specification whose property is an invariant: its goal, promises and programs, as automata.

    Raises:
      ValueError: if there are too many states.
    """
    relations_ = relations(specification)
    num_states = relations_.holds.size
    space = shared_memory(num_states)
    initial_state = 0
    allowed_ends = np.ones((num_states, num_states), bool)  # by the state in which a run starts
    allowed_ends[initial_state] = relations_.holds
    ends_well = automata.specification(space, allowed_ends)
    nothing_changes = np.eye(num_states, dtype=bool)
    goal = automata.rely(space, nothing_changes) & ends_well
    promises = [
        automata.guarantee(space, guarantee) & automata.rely(space, rely) & ends_well
        for guarantee, rely in zip(relations_.guarantees, relations_.relies, strict=True)
    ]
    programs = [automata.guarantee(space, steps) for steps in relations_.programs]
    return Theory(goal, tuple(promises), tuple(programs))


def relations(specification: Specification) -> Relations:
    """The relations of a specification, on all states that programs, guarantees and relies can lead to.

    Raises:
      ValueError: if there are too many states.
    """
    stepper = Stepper(specification, layout(specification))
    flat_states, state_codes = _reachable_states(stepper)  # int32[S, D], of D entries, and their numbers int64[S]
    nothing_changes = np.eye(state_codes.size, dtype=bool)  # is relied on by all
    relies = []
    for component in range(specification.num_components):
        moves, judgement = _moves_and_judgement(stepper, flat_states, component)
        is_relied_on = (moves.action == ENVIRONMENT_ACTION) & judgement.is_relied_on
        relied_on = _relation(stepper, state_codes, moves, is_relied_on, judgement.canonical_rows)
        relies.append(relied_on.any(axis=0) | nothing_changes)  # whoever takes the step
    moves, judgement = _moves_and_judgement(stepper, flat_states, ENVIRONMENT_ONLY)
    is_guaranteed = (moves.action == ENVIRONMENT_ACTION) & judgement.is_guaranteed
    guarantees = _relation(stepper, state_codes, moves, is_guaranteed, judgement.canonical_rows)
    program_moves = stepper.moves_of_all(flat_states)  # the steps of all components by their actions
    states_after = stepper.judge(flat_states[program_moves.state], program_moves).canonical_rows
    every_move = np.ones(program_moves.state.size, bool)
    programs = _relation(stepper, state_codes, program_moves, every_move, states_after)
    holds = jax.vmap(lambda flat_state: specification.invariant(stepper.layout.unflatten(flat_state)))(
        jnp.asarray(flat_states)
    )
    return Relations(programs, guarantees, np.stack(relies), np.asarray(holds))


def _relation(
    stepper: Stepper, state_codes: np.ndarray, moves: Moves, is_in_relation: np.ndarray, states_after: np.ndarray
) -> np.ndarray:
    """bool[components, S, S], by component, state before and after: the moves of `is_in_relation`, bool[n].

    `states_after`: int32[n, D], canonical, D entries each. `state_codes`: int64[S], the numbers of the S states.
    """
    num_components, num_states = stepper.specification.num_components, state_codes.size
    has_step = np.zeros((num_components, num_states, num_states), bool)
    code_order = np.argsort(state_codes)  # sorted, so that a state is found by its number
    codes_after = stepper.layout.keys(states_after[is_in_relation])
    after = code_order[np.searchsorted(state_codes[code_order], codes_after)]
    has_step[moves.component[is_in_relation], moves.state[is_in_relation], after] = True
    return has_step


def _moves_and_judgement(stepper: Stepper, flat_states: np.ndarray, component: int) -> tuple[Moves, Judgement]:
    """All steps of a component and its environment from states int32[n, D], and how the component judges them.

    For `ENVIRONMENT_ONLY` the steps are those of the environment of nobody: of all components, as they guarantee them.
    """
    moves = stepper.moves_of_one(flat_states, component)
    return moves, stepper.judge(flat_states[moves.state], moves, component)


def _reachable_states(stepper: Stepper) -> tuple[np.ndarray, np.ndarray]:
    """All canonical states that programs, guarantees and relies lead to, the initial one first.

    Step by step, until no state is new; raises `ValueError` if they are too many, or one is outside of the sizes.

    Returns:
      int32[S, D], D entries for each state, and int64[S], its number.
    """
    spec, layout_ = stepper.specification, stepper.layout
    known_states = np.asarray(layout_.flatten(spec.canonicalise(spec.initial)))[None]
    while True:
        known_and_next = [known_states, *_next_states(stepper, known_states)]
        candidates = np.concatenate(known_and_next)
        codes = layout_.keys(candidates)
        _, first_occurrences = np.unique(codes, return_index=True)
        reached_states = candidates[np.sort(first_occurrences)]  # each once, in the order in which they were reached
        num_reached, is_outside_sizes = reached_states.shape[0], codes < 0  # -1 where an entry is out of its range
        if is_outside_sizes.any() or num_reached > min(MAX_STATES, stepper.states_at_once):
            raise ValueError(
                f"a specification as automata must have at most {MAX_STATES} states within its sizes; "
                f"{spec.name} has more. Use {spec.num_workers - 1} workers or smaller parameters, or check it without."
            )
        if num_reached == known_states.shape[0]:
            return known_states, layout_.keys(known_states)
        known_states = reached_states


def _next_states(stepper: Stepper, flat_states: np.ndarray) -> list[np.ndarray]:
    """The canonical states, int32[n, D] each, to which one step of a program, a guarantee or a rely leads."""
    program_moves = stepper.moves_of_all(flat_states)
    next_states = [stepper.judge(flat_states[program_moves.state], program_moves).canonical_rows]
    for component in (ENVIRONMENT_ONLY, *range(stepper.specification.num_components)):
        moves, judgement = _moves_and_judgement(stepper, flat_states, component)
        # All of the component's own, and those of its environment that are guaranteed or relied on.
        is_allowed = (moves.action != ENVIRONMENT_ACTION) | judgement.is_guaranteed | judgement.is_relied_on
        next_states.append(judgement.canonical_rows[is_allowed])
    return next_states


def _in_parallel(commands: tuple[Automaton, ...]) -> Automaton:
    """All commands in parallel, without the control states that are not reached."""
    return functools.reduce(lambda left, right: automata.pruned(automata.parallel(left, right)), commands)
