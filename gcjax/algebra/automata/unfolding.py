"""The traces of an automaton up to a length, as a command of the bounded model.

Letters: Q control states, S shared states, A steps, N words of at most n steps.
"""

import jax.numpy as jnp
import numpy as np

from gcjax.algebra.automata.base import Automaton
from gcjax.algebra.command import Command, abort_closed
from gcjax.algebra.traces import Model, words


def traces(automaton: Automaton, max_steps: int) -> Command:
    """The command with the traces of at most `max_steps` steps.

    Raises:
      ValueError: if the bounded model has no room for them; see `Model`.
    """
    model = Model(automaton.space, max_steps)
    controls_after_trace = _controls_of_traces(automaton, model)  # bool[S, N, Q], by start, word and control state
    end_state = words(model).end  # int32[S, N]
    terminated = (controls_after_trace & automaton.terminating.T[end_state]).any(axis=-1)
    incomplete = controls_after_trace.any(axis=-1)
    aborted = (controls_after_trace & automaton.aborting.T[end_state]).any(axis=-1)
    return abort_closed(model, jnp.asarray(np.stack([terminated, incomplete, aborted])))


def _controls_of_traces(automaton: Automaton, model: Model) -> np.ndarray:
    """bool[S, N, Q], the control states that the automaton may be in after each trace, by start and word."""
    num_states, num_controls = automaton.space.num_states, automaton.num_controls
    end_state = words(model).end  # int32[S, N]
    transitions_by_state = np.moveaxis(automaton.transitions, 0, 1)  # bool[S, Q, A, Q]
    empty_word_controls = automaton.initial.T[:, None]  # bool[S, 1, Q]
    controls_by_length = [empty_word_controls]
    for words_of_length in model.levels[:-1]:
        transitions_at_end = transitions_by_state[end_state[:, words_of_length]]
        # Start s, word w, control states q before and p after step a; a sum of booleans is whether one is True.
        next_controls = np.einsum("swq,swqap->swap", controls_by_length[-1], transitions_at_end)
        controls_by_length.append(next_controls.reshape(num_states, -1, num_controls))
    return np.concatenate(controls_by_length, axis=1)
