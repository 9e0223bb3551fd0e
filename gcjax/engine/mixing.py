"""Workers that average their parameters with each other's.

Letter: W workers. Members are those who take part in a commit; a row of a mixing matrix has n entries.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from gcjax._products import tensordot
from gcjax._shared_loops import read_first
from gcjax.engine.messages import accumulation_dtype
from gcjax.mixing_matrices import MixingMatrix
from gcjax.protocols.base import LocalWork

_PAIR = 2


def values_after_averaging(members: jax.Array | None, matrix: MixingMatrix, values: Any) -> Any:
    """The values of all workers after some of them have averaged theirs.

    Args:
      members: int32[members], the workers who take part; all of them, in order, if None.
      matrix: says what the k-th of them gets.
      values: a pytree, every leaf [W, ...].
    """
    if members is None:
        return _averages(members, matrix, values)
    if members.size == _PAIR and matrix.columns is None:
        return _values_after_averaging_of_two(members, matrix.weights, values)
    # Read before anything is written; `members[0]` is any number that the compiler does not know.
    new_rows = read_first(members[0], lambda values: _averages(members, matrix, values), values)

    def write_row(k: jax.Array, values: Any) -> Any:
        """The values [W, ...] with the new row (of [members, ...]) of the k-th member."""
        return jax.tree.map(
            lambda x, rows: jax.lax.dynamic_update_index_in_dim(x, rows[k], members[k], axis=0), values, new_rows
        )

    # On a CPU a scatter of all rows takes longer.
    return jax.lax.fori_loop(0, members.size, write_row, values)


def _averages(members: jax.Array | None, matrix: MixingMatrix, values: Any) -> Any:
    """What the members get, every leaf [members, ...]; arguments are those of `values_after_averaging`."""
    columns = matrix.columns
    if columns is None:
        rows = values if members is None else jax.tree.map(lambda x: x[members], values)

        def product(x: jax.Array) -> jax.Array:
            """[members, ...], of the matrix and rows [members, ...]; few bits of the matrix would not add up to 1."""
            dtype = accumulation_dtype(x.dtype)
            return tensordot(matrix.weights.astype(dtype), x.astype(dtype), axes=1).astype(x.dtype)

        return jax.tree.map(product, rows)

    def average(x: jax.Array) -> jax.Array:
        """[members, ...], added up entry by entry; a product of matrices would multiply with the zeros, too."""
        dtype = accumulation_dtype(x.dtype)
        factors = matrix.weights.astype(dtype).reshape(*columns.shape, *(1,) * (x.ndim - 1))  # [members, n, 1, ...]
        terms = [factors[:, j] * x[columns[:, j]].astype(dtype) for j in range(columns.shape[1])]
        return sum(terms[1:], terms[0]).astype(x.dtype)

    return jax.tree.map(average, values)


def _values_after_averaging_of_two(members: jax.Array, matrix: jax.Array, values: Any) -> Any:
    """`values_after_averaging` of two members, without a product of matrices, which takes longer for so few rows.

    `members` is int32[2], `matrix` float[2, 2]: the new row of a member has the factors of its row. Leaves of `values`
    are [W, ...].
    """

    def rows_of_members(values: Any) -> list[Any]:
        """The rows of the two members, int32[2]: pytrees without the axis of workers."""
        return [
            jax.tree.map(lambda x, w=worker: jax.lax.dynamic_index_in_dim(x, w, keepdims=False), values)
            for worker in members
        ]

    rows = read_first(members[0], rows_of_members, values)

    def average(factors: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        """Of a row of the first member and one of the second, by float[2]."""
        first, second = factors.astype(accumulation_dtype(x.dtype))
        return (first * x.astype(first.dtype) + second * y.astype(second.dtype)).astype(x.dtype)

    for worker, factors in zip(members, matrix, strict=True):
        row = jax.tree.map(partial(average, factors), *rows)
        values = jax.tree.map(
            lambda x, new, w=worker: jax.lax.dynamic_update_index_in_dim(x, new, w, axis=0), values, row
        )
    return values


def local_states_after_mixing(members: jax.Array | None, matrix: MixingMatrix, local_states: Any) -> Any:
    """The local states of all workers (`gcjax.engine.local_state.LocalState`) once some have averaged their parameters.

    Arguments are those of `values_after_averaging`.
    """
    params, push_sum_weight = values_after_averaging(
        members, matrix, (local_states.params, local_states.push_sum_weight)
    )
    return local_states._replace(params=params, push_sum_weight=push_sum_weight)


def with_room(local: LocalWork, local_states: Any) -> Any:
    """The local states with `room`, if all workers take their steps from what the last average has left.

    XLA copies an average to where it has been computed from. With two places for the parameters of all workers, the
    steps read one and write the other, and the average comes from there, so that nothing is copied.
    """
    if local.mixing is None or local.mixing.members is not None or local.mixing.overlaps or local.max_contributions > 1:
        return local_states
    return local_states._replace(room=jax.tree.map(jnp.zeros_like, local_states.params))


def mean_over_workers(params: Any) -> Any:
    """The mean of parameters, every leaf [W, ...], over the workers."""
    return jax.tree.map(lambda x: jnp.mean(x, axis=0), params)
