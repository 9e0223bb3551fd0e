"""Random numbers of a message (Stich et al. 2018; Wangni et al. 2018)."""

import jax
import jax.numpy as jnp

from gcjax.compression.base import Compression, check_share, num_sent, stateless
from gcjax.equality import comparable


@comparable
def random_k(*, share: float, shared: bool = True, rescale: bool = True) -> Compression:
    """K numbers of a message at random places; the others count as 0. The server draws the same places from the key.

    All arrays of a message are looked at together, and k is `share` of their d numbers, to the nearest and at least
    one. With `shared` all workers draw the same places for units of the same number: in rounds, the estimate of any
    combination of messages is then that combination of estimates, so a gradient code decodes what it would decode
    without compression, compressed.

    Args:
      share: of the numbers that is sent, in (0, 1].
      shared: whether all workers draw the same places.
      rescale: whether what is sent is multiplied by d/k, which makes the estimate unbiased. With error feedback, leave
        it away: what is lost would be larger than the message.

    Raises:
      ValueError: if the share is not in (0, 1].

    Source: Stich et al. 2018 (with error feedback); unbiased sparsification: Wangni et al. 2018.

    Example:
      >>> compression = gcjax.compression.random_k(share=0.5)
      >>> estimate, _ = compression.compress(jnp.ones(4), (), jax.random.key(0))
      >>> sorted(estimate.tolist()), compression.num_bytes(estimate)
      ([0.0, 0.0, 2.0, 2.0], 8)
    """
    check_share(share)

    def at_random_places(flat: jax.Array, rng_key: jax.Array) -> jax.Array:
        """float[d] with everything but k = `num_sent` random numbers replaced by 0; these times d/k with `rescale`."""
        size, k = flat.size, num_sent(share, flat.size)
        places = jax.random.permutation(rng_key, size)[:k]
        factor = size / k if rescale else 1.0
        return jnp.zeros_like(flat).at[places].set(flat[places] * jnp.asarray(factor, flat.dtype))

    def num_bytes(num_numbers: int, number_bytes: int) -> int:
        """The bytes of the k numbers, `number_bytes` each; their places follow from the key."""
        return num_sent(share, num_numbers) * number_bytes

    return stateless(at_random_places, num_bytes, same_key=shared, is_contraction=not rescale)
