"""Batch raptor codes (Wang, Liu, Shroff 2019, arXiv 1901.08166: fundamental limits of approximate gradient coding)."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax._generators import generator_of_key
from gcjax.codes.assignments.bernoulli import random_assignment
from gcjax.codes.base import Assignment, GradientCode
from gcjax.codes.fixed import fixed_code
from gcjax.equality import comparable

_LEAST_ERROR = 1e-6


class _Peeling(NamedTuple):
    """What is known after some rounds of peeling.

    Attributes:
      num_rounds: int32[], rounds so far.
      round_known: int32[batches], the round in which each batch became known, or -1.
      sender_of_batch: int32[batches], the worker whose message gave it, or -1.
      is_growing: bool[], whether the last round gave any batch.
    """

    num_rounds: jax.Array
    round_known: jax.Array
    sender_of_batch: jax.Array
    is_growing: jax.Array


@comparable
def batch_raptor(
    num_workers: int, *, num_chunks: int, num_stragglers: int, error: float, rng_key: jax.Array
) -> GradientCode:
    """Batch raptor code (BRC): sums of a random number of batches, decoded by peeling. L = M = 1.

    The chunks are split into batches of b. Each worker draws a degree and then so many batches, and sends the plain sum
    of their chunks. A message of which all batches but one are known gives that one; this is repeated until no such
    message is left. Asymptotically all but a share ε of the chunks are recovered, with a mean load of about
    log(1/ε) / log(n/s), far below s + 1 (Wang et al. 2019): b = ceil(1 / log(n/s)) + 1, and degree k has the
    probability `u/(u+1)` for k = 1, `1/(k(k-1)(u+1))` for 2 <= k <= D, `1/(D(u+1))` for k = D + 1, with D = floor(1/ε)
    and u = 2ε(1-2ε)/(1-4ε)². At small n more is lost, and a batch that nobody drew is lost always; the residual, the
    square root of the number of chunks that are not recovered, tells.

    Args:
      num_workers: n = W.
      num_chunks: N; batches differ by at most one chunk.
      num_stragglers: s, at least 1.
      error: ε, between 1e-6 and 1/4.
      rng_key: draws degrees and batches.

    Raises:
      ValueError: if ε is not in that range, or s is not below n.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=2)
    num_chunks = _validate.integer("num_chunks", num_chunks, minimum=1)
    num_stragglers = _validate.integer("num_stragglers", num_stragglers, minimum=1, maximum=num_workers - 1)
    _validate.single_number("error", error)
    if not _LEAST_ERROR <= error < 0.25:  # there are 1 / error degrees
        raise ValueError(f"error must be at least {_LEAST_ERROR:g} and below 1/4; got {error}. Use 0.05, for example.")
    batch_size = math.ceil(1 / math.log(num_workers / num_stragglers)) + 1
    num_batches = max(num_chunks // batch_size, 1)
    rng = generator_of_key(rng_key)
    probabilities = _degree_probabilities(error)
    drawn_degrees = 1 + rng.choice(probabilities.size, num_workers, p=probabilities)  # the first is that of degree 1
    batches = random_assignment(rng, np.minimum(drawn_degrees, num_batches), num_batches)
    assignment = _chunk_assignment(batches, num_chunks)

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        """float[W, 1, 1]: the peeling weights of the messages of whole workers."""
        has_whole_load = progress >= assignment.loads  # [W]
        return peel(batches, has_whole_load)[:, None, None]

    plain_sums = np.ones(assignment.chunks.shape)
    return fixed_code(assignment, plain_sums, decode=decode)


def peel(batches: Assignment, is_finished: jax.Array) -> jax.Array:
    """The weights with which the messages add up to the sum of all batches that peeling recovers.

    Args:
      batches: which batches are in the sum of each worker, as an assignment with batches for chunks.
      is_finished: bool[W].

    Returns:
      int32[W], perhaps below 0; 0 for messages that are not needed.
    """
    is_held, batch_of_slot = batches.chunks >= 0, jnp.asarray(batches.chunks.clip(0))
    worker_ids = jnp.arange(batches.num_workers, dtype=jnp.int32)
    num_batches, num_workers = batches.num_chunks, batches.num_workers

    def peel_round(peeling: _Peeling) -> _Peeling:
        """One round: every message of a finished worker of which one batch is unknown gives that batch.

        `is_finished` is bool[W]; `batch_of_slot int[W, K]` are the batches in each worker's message, where `is_held
        bool[W, K]`. Of workers that give the same batch the one with the highest number counts as its sender.
        """
        this_round, round_known, sender_of_batch, _ = peeling
        is_unknown = is_held & (round_known[batch_of_slot] < 0)
        gives_batch = is_finished & (is_unknown.sum(axis=1) == 1)
        unknown_batch = jnp.max(jnp.where(is_unknown, batch_of_slot, -1), axis=1)  # the one there is
        given_batch_or_dropped = jnp.where(gives_batch, unknown_batch, num_batches)  # beyond the last: dropped
        no_sender = jnp.full(num_batches, -1, jnp.int32)
        new_sender = no_sender.at[given_batch_or_dropped].max(worker_ids, mode="drop")
        is_new = new_sender >= 0
        round_known = jnp.where(is_new, this_round, round_known)
        sender_of_batch = jnp.where(is_new, new_sender, sender_of_batch)
        return _Peeling(this_round + 1, round_known, sender_of_batch, is_growing=jnp.any(is_new))

    unknown_yet = jnp.full(num_batches, -1, jnp.int32)
    initial = _Peeling(jnp.zeros((), jnp.int32), unknown_yet, unknown_yet, jnp.ones((), bool))
    num_rounds, round_known, sender_of_batch, _ = jax.lax.while_loop(
        lambda peeling: peeling.is_growing, peel_round, initial
    )

    def weigh_senders_of_round(
        num_rounds_weighed: jax.Array, copies_and_weights: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        """From the last round to the first: adds the messages that gave its batches, takes the other batches off.

        Copies int[batches]: how often each batch must still be added, perhaps below 0; weights int[W]. `round_known`
        and `sender_of_batch`, int[batches], say in which round and by whose message a batch came to be known; the
        batches in a message are `batch_of_slot int[W, K]`, where `is_held`.
        """
        copies_to_add, weights = copies_and_weights
        is_of_round = round_known == num_rounds - 1 - num_rounds_weighed
        no_weights = jnp.zeros_like(weights)
        sender_or_dropped = jnp.where(is_of_round, sender_of_batch, num_workers)  # beyond the last: dropped
        added_weights = no_weights.at[sender_or_dropped].add(copies_to_add, mode="drop")
        copies_in_messages = jnp.where(is_held, added_weights[:, None], 0)
        return copies_to_add.at[batch_of_slot].add(-copies_in_messages), weights + added_weights

    one_copy_each, no_weights = jnp.ones(num_batches, jnp.int32), jnp.zeros(num_workers, jnp.int32)
    _, weights = jax.lax.fori_loop(0, num_rounds, weigh_senders_of_round, (one_copy_each, no_weights))
    return weights


def _degree_probabilities(error: float) -> np.ndarray:
    """float64[degrees]: the probabilities of the degrees 1, ..., D + 1 for the error ε, with D = floor(1/ε)."""
    max_degree = math.floor(1 / error)
    weight_of_degree_1 = 2 * error * (1 - 2 * error) / (1 - 4 * error) ** 2
    middle_degrees = np.arange(2, max_degree + 1)
    weights = np.concatenate([[weight_of_degree_1], 1 / (middle_degrees * (middle_degrees - 1)), [1 / max_degree]])
    return weights / weights.sum()  # over u + 1, with u the first weight


def _chunk_assignment(batches: Assignment, num_chunks: int) -> Assignment:
    """Each worker with the chunks of its batches, in place of the batches; int32[W, K], -1 behind them.

    The N = `num_chunks` are split into batches in order, of sizes that differ by at most one.
    """
    chunks_of_batch = np.array_split(np.arange(num_chunks), batches.num_chunks)
    held_batches = [slots[slots >= 0] for slots in batches.chunks]
    held_chunks = [np.concatenate([chunks_of_batch[batch] for batch in own_batches]) for own_batches in held_batches]
    padded_chunks = np.full((len(held_chunks), max(map(len, held_chunks))), -1, np.int32)
    for worker, own_chunks in enumerate(held_chunks):
        padded_chunks[worker, : len(own_chunks)] = own_chunks
    return Assignment(padded_chunks, num_chunks)
