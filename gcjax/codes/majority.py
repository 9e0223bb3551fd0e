"""Majority decoding against workers that send wrong messages (Chen, Wang, Charles, Papailiopoulos 2018: DRACO).

Groups of workers hold the same chunks and compute the same sum, to the last bit. Where fewer than half of those that
have arrived are wrong, the message that most of them sent is right.
"""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.assignments.regular import repetition
from gcjax.codes.base import GradientCode
from gcjax.codes.fixed import fixed_code
from gcjax.equality import comparable


@comparable
def majority(num_workers: int, *, num_wrong: int, num_stragglers: int) -> GradientCode:
    """Repetition in groups of 2 a + s + 1, of which 2 a + 1 must arrive: a may send anything. N = W, L = M = 1.

    A plan knows who has arrived, not what they have sent: its weights are those where nobody is wrong. A group with
    fewer than 2 a + 1 arrived is left out. What was sent is compared by `gcjax.engine.voting_value_and_grad`.

    Args:
      num_workers: W = N.
      num_wrong: a, how many workers of any group may send wrong messages.
      num_stragglers: s, how many may be missing besides; 0 in the paper.

    Raises:
      ValueError: if 2 a + s + 1 does not divide the number of workers.
    """
    _validate.integer("num_wrong", num_wrong, minimum=0)
    _validate.integer("num_stragglers", num_stragglers, minimum=0)
    group_size, num_needed = 2 * num_wrong + num_stragglers + 1, 2 * num_wrong + 1
    assignment = repetition(num_workers, load=group_size)

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        """float[W, 1, 1]: 1 for the first worker of each group of which enough have finished."""
        is_finished = (progress >= group_size).reshape(-1, group_size)
        is_first = (jnp.cumsum(is_finished, axis=1) == 1) & is_finished
        is_enough = is_finished.sum(axis=1, dtype=jnp.int32) >= num_needed
        return (is_first & is_enough[:, None]).reshape(num_workers, 1, 1)

    def completion(arrivals: jax.Array) -> jax.Array:
        """When enough workers of the last group have arrived."""
        return jnp.sort(arrivals.reshape(-1, group_size), axis=1)[:, num_needed - 1].max()

    return fixed_code(assignment, np.ones((num_workers, group_size)), decode=decode, completion=completion)
