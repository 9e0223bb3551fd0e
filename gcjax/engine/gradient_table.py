"""The server's table of the mean gradients of all workers (`LocalWork.gradient_table`).

A commit steps with the mean over the table. Few workers change it, so that the change is added to the mean before, in
float32 or wider. A sum over the whole table, which clears the rounding of these additions, is made every W commits.
"""

from typing import Any

import jax
import jax.numpy as jnp

from gcjax._shared_loops import max_over_runs
from gcjax.engine.messages import zero_sum


def mean_gradient_after_contribution(
    mean_gradient: Any, gradient_sum: Any, *, weight: jax.Array, num_gradients: jax.Array, num_workers: int
) -> Any:
    """The mean gradient of a worker in the table once the gradients of a contribution are in it.

    In local work all have a minus: what a worker keeps is minus its mean, what it pushes minus a sum.

    Args:
      mean_gradient: of the worker before the contribution, a pytree.
      gradient_sum: of the contribution, likewise, not weighted.
      weight: float[], the factor of each of its gradients in the mean over the workers.
      num_gradients: int32[], how many they are.
      num_workers: W.
    """
    gradient_factor = weight * num_workers  # of each gradient in the mean of its worker
    # At most all of it: rounding must not leave the old mean a share below 0.
    share_of_contribution = jnp.minimum(gradient_factor * num_gradients.astype(gradient_factor.dtype), 1)
    share_of_old = 1 - share_of_contribution
    return jax.tree.map(
        lambda old, total: share_of_old.astype(old.dtype) * old + gradient_factor.astype(total.dtype) * total,
        mean_gradient,
        gradient_sum,
    )


def change_of_mean(new: Any, old: Any, num_workers: int) -> Any:
    """By how much the mean over the table changes if the row of a worker, `old`, becomes `new`."""
    return jax.tree.map(
        lambda new, old, zero: (new.astype(zero.dtype) - old.astype(zero.dtype)) / num_workers, new, old, zero_sum(new)
    )


def mean_after_commit(mean: Any, change: Any, table: Any, commit: jax.Array) -> Any:
    """The mean over the table after a commit, in the types of `zero_sum`: with the change added to it.

    Every W commits it is made anew of all rows, which clears the rounding of these additions.

    Args:
      mean: before it, a pytree.
      change: of the mean, by what the commit has changed in the table.
      table: after it, every leaf [W, ...].
      commit: int32[], the number of the commit.
    """
    num_workers = jax.tree.leaves(table)[0].shape[0]
    return jax.lax.cond(
        max_over_runs(commit) % num_workers == 0,  # one for all runs of a vmap: else all would sum their tables always
        lambda mean, change, table: jax.tree.map(lambda x, rows: jnp.mean(rows, axis=0, dtype=x.dtype), mean, table),
        lambda mean, change, table: jax.tree.map(jnp.add, mean, change),
        mean, change, table,
    )  # fmt: skip
