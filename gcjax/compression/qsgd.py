"""QSGD: random rounding to a few levels (Alistarh et al. 2017).

Letters: W workers, d numbers of a message.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.compression.base import Compression, blocks_of, stateless
from gcjax.equality import comparable


@comparable
def qsgd(*, levels: int | Sequence[int] | np.ndarray, bucket_size: int = 512) -> Compression:
    """Each number as a multiple of 1/s of the norm of its bucket, rounded up or down at random: unbiased.

    Charged are the norm of each bucket and, for each number, ceil(log2(2 s + 1)) bits; the paper's entropy code, which
    sends fewer, is not. So s = 2^b - 1 levels are b bits a number, and one for the sign.

    Args:
      levels: s, of magnitudes above 0; or int[W], those of each worker, as `2**bits - 1` with the bits of
        `gcjax.codes.bit_allocation`. A worker with 0 levels sends nothing, and needs a code that leaves it out.
      bucket_size: consecutive numbers with a common norm; all arrays of a message are cut as one vector.

    Raises:
      ValueError: if a number is below 1, or, in levels by worker, below 0, or all of these are 0.

    Source: Alistarh et al. 2017; different bits for different workers: Song and Choi 2026.

    Example:
      >>> compression = gcjax.compression.qsgd(levels=1)
      >>> message = jnp.array([3.0, 4.0])
      >>> estimates = [compression.compress(message, (), jax.random.key(i))[0] for i in range(2)]
      >>> all(x in (0.0, 5.0) for estimate in estimates for x in estimate.tolist()), compression.num_bytes(message)
      (True, 5)
      >>> gcjax.compression.qsgd(levels=(7, 1, 0)).num_bytes(jnp.ones(512)).tolist()  # of three workers
      [260, 132, 0]
    """
    levels = _valid_levels(levels)
    worker_levels = levels if isinstance(levels, np.ndarray) else None
    bucket_size = _validate.integer("bucket_size", bucket_size, minimum=1)

    def rounded(flat: jax.Array, rng_key: jax.Array, *own_levels: jax.Array) -> jax.Array:
        """float[d], every number rounded to a level of its bucket; 0 where the worker has no levels.

        `own_levels`: one float[], where workers differ; else `levels` is the number of all. The levels of a bucket are
        the multiples of its norm / levels; of the two around a number the upper one is taken the likelier the nearer.
        """
        buckets = blocks_of(flat, bucket_size)  # [buckets, bucket_size]
        # Over a power of 2, which rounds nothing, so that the squares in the norm neither overflow nor vanish.
        _, exponent = jnp.frexp(jnp.abs(buckets).max(axis=1, keepdims=True))  # int32[buckets, 1]
        largest_exponent = jnp.finfo(flat.dtype).maxexp - 2  # of which one over the power is a normal number, too
        exponent = exponent.clip(-largest_exponent, largest_exponent)
        one = jnp.ones((), flat.dtype)
        buckets = buckets * jnp.ldexp(one, -exponent)
        norm = jnp.linalg.norm(buckets, axis=1, keepdims=True)  # [buckets, 1]
        (num_levels,) = own_levels or (jnp.asarray(levels, flat.dtype),)
        level = jnp.abs(buckets) / jnp.where(norm > 0, norm, 1) * num_levels
        draws = jax.random.uniform(rng_key, buckets.shape, flat.dtype)
        level_below = jnp.floor(level)
        random_level = level_below + (draws < level - level_below).astype(flat.dtype)
        rounded_buckets = norm * jnp.sign(buckets) * random_level / jnp.maximum(num_levels, 1)
        return (rounded_buckets * jnp.ldexp(one, exponent)).reshape(-1)[: flat.size]

    def num_bytes(num_numbers: int, number_bytes: int, *own_levels: Any) -> int:
        """The bytes of the norms (`number_bytes` a bucket) and levels; 0 without levels. `own_levels`: one int."""
        num_levels: Any = own_levels[0] if own_levels else levels
        if num_levels == 0:
            return 0
        bits_of_number = math.ceil(math.log2(2 * num_levels + 1))  # levels of both signs, and 0
        return -(-num_numbers // bucket_size) * number_bytes + -(-num_numbers * bits_of_number // 8)

    least_levels = int(np.min(levels))
    # The variance is at most min(n / s^2, sqrt(n) / s) times the squared norm of a bucket of n: below 1 where s^2 > n.
    return stateless(rounded, num_bytes, worker_values=worker_levels, is_contraction=least_levels**2 > bucket_size)


def _valid_levels(levels: Any) -> int | np.ndarray:
    """int64[W], the levels of each worker, or one int for all; raises `ValueError` for anything else."""
    if not _validate.is_traced(levels) and np.ndim(levels) == 0:
        return _validate.integer("levels", levels, minimum=1, maximum=None)
    if _validate.is_traced(levels) or np.ndim(levels) != 1 or not np.size(levels):
        raise ValueError(
            "levels must be one whole number, or int[W], one a worker, which is known before anything is compiled; got "
            f"{levels!r}."
        )
    _validate.whole("levels of each worker", levels, maximum=None)
    if not np.any(levels):
        raise ValueError(f"levels must be above 0 for some worker, or nobody sends anything; got {levels!r}.")
    return np.asarray(levels, np.int64)
