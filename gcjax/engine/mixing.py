"""Workers that average their parameters with each other's.

Letter: W workers. Members are those who take part in a commit.
"""

from typing import Any

import jax
import jax.numpy as jnp

from gcjax.protocols.base import Mixing
from gcjax.protocols.schedule import Schedule


def values_after_averaging(members: jax.Array, matrix: jax.Array, values: Any, increments: Any = None) -> Any:
    """The values of all workers after some of them have averaged theirs.

    Args:
      members: int32[members], the workers who take part.
      matrix: float[members, members]; the k-th of them gets `sum_j matrix[k, j] values[members[j]]`.
      values: a pytree, every leaf [W, ...].
      increments: what is added afterwards, a pytree like the values; nothing if None.
    """

    def average_leaf(x: jax.Array) -> jax.Array:
        """[W, ...]: the leaf, averaged along its leading axis."""
        averages = jnp.tensordot(matrix.astype(x.dtype), x[members], axes=1, precision=jax.lax.Precision.HIGHEST)
        return x.at[members].set(averages)

    new_values = jax.tree.map(average_leaf, values)
    return new_values if increments is None else jax.tree.map(jnp.add, new_values, increments)


def params_after_averaging(mixing: Mixing, members: jax.Array, matrix: jax.Array, before: Any, after: Any) -> Any:
    """The parameters of all workers, every leaf [W, ...], after a commit.

    Args:
      mixing: of the protocol.
      members: int32[members], the workers who take part.
      matrix: float[members, members], see `values_after_averaging`.
      before: the parameters before the steps of the commit.
      after: those after them.
    """
    if not mixing.overlaps:  # nobody's parameters are averaged while it computes
        return values_after_averaging(members, matrix, after)
    return values_after_averaging(members, matrix, before, increments=jax.tree.map(jnp.subtract, after, before))


def local_states_after_mixing(mixing: Mixing, schedule: Schedule, commit: jax.Array, before: Any, after: Any) -> Any:
    """The local states of all workers once those in a commit have mixed theirs.

    Args:
      mixing: of the protocol.
      schedule: the record.
      commit: int32[].
      before: `gcjax.engine.local_state.LocalState` of all workers before the steps of the commit.
      after: the same after them.
    """
    members, matrix = mixing.average(schedule, commit)
    params = params_after_averaging(mixing, members, matrix, before.params, after.params)
    new_states = after._replace(
        params=params, push_sum_weight=values_after_averaging(members, matrix, after.push_sum_weight)
    )
    if not mixing.overlaps:
        return new_states
    num_workers, contributors = schedule.start.shape[1], schedule.worker[commit]
    workers_beginning_next = jnp.where(contributors >= 0, contributors, num_workers)  # -1 pads: out of bounds, dropped
    params_at_unit_begin = jax.tree.map(
        lambda old, x: old.at[workers_beginning_next].set(x.at[workers_beginning_next].get(mode="clip"), mode="drop"),
        after.params_at_unit_begin,
        params,
    )
    return new_states._replace(params_at_unit_begin=params_at_unit_begin)


def params_without_others_changes(local_state: Any, params: Any) -> Any:
    """The parameters as they would be without what others have averaged into them since the unit began.

    They are divided by the push-sum weight, as those at which a gradient is taken are.

    Args:
      local_state: `gcjax.engine.local_state.LocalState` of one worker, before the steps.
      params: its parameters after some of them.
    """
    if local_state.params_at_unit_begin is not None:
        params = jax.tree.map(
            lambda x, old, at_begin: at_begin + (x - old),
            params,
            local_state.params,
            local_state.params_at_unit_begin,
        )
    return jax.tree.map(lambda x: x / local_state.push_sum_weight.astype(x.dtype), params)


def mean_over_workers(params: Any) -> Any:
    """The mean of parameters, every leaf [W, ...], over the workers."""
    return jax.tree.map(lambda x: jnp.mean(x, axis=0), params)
