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
    """Aborts once a step of the environment is not in r: bool[S, S]."""
    check_size(space, 2)
    kept = steps_within(space, ENVIRONMENT, "r", r) | steps_within(space, PROGRAM)
    transitions = np.zeros((2, space.num_states, space.num_steps, 2), bool)
    transitions[0] = np.stack([kept, ~kept], axis=-1)
    first = np.repeat([[True], [False]], space.num_states, axis=1)
    return Automaton(space, transitions, initial=first, terminating=first, aborting=~first)


def specification(space: Space, q: np.ndarray) -> Automaton:
    """Any steps, but if it terminates, then from start to end in q: bool[S, S].

    It has a control state for every start state; start states with the same ends share one.
    """
    images, start = np.unique(check_relation(space, "q", q), axis=0, return_inverse=True)
    count = len(images)
    check_size(space, count)
    same = np.eye(count, dtype=bool)[:, None, None, :]
    transitions = np.broadcast_to(same, (count, space.num_states, space.num_steps, count))
    initial = np.arange(count)[:, None] == start.ravel()
    return Automaton(space, transitions, initial, terminating=images, aborting=np.zeros_like(images))
