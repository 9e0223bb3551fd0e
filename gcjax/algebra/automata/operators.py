"""Choice, sequence and iteration of automata; there are no empty moves, they are folded into the transitions.

Letters: Q control states, S shared states, A steps.
"""

import numpy as np

from gcjax.algebra.automata.base import Automaton, check_same_space, check_size
from gcjax.algebra.automata.reachability import pruned


def choice(left: Automaton, right: Automaton) -> Automaton:
    """Does what either does."""
    check_same_space(left, right)
    return Automaton(
        left.space, _beside(left, right), *(np.concatenate(pair) for pair in zip(left[2:], right[2:], strict=True))
    )


def sequence(left: Automaton, right: Automaton) -> Automaton:
    """The second starts in every configuration in which the first may terminate, and in the state it left."""
    check_same_space(left, right)
    first = left.num_controls
    transitions = _beside(left, right)
    transitions[:first, :, :, first:] = _ending(left)[..., None] & _entered(right)
    entry = right.initial & (left.initial & left.terminating).any(axis=0)
    return pruned(
        Automaton(
            left.space,
            transitions,
            initial=np.concatenate([left.initial, entry]),
            terminating=np.concatenate([np.zeros_like(left.terminating), right.terminating]),
            aborting=np.concatenate([left.aborting, right.aborting]),
        )
    )


def star(body: Automaton) -> Automaton:
    """The body any number of times: the least x with `x = nil or body; x`."""
    return _iteration(body, terminates=True, greatest=False)


def omega(body: Automaton) -> Automaton:
    """The body any number of times, or for ever: the greatest x with `x = nil or body; x`.

    On finite traces that is `star`, except that it aborts wherever the body may terminate without a step.
    """
    return _iteration(body, terminates=True, greatest=True)


def infinite(body: Automaton) -> Automaton:
    """The body for ever: the greatest x with `x = body; x`."""
    return _iteration(body, terminates=False, greatest=True)


def _iteration(body: Automaton, *, terminates: bool, greatest: bool) -> Automaton:
    """The body with one more control state, which is between two rounds: the last one."""
    count = body.num_controls
    check_size(body.space, count + 1)
    transitions = np.zeros((count + 1, *body.transitions.shape[1:3], count + 1), bool)
    transitions[:count, :, :, :count] = body.transitions
    transitions[:count, :, :, count] = _ending(body)
    transitions[count] = (transitions[:count] & body.initial[..., None, None]).any(axis=0)
    aborts = body.aborting | body.terminating if greatest else body.aborting
    between = np.arange(count + 1)[:, None] == np.full(body.space.num_states, count)
    return pruned(
        Automaton(
            body.space,
            transitions,
            initial=between,
            terminating=between & terminates,
            aborting=np.concatenate([body.aborting, (body.initial & aborts).any(axis=0)[None]]),
        )
    )


def _beside(left: Automaton, right: Automaton) -> np.ndarray:
    """The transitions of two automata side by side."""
    first, total = left.num_controls, left.num_controls + right.num_controls
    check_size(left.space, total)
    transitions = np.zeros((total, *left.transitions.shape[1:3], total), bool)
    transitions[:first, :, :, :first] = left.transitions
    transitions[first:, :, :, first:] = right.transitions
    return transitions


def _ending(automaton: Automaton) -> np.ndarray:
    """bool[Q, S, A], whether a step may lead to a configuration that terminates."""
    return (automaton.transitions & _at_targets(automaton, automaton.terminating)).any(axis=-1)


def _entered(automaton: Automaton) -> np.ndarray:
    """bool[A, Q], the control states that start in the state a step leads to."""
    return _at_targets(automaton, automaton.initial)


def _at_targets(automaton: Automaton, configurations: np.ndarray) -> np.ndarray:
    """bool[A, Q], whether configurations bool[Q, S] hold those with the state that each step leads to."""
    return configurations[:, np.asarray(automaton.space.targets)].T
