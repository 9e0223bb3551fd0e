"""The smallest commands as automata: doing nothing, everything, a test, one step, any number of steps.

Letters: Q control states, S shared states, A steps.
"""

from collections.abc import Iterable

import numpy as np

from gcjax.algebra.automata.base import Automaton, check_relation, check_size, check_states, check_steps
from gcjax.algebra.steps import ENVIRONMENT, PROGRAM, Space, steps_of_kind


def nil(space: Space) -> Automaton:
    """Terminates at once."""
    return _without_steps(space, terminating=_all_states(space, True), aborting=_all_states(space, False))


def magic(space: Space) -> Automaton:
    """Can do nothing, not even terminate: the smallest command."""
    return _without_steps(space, terminating=_all_states(space, False), aborting=_all_states(space, False))


def abort(space: Space) -> Automaton:
    """Can do anything: the largest command."""
    return _without_steps(space, terminating=_all_states(space, False), aborting=_all_states(space, True))


def test(space: Space, p: np.ndarray) -> Automaton:
    """Terminates at once if the state is in the set p: bool[S]; otherwise `magic`."""
    return _without_steps(space, terminating=check_states(space, "p", p), aborting=_all_states(space, False))


def assertion(space: Space, p: np.ndarray) -> Automaton:
    """Terminates at once if the state is in the set p: bool[S]; otherwise aborts."""
    holds = check_states(space, "p", p)
    return _without_steps(space, terminating=holds, aborting=~holds)


def program_step(space: Space, r: np.ndarray | None = None, *, steps: Iterable[int] | None = None) -> Automaton:
    """One step of the program, then termination.

    Args:
      space: the states and steps.
      r: bool[S, S], from which state the step leads to which; all if None.
      steps: the steps that it can be, by their numbers in the space, which name the events there; all of the program
        if None.
    """
    return atomic(space, steps_within(space, PROGRAM, "r", r, steps))


def environment_step(space: Space, r: np.ndarray | None = None, *, steps: Iterable[int] | None = None) -> Automaton:
    """One step of the environment, then termination; the arguments are those of `program_step`."""
    return atomic(space, steps_within(space, ENVIRONMENT, "r", r, steps))


def atomic(space: Space, allowed: np.ndarray) -> Automaton:
    """One step, then termination; allowed: bool[S, A], which steps it can be from which state."""
    check_size(space, num_controls=2)
    before_step, after_step = 0, 1  # the control states
    transitions = np.zeros((2, space.num_states, space.num_steps, 2), bool)
    transitions[before_step, :, :, after_step] = check_steps(space, "allowed", allowed)
    is_before_step = np.repeat([[True], [False]], space.num_states, axis=1)  # bool[2, S]
    nowhere = np.zeros_like(is_before_step)
    return Automaton(space, transitions, initial=is_before_step, terminating=~is_before_step, aborting=nowhere)


def skip(space: Space) -> Automaton:
    """Lets the environment do any number of steps."""
    return always(space, steps_within(space, ENVIRONMENT))


def chaos(space: Space) -> Automaton:
    """Any number of steps of any kind, without aborting."""
    return always(space, np.ones((space.num_states, space.num_steps), bool))


def always(space: Space, allowed: np.ndarray) -> Automaton:
    """Any number of steps; allowed: bool[S, A], which steps they can be from which state."""
    check_size(space, num_controls=1)
    everywhere = np.ones((1, space.num_states), bool)  # in the one control state, with any shared state
    self_loops = check_steps(space, "allowed", allowed)[None, :, :, None]
    return Automaton(space, transitions=self_loops, initial=everywhere, terminating=everywhere, aborting=~everywhere)


def steps_within(
    space: Space,
    kind: int,
    relation_name: str = "r",
    r: np.ndarray | None = None,
    step_numbers: Iterable[int] | None = None,
) -> np.ndarray:
    """bool[S, A], from which state which steps of a kind, PROGRAM or ENVIRONMENT, lead to a state within r bool[S, S].

    All of the kind if `r` is None; only those of `step_numbers` if given. `relation_name` is that of r in messages.
    """
    is_allowed = steps_of_kind(space, kind, step_numbers)  # bool[A]
    if r is None:
        return np.broadcast_to(is_allowed, (space.num_states, space.num_steps))
    state_after_step = np.asarray(space.targets)
    is_within_r = check_relation(space, relation_name, r)[:, state_after_step]
    return is_within_r & is_allowed


def _all_states(space: Space, value: bool) -> np.ndarray:
    """bool[S], this value for every state."""
    return np.full(space.num_states, value)


def _without_steps(space: Space, *, terminating: np.ndarray, aborting: np.ndarray) -> Automaton:
    """The automaton of one control state and no steps; bool[S] each, in which states it terminates and aborts."""
    check_size(space, num_controls=1)
    transitions = np.zeros((1, space.num_states, space.num_steps, 1), bool)
    return Automaton(
        space=space,
        transitions=transitions,
        initial=_all_states(space, True)[None],
        terminating=terminating[None],
        aborting=aborting[None],
    )
