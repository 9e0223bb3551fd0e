"""What workers have of their own: parameters, and what an optimizer keeps of them.

Letters: W workers, G groups, K chunks a worker holds.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax.engine.messages import zero_sum
from gcjax.engine.new_processes import NO_VERSION_READ
from gcjax.engine.optimizers import initial_opt_state
from gcjax.protocols.base import LocalWork, adopt_version


class LocalState(NamedTuple):
    """The parameters of an owner (a worker or a group), and its state.

    Every leaf is [num_owners, ...] for all of them, but for `servers` and `table_mean`.

    Attributes:
      params: the parameters; None if each contribution begins with reading (`LocalWork.reads_always`).
      opt_state: of the optimizer of the local steps.
      version: int32[], the version that was read last; -1 before the first, and if `params` is None.
      new_processes: what a new process of the worker begins with, see `gcjax.engine.new_processes`; None if no worker
        has a new one.
      compression: the state of the compression of what is pushed; None without one.
      push_sum_weight: float[], what the parameters are divided by where a gradient is taken; None without push-sum.
      params_at_unit_begin: the parameters at which the unit under way was begun; None unless others can change them
        while it is computed.
      servers: of groups, every leaf [G, ...] (`gcjax.engine.group_commits.Servers`); None if there are none.
      room: arrays like `params`, to which the steps before an average are written; None outside of the loop of commits,
        and where the steps are written to `params` (`gcjax.engine.mixing.with_room`).
      table_mean: the mean of the parameters over all owners, without their axis; None unless they are a table
        (`LocalWork.gradient_table`).
    """

    params: Any
    opt_state: Any
    version: jax.Array
    new_processes: Any = None
    compression: Any = None
    push_sum_weight: Any = None
    params_at_unit_begin: Any = None
    servers: Any = None
    room: Any = None
    table_mean: Any = None


_NEED_PARAMS = "gradient_table", "overlaps_pull", "mixing", "servers", "fragments", "message_code"
"""Fields of `LocalWork` that are for workers with parameters of their own."""


def repeated(arrays: Any, count: int) -> Any:
    """The same arrays `count` times: every leaf [count, ...]."""
    return jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (count, *jnp.shape(x))), arrays)


def initial_local_states(
    local: LocalWork, optimizer: optax.GradientTransformation, params: Any, num_workers: int
) -> LocalState:
    """The local states before the first commit: all owners have the initial parameters, every leaf [num_owners, ...].

    A table of gradients, and gradients that workers keep on their K chunks, begin as zeros in place of parameters.

    Raises:
      ValueError: if a worker is to have none, and to need them.
    """
    needed_by = [name for name in _NEED_PARAMS if getattr(local, name) not in (None, False)]
    if local.reads_always and needed_by:
        raise ValueError(
            "local work with reads_always keeps no parameters of workers; it must not have "
            f"{', '.join(_NEED_PARAMS)}; got {' and '.join(needed_by)}. Leave one of both out."
        )
    last_owner = int(owner_of_workers(local, num_workers).max())
    num_owners = last_owner + 1
    initial_params = params
    params, opt_state = repeated((params, initial_opt_state(local.optimizer or optimizer, params)), num_owners)
    if local.gradient_table:  # local parameters are then minus the mean gradients
        params = jax.tree.map(jnp.zeros_like, params)
    if local.message_code is not None:  # local parameters are then the gradients on the chunks
        load = local.message_code.assignment.load
        params = jax.tree.map(lambda x: jnp.zeros((num_owners, load, *x.shape[1:]), x.dtype), params)  # [W, K, ...]
    if local.reads_always:
        params = None
    local_states = LocalState(params, opt_state, version=jnp.full(num_owners, NO_VERSION_READ, jnp.int32))
    if local.gradient_table:
        local_states = local_states._replace(table_mean=zero_sum(initial_params))
    if local.mixing is None:
        return local_states
    return local_states._replace(
        push_sum_weight=jnp.ones(num_owners) if local.mixing.push_sum else None,
        params_at_unit_begin=None if local.mixing.neighbour is None else params,
    )


def keeps_nothing_on_reading(local: LocalWork, optimizer: optax.GradientTransformation, params: Any) -> bool:
    """Whether a worker that reads has nothing left of what it did before: no parameters, and no optimizer state."""
    opt_state = jax.eval_shape((local.optimizer or optimizer).init, params)
    return local.pull is adopt_version and not local.overlaps_pull and not jax.tree.leaves(opt_state)


def owner_of_workers(local: LocalWork, num_workers: int) -> np.ndarray:
    """int32[W]: the owner of the parameters on which each worker works; itself unless the protocol says otherwise."""
    if local.parameter_owners is None:
        return np.arange(num_workers, dtype=np.int32)
    return local.parameter_owners(num_workers)
