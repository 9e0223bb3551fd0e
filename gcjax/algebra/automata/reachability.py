"""Which configurations can be reached.

The set grows along a list of all transitions, in one compiled loop. For 10^4 configurations with 10^5 transitions that
takes 0.1 ms a round on two cores, and a round for each step of the longest shortest run; one product of boolean
matrices of that size takes 16 s, and fourteen are needed.

Letters: Q control states, S shared states.
"""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax._padding import padded_size
from gcjax.algebra.automata.base import Automaton
from gcjax.algebra.automata.moves import moves

SMALLEST = 2**10
"""The least size of a compiled program."""


def reachable(automaton: Automaton) -> np.ndarray:
    """bool[Q, S], by control state and shared state: the configurations that runs go through, up to an abort."""
    all_moves, num_configurations = moves(automaton), automaton.initial.size
    num_moves_from = np.diff(all_moves.offsets)  # int[Q S]
    sources = np.repeat(np.arange(num_configurations), num_moves_from)
    is_taken = ~automaton.aborting.ravel()[sources]
    num_taken = int(is_taken.sum())
    # Sizes are rounded up, so that few of them are compiled. The moves that pad go from and to the last configuration,
    # which pads too and is never reached.
    padded_configurations, padded_moves = (padded_size(n, SMALLEST) for n in (num_configurations + 1, num_taken))
    unreached = padded_configurations - 1
    sources_and_targets = np.full((2, padded_moves), unreached, np.int32)
    sources_and_targets[:, :num_taken] = sources[is_taken], all_moves.next_configurations[is_taken]
    start = np.pad(automaton.initial.ravel(), (0, padded_configurations - num_configurations))
    is_reached = _closure(jnp.asarray(start), jnp.asarray(sources_and_targets))
    return np.asarray(is_reached)[:num_configurations].reshape(automaton.initial.shape)


def pruned(automaton: Automaton) -> Automaton:
    """The same automaton without the control states that cannot be reached."""
    is_reached = reachable(automaton).any(axis=1)  # bool[Q]
    if is_reached.all():
        return automaton
    return Automaton(
        space=automaton.space,
        transitions=automaton.transitions[is_reached][..., is_reached],
        initial=automaton.initial[is_reached],
        terminating=automaton.terminating[is_reached],
        aborting=automaton.aborting[is_reached],
    )


@jax.jit
def _closure(start: jax.Array, sources_and_targets: jax.Array) -> jax.Array:
    """bool[configurations], the configurations that can be reached from those of `start`, bool[configurations].

    `sources_and_targets` is int32[2, moves]: the configuration from which, and to which, each move leads.
    """

    def take_moves(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """One more step along the moves: what can be reached, bool[configurations], and whether that is more."""
        is_reached, _ = carry
        targets, sources = sources_and_targets[1], sources_and_targets[0]
        extended = is_reached.at[targets].max(is_reached[sources])
        return extended, jnp.any(extended != is_reached)

    has_grown = jnp.bool_(True)  # whether the last step has reached anything new
    is_reached, _ = jax.lax.while_loop(lambda carry: carry[1], take_moves, (start, has_grown))
    return is_reached
