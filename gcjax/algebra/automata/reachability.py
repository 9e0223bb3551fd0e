"""Which configurations can be reached.

The set grows along a list of all transitions, in one compiled loop. For 10^4 configurations with 10^5 transitions that
takes 0.1 ms a round on two cores, and a round for each step of the longest shortest run; one product of boolean
matrices of that size takes 16 s, and fourteen are needed.

Letters: Q control states, S shared states.
"""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.algebra.automata.base import Automaton
from gcjax.algebra.automata.moves import moves

SMALLEST = 2**10
"""The least size of a compiled program."""


def reachable(automaton: Automaton) -> np.ndarray:
    """bool[Q, S], the configurations that runs go through; what follows an abort is not looked at."""
    step_moves = moves(automaton)
    sources = np.repeat(np.arange(automaton.initial.size), np.diff(step_moves.offsets))  # int[E], configurations
    is_taken = ~automaton.aborting.ravel()[sources]
    initial, num_taken = automaton.initial.ravel(), int(is_taken.sum())
    # Sizes are rounded up, so that few of them are compiled; what is added is never reached.
    size, length = _rounded_up(initial.size + 1), _rounded_up(num_taken)
    # From and to the last configuration, which is added, are the transitions that are added.
    transitions = np.full((2, length), size - 1, np.int32)
    transitions[:, :num_taken] = sources[is_taken], step_moves.configurations[is_taken]
    reached = _closure(jnp.asarray(np.pad(initial, (0, size - initial.size))), jnp.asarray(transitions))
    return np.asarray(reached)[: initial.size].reshape(automaton.initial.shape)


def pruned(automaton: Automaton) -> Automaton:
    """The same automaton without the control states that cannot be reached."""
    is_reached = reachable(automaton).any(axis=1)  # bool[Q]
    if is_reached.all():
        return automaton
    configurations = (automaton.initial, automaton.terminating, automaton.aborting)
    transitions = automaton.transitions[is_reached][..., is_reached]
    return Automaton(automaton.space, transitions, *(array[is_reached] for array in configurations))


@jax.jit
def _closure(start: jax.Array, transitions: jax.Array) -> jax.Array:
    """bool[configurations], the configurations that can be reached from those of `start`, bool[configurations].

    `transitions` is int32[2, num_transitions]: the configuration from which, and to which, each leads.
    """

    def grow(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """One more step along `transitions`: what can be reached, bool[C], and whether that is more than before."""
        reached, _ = state
        extended = reached.at[transitions[1]].max(reached[transitions[0]])
        return extended, jnp.any(extended != reached)

    return jax.lax.while_loop(lambda state: state[1], grow, (start, jnp.bool_(True)))[0]


def _rounded_up(size: int) -> int:
    """The size as a power of two, so that few programs are compiled."""
    return max(SMALLEST, 1 << (size - 1).bit_length())
