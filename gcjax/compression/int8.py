"""Numbers of 8 bits with a scale for each block (Dettmers 2016)."""

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.compression.base import Compression, blocks_of, stateless
from gcjax.equality import comparable

_LARGEST_MULTIPLE = 127
"""The largest integer that is used, in both directions."""


@comparable
def int8(*, block_size: int = 256) -> Compression:
    """Each number as a multiple, from -127 to 127, of 1/127 of the largest magnitude of its block, the nearest one.

    Args:
      block_size: consecutive numbers with a common scale; all arrays of a message are cut as one vector.

    Raises:
      ValueError: if it is below 1.

    Source: 8 bits for the exchange of gradients: Dettmers 2016, whose numbers are not spaced evenly; here they are.

    Example:
      >>> compression = gcjax.compression.int8()
      >>> message = jnp.array([127.0, 0.4, -3.6])
      >>> compression.compress(message, (), jax.random.key(0))[0].tolist(), compression.num_bytes(message)
      ([127.0, 0.0, -4.0], 7)
    """
    block_size = _validate.integer("block_size", block_size, minimum=1)

    def rounded(flat: jax.Array, rng_key: jax.Array) -> jax.Array:
        """float[d], every number rounded to a multiple of its block's scale: 1/127 of the largest magnitude there."""
        del rng_key
        blocks = blocks_of(flat, block_size)
        # [blocks, 1], of blocks [blocks, block_size]; 0 where all numbers are.
        scale = jnp.max(jnp.abs(blocks), axis=1, keepdims=True) / jnp.asarray(_LARGEST_MULTIPLE, flat.dtype)
        multiples = jnp.round(blocks / jnp.where(scale == 0, 1, scale))
        return (multiples * scale).reshape(-1)[: flat.size]

    def num_bytes(num_numbers: int, number_bytes: int) -> int:
        """A byte for each number, and a scale of `number_bytes`, as a number has uncompressed, for each block."""
        return num_numbers + -(-num_numbers // block_size) * number_bytes

    # Each number is off by half a step at most, and the block has at least its largest number.
    relative_square_bound = block_size / (2 * _LARGEST_MULTIPLE) ** 2
    return stateless(rounded, num_bytes, is_contraction=relative_square_bound < 1)
