"""Two automata at once: one synchronous product for every table of steps, and the meet.

Letters: Q control states, S shared states, A steps.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gcjax.algebra import steps
from gcjax.algebra.automata.base import MAX_ENTRIES, Automaton, check_same_space, check_size
from gcjax.algebra.automata.moves import moves
from gcjax.algebra.steps import StepTable

BLOCK = 2**21
"""Configurations times rows of the step table that are looked at once."""

Product = Callable[[Automaton, Automaton], Automaton]


class Edges(NamedTuple):
    """Steps of a product, int[E] each. A pair of control states q, q' has the number q Q' + q'.

    Attributes:
      pair: the pair of control states before the step.
      state: the shared state before it.
      step: the step.
      next_pair: the pair of control states after it.
    """

    pair: np.ndarray
    state: np.ndarray
    step: np.ndarray
    next_pair: np.ndarray


def synchronise(step_table: StepTable) -> Product:
    """Both run step by step; the table says which steps go together and what they make.

    They terminate together, and if one aborts, so do both. Pairs of control states that cannot be reached are left out.
    """

    def product(left: Automaton, right: Automaton) -> Automaton:
        """The automaton of both, whose steps are made by `step_table`; it aborts where one of the two does."""
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


def _product(left: Automaton, right: Automaton, step_table: StepTable, combine_aborts: np.ufunc) -> Automaton:
    """The reachable part of the product of two automata.

    `combine_aborts` is `np.logical_or` or `np.logical_and`: it aborts where one of them does, or where both do.
    """
    check_same_space(left, right)
    _check_num_pairs(left, right)
    # bool[Q Q', S] each, by pair of control states and shared state.
    initial = _pair_values(np.logical_and, left.initial, right.initial)
    terminating = _pair_values(np.logical_and, left.terminating, right.terminating)
    aborting = _pair_values(combine_aborts, left.aborting, right.aborting)
    reached_configurations, edges = _reachable_pairs(left, right, step_table(left.space), initial, aborting)
    is_reached = reached_configurations.any(axis=1)  # of each pair of control states
    num_controls = int(is_reached.sum())
    control_of_pair = np.cumsum(is_reached) - 1  # only pairs that are reached get a number of their own
    check_size(left.space, num_controls)
    transitions = np.zeros((num_controls, left.space.num_states, left.space.num_steps, num_controls), bool)
    for pair, state, step, next_pair in edges:
        transitions[control_of_pair[pair], state, step, control_of_pair[next_pair]] = True
    return Automaton(
        space=left.space,
        transitions=transitions,
        initial=initial[is_reached],
        terminating=terminating[is_reached],
        aborting=aborting[is_reached],
    )


def _reachable_pairs(
    left: Automaton, right: Automaton, joint_steps: np.ndarray, initial: np.ndarray, aborting: np.ndarray
) -> tuple[np.ndarray, list[Edges]]:
    """The configurations of the product, bool[Q Q', S], that can be reached from `initial`, and the steps from them.

    `initial` and `aborting` are bool[Q Q', S], by pair of control states and shared state; `joint_steps` is
    int[rows, 3]: steps of left and right and both at once.
    """
    num_states, state_after_step = left.space.num_states, np.asarray(left.space.targets)
    edges_from = _edges_function(left, right, joint_steps)
    is_reached, is_aborting = initial.flatten(), aborting.ravel()
    edges: list[Edges] = []
    frontier = np.flatnonzero(is_reached)  # configurations that are new: the number of the pair times S, plus the state
    while frontier.size:
        frontier = frontier[~is_aborting[frontier]]  # what follows an abort is not looked at
        next_configurations = [np.zeros(0, np.int64)]
        num_blocks = 1 + frontier.size * len(joint_steps) // BLOCK
        for block in np.array_split(frontier, num_blocks):
            block_edges = edges_from(block)
            edges.append(block_edges)
            next_configurations.append(block_edges.next_pair * num_states + state_after_step[block_edges.step])
        met_configurations = np.concatenate(next_configurations)
        frontier = np.unique(met_configurations[~is_reached[met_configurations]])
        is_reached[frontier] = True
    return is_reached.reshape(initial.shape), edges


def _edges_function(left: Automaton, right: Automaton, joint_steps: np.ndarray) -> Callable[[np.ndarray], Edges]:
    """The function from configurations of the product to the steps from them; see `_reachable_pairs`."""
    space, num_right_controls = left.space, right.num_controls
    left_moves, right_moves = moves(left), moves(right)

    def edges_from(configurations: np.ndarray) -> Edges:
        """The steps of the product from configurations int[n], (q Q' + q') S + s for control states q, q' and state s.

        There is one for each row of `joint_steps` and each transition of left and right, `left_moves` and
        `right_moves`, by the row's steps. A candidate is a configuration with a row.
        """
        pair, state = np.divmod(configurations, space.num_states)
        left_and_right_controls = np.stack(np.divmod(pair, num_right_controls))  # int[2, n]
        # (q S + s) A + a of left and right, as in `Moves`, with step a = 0.
        configurations_with_step_0 = (left_and_right_controls * space.num_states + state) * space.num_steps
        left_and_right_steps = joint_steps.T[:2, None]  # int[2, 1, rows]
        configuration_steps = configurations_with_step_0[:, :, None] + left_and_right_steps
        left_candidates, right_candidates = configuration_steps.reshape(2, -1)  # int[n * rows]
        # Left transitions first, then for each of them the right ones that go together with it.
        candidate_of_left_move, left_move = left_moves.from_configuration_steps(left_candidates)
        right_to_find = right_candidates[candidate_of_left_move]
        left_index, right_move_of_edge = right_moves.from_configuration_steps(right_to_find)
        left_move_of_edge, candidate_of_edge = left_move[left_index], candidate_of_left_move[left_index]
        source, row = np.divmod(candidate_of_edge, len(joint_steps))
        next_left_control = left_moves.next_controls[left_move_of_edge]
        next_right_control = right_moves.next_controls[right_move_of_edge]
        next_pair = next_left_control * num_right_controls + next_right_control
        joint_step = joint_steps[row, 2]
        return Edges(pair[source], state[source], step=joint_step, next_pair=next_pair)

    return edges_from


def _pair_values(combine: np.ufunc, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """bool[Q Q', S], of each pair of configurations with the same state: their values bool[Q, S] combined."""
    return combine(left[:, None], right[None]).reshape(-1, left.shape[1])


def _with_steps_after_abort(automaton: Automaton) -> Automaton:
    """The same automaton with everything that may follow an abort as transitions, to one more control state.

    That one, `after_abort`, takes any step to itself, and terminates and aborts in every state.
    """
    space, after_abort = automaton.space, automaton.num_controls
    num_controls = automaton.num_controls + 1
    check_size(space, num_controls)
    transitions = np.zeros((num_controls, space.num_states, space.num_steps, num_controls), bool)
    transitions[:after_abort, :, :, :after_abort] = automaton.transitions
    every_state = np.ones((1, space.num_states), bool)
    aborting = np.concatenate([automaton.aborting, every_state])  # bool[Q + 1, S]
    transitions[aborting, :, after_abort] = True
    return Automaton(
        space,
        transitions,
        initial=np.concatenate([automaton.initial, ~every_state]),
        terminating=np.concatenate([automaton.terminating, every_state]) | aborting,
        aborting=aborting,
    )


def _check_num_pairs(left: Automaton, right: Automaton) -> None:
    """Raises `ValueError` if there are too many pairs of configurations."""
    num_pairs = left.initial.size * right.num_controls
    if num_pairs > MAX_ENTRIES:
        raise ValueError(
            f"a product must have at most {MAX_ENTRIES} pairs of configurations; got {num_pairs}, from "
            f"{left.num_controls} and {right.num_controls} control states over {left.space.num_states} states: the "
            f"right one may have {MAX_ENTRIES // left.initial.size} control states."
        )
