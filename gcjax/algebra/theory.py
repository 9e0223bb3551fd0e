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
from gcjax.specifications.moves import Judgement, Moves, Stepper

MAX_STATES = 64
NOBODY = -1


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
    """The commands of a specification whose property is an invariant.

    Raises:
      ValueError: if there are too many states.
    """
    relations_ = relations(specification)
    num_states = relations_.holds.size
    space = shared_memory(num_states)
    allowed_ends = np.ones((num_states, num_states), bool)  # by the state in which a run starts
    allowed_ends[0] = relations_.holds  # runs from the first state, 0, end where the property holds
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
    rows, codes = _reachable_states(stepper)  # int32[S, D] and their numbers int64[S]
    order, components = np.argsort(codes), range(specification.num_components)  # order: to look codes up

    def relation(moves: Moves, is_step: np.ndarray, canonical: np.ndarray) -> np.ndarray:
        """bool[components, S, S], by component, state before and after: the moves for which `is_step bool[n]` is true.

        `canonical`: int32[n, D], the canonical states after. `codes` are the numbers of the S states, `order` sorts
        them, so that a state is found by its number.
        """
        has_step = np.zeros((len(components), codes.size, codes.size), bool)
        after = order[np.searchsorted(codes[order], stepper.layout.codes(canonical[is_step]))]
        has_step[moves.component[is_step], moves.state[is_step], after] = True
        return has_step

    nothing_changes = np.eye(codes.size, dtype=bool)  # is relied on by all
    relies = []
    for component in components:
        moves, judgement = _judged_moves(stepper, rows, component)
        is_relied_on = (moves.action < 0) & judgement.relied  # action -1: a step of the environment
        relies.append(relation(moves, is_relied_on, judgement.canonical).any(axis=0) | nothing_changes)
    moves, judgement = _judged_moves(stepper, rows, NOBODY)
    guarantees = relation(moves, (moves.action < 0) & judgement.guaranteed, judgement.canonical)
    program = stepper.program(rows)  # the steps of all components by their actions
    after = stepper.judge(rows[program.state], program).canonical
    programs = relation(program, np.ones(program.state.size, bool), after)
    holds = jax.vmap(lambda row: specification.invariant(stepper.layout.unflatten(row)))(jnp.asarray(rows))
    return Relations(programs, guarantees, np.stack(relies), np.asarray(holds))


def _judged_moves(stepper: Stepper, rows: np.ndarray, component: int) -> tuple[Moves, Judgement]:
    """All steps of one component and its environment from states int32[n, D], and how that component judges them.

    NOBODY: of the environment only.
    """
    moves = stepper.alone(rows, component)
    return moves, stepper.judge(rows[moves.state], moves, component)


def _reachable_states(stepper: Stepper) -> tuple[np.ndarray, np.ndarray]:
    """All canonical states that programs, guarantees and relies lead to, the initial one first.

    Returns:
      int32[S, D], a row of D entries for each state, and int64[S], its number.
    """
    spec, layout_ = stepper.specification, stepper.layout
    rows = np.asarray(layout_.flatten(spec.canonicalise(spec.initial)))[None]
    while True:
        program = stepper.program(rows)
        known_and_next = [rows, stepper.judge(rows[program.state], program).canonical]
        for component in (NOBODY, *range(spec.num_components)):
            moves, judgement = _judged_moves(stepper, rows, component)
            is_allowed = (moves.action >= 0) | judgement.guaranteed | judgement.relied  # action -1: the environment's
            known_and_next.append(judgement.canonical[is_allowed])
        candidates = np.concatenate(known_and_next)
        codes = layout_.codes(candidates)
        _, first_places = np.unique(codes, return_index=True)
        states = candidates[np.sort(first_places)]  # each state once, in the order in which they were reached
        if (codes < 0).any() or states.shape[0] > min(MAX_STATES, stepper.chunk):
            raise ValueError(
                f"a specification as automata must have at most {MAX_STATES} states within its sizes; "
                f"{spec.name} has more. Use {spec.num_workers - 1} workers or smaller parameters, or check it without."
            )
        if states.shape[0] == rows.shape[0]:
            return rows, layout_.codes(rows)
        rows = states


def _in_parallel(commands: tuple[Automaton, ...]) -> Automaton:
    """All commands in parallel, without the control states that are not reached."""
    return functools.reduce(lambda left, right: automata.pruned(automata.parallel(left, right)), commands)
