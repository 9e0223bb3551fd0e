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
    runs = _runs(automaton, model)
    ends = words(model).end
    terminated, aborted = ((runs & array.T[ends]).any(axis=-1) for array in (automaton.terminating, automaton.aborting))
    return abort_closed(model, jnp.asarray(np.stack([terminated, runs.any(axis=-1), aborted])))


def _runs(automaton: Automaton, model: Model) -> np.ndarray:
    """bool[S, N, Q], the control states in which the runs of each trace may be."""
    states, count = automaton.space.num_states, automaton.num_controls
    ends = words(model).end
    after = np.moveaxis(automaton.transitions, 0, 1)  # [S, Q, A, Q]
    runs = [automaton.initial.T[:, None]]
    for level in model.levels[:-1]:
        each = np.einsum("swq,swqap->swap", runs[-1], after[ends[:, level]])
        runs.append(each.reshape(states, -1, count))
    return np.concatenate(runs, axis=1)
