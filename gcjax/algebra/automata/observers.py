"""Rely, guarantee and specification: deterministic automata, so that what refines them is found by reachability.

Letters: Q control states, S shared states, A steps.
"""

import numpy as np

from gcjax.algebra.automata.base import Automaton, check_relation, check_size
from gcjax.algebra.automata.constructors import always, steps_within
from gcjax.algebra.steps import ENVIRONMENT, PROGRAM, Space


def guarantee(space: Space, g: np.ndarray) -> Automaton:
    """Every step of the program is in g: bool[S, S]."""
    return always(space, steps_within(space, PROGRAM, "g", g) | steps_within(space, ENVIRONMENT))


def rely(space: Space, r: np.ndarray) -> Automaton:
    """Aborts once a step of the environment is not in r: bool[S, S].

    Control state 0: all steps of the environment were in r so far; control state 1: one was not.
    """
    check_size(space, num_controls=2)
    keeps_rely = steps_within(space, ENVIRONMENT, "r", r) | steps_within(space, PROGRAM)  # bool[S, A]
    rely_kept_so_far, rely_broken = 0, 1
    transitions = np.zeros((2, space.num_states, space.num_steps, 2), bool)  # none from `rely_broken`: it aborts
    transitions[rely_kept_so_far, :, :, rely_kept_so_far] = keeps_rely
    transitions[rely_kept_so_far, :, :, rely_broken] = ~keeps_rely
    is_kept = np.repeat([[True], [False]], space.num_states, axis=1)  # bool[2, S]
    return Automaton(space, transitions, initial=is_kept, terminating=is_kept, aborting=~is_kept)


def specification(space: Space, q: np.ndarray) -> Automaton:
    """Any steps, but if it terminates, then from start to end in q: bool[S, S].

    It has a control state for every start state; start states with the same ends share one.
    """
    # bool[Q, S], the different rows of q, and int[S], which of them is that of each start state.
    allowed_ends, control_of_start = np.unique(check_relation(space, "q", q), axis=0, return_inverse=True)
    num_controls = len(allowed_ends)
    check_size(space, num_controls)
    stays_in_control = np.eye(num_controls, dtype=bool)[:, None, None, :]
    transitions = np.broadcast_to(stays_in_control, (num_controls, space.num_states, space.num_steps, num_controls))
    initial = np.arange(num_controls)[:, None] == control_of_start.ravel()  # bool[Q, S]
    return Automaton(space, transitions, initial, terminating=allowed_ends, aborting=np.zeros_like(allowed_ends))
