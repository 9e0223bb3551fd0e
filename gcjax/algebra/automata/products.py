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
"""Configurations times rows of the step table that are looked at once."""

Product = Callable[[Automaton, Automaton], Automaton]
Edges = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""int[E] each: pairs of control states, states, steps, pairs of control states after."""


def synchronise(step_table: StepTable) -> Product:
    """Both run step by step; the table says which steps go together and what they make.

    They terminate together, and if one aborts, so do both. Pairs of control states that cannot be reached are left out.
    """

    def product(left: Automaton, right: Automaton) -> Automaton:
        """Both run by this table; one that aborts is enough for the product to abort."""
        return _product(left, right, step_table, np.logical_or)

    return product


def meet(left: Automaton, right: Automaton) -> Automaton:
    """Does what both do: unlike under weak conjunction, after an abort of one the other still has its say."""
    return _product(_with_steps_after_abort(left), _with_steps_after_abort(right), steps.conjunction, np.logical_and)


parallel = synchronise(steps.parallel)
"""Both over a shared memory, `c || d`: a step of one is a step of the other's environment."""

weak_conjunction = synchronise(steps.conjunction)
"""What both agree to do, `c & d`, until one aborts: then anything may happen."""

csp_parallel = synchronise(steps.csp)
"""Both side by side as in CSP: they may also take the same step at once."""

ccs_parallel = synchronise(steps.ccs)
"""Both side by side as in CCS: a step and its complement may make an internal step."""


def _product(left: Automaton, right: Automaton, step_table: StepTable, aborts: np.ufunc) -> Automaton:
    """The reachable part of the product; it aborts where `aborts`, a logical or or and, of both aborting says."""
    check_same_space(left, right)
    _check_pairs(left, right)
    initial = _pair_values(np.logical_and, left.initial, right.initial)
    terminating = _pair_values(np.logical_and, left.terminating, right.terminating)
    aborting = _pair_values(aborts, left.aborting, right.aborting)
    seen, edges = _explored(left, right, step_table(left.space), initial, aborting)
    is_reached = seen.any(axis=1)  # of each pair of control states
    count, number = int(is_reached.sum()), np.cumsum(is_reached) - 1  # the pairs that are reached, numbered anew
    check_size(left.space, count)
    transitions = np.zeros((count, left.space.num_states, left.space.num_steps, count), bool)
    for pair, state, step, after in edges:
        transitions[number[pair], state, step, number[after]] = True
    return Automaton(
        space=left.space,
        transitions=transitions,
        initial=initial[is_reached],
        terminating=terminating[is_reached],
        aborting=aborting[is_reached],
    )


def _explored(
    left: Automaton, right: Automaton, table: np.ndarray, initial: np.ndarray, aborting: np.ndarray
) -> tuple[np.ndarray, list[Edges]]:
    """The pairs and states bool[Q, S] that can be reached, and the moves (pair, state, step, pair) between them."""
    states, targets = left.space.num_states, np.asarray(left.space.targets)
    expand = _expansion(left, right, table)
    seen, is_aborting = initial.flatten(), aborting.ravel()
    edges: list[Edges] = []
    frontier = np.flatnonzero(seen)
    while frontier.size:
        frontier = frontier[~is_aborting[frontier]]  # what follows an abort is not looked at
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
    space, num_right = left.space, right.num_controls
    left_moves, right_moves = moves(left), moves(right)

    def expand(block: np.ndarray) -> Edges:
        """The moves from configurations of pairs, int[n]: (q Q' + q') S + s for control states q, q' and state s."""
        pair, state = np.divmod(block, space.num_states)
        left_control, right_control = np.divmod(pair, num_right)
        first_rows = (np.stack([left_control, right_control]) * space.num_states + state) * space.num_steps
        rows = (
            first_rows[:, :, None] + table.T[:2, None]
        )  # [2, n, len(table)]: as in `Moves`, of the left and the right
        row, left_move = left_moves.from_rows(rows[0].ravel())
        source, right_move = right_moves.from_rows(rows[1].ravel()[row])
        place, table_row = np.divmod(row[source], len(table))
        after = left_moves.controls[left_move[source]] * num_right + right_moves.controls[right_move]
        return pair[place], state[place], table[table_row, 2], after

    return expand


def _pair_values(combine: np.ufunc, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """bool[Q Q', S], of each pair of configurations with the same state: their values bool[Q, S] combined."""
    return combine(left[:, None], right[None]).reshape(-1, left.shape[1])


def _with_steps_after_abort(automaton: Automaton) -> Automaton:
    """The same automaton with everything that may follow an abort as transitions, to one more control state."""
    space, count = automaton.space, automaton.num_controls
    check_size(space, count + 1)
    transitions = np.zeros((count + 1, space.num_states, space.num_steps, count + 1), bool)
    transitions[:count, :, :, :count] = automaton.transitions
    aborting = np.concatenate([automaton.aborting, np.ones((1, space.num_states), bool)])
    transitions[aborting, :, count] = True  # from there and from every aborting configuration, any step
    return Automaton(
        space,
        transitions,
        initial=np.concatenate([automaton.initial, ~aborting[-1:]]),
        terminating=np.concatenate([automaton.terminating, aborting[-1:]]) | aborting,
        aborting=aborting,
    )


def _check_pairs(left: Automaton, right: Automaton) -> None:
    """Raises `ValueError` if there are too many pairs of configurations."""
    count = left.initial.size * right.num_controls
    if count > MAX_ENTRIES:
        raise ValueError(
            f"a product must have at most {MAX_ENTRIES} pairs of configurations; got {count}, from {left.num_controls} "
            f"and {right.num_controls} control states over {left.space.num_states} states: the right one may have "
            f"{MAX_ENTRIES // left.initial.size} control states."
        )
