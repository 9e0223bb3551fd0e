"""Writing one row of each worker, in place.

Letters: W workers, J rows.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

MAX_ONE_BY_ONE = 32
"""Up to so many workers' rows are written one after the other on a CPU."""


@jax.custom_batching.custom_vmap
def with_rows(tables: Any, row: jax.Array, values: Any) -> Any:
    """The tables with new values in one row of each worker.

    On a CPU the rows of a few workers are written one after the other: a scatter cannot be part of a program that is
    one kernel (`gcjax._one_kernel`). Under vmap there is none, so that it is a scatter.

    Args:
      tables: a pytree of arrays [J, W, ...], of J rows.
      row: int32[W], the row of each worker, below J.
      values: a pytree of arrays [W, ...].
    """
    if jax.default_backend() != "cpu" or row.size > MAX_ONE_BY_ONE:
        return _scattered(tables, row, values)
    for worker in range(row.size):
        tables = jax.tree.map(partial(_with_row, row=row[worker], worker=worker), tables, values)
    return tables


def _with_row(table: jax.Array, values: jax.Array, *, row: jax.Array, worker: int) -> jax.Array:
    """The table [J, W, ...] with the values [W, ...] of one worker in its row."""
    index = (row, *(jnp.full_like(row, i) for i in (worker, *(0,) * (table.ndim - 2))))  # row, worker, 0, 0, ...
    return jax.lax.dynamic_update_slice(table, values[worker][None, None], index)


@with_rows.def_vmap
def _with_rows_of_batch(
    axis_size: int, in_batched: list[Any], tables: Any, row: jax.Array, values: Any
) -> tuple[Any, Any]:
    """The rule of `with_rows` for vmap: a scatter; and True for each table, as all differ between the runs then.

    `in_batched` says of each argument, array by array, whether it has a leading axis of runs.
    """
    axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(in_batched))
    results = jax.vmap(_scattered, in_axes=axes, axis_size=axis_size)(tables, row, values)
    return results, jax.tree.map(lambda _: True, results)


def _scattered(tables: Any, row: jax.Array, values: Any) -> Any:
    """The tables [J, W, ...] with `values` [W, ...] in the rows `row int32[W]`, by a scatter."""
    worker = jnp.arange(row.size, dtype=jnp.int32)
    return jax.tree.map(lambda table, value: table.at[row, worker].set(value), tables, values)
