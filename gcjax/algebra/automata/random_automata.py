"""Random automata, to try laws and speed on.

Letters: Q control states, S shared states, A steps.
"""

import jax
import numpy as np

from gcjax import _validate
from gcjax._generators import generator_of_key
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
    num_controls = _validate.integer("num_controls", num_controls, minimum=1)
    num_moves = _validate.integer("num_moves", num_moves)
    check_size(space, num_controls)
    generator = generator_of_key(rng_key)
    configurations_shape = (num_controls, space.num_states)

    def one_in(number: int) -> np.ndarray:
        """bool[Q, S], drawn by `generator`: every configuration is in it with the chance 1 / number."""
        return generator.integers(number, size=configurations_shape) == 0

    transitions = np.zeros((*configurations_shape, space.num_steps, num_controls), bool)
    controls, states = np.indices((*configurations_shape, num_moves))[:2]  # each configuration once a move
    steps = generator.integers(space.num_steps, size=states.shape)
    next_controls = generator.integers(num_controls, size=states.shape)
    transitions[controls, states, steps, next_controls] = True
    initial = one_in(4)
    initial[0] = True  # so that every state has an initial control state
    terminating = one_in(2)
    aborting = one_in(8)
    return Automaton(
        space=space, transitions=transitions, initial=initial, terminating=terminating, aborting=aborting & aborts
    )
