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
    relied_on = steps_within(space, ENVIRONMENT, "r", r) | steps_within(space, PROGRAM)  # bool[S, A]
    transitions = np.zeros((2, space.num_states, space.num_steps, 2), bool)
    transitions[0] = np.stack([relied_on, ~relied_on], axis=-1)  # stays in 0 or leads to 1; none out of 1, it aborts
    in_control_0 = np.repeat([[True], [False]], space.num_states, axis=1)  # bool[2, S]
    return Automaton(space, transitions, initial=in_control_0, terminating=in_control_0, aborting=~in_control_0)


def specification(space: Space, q: np.ndarray) -> Automaton:
    """Any steps, but if it terminates, then from start to end in q: bool[S, S].

    It has a control state for every start state; start states with the same ends share one.
    """
    allowed_ends, control_of_start = np.unique(check_relation(space, "q", q), axis=0, return_inverse=True)
    count = len(allowed_ends)
    check_size(space, count)
    stays = np.eye(count, dtype=bool)[:, None, None, :]  # no step changes the control state
    transitions = np.broadcast_to(stays, (count, space.num_states, space.num_steps, count))
    initial = np.arange(count)[:, None] == control_of_start.ravel()
    return Automaton(space, transitions, initial, terminating=allowed_ends, aborting=np.zeros_like(allowed_ends))
