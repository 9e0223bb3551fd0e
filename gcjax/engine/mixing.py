"""Workers that average their parameters with each other's.

Letter: W workers. Members are those who take part in a commit.
"""

from typing import Any

import jax
import jax.numpy as jnp

from gcjax.protocols.base import Mixing


def averaged(worker: jax.Array, matrix: jax.Array, values: Any, steps: Any = None) -> Any:
    """The values of all workers after some of them have averaged theirs.

    Args:
      worker: int32[members], who takes part.
      matrix: float[members, members]; the k-th of them gets `sum_j matrix[k, j] values[worker[j]]`.
      values: a pytree, every leaf [W, ...].
      steps: what is added afterwards, a pytree like the values; nothing if None.
    """

    def average_leaf(x: jax.Array) -> jax.Array:
        """[W, ...]: the leaf, averaged along its leading axis."""
        mixed = jnp.tensordot(matrix.astype(x.dtype), x[worker], axes=1, precision=jax.lax.Precision.HIGHEST)
        return x.at[worker].set(mixed)

    mixed_values = jax.tree.map(average_leaf, values)
    return mixed_values if steps is None else jax.tree.map(jnp.add, mixed_values, steps)


def mixed_params(mixing: Mixing, worker: jax.Array, matrix: jax.Array, before: Any, after: Any) -> Any:
    """The parameters of all workers, every leaf [W, ...], after a commit.

    Args:
      mixing: of the protocol.
      worker: int32[members], who takes part.
      matrix: float[members, members], see `averaged`.
      before: the parameters before the steps of the commit.
      after: those after them.
    """
    if not mixing.overlaps:
        return averaged(worker, matrix, after)
    return averaged(worker, matrix, before, steps=jax.tree.map(jnp.subtract, after, before))


def mean_over_workers(params: Any) -> Any:
    """The mean of parameters, every leaf [W, ...], over the workers."""
    return jax.tree.map(lambda x: jnp.mean(x, axis=0), params)
