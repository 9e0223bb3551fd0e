"""PowerSGD: matrices of low rank (Vogels, Karimireddy, Jaggi 2019).

Letters: n rows and m columns of a matrix, r its rank.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax._products import matmul
from gcjax.compression.base import Compression, float32_at_least
from gcjax.equality import comparable


class Factors(NamedTuple):
    """The right factors of the last message, from which the next one starts.

    Attributes:
      right: one float[m, r] for each array of the message that is compressed, in their order.
    """

    right: tuple[jax.Array, ...]


@comparable
def powersgd(*, rank: int) -> Compression:
    """Each matrix as a product of two narrow ones, by one step of power iteration from the factor of the last message.

    An array of two axes or more is a matrix with its last axis as columns, and n x m is sent as (n + m) r numbers.
    Arrays of fewer axes, and those that would not get smaller, are sent as they are: so are the messages of codes with
    several blocks, which are vectors with a part of each array. A first message of rank r or less is exact. Biased, and
    not linear: give it error feedback.

    In the paper all workers share the factors, which are sums over all of them before the matrix is orthogonalised.
    Here each worker compresses its message by itself, so that it can be sent at any time; the start is the same for
    all. Also ours: columns of a factor that a message makes 0, as those from a message of zeros, are drawn anew.

    Args:
      rank: r.

    Raises:
      ValueError: if it is below 1.

    Source: Vogels, Karimireddy, Jaggi 2019.

    Example:
      >>> compression = gcjax.compression.powersgd(rank=1)
      >>> message = jnp.outer(jnp.arange(1.0, 5.0), jnp.arange(1.0, 9.0))  # of rank 1
      >>> estimate, _ = compression.compress(message, compression.init(jax.random.key(0), message), jax.random.key(1))
      >>> bool(jnp.allclose(estimate, message, rtol=1e-4)), compression.num_bytes(message)  # instead of 128
      (True, 48)
    """
    rank = _validate.integer("rank", rank, minimum=1)

    def init(rng_key: jax.Array, message: Any) -> Factors:
        """Random right factors, float[m, r], r = `rank`, for each n x m array that is sent as factors."""
        matrices = [leaf for leaf in jax.tree.leaves(message) if _is_sent_as_factors(leaf, rank)]
        keys = jax.random.split(rng_key, len(matrices))
        right_factors = [
            jax.random.normal(key, (leaf.shape[-1], rank), float32_at_least(leaf))
            for key, leaf in zip(keys, matrices, strict=True)
        ]
        return Factors(tuple(right_factors))

    def compress(message: Any, state: Factors, rng_key: jax.Array) -> tuple[Any, Factors]:
        """The estimates left · right^T, of float[n, r] and float[m, r], and the right factors for the next message."""
        leaves, structure = jax.tree.flatten(message)
        old_factors, estimates, new_factors = iter(state.right), [], []
        for index, leaf in enumerate(leaves):
            if not _is_sent_as_factors(leaf, rank):
                estimates.append(leaf)
                continue
            matrix = leaf.reshape(-1, leaf.shape[-1]).astype(float32_at_least(leaf))  # [n, m]
            # By a power of 2, which changes no digit: products with the factor of a large message would overflow.
            _, exponent = jnp.frexp(jnp.max(jnp.abs(matrix), initial=0))
            matrix = jnp.ldexp(matrix, -exponent)
            # [n, r], with orthonormal columns; the estimate is the matrix projected onto these.
            left, _ = jnp.linalg.qr(
                _product_without_zero_columns(matrix, next(old_factors), jax.random.fold_in(rng_key, index))
            )
            right = matmul(matrix.T, left)  # [m, r]
            new_factors.append(right)
            estimate = jnp.ldexp(matmul(left, right.T), exponent)
            estimates.append(estimate.reshape(leaf.shape).astype(leaf.dtype))
        return jax.tree.unflatten(structure, estimates), Factors(tuple(new_factors))

    def num_bytes(message: Any) -> int:
        """The bytes of both factors of each matrix, and of the arrays that are sent as they are."""
        return sum(_numbers_sent(leaf, rank) * leaf.dtype.itemsize for leaf in jax.tree.leaves(message))

    return Compression(init, compress, num_bytes, is_contraction=True)


def _product_without_zero_columns(matrix: jax.Array, factor: jax.Array, rng_key: jax.Array) -> jax.Array:
    """float[n, r]: the matrix times its right factor; columns that would be 0 are made with random factors instead.

    `matrix` is float[n, m], `factor` float[m, r], of rank r.
    """
    product = matmul(matrix, factor)
    is_zero = (product == 0).all(axis=0)  # bool[r]
    return jnp.where(is_zero, matmul(matrix, jax.random.normal(rng_key, factor.shape, factor.dtype)), product)


def _numbers_sent(leaf: Any, rank: int) -> int:
    """The numbers that are sent for an array: (n + m) r of both factors, or all of it."""
    if not _is_sent_as_factors(leaf, rank):
        return int(leaf.size)
    return int((leaf.size // leaf.shape[-1] + leaf.shape[-1]) * rank)


def _is_sent_as_factors(leaf: Any, rank: int) -> bool:
    """Whether an array is sent as factors: it is a matrix, with its last axis as columns, and these have fewer numbers.

    The factors of n rows and m columns have (n + m) r numbers, r being the rank.
    """
    if leaf.ndim < 2 or leaf.size == 0:
        return False
    num_columns = leaf.shape[-1]
    return bool((leaf.size // num_columns + num_columns) * rank < leaf.size)
