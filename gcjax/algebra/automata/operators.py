"""Choice, sequence and iteration of automata; there are no empty moves, they are folded into the transitions.

Letters: Q control states, S shared states, A steps.
"""

import numpy as np

from gcjax.algebra.automata.base import Automaton, check_same_space, check_size
from gcjax.algebra.automata.reachability import pruned


def choice(left: Automaton, right: Automaton) -> Automaton:
    """Does what either does: both side by side."""
    check_same_space(left, right)
    return Automaton(
        left.space,
        _disjoint_transitions(left, right),
        initial=np.concatenate([left.initial, right.initial]),
        terminating=np.concatenate([left.terminating, right.terminating]),
        aborting=np.concatenate([left.aborting, right.aborting]),
    )


def sequence(left: Automaton, right: Automaton) -> Automaton:
    """The second starts wherever the first may terminate, in the shared state that the first has left."""
    check_same_space(left, right)
    num_left = left.num_controls
    transitions = _disjoint_transitions(left, right)
    # A step after which the first may terminate also leads to where the second may start.
    right_starts_after_step = _values_after_steps(right, right.initial)  # bool[A, Q'], by step and its control state
    transitions[:num_left, :, :, num_left:] = _terminating_steps(left)[..., None] & right_starts_after_step
    # The second may start at once in the states in which the first may terminate without a step.
    left_terminates_at_once = (left.initial & left.terminating).any(axis=0)  # bool[S], by shared state
    right_starts_at_once = right.initial & left_terminates_at_once
    nowhere_in_left = np.zeros_like(left.terminating)
    return pruned(
        Automaton(
            left.space,
            transitions,
            initial=np.concatenate([left.initial, right_starts_at_once]),
            terminating=np.concatenate([nowhere_in_left, right.terminating]),
            aborting=np.concatenate([left.aborting, right.aborting]),
        )
    )


def star(body: Automaton) -> Automaton:
    """The body any number of times: the least x with `x = nil or body; x`."""
    return _iteration(body, terminates=True, is_greatest_fixed_point=False)


def omega(body: Automaton) -> Automaton:
    """The body any number of times, or for ever: the greatest x with `x = nil or body; x`.

    On finite traces that is `star`, except that it aborts wherever the body may terminate without a step.
    """
    return _iteration(body, terminates=True, is_greatest_fixed_point=True)


def infinite(body: Automaton) -> Automaton:
    """The body for ever: the greatest x with `x = body; x`."""
    return _iteration(body, terminates=False, is_greatest_fixed_point=True)


def _iteration(body: Automaton, *, terminates: bool, is_greatest_fixed_point: bool) -> Automaton:
    """The body with one more control state, number `between`, in which it is before the first and between two rounds.

    Args:
      body: what is repeated.
      terminates: whether the iteration may terminate between two rounds.
      is_greatest_fixed_point: whether rounds without a step may go on for ever, which is to abort.
    """
    between = body.num_controls
    num_controls = body.num_controls + 1
    check_size(body.space, num_controls=num_controls)
    transitions = np.zeros((num_controls, *body.transitions.shape[1:3], num_controls), bool)
    transitions[:between, :, :, :between] = body.transitions
    transitions[:between, :, :, between] = _terminating_steps(body)
    # bool[S, A, Q + 1], by shared state, step and next control state.
    first_steps_of_round = (transitions[:between] & body.initial[..., None, None]).any(axis=0)
    transitions[between] = first_steps_of_round
    # A round that may terminate where it starts can be repeated for ever without a step: the greatest fixed point then
    # allows every trace.
    repeats_without_steps = body.terminating & is_greatest_fixed_point
    aborts_between = (body.initial & (body.aborting | repeats_without_steps)).any(axis=0, keepdims=True)  # bool[1, S]
    is_between = np.arange(num_controls)[:, None] == np.full(body.space.num_states, between)  # bool[Q + 1, S]
    return pruned(
        Automaton(
            body.space,
            transitions,
            initial=is_between,
            terminating=is_between & terminates,
            aborting=np.concatenate([body.aborting, aborts_between]),
        )
    )


def _disjoint_transitions(left: Automaton, right: Automaton) -> np.ndarray:
    """bool[Q + Q', S, A, Q + Q'], the transitions of two automata side by side, none from one to the other.

    By control state, shared state, step and next control state; the Q control states of the left one come first.
    """
    num_left, num_controls = left.num_controls, left.num_controls + right.num_controls
    check_size(left.space, num_controls)
    transitions = np.zeros((num_controls, *left.transitions.shape[1:3], num_controls), bool)
    transitions[:num_left, :, :, :num_left] = left.transitions
    transitions[num_left:, :, :, num_left:] = right.transitions
    return transitions


def _terminating_steps(automaton: Automaton) -> np.ndarray:
    """bool[Q, S, A], by control state, shared state and step: whether it may lead to where the automaton terminates."""
    terminates_after_step = _values_after_steps(automaton, automaton.terminating)  # bool[A, Q]
    return (automaton.transitions & terminates_after_step).any(axis=-1)


def _values_after_steps(automaton: Automaton, values: np.ndarray) -> np.ndarray:
    """bool[A, Q], by step: the values, bool[Q, S] by control and shared state, at the state that the step leads to."""
    state_after_step = np.asarray(automaton.space.targets)
    return values[:, state_after_step].T
