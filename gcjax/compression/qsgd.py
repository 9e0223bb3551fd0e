"""QSGD: random rounding to a few levels (Alistarh et al. 2017)."""

import math

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.compression.base import Compression, blocks_of, stateless
from gcjax.equality import comparable


@comparable
def qsgd(*, levels: int, bucket_size: int = 512) -> Compression:
    """Each number as a multiple of 1/s of the norm of its bucket, rounded up or down at random: unbiased.

    Charged are the norm of each bucket and, for each number, ceil(log2(2 s + 1)) bits; the paper's entropy code, which
    sends fewer, is not.

    Args:
      levels: s, of magnitudes above 0.
      bucket_size: consecutive numbers with a common norm; all arrays of a message are cut as one vector.

    Raises:
      ValueError: if a number is below 1.

    Source: Alistarh et al. 2017.

    Example:
      >>> compression = gcjax.compression.qsgd(levels=1)
      >>> message = jnp.array([3.0, 4.0])
      >>> estimates = [compression.compress(message, (), jax.random.key(i))[0] for i in range(2)]
      >>> all(x in (0.0, 5.0) for estimate in estimates for x in estimate.tolist()), compression.num_bytes(message)
      (True, 5)
    """
    _validate.integer("levels", levels, minimum=1)
    _validate.integer("bucket_size", bucket_size, minimum=1)

    def rounded(flat: jax.Array, rng_key: jax.Array) -> jax.Array:
        """float[d], every number rounded to a level of its bucket."""
        buckets = blocks_of(flat, bucket_size)
        norm = jnp.linalg.norm(buckets, axis=1, keepdims=True)
        num_levels = jnp.asarray(levels, flat.dtype)
        level = jnp.abs(buckets) / jnp.where(norm > 0, norm, 1) * num_levels
        draws = jax.random.uniform(rng_key, buckets.shape, flat.dtype)
        level_below = jnp.floor(level)
        random_level = level_below + (draws < level - level_below).astype(flat.dtype)
        return (norm * jnp.sign(buckets) * random_level / num_levels).reshape(-1)[: flat.size]

    def num_bytes(num_numbers: int, number_bytes: int) -> int:
        """The bytes of the norms and of the levels."""
        bits_of_number = math.ceil(math.log2(2 * levels + 1))
        return -(-num_numbers // bucket_size) * number_bytes + -(-num_numbers * bits_of_number // 8)

    # The variance is at most this times the squared norm of the bucket.
    variance_bound = min(bucket_size / levels**2, math.sqrt(bucket_size) / levels)
    return stateless(rounded, num_bytes, is_contraction=variance_bound < 1)
