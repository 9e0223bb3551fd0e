"""Random automata, to try laws and speed on.

Letters: Q control states, S shared states, A steps.
"""

import jax
import numpy as np

from gcjax import _validate
from gcjax.algebra.automata.base import Automaton, check_size
from gcjax.algebra.steps import Space


def random_automaton(
    space: Space, *, num_controls: int, num_moves: int, rng_key: jax.Array, aborts: bool = True
) -> Automaton:
    """An automaton that starts in control state 0, and now and then in another.

    Args:
      space: the states and steps.
      num_controls: Q.
      num_moves: how many transitions are drawn for each configuration; equal ones count once.
      rng_key: decides everything.
      aborts: whether an eighth of the configurations abort, or none.
    """
    _validate.integer("num_controls", num_controls, minimum=1)
    _validate.integer("num_moves", num_moves)
    check_size(space, num_controls)
    generator = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)).ravel().tolist())
    shape = (num_controls, space.num_states)
    transitions = np.zeros((*shape, space.num_steps, num_controls), bool)
    controls, states = np.indices((*shape, num_moves))[:2]  # each configuration as often as it has moves
    steps = generator.integers(space.num_steps, size=states.shape)
    next_controls = generator.integers(num_controls, size=states.shape)
    transitions[controls, states, steps, next_controls] = True
    initial = generator.integers(4, size=shape) == 0  # a quarter of the configurations
    initial[0] = True
    terminating = generator.integers(2, size=shape) == 0
    aborting = generator.integers(8, size=shape) == 0
    return Automaton(
        space=space, transitions=transitions, initial=initial, terminating=terminating, aborting=aborting & aborts
    )
