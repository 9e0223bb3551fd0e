"""Which configurations can be reached.

The set grows along a list of all transitions, in one compiled loop. For 10^4 configurations with 10^5 transitions that
takes 0.1 ms a round on two cores, and a round for each step of the longest shortest run; one product of boolean
matrices of that size takes 16 s, and fourteen are needed.

Letters: Q control states, S shared states, E transitions, C configurations.
"""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.algebra.automata.base import Automaton
from gcjax.algebra.automata.moves import moves

SMALLEST = 2**10


def reachable(automaton: Automaton) -> np.ndarray:
    """bool[Q, S], the configurations that runs go through; what follows an abort is not looked at."""
    step_moves = moves(automaton)
    sources = np.repeat(np.arange(automaton.initial.size), np.diff(step_moves.offsets))
    taken = ~automaton.aborting.ravel()[sources]
    initial = automaton.initial.ravel()
    # Sizes are rounded up, so that few of them are compiled; what is added is never reached.
    room, length = _rounded(initial.size + 1), _rounded(int(taken.sum()))
    ends = np.full((2, length), room - 1, np.int32)
    ends[:, : taken.sum()] = sources[taken], step_moves.configurations[taken]
    reached = _closure(jnp.asarray(np.pad(initial, (0, room - initial.size))), jnp.asarray(ends))
    return np.asarray(reached)[: initial.size].reshape(automaton.initial.shape)


def pruned(automaton: Automaton) -> Automaton:
    """The same automaton without the control states that cannot be reached."""
    kept = reachable(automaton).any(axis=1)
    if kept.all():
        return automaton
    arrays = (array[kept] for array in automaton[2:])
    return Automaton(automaton.space, automaton.transitions[kept][..., kept], *arrays)


@jax.jit
def _closure(start: jax.Array, ends: jax.Array) -> jax.Array:
    """bool[C], all that can be reached from bool[C] along int32[2, E]."""

    def grow(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reached, _ = state
        more = reached.at[ends[1]].max(reached[ends[0]])
        return more, jnp.any(more != reached)

    return jax.lax.while_loop(lambda state: state[1], grow, (start, jnp.bool_(True)))[0]


def _rounded(size: int) -> int:
    return max(SMALLEST, 1 << (size - 1).bit_length())
