"""Workers that average their parameters with each other's.

Letter: W workers. Members are those who take part in a commit.
"""

from typing import Any

import jax
import jax.numpy as jnp

from gcjax.protocols.base import Mixing
from gcjax.protocols.schedule import Schedule


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


def after_mixing(mixing: Mixing, schedule: Schedule, commit: jax.Array, before: Any, after: Any) -> Any:
    """The local parameters of all workers once those in a commit have mixed theirs.

    Args:
      mixing: of the protocol.
      schedule: the record.
      commit: int32[].
      before: `gcjax.engine.local_work.Local` of all workers before the steps of the commit.
      after: the same after them.
    """
    worker, matrix = mixing.average(schedule, commit)
    params = mixed_params(mixing, worker, matrix, before.params, after.params)
    mixed = after._replace(params=params, push_sum_weight=averaged(worker, matrix, after.push_sum_weight))
    if not mixing.overlaps:
        return mixed
    num_workers, contributors = schedule.start.shape[1], schedule.worker[commit]
    begins_next = jnp.where(contributors >= 0, contributors, num_workers)  # -1 pads: out of bounds, dropped
    params_at_begin = jax.tree.map(
        lambda old, x: old.at[begins_next].set(x.at[begins_next].get(mode="clip"), mode="drop"),
        after.params_at_begin,
        params,
    )
    return mixed._replace(params_at_begin=params_at_begin)


def without_mixing_meanwhile(local: Any, params: Any) -> Any:
    """The parameters as they would be if nobody else had changed them since the unit began, over their weight.

    Args:
      local: `gcjax.engine.local_work.Local` of one worker, before the steps.
      params: its parameters after some of them.
    """
    if local.params_at_begin is not None:
        params = jax.tree.map(
            lambda x, old, at_begin: at_begin + (x - old), params, local.params, local.params_at_begin
        )
    return jax.tree.map(lambda x: x / local.push_sum_weight.astype(x.dtype), params)


def mean_over_workers(params: Any) -> Any:
    """The mean of parameters, every leaf [W, ...], over the workers."""
    return jax.tree.map(lambda x: jnp.mean(x, axis=0), params)
