"""The server's table of the mean gradients of all workers (`LocalWork.gradient_table`)."""

from typing import Any

import jax
import jax.numpy as jnp


def with_gradients(mean: Any, gradient_sum: Any, weight: jax.Array, num_gradients: jax.Array, num_workers: int) -> Any:
    """The mean gradient of a worker once those of a contribution are in it.

    Args:
      mean: before, a pytree.
      gradient_sum: of the contribution, likewise.
      weight: float[], the factor of each of its gradients in the mean over the workers.
      num_gradients: int32[], how many they are.
      num_workers: W.
    """
    factor = weight * num_workers  # of each gradient in the mean of its worker
    share = jnp.minimum(factor * num_gradients.astype(factor.dtype), 1)
    return jax.tree.map(
        lambda old, total: (1 - share).astype(old.dtype) * old + factor.astype(total.dtype) * total, mean, gradient_sum
    )
