"""One bit a number (Seide et al. 2014; Karimireddy et al. 2019)."""

from typing import Any

import jax
import jax.numpy as jnp

from gcjax.compression.base import Compression, float32_at_least
from gcjax.equality import comparable


@comparable
def sign() -> Compression:
    """The sign of each number, times the mean magnitude of its array. Biased: give it error feedback.

    Source: one bit a number with error feedback: Seide et al. 2014; signs scaled by the mean magnitude: Karimireddy et
    al. 2019.

    Example:
      >>> compression = gcjax.compression.sign()
      >>> message = jnp.array([1.0, -5.0, 0.0])
      >>> compression.compress(message, (), jax.random.key(0))[0].tolist(), compression.num_bytes(message)
      ([2.0, -2.0, 2.0], 5)
    """

    def init(rng_key: jax.Array, message: Any) -> Any:
        """No state: ()."""
        del rng_key, message
        return ()

    def compress(message: Any, state: Any, rng_key: jax.Array) -> tuple[Any, Any]:
        """The scaled signs of each array; that of 0 is positive, since a bit has two values."""
        del rng_key

        def signs_of_leaf(x: jax.Array) -> jax.Array:
            """The array with every number replaced by plus or minus the mean magnitude."""
            scale = jnp.mean(jnp.abs(x), dtype=float32_at_least(x)).astype(x.dtype)
            return jnp.where(x >= 0, scale, -scale)

        return jax.tree.map(signs_of_leaf, message), state

    def num_bytes(message: Any) -> int:
        """A bit for each number, and a scale for each array."""
        return sum(-(-leaf.size // 8) + leaf.dtype.itemsize for leaf in jax.tree.leaves(message))

    return Compression(init, compress, num_bytes, is_contraction=True)
