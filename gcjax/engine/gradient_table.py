"""The server's table of the mean gradients of all workers (`LocalWork.gradient_table`)."""

from typing import Any

import jax
import jax.numpy as jnp


def mean_gradient_after_contribution(
    mean_gradient: Any, gradient_sum: Any, *, weight: jax.Array, num_gradients: jax.Array, num_workers: int
) -> Any:
    """The mean gradient of a worker in the table once the gradients of a contribution are in it.

    Args:
      mean_gradient: of the worker before the contribution, a pytree.
      gradient_sum: of the contribution, likewise, not weighted.
      weight: float[], the factor of each of its gradients in the mean over the workers.
      num_gradients: int32[], how many they are.
      num_workers: W.
    """
    gradient_factor = weight * num_workers  # of each gradient in the mean of its worker
    share_of_contribution = jnp.minimum(gradient_factor * num_gradients.astype(gradient_factor.dtype), 1)
    share_of_old = 1 - share_of_contribution
    return jax.tree.map(
        lambda old, total: share_of_old.astype(old.dtype) * old + gradient_factor.astype(total.dtype) * total,
        mean_gradient,
        gradient_sum,
    )
