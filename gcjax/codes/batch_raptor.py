"""Batch raptor codes (Wang, Liu, Shroff 2019, arXiv 1901.08166: fundamental limits of approximate gradient coding)."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.assignments.bernoulli import random_assignment
from gcjax.codes.base import Assignment, GradientCode, host_generator
from gcjax.codes.fixed import fixed_code
from gcjax.equality import comparable


class _Peeling(NamedTuple):
    """What is known after some rounds of peeling.

    Attributes:
      num_rounds: int32[], rounds so far.
      known_in: int32[batches], the round in which each batch became known, or -1.
      sender: int32[batches], the worker whose message gave it, or -1.
      is_growing: bool[], whether the last round gave any batch.
    """

    num_rounds: jax.Array
    known_in: jax.Array
    sender: jax.Array
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
      error: ε, between 0 and 1/4.
      rng_key: draws degrees and batches.

    Raises:
      ValueError: if ε is not in that range, or s is not below n.
    """
    _validate.integer("num_workers", num_workers, minimum=2)
    _validate.integer("num_chunks", num_chunks, minimum=1)
    _validate.integer("num_stragglers", num_stragglers, minimum=1, maximum=num_workers - 1)
    if not 0 < error < 0.25:
        raise ValueError(f"error must lie above 0 and below 1/4; got {error}. Use 0.05, for example.")
    batch_size = math.ceil(1 / math.log(num_workers / num_stragglers)) + 1
    num_batches = max(num_chunks // batch_size, 1)
    rng = host_generator(rng_key)
    probabilities = _degree_probabilities(error)
    degrees = np.minimum(1 + rng.choice(probabilities.size, num_workers, p=probabilities), num_batches)
    batches = random_assignment(rng, degrees, num_batches)
    assignment = _chunk_assignment(batches, num_chunks)

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        """float[W, 1, 1]: the peeling weights of the messages of whole workers."""
        return peel(batches, progress >= assignment.loads)[:, None, None]

    return fixed_code(assignment, np.ones(assignment.chunks.shape), decode=decode)


def peel(batches: Assignment, finished: jax.Array) -> jax.Array:
    """The weights with which the messages add up to the sum of all batches that peeling recovers.

    Args:
      batches: which batches are in the sum of each worker.
      finished: bool[W].

    Returns:
      int32[W]; 0 for messages that are not needed.
    """
    is_held, batch_of_slot = batches.chunks >= 0, jnp.asarray(batches.chunks.clip(0))
    worker_ids = jnp.arange(batches.num_workers, dtype=jnp.int32)
    num_batches = batches.num_chunks

    def peel_round(state: _Peeling) -> _Peeling:
        """One round: every message of a finished worker of which one batch is unknown gives that batch.

        `batch_of_slot int[W, K]` are the batches in each worker's message, where `is_held bool[W, K]`.
        """
        num_rounds, known_in, sender, _ = state
        is_unknown = is_held & (known_in[batch_of_slot] < 0)
        gives_batch = finished & (is_unknown.sum(axis=1) == 1)
        unknown_batch = jnp.max(jnp.where(is_unknown, batch_of_slot, -1), axis=1)
        given_batch = jnp.where(gives_batch, unknown_batch, num_batches)  # out of bounds: dropped
        new_sender = jnp.full(num_batches, -1, jnp.int32).at[given_batch].max(worker_ids, mode="drop")
        is_new = new_sender >= 0
        known_in, sender = jnp.where(is_new, num_rounds, known_in), jnp.where(is_new, new_sender, sender)
        return _Peeling(num_rounds + 1, known_in, sender, jnp.any(is_new))

    unknown_yet = jnp.full(num_batches, -1, jnp.int32)
    initial = _Peeling(jnp.zeros((), jnp.int32), unknown_yet, unknown_yet, jnp.ones((), bool))
    num_rounds, known_in, sender, _ = jax.lax.while_loop(lambda state: state.is_growing, peel_round, initial)

    def weigh_round(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """Step i, for the batches of the i-th last round: adds their messages, takes the other batches in them off."""
        num_missing, weights = state  # [batches], how often each must still be added, perhaps below 0; [W]
        known_now = known_in == num_rounds - 1 - i
        added = jnp.zeros_like(weights).at[jnp.where(known_now, sender, worker_ids.size)].add(num_missing, mode="drop")
        num_used = jnp.where(is_held, added[:, None], 0)
        return num_missing.at[batch_of_slot].add(-num_used), weights + added

    one_copy_each = jnp.ones(num_batches, jnp.int32), jnp.zeros(worker_ids.size, jnp.int32)
    return jax.lax.fori_loop(0, num_rounds, weigh_round, one_copy_each)[1]


def _degree_probabilities(error: float) -> np.ndarray:
    """float64[degrees]: the probabilities of the degrees 1, ..., D + 1 for the error ε; see `batch_raptor`."""
    max_degree = math.floor(1 / error)
    u = 2 * error * (1 - 2 * error) / (1 - 4 * error) ** 2
    k = np.arange(2, max_degree + 1)
    weights = np.concatenate([[u], 1 / (k * (k - 1)), [1 / max_degree]])
    return weights / weights.sum()


def _chunk_assignment(batches: Assignment, num_chunks: int) -> Assignment:
    """Each worker with the chunks of its batches, in place of the batches."""
    chunks_of_batch = np.array_split(np.arange(num_chunks), batches.num_chunks)
    chunk_rows = [np.concatenate([chunks_of_batch[batch] for batch in row[row >= 0]]) for row in batches.chunks]
    chunks = np.full((len(chunk_rows), max(map(len, chunk_rows))), -1, np.int32)
    for worker, row in enumerate(chunk_rows):
        chunks[worker, : len(row)] = row
    return Assignment(chunks, num_chunks)
