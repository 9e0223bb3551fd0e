"""The earliest of many times, where one of them changes at a time.

The times lie in blocks of about sqrt(W), and the earliest time of each block is kept. One that changes is compared with
its block only, and the earliest of all is found among the blocks' and then in one block: O(sqrt(W)) instead of O(W).
Times that are equal are in the order of their numbers, the lowest first, as in `jnp.argmin`.

Letters: W workers, B blocks.
"""

import math

import jax
import jax.numpy as jnp

from gcjax.protocols.simulation.worker_selection import with_entry

_MAX_SINGLE_BLOCK = 32
"""Up to so many times are one block."""


def block_size(num_times: int) -> int:
    """The times in a block; the last block can have fewer."""
    return num_times if num_times <= _MAX_SINGLE_BLOCK else math.isqrt(num_times - 1) + 1


def earliest_of_blocks(times: jax.Array) -> jax.Array:
    """float[B]: the earliest time of each of B blocks of times `[W]`, `block_size` each."""
    size = block_size(times.size)
    padded_times = jnp.pad(times, (0, -times.size % size), constant_values=jnp.inf)
    return padded_times.reshape(-1, size).min(axis=1)


def with_changed_time(earliest_by_block: jax.Array, times: jax.Array, index: jax.Array) -> jax.Array:
    """float[B]: the earliest time of each block after the time at `index int32[]` has changed, as in `times float[W]`.

    `earliest_by_block float[B]` is from before.
    """
    block = index // block_size(times.size)
    _, times_of_block = _times_of_block(times, block)
    return with_entry(earliest_by_block, block, earliest(times_of_block))


def index_of_earliest(earliest_by_block: jax.Array, times: jax.Array) -> jax.Array:
    """int32[]: the first index of the earliest of the times `[W]`, given the earliest of each of B blocks, `[B]`."""
    earliest_time = earliest(earliest_by_block)
    first, times_of_block = _times_of_block(times, first_index(earliest_by_block == earliest_time))
    return first + first_index(times_of_block == earliest_time)


def earliest(times: jax.Array) -> jax.Array:
    """float[]: the earliest of the times `[...]`, none of which is negative.

    Such numbers are in the order of their bits, and the least integer takes XLA a fraction of the time.
    """
    bits = jax.lax.bitcast_convert_type(times, jnp.dtype(f"int{8 * times.dtype.itemsize}"))
    return jax.lax.bitcast_convert_type(bits.min(), times.dtype)


def first_index(mask: jax.Array) -> jax.Array:
    """int32[]: the first index at which the mask `bool[...]` is true; the last one if it never is.

    XLA takes longer for `argmin`, a reduction of pairs.
    """
    return jnp.where(mask, jnp.arange(mask.size, dtype=jnp.int32), mask.size - 1).min()


def _times_of_block(times: jax.Array, block: jax.Array) -> tuple[jax.Array, jax.Array]:
    """int32[], the index of the first of the times that are looked at; and float[block size], these.

    `block` is its number. The window of the last, shorter block ends with the last time, and has inf before the block.
    """
    num_times = block_size(times.size)
    # Not beyond the end: so the last window reaches back.
    first = jnp.minimum(block * num_times, times.size - num_times)
    window = jax.lax.dynamic_slice_in_dim(times, first, num_times)
    is_of_block = first + jnp.arange(num_times, dtype=jnp.int32) >= block * num_times
    return first, jnp.where(is_of_block, window, jnp.inf)
