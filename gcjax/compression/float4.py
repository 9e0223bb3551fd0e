"""Floats of 4 bits with a scale for each block (Douillard et al. 2025)."""

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.compression.base import Compression, blockwise
from gcjax.equality import comparable

_SMALLEST_EXPONENT = -6
"""Of magnitudes above 0, in units of the scale; three bits have room for seven of them and 0."""


@comparable
def float4(*, block_size: int = 256) -> Compression:
    """Each number as 0 or plus or minus the largest magnitude of its block times 1, 1/2, ..., 1/64, the nearest one.

    A sign and three bits of exponent, none of a mantissa (E3M0), as outer gradients of Streaming DiLoCo are sent. The
    scales, one a block, are ours. Of two values as near the smaller one is taken.

    Args:
      block_size: consecutive numbers with a common scale; all arrays of a message are cut as one vector.

    Raises:
      ValueError: if it is below 1.

    Source: Douillard et al. 2025.

    Example:
      >>> compression = gcjax.compression.float4()
      >>> message = jnp.array([8.0, -3.5, 0.2, 0.05])
      >>> compression.compress(message, (), jax.random.key(0))[0].tolist(), compression.num_bytes(message)
      ([8.0, -4.0, 0.25, 0.0], 6)
    """
    block_size = _validate.integer("block_size", block_size, minimum=1)

    def round_blocks(blocks: jax.Array, largest: jax.Array) -> jax.Array:
        """Every number rounded to 0 or ±(largest magnitude of its block)·2^e, e from -6 to 0."""
        value = jnp.zeros_like(blocks)
        # The largest 2^e for which a number is above the middle between it and the next smaller value; 0 for none.
        # Nothing is divided by the scale: the inverse of a large one counts as 0.
        for exponent in range(_SMALLEST_EXPONENT, 1):
            next_smaller = 0.0 if exponent == _SMALLEST_EXPONENT else 2.0 ** (exponent - 1)
            halfway = (2.0**exponent + next_smaller) / 2
            value = jnp.where(jnp.abs(blocks) > halfway * largest, 2.0**exponent, value)
        return jnp.sign(blocks) * value * largest

    # No number is off by more than itself, and the largest one of a block is exact.
    return blockwise(round_blocks, block_size=block_size, num_bits=4, is_contraction=True)
