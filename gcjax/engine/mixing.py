"""Workers that average their parameters with each other's.

Letter: W workers. A row of a mixing matrix has n entries.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from gcjax._products import tensordot
from gcjax._shared_loops import read_first
from gcjax.engine.local_state import LocalState
from gcjax.engine.messages import accumulation_dtype
from gcjax.engine.version_ring import read_slot, write_slot
from gcjax.mixing_matrices import MixingMatrix
from gcjax.protocols.base import LocalWork


def values_after_averaging(matrix: MixingMatrix, values: Any) -> Any:
    """The values of all workers, a pytree with leaves [W, ...], after all have averaged theirs by the matrix."""
    columns = matrix.columns

    def product(x: jax.Array) -> jax.Array:
        """[W, ...], of the whole matrix and x [W, ...]; few bits of the matrix would not add up to 1."""
        dtype = accumulation_dtype(x.dtype)
        return tensordot(matrix.weights.astype(dtype), x.astype(dtype), axes=1).astype(x.dtype)

    def sum_of_entries(x: jax.Array) -> jax.Array:
        """[W, ...], added up entry by entry; a product of matrices would multiply with the zeros, too."""
        assert columns is not None
        dtype = accumulation_dtype(x.dtype)
        factors = matrix.weights.astype(dtype).reshape(*columns.shape, *(1,) * (x.ndim - 1))  # [W, n, 1, ...]
        terms = [factors[:, j] * x[columns[:, j]].astype(dtype) for j in range(columns.shape[1])]
        return sum(terms[1:], terms[0]).astype(x.dtype)

    return jax.tree.map(product if columns is None else sum_of_entries, values)


def local_states_after_mixing(matrix: MixingMatrix, local_states: LocalState) -> LocalState:
    """The local states of all workers once all have averaged their parameters by the matrix."""
    params, push_sum_weight = values_after_averaging(matrix, (local_states.params, local_states.push_sum_weight))
    return local_states._replace(params=params, push_sum_weight=push_sum_weight)


def states_after_exchange(
    worker: jax.Array, neighbour: jax.Array, weights: jax.Array, local_states: LocalState
) -> tuple[LocalState, LocalState]:
    """The state of a worker that has averaged its parameters with a neighbour's, and the states of all.

    In the latter only the neighbour's row is written: the worker's own step is still to come, and written with it.

    Args:
      worker: int32[].
      neighbour: int32[]; the worker itself if it averages with nobody.
      weights: float[2, 2], of the parameters of both: a row for what the worker gets, and one for the neighbour.
      local_states: of all workers.
    """

    def read(local_states: LocalState) -> tuple[LocalState, Any]:
        """The state of the worker, and the parameters of the neighbour."""
        return read_slot(local_states, worker), read_slot(local_states.params, neighbour)

    own_state, params_of_neighbour = read_first(neighbour, read, local_states)

    def average(factors: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        """Of the worker's parameters and the neighbour's, by factors float[2]."""
        first, second = factors.astype(accumulation_dtype(x.dtype))
        return (first * x.astype(first.dtype) + second * y.astype(second.dtype)).astype(x.dtype)

    params, new_params_of_neighbour = (
        jax.tree.map(partial(average, factors), own_state.params, params_of_neighbour) for factors in weights
    )
    params_of_all = write_slot(local_states.params, neighbour, new_params_of_neighbour)
    return own_state._replace(params=params), local_states._replace(params=params_of_all)


def with_room(local: LocalWork, local_states: Any) -> Any:
    """The local states with `room`, if all workers take their steps from what the last average has left.

    XLA copies an average to where it has been computed from. With two places for the parameters of all workers, the
    steps read one and write the other, and the average comes from there, so that nothing is copied.
    """
    if local.mixing is None or local.mixing.neighbour is not None or local.max_contributions > 1:
        return local_states
    return local_states._replace(room=jax.tree.map(jnp.zeros_like, local_states.params))


def mean_over_workers(params: Any) -> Any:
    """The mean of parameters, every leaf [W, ...], over the workers."""
    return jax.tree.map(lambda x: jnp.mean(x, axis=0), params)
