"""How batches are drawn from chunks.

Letters: N chunks, n examples, B examples of a batch.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.tasks.base import Batch
from gcjax.tasks.chunks import Chunks, Data

BatchFunction = Callable[[Data, jax.Array, jax.Array, jax.Array], Batch]

Augmentation = Callable[[jax.Array, jax.Array], jax.Array]
"""`(inputs, rng_key) -> inputs` of the same shape and type."""

_GOLDEN_RATIO = np.uint32(0x9E3779B9)


class Sampling(NamedTuple):
    """How batches are drawn: these fields of a task."""

    unit_batch: BatchFunction
    chunk_batch: BatchFunction
    local_data: bool


def sampling(
    num_examples: int,
    num_chunks: int,
    batch_size: int | None,
    local_data: bool,
    augmentation: Augmentation | None = None,
) -> Sampling:
    """How batches are drawn: a function for the unit of a worker, and one for a chunk in a round.

    Args:
      num_examples: n.
      num_chunks: N.
      batch_size: B, drawn with replacement; None takes the whole chunk.
      local_data: whether worker w draws only from its own chunk, w % N (heterogeneous workers), rather than from
        all data. Its unit u is then the batch of that chunk in round u.
      augmentation: what is done to the inputs of a batch, by a key of the same (worker, unit) or
        (chunk, round): whoever computes the batch, sees the same.

    Raises:
      ValueError: if the batch size is not a whole number above zero, or a whole chunk is asked for
        without local data.
    """
    local_data = _validate.boolean("local_data", local_data)
    if batch_size is not None:
        batch_size = _validate.integer("batch_size", batch_size, minimum=1)
    elif not local_data:
        raise ValueError(
            "batch_size=None makes a batch of a worker's own chunk and so needs local_data=True; "
            f"got local_data={local_data}. Pass local_data=True, or a batch_size."
        )
    max_chunk_size = -(-num_examples // num_chunks)
    return _cached_sampling(num_examples, max_chunk_size, num_chunks, batch_size, local_data, augmentation)


@functools.lru_cache(maxsize=64)
def _cached_sampling(
    num_examples: int,
    max_chunk_size: int,
    num_chunks: int,
    batch_size: int | None,
    local_data: bool,
    augmentation: Augmentation | None,
) -> Sampling:
    """`sampling`, cached so that equal settings give equal functions and jit compiles once.

    `max_chunk_size`: the examples of the largest of the N chunks.
    """
    if batch_size is None:
        chunk_batch: BatchFunction = functools.partial(_whole_chunk_batch, max_chunk_size)
    else:
        chunk_batch = functools.partial(_random_chunk_batch, batch_size)
    chunk_batch = _with_augmentation(chunk_batch, augmentation)

    def own_chunk_batch(data: Data, rng_key: jax.Array, worker: jax.Array, unit: jax.Array) -> Batch:
        """The batch of a worker's own chunk, with units for rounds."""
        return chunk_batch(data, rng_key, worker % num_chunks, unit)

    if local_data or batch_size is None:
        return Sampling(own_chunk_batch, chunk_batch, local_data=True)
    unit_batch = functools.partial(_random_batch, batch_size, num_examples)
    return Sampling(_with_augmentation(unit_batch, augmentation), chunk_batch, local_data=False)


def _with_augmentation(draw_batch: BatchFunction, augmentation: Augmentation | None) -> BatchFunction:
    """Batches whose inputs are augmented by a key of their own; as they are if there is no augmentation."""
    if augmentation is None:
        return draw_batch

    def augmented_batch(data: Data, rng_key: jax.Array, worker_or_chunk: jax.Array, unit_or_round: jax.Array) -> Batch:
        """The batch of (worker, unit) or (chunk, round) with its inputs changed by a key of its own."""
        batch = draw_batch(data, rng_key, worker_or_chunk, unit_or_round)
        # Another key than that by which the examples are drawn.
        augmentation_key = jax.random.fold_in(_batch_key(rng_key, worker_or_chunk, unit_or_round), 1)
        return batch._replace(inputs=augmentation(batch.inputs, augmentation_key))

    return augmented_batch


def _random_batch(
    batch_size: int, num_examples: int, data: Data, rng_key: jax.Array, worker: jax.Array, unit: jax.Array
) -> Batch:
    """B = `batch_size` examples of all `num_examples`, drawn for a unit of a worker; of weight 1/B each."""
    rows = draw_indices(_batch_key(rng_key, worker, unit), batch_size, jnp.asarray(num_examples, jnp.int32))
    example_weight = jnp.asarray(1 / batch_size, data.train.relative_sizes.dtype)
    return _batch_of_rows(data.train, rows, example_weight)


def _random_chunk_batch(batch_size: int, data: Data, rng_key: jax.Array, chunk: jax.Array, round: jax.Array) -> Batch:
    """B = `batch_size` examples of one chunk, drawn for a round.

    Their weights add up to the size of the chunk over the mean size, `relative_size`.
    """
    first_row, size, relative_size = _first_row_and_sizes(data.train, chunk)
    rows = first_row + draw_indices(_batch_key(rng_key, chunk, round), batch_size, size)
    return _batch_of_rows(data.train, rows, relative_size / batch_size)


def _whole_chunk_batch(max_size: int, data: Data, rng_key: jax.Array, chunk: jax.Array, round: jax.Array) -> Batch:
    """All examples of a chunk, filled up to `max_size` rows by those behind it, with weight 0.

    The weights add up to the size of the chunk over the mean size, `relative_size`.
    """
    del rng_key, round
    first_row, size, relative_size = _first_row_and_sizes(data.train, chunk)
    is_no_padding = jnp.arange(max_size, dtype=size.dtype) < size  # bool[max_size]
    return Batch(
        inputs=jax.lax.dynamic_slice_in_dim(data.train.inputs, first_row, max_size),
        targets=jax.lax.dynamic_slice_in_dim(data.train.targets, first_row, max_size),
        weights=jnp.where(is_no_padding, relative_size / size.astype(relative_size.dtype), 0.0),
    )


def draw_indices(rng_key: jax.Array, num_indices: int, bound: jax.Array) -> jax.Array:
    """int32[num_indices]: drawn from 0, ..., `bound` - 1, uniformly (to within bound / 2^32), with replacement.

    The 64 bits of the key are spread over the batch by the finaliser of MurmurHash3 (Appleby 2011). In a
    loop on a CPU, `jax.random.randint` costs several microseconds a batch, this a fraction of one.
    """
    key_words = jax.random.key_data(rng_key)  # uint32, of which the first and the last are used
    # Multiples of the golden ratio are far apart in all bits, so that neighbours in the batch are too.
    spread_counters = key_words[0] + jnp.arange(num_indices, dtype=jnp.uint32) * _GOLDEN_RATIO
    random_bits = _murmur3_finaliser(_murmur3_finaliser(spread_counters) ^ key_words[-1])
    return (random_bits % bound.astype(jnp.uint32)).astype(jnp.int32)


def _murmur3_finaliser(bits: jax.Array) -> jax.Array:
    """The finaliser of MurmurHash3 on uint32: every bit depends on every bit."""
    bits = (bits ^ (bits >> 16)) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * np.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)


def _batch_key(rng_key: jax.Array, worker_or_chunk: jax.Array, unit_or_round: jax.Array) -> jax.Array:
    """The key of a batch, by (worker, unit) or (chunk, round)."""
    return jax.random.fold_in(jax.random.fold_in(rng_key, worker_or_chunk), unit_or_round)


def _entries(array: jax.Array, index: jax.Array) -> jax.Array:
    """`array[index]` for an index that is known to be within bounds, without a check."""
    return array.at[index].get(mode="promise_in_bounds")


def _first_row_and_sizes(chunks: Chunks, chunk: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The first row of a chunk, its number of examples, and that over the mean of all chunks, which weighs its loss."""
    return _entries(chunks.first_rows, chunk), _entries(chunks.sizes, chunk), _entries(chunks.relative_sizes, chunk)


def _batch_of_rows(chunks: Chunks, rows: jax.Array, example_weight: jax.Array) -> Batch:
    """The batch of the B given rows, int32[B], all of the weight `example_weight` float[]."""
    return Batch(
        _entries(chunks.inputs, rows), _entries(chunks.targets, rows), jnp.broadcast_to(example_weight, rows.shape)
    )
