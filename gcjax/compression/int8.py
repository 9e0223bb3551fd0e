"""Numbers of 8 bits with a scale for each block (Dettmers 2016)."""

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.compression.base import Compression, blockwise
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

    def round_blocks(blocks: jax.Array, largest: jax.Array) -> jax.Array:
        """Every number rounded to a multiple of its block's scale: 1/127 of the largest magnitude there."""
        scale = largest / jnp.asarray(_LARGEST_MULTIPLE, blocks.dtype)  # [blocks, 1]; 0 where all numbers are
        return jnp.round(blocks / jnp.where(scale == 0, 1, scale)) * scale

    # Each number is off by half a step at most, and the block has at least its largest number.
    relative_square_bound = block_size / (2 * _LARGEST_MULTIPLE) ** 2
    is_contraction = relative_square_bound < 1
    return blockwise(round_blocks, block_size=block_size, num_bits=8, is_contraction=is_contraction)
