"""The server's table of the mean gradients of all workers (`LocalWork.gradient_table`).

A commit steps with the mean over the table. Few workers change it, so that the change is added to the mean before; a
sum over the whole table, which clears the rounding of these additions, is made every W commits only.
"""

from typing import Any

import jax
import jax.numpy as jnp

from gcjax.engine.mixing import mean_over_workers


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


def mean_after_commit(mean: Any, change: Any, table: Any, commit: jax.Array) -> Any:
    """The mean over the table after a commit.

    Args:
      mean: before it, a pytree.
      change: of the mean, by what the commit has changed in the table.
      table: after it, every leaf [W, ...].
      commit: int32[], the number of the commit.
    """
    num_workers = jax.tree.leaves(table)[0].shape[0]
    return jax.lax.cond(
        commit % num_workers == 0,
        lambda mean, change, table: mean_over_workers(table),
        lambda mean, change, table: jax.tree.map(jnp.add, mean, change),
        mean, change, table,
    )  # fmt: skip
