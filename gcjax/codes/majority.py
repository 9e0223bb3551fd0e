"""Majority decoding against workers that send wrong messages (Chen, Wang, Charles, Papailiopoulos 2018: DRACO).

Groups of workers hold the same chunks and compute the same sum, to the last bit. Where fewer than half of those that
have arrived are wrong, the message that most of them sent is right.
"""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.assignments.regular import repetition
from gcjax.codes.base import Coding, GradientCode
from gcjax.codes.fixed import fixed_code
from gcjax.codes.replication import first_finished_of_groups
from gcjax.equality import comparable


@comparable
def majority(num_workers: int, *, num_wrong: int, num_stragglers: int) -> GradientCode:
    """Repetition in groups of 2 a + s + 1, of which 2 a + 1 must arrive: a may send anything. N = W, L = M = 1.

    A plan knows who has arrived, not what they have sent: its weights are those where nobody is wrong. A group with
    fewer than 2 a + 1 arrived is left out. What was sent is compared in `gcjax.engine.run(..., wrong_senders=)`, and in
    a training step of one's own by `gcjax.engine.voting_value_and_grad`.

    Args:
      num_workers: W = N.
      num_wrong: a, how many workers of any group may send wrong messages.
      num_stragglers: s, how many may be missing besides; 0 in the paper.

    Raises:
      ValueError: if 2 a + s + 1 does not divide the number of workers.
    """
    num_wrong = _validate.integer("num_wrong", num_wrong, minimum=0)
    num_stragglers = _validate.integer("num_stragglers", num_stragglers, minimum=0)
    group_size, num_needed = 2 * num_wrong + num_stragglers + 1, 2 * num_wrong + 1
    assignment = repetition(num_workers, load=group_size)

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        """float[W, 1, 1], one message and block: 1 for the first finished worker of each group if enough have finished.

        Enough are `num_needed`. A group are `group_size` workers, and as many chunks, the whole load of each.
        """
        is_finished = (progress >= group_size).reshape(-1, group_size)  # [groups, workers of a group]
        is_enough = is_finished.sum(axis=1, dtype=jnp.int32) >= num_needed
        return (first_finished_of_groups(is_finished) & is_enough[:, None]).reshape(num_workers, 1, 1)

    def completion(arrivals: jax.Array) -> jax.Array:
        """float[]: when `num_needed` workers of the last group have arrived, from `arrivals float[W, 1]`."""
        return jnp.sort(arrivals.reshape(-1, group_size), axis=1)[:, num_needed - 1].max()

    def weights_from_messages(messages: jax.Array, coding: Coding) -> jax.Array:
        """float[W, 1, 1]: the weight of each group at the first of those who sent what most have, if it decides.

        `messages` are float[W, 1, width]. A group of K = `group_size` workers has its weight in `coding.decode`, at one
        of them; 0 if too few have arrived.
        """
        messages_by_group = messages[:, 0].reshape(-1, group_size, messages.shape[2])
        is_equal = jax.lax.map(  # [groups, K, K], group after group: all pairs take K times the memory of the messages
            lambda group_messages: equal_messages(group_messages[:, None], group_messages[None]).all(axis=2),
            messages_by_group,
        )
        has_arrived = (coding.encode != 0).any(axis=(1, 2, 3)).reshape(-1, group_size)  # of encode [W, 1, K, 1]
        weight_of_group = coding.decode.reshape(-1, group_size).sum(axis=1, keepdims=True)  # [groups, 1]
        is_winner, _, _ = majority_votes(is_equal, has_arrived, weight_of_group[:, 0] != 0)
        return jnp.where(is_winner, weight_of_group, 0).reshape(num_workers, 1, 1)

    code = fixed_code(assignment, np.ones((num_workers, group_size)), decode=decode, completion=completion)
    return code._replace(weights_from_messages=weights_from_messages)


def equal_messages(messages: jax.Array, other_messages: jax.Array) -> jax.Array:
    """Where the numbers of messages are equal, to the last bit; NaN equals NaN."""
    return (messages == other_messages) | (jnp.isnan(messages) & jnp.isnan(other_messages))


def majority_votes(
    is_equal: jax.Array, has_arrived: jax.Array, is_enough: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What most members of each group sent, of G groups of K workers.

    Args:
      is_equal: bool[G, K, K], who sent the same as whom.
      has_arrived: bool[G, K], who has sent anything; the others have no vote.
      is_enough: bool[G], whether enough have.

    Returns:
      bool[G, K], the first of those who sent what most did, where the group decides; bool[G], where it does: more than
      half of those that arrived agree; and bool[G, K], who sent something else.
    """
    num_votes = jnp.where(has_arrived, (is_equal & has_arrived[:, None]).sum(axis=2, dtype=jnp.int32), 0)  # [G, K]
    num_arrived = has_arrived.sum(axis=1, dtype=jnp.int32)
    is_decided = is_enough & (2 * num_votes.max(axis=1) > num_arrived)
    winner = num_votes.argmax(axis=1)  # int[G]
    is_winner = (jnp.arange(num_votes.shape[1])[None] == winner[:, None]) & is_decided[:, None]
    agrees_with_winner = jnp.take_along_axis(is_equal, winner[:, None, None], axis=1)[:, 0]
    return is_winner, is_decided, has_arrived & is_decided[:, None] & ~agrees_with_winner
