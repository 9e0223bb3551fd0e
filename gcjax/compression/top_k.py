"""The largest numbers of a message (Aji, Heafield 2017; Stich et al. 2018)."""

import jax
import jax.numpy as jnp

from gcjax.compression.base import INDEX_BYTES, Compression, check_share, num_sent, stateless
from gcjax.equality import comparable


@comparable
def top_k(*, share: float) -> Compression:
    """The k numbers of a message of largest magnitude, and their places; the others count as 0.

    All arrays of a message are looked at together, and k is `share` of their numbers, to the nearest and at least one.
    It is biased, and does not commute with sums: which numbers are sent depends on the message.

    Args:
      share: of the numbers that is sent, in (0, 1].

    Raises:
      ValueError: if the share is not in (0, 1].

    Source: Aji, Heafield 2017; with error feedback Stich et al. 2018.

    Example:
      >>> compression = gcjax.compression.top_k(share=0.5)
      >>> message = jnp.array([1.0, -4.0, 3.0, 2.0])
      >>> compression.compress(message, (), jax.random.key(0))[0].tolist(), compression.num_bytes(message)
      ([0.0, -4.0, 3.0, 0.0], 16)
    """
    check_share(share)

    def largest(flat: jax.Array, rng_key: jax.Array) -> jax.Array:
        """float[d] with everything but the numbers of largest magnitude, `num_sent` of them, replaced by 0."""
        del rng_key
        _, places = jax.lax.top_k(jnp.abs(flat), num_sent(share, flat.size))
        return jnp.zeros_like(flat).at[places].set(flat[places])

    def num_bytes(num_numbers: int, number_bytes: int) -> int:
        """The bytes of the numbers that are sent, `number_bytes` each, and of their places."""
        return num_sent(share, num_numbers) * (number_bytes + INDEX_BYTES)

    return stateless(largest, num_bytes, is_contraction=True)
