"""The type of training tasks: pure loss, data on the device, and how batches are drawn.

Letters: N data chunks, B examples of a batch, C batches.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Batch(NamedTuple):
    """Examples and what each counts for in the loss.

    Attributes:
      inputs: [B, ...].
      targets: [B, ...].
      weights: float[B], 1/B each where all chunks are equally large; 0 for padding. See `gcjax.tasks.chunks`.
    """

    inputs: jax.Array
    targets: jax.Array
    weights: jax.Array

    def mean(self, losses: jax.Array) -> jax.Array:
        """The mean of `losses float[B]` over the examples, by their weights."""
        return jnp.sum(self.weights * losses)


class Task(NamedTuple):
    """What is learned, from which data.

    The functions are pure, and equal for tasks with equal settings, whatever their data and seed: pass
    `data` to a jitted function as an argument and the functions as static ones, and nothing is compiled
    twice.

    Attributes:
      data: pytree of arrays on the device; an argument of jitted functions, never closed over.
      init: `(rng_key) -> params`.
      loss: `(params, batch, rng_key) -> float[]`, the mean loss of the examples of a batch; the key is
        for dropout.
      unit_batch: `(data, rng_key, worker, unit) -> batch`, of a unit of uncoded work. Depends on nothing
        else, so that it is the same under every protocol.
      chunk_batch: `(data, rng_key, chunk, round) -> batch`, of a chunk of coded work: the same for all
        its holders. The mean of the losses of the N chunks is the loss of all data, in expectation over
        the key, or exactly where a batch is the whole chunk.
      metrics: `(params, data) -> {name: float[]}`.
      num_chunks: N.
      mergeable: whether batches are of type `Batch`, the loss is the sum of its examples' losses by their
        weights, and the key is not used. Several batches then go through one backward pass as one batch.
      local_data: whether a worker's units are of its own chunk, worker w's of chunk w % N. All chunks must then have
        equally many workers.
    """

    data: Any
    init: Callable[[jax.Array], Any]
    loss: Callable[[Any, Any, jax.Array], jax.Array]
    unit_batch: Callable[[Any, jax.Array, jax.Array, jax.Array], Any]
    chunk_batch: Callable[[Any, jax.Array, jax.Array, jax.Array], Any]
    metrics: Callable[[Any, Any], dict[str, jax.Array]]
    num_chunks: int
    mergeable: bool = False
    local_data: bool = False


class TaskFunctions(NamedTuple):
    """The functions of a task that a model decides; see `Task`."""

    init: Callable[[jax.Array], Any]
    loss: Callable[[Any, Any, jax.Array], jax.Array]
    metrics: Callable[[Any, Any], dict[str, jax.Array]]


def merge(batches: Batch, weights: jax.Array) -> Batch:
    """One batch whose loss is the weighted sum of the losses of several.

    Args:
      batches: C batches of B examples, every field [C, B, ...].
      weights: float[C], of the batches.
    """
    scaled_batches = batches._replace(weights=weights[:, None].astype(batches.weights.dtype) * batches.weights)
    return jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), scaled_batches)  # [C·B, ...]
