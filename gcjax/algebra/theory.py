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
    related = relations(specification)
    count = related.holds.size
    space = shared_memory(count)
    ends = np.ones((count, count), bool)
    ends[0] = related.holds  # runs from the first state, 0, end where the property holds
    ends_well = automata.specification(space, ends)
    goal = automata.rely(space, np.eye(count, dtype=bool)) & ends_well
    promises = [
        automata.guarantee(space, g) & automata.rely(space, r) & ends_well
        for g, r in zip(related.guarantees, related.relies, strict=True)
    ]
    programs = [automata.guarantee(space, p) for p in related.programs]
    return Theory(goal, tuple(promises), tuple(programs))


def relations(specification: Specification) -> Relations:
    """The relations of a specification, on all states that programs, guarantees and relies can lead to.

    Raises:
      ValueError: if there are too many states.
    """
    stepper = Stepper(specification, layout(specification))
    rows, codes = _states(stepper)
    order, components = np.argsort(codes), range(specification.num_components)

    def relation(moves: Moves, is_step: np.ndarray, canonical: np.ndarray) -> np.ndarray:
        """bool[components, S, S], the moves for which bool[n] is true, by component, state before and after.

        `canonical`: int32[n, D], the canonical states after.
        """
        related = np.zeros((len(components), codes.size, codes.size), bool)
        after = order[np.searchsorted(codes[order], stepper.layout.codes(canonical[is_step]))]
        related[moves.component[is_step], moves.state[is_step], after] = True
        return related

    relies = []
    for component in components:
        moves, judgement = _judged_moves(stepper, rows, component)
        is_relied_on = (moves.action < 0) & judgement.relied
        relies.append(relation(moves, is_relied_on, judgement.canonical).any(axis=0) | np.eye(codes.size, dtype=bool))
    moves, judgement = _judged_moves(stepper, rows, NOBODY)
    guarantees = relation(moves, (moves.action < 0) & judgement.guaranteed, judgement.canonical)
    own = stepper.program(rows)
    programs = relation(own, np.ones(own.state.size, bool), stepper.judge(rows[own.state], own).canonical)
    holds = jax.vmap(lambda row: specification.invariant(stepper.layout.unflatten(row)))(jnp.asarray(rows))
    return Relations(programs, guarantees, np.stack(relies), np.asarray(holds))


def _judged_moves(stepper: Stepper, rows: np.ndarray, component: int) -> tuple[Moves, Judgement]:
    """All steps of one component and its environment from states int32[n, D], and how that component judges them.

    NOBODY: of the environment only.
    """
    moves = stepper.alone(rows, component)
    return moves, stepper.judge(rows[moves.state], moves, component)


def _states(stepper: Stepper) -> tuple[np.ndarray, np.ndarray]:
    """int32[S, D] and int64[S]: the states, the first one first, and their numbers."""
    spec, layout_ = stepper.specification, stepper.layout
    rows = np.asarray(layout_.flatten(spec.canonicalise(spec.initial)))[None]
    while True:
        parts = [rows]
        own = stepper.program(rows)
        parts.append(stepper.judge(rows[own.state], own).canonical)
        for component in (NOBODY, *range(spec.num_components)):
            moves, judgement = _judged_moves(stepper, rows, component)
            parts.append(judgement.canonical[(moves.action >= 0) | judgement.guaranteed | judgement.relied])
        candidates = np.concatenate(parts)
        codes = layout_.codes(candidates)
        _, first_places = np.unique(codes, return_index=True)
        new = candidates[np.sort(first_places)]  # each state once, in the order found
        if (codes < 0).any() or new.shape[0] > min(MAX_STATES, stepper.chunk):
            raise ValueError(
                f"a specification as automata must have at most {MAX_STATES} states within its sizes; "
                f"{spec.name} has more. Use {spec.num_workers - 1} workers or smaller parameters, or check it without."
            )
        if new.shape[0] == rows.shape[0]:
            return rows, layout_.codes(rows)
        rows = new


def _in_parallel(commands: tuple[Automaton, ...]) -> Automaton:
    """All commands in parallel, without the control states that are not reached."""
    return functools.reduce(lambda left, right: automata.pruned(automata.parallel(left, right)), commands)
