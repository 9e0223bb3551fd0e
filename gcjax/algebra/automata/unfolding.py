"""The traces of an automaton up to a length, as a command of the bounded model.

Letters: Q control states, S shared states, A steps, N words of at most n steps.
"""

import jax.numpy as jnp
import numpy as np

from gcjax.algebra.automata.base import Automaton
from gcjax.algebra.command import Command, abort_closed
from gcjax.algebra.traces import Model, words


def traces(automaton: Automaton, max_steps: int) -> Command:
    """The traces of at most `max_steps` steps.

    Raises:
      ValueError: if the bounded model has no room for them; see `Model`.
    """
    model = Model(automaton.space, max_steps)
    controls = _controls_of_traces(automaton, model)
    ends = words(model).end  # int32[S, N], the state in which each trace ends
    terminated = (controls & automaton.terminating.T[ends]).any(axis=-1)
    aborted = (controls & automaton.aborting.T[ends]).any(axis=-1)
    return abort_closed(model, jnp.asarray(np.stack([terminated, controls.any(axis=-1), aborted])))


def _controls_of_traces(automaton: Automaton, model: Model) -> np.ndarray:
    """bool[S, N, Q], the control states that the automaton may be in after each trace, by start and word."""
    num_states, num_controls = automaton.space.num_states, automaton.num_controls
    ends = words(model).end  # int32[S, N], the state in which each trace ends
    transitions = np.moveaxis(automaton.transitions, 0, 1)  # [S, Q, A, Q]
    controls = [automaton.initial.T[:, None]]  # of the words of each length, shorter ones first
    for level in model.levels[:-1]:
        # Start s, word w, control states q before and p after step a; a sum of booleans is whether one is True.
        next_controls = np.einsum("swq,swqap->swap", controls[-1], transitions[ends[:, level]])
        controls.append(next_controls.reshape(num_states, -1, num_controls))
    return np.concatenate(controls, axis=1)
