"""Two automata at once: one synchronous product for every table of steps, and the meet.

Letters: Q control states, S shared states, A steps.
"""

from collections.abc import Callable

import numpy as np

from gcjax.algebra import steps
from gcjax.algebra.automata.base import MAX_ENTRIES, Automaton, check_same_space, check_size
from gcjax.algebra.automata.moves import moves
from gcjax.algebra.steps import StepTable

BLOCK = 2**21

Product = Callable[[Automaton, Automaton], Automaton]
Edges = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""int[E] each: pairs of control states, states, steps, pairs of control states after."""


def synchronise(step_table: StepTable) -> Product:
    """Both run step by step; the table says which steps go together and what they make.

    They terminate together, and if one aborts, so do both. Pairs of control states that cannot be reached are left out.
    """

    def product(left: Automaton, right: Automaton) -> Automaton:
        return _product(left, right, step_table, np.logical_or)

    return product


def meet(left: Automaton, right: Automaton) -> Automaton:
    """Does what both do: unlike under weak conjunction, after an abort of one the other still has its say."""
    return _product(_spelt_out(left), _spelt_out(right), steps.conjunction, np.logical_and)


parallel = synchronise(steps.parallel)
"""Both over a shared memory, `c || d`: a step of one is a step of the other's environment."""

weak_conjunction = synchronise(steps.conjunction)
"""What both agree to do, `c & d`, until one aborts: then anything may happen."""

csp_parallel = synchronise(steps.csp)
"""Both side by side as in CSP: they may also take the same step at once."""

ccs_parallel = synchronise(steps.ccs)
"""Both side by side as in CCS: a step and its complement may make an internal step."""


def _product(left: Automaton, right: Automaton, step_table: StepTable, aborts: np.ufunc) -> Automaton:
    check_same_space(left, right)
    _check_pairs(left, right)
    initial = _pairs(np.logical_and, left.initial, right.initial)
    terminating = _pairs(np.logical_and, left.terminating, right.terminating)
    aborting = _pairs(aborts, left.aborting, right.aborting)
    seen, edges = _explored(left, right, step_table(left.space), initial, aborting)
    kept = seen.any(axis=1)
    count, number = int(kept.sum()), np.cumsum(kept) - 1
    check_size(left.space, count)
    transitions = np.zeros((count, left.space.num_states, left.space.num_steps, count), bool)
    for pair, state, step, after in edges:
        transitions[number[pair], state, step, number[after]] = True
    return Automaton(left.space, transitions, initial[kept], terminating[kept], aborting[kept])


def _explored(
    left: Automaton, right: Automaton, table: np.ndarray, initial: np.ndarray, aborting: np.ndarray
) -> tuple[np.ndarray, list[Edges]]:
    """The pairs and states bool[Q, S] that can be reached, and the moves (pair, state, step, pair) between them."""
    states, targets = left.space.num_states, np.asarray(left.space.targets)
    expand = _expansion(left, right, table)
    seen, stuck = initial.flatten(), aborting.ravel()
    edges: list[Edges] = []
    frontier = np.flatnonzero(seen)
    while frontier.size:
        frontier = frontier[~stuck[frontier]]
        reached = [np.zeros(0, np.int64)]
        for block in np.array_split(frontier, 1 + frontier.size * len(table) // BLOCK):
            edges.append(expand(block))
            reached.append(edges[-1][3] * states + targets[edges[-1][2]])
        after = np.concatenate(reached)
        frontier = np.unique(after[~seen[after]])
        seen[frontier] = True
    return seen.reshape(initial.shape), edges


def _expansion(left: Automaton, right: Automaton, table: np.ndarray) -> Callable[[np.ndarray], Edges]:
    """The moves that pairs of control states make together, as a function of the configurations of pairs."""
    space, second = left.space, right.num_controls
    first_moves, second_moves = moves(left), moves(right)

    def expand(block: np.ndarray) -> Edges:
        pair, state = np.divmod(block, space.num_states)
        one, other = np.divmod(pair, second)
        starts = (np.stack([one, other]) * space.num_states + state) * space.num_steps
        rows = starts[:, :, None] + table.T[:2, None]
        row, first_move = first_moves.from_rows(rows[0].ravel())
        source, second_move = second_moves.from_rows(rows[1].ravel()[row])
        place, together = np.divmod(row[source], len(table))
        after = first_moves.controls[first_move[source]] * second + second_moves.controls[second_move]
        return pair[place], state[place], table[together, 2], after

    return expand


def _pairs(combine: np.ufunc, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """What holds in the pairs of configurations with the same state, bool[Q Q', S]."""
    return combine(left[:, None], right[None]).reshape(-1, left.shape[1])


def _spelt_out(automaton: Automaton) -> Automaton:
    """The same automaton with everything that may follow an abort as transitions, to one more control state."""
    space, count = automaton.space, automaton.num_controls
    check_size(space, count + 1)
    transitions = np.zeros((count + 1, space.num_states, space.num_steps, count + 1), bool)
    transitions[:count, :, :, :count] = automaton.transitions
    aborting = np.concatenate([automaton.aborting, np.ones((1, space.num_states), bool)])
    transitions[aborting, :, count] = True
    return Automaton(
        space,
        transitions,
        initial=np.concatenate([automaton.initial, ~aborting[-1:]]),
        terminating=np.concatenate([automaton.terminating, aborting[-1:]]) | aborting,
        aborting=aborting,
    )


def _check_pairs(left: Automaton, right: Automaton) -> None:
    count = left.initial.size * right.num_controls
    if count > MAX_ENTRIES:
        raise ValueError(
            f"a product must have at most {MAX_ENTRIES} pairs of configurations; got {count}, from {left.num_controls} "
            f"and {right.num_controls} control states over {left.space.num_states} states: the right one may have "
            f"{MAX_ENTRIES // left.initial.size} control states."
        )
