"""Cholesky factors of many matrices at once, as trees of blocks.

A factor is a tree of blocks with the inverses of small diagonal blocks, so that all is batched products: XLA hands
a batch of factorisations or triangular solves to LAPACK one by one on a CPU, which is ten times slower.

Letters: S rounds, W workers.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LEAF = 16
"""Rows of a diagonal block that is not divided; factors have a multiple of so many."""


def factor_of_first(table: jax.Array, order: jax.Array, num_rows: int) -> Any:
    """The factor, a tree of blocks, of the first `num_rows` workers of `order int[S, W]` in a symmetric table [W, W].

    Rows beyond the W workers are those of the identity. None without rows.
    """
    if not num_rows:
        return None
    used_workers = order[:, :num_rows]
    num_identity_rows = num_rows - used_workers.shape[1]
    padded_workers = jnp.pad(used_workers, ((0, 0), (0, num_identity_rows)), constant_values=-1)
    return _cholesky_factor(_Gram(table, padded_workers), update=None)


class _Gram(NamedTuple):
    """The rows and columns `order` of a symmetric table, read only where they are needed; -1 is the identity."""

    table: jax.Array
    order: jax.Array

    def block(self, rows: slice, columns: slice) -> jax.Array:
        """float[S, rows, columns]: a part of each round's matrix, in the order of arrival; padding is the identity."""
        table_rows, table_columns = self.order[:, rows, None], self.order[:, None, columns]
        flat_index = table_rows.clip(0) * self.table.shape[1] + table_columns.clip(0)
        is_diagonal = np.equal.outer(np.arange(rows.start, rows.stop), np.arange(columns.start, columns.stop))[None]
        table_entries = self.table.reshape(-1).at[flat_index].get(mode="promise_in_bounds")
        is_in_table = (table_rows >= 0) & (table_columns >= 0)
        return jnp.where(is_in_table, table_entries, jnp.asarray(is_diagonal, table_entries.dtype))


class _Node(NamedTuple):
    """The factor [[first, 0], [below, last]]; a leaf is an array: the inverse of its own diagonal block."""

    first: Any
    below: jax.Array
    last: Any


def _cholesky_factor(gram: _Gram, update: jax.Array | None, start: int = 0, stop: int | None = None) -> Any:
    """The Cholesky factor, as a tree of blocks, of rows and columns `start` to `stop`, less `update float[S, n, n]`.

    n = stop - start; None takes nothing off. A part of at most `LEAF` rows is the inverse of its factor, no `_Node`.
    """
    stop = gram.order.shape[1] if stop is None else stop
    size = stop - start
    if size <= LEAF:
        block = gram.block(slice(start, stop), slice(start, stop))
        return _inverse_cholesky_factor(block if update is None else block - update)
    half = (size // LEAF + 1) // 2 * LEAF
    middle = start + half
    first_factor = _cholesky_factor(gram, None if update is None else update[:, :half, :half], start, middle)
    corner = gram.block(slice(middle, stop), slice(start, middle))
    below = _divide_by_transposed_factor(first_factor, corner if update is None else corner - update[:, half:, :half])
    square_of_below = below @ jnp.swapaxes(below, 1, 2)
    update_of_last = square_of_below if update is None else update[:, half:, half:] + square_of_below
    return _Node(first_factor, below, last=_cholesky_factor(gram, update_of_last, middle, stop))


def _inverse_cholesky_factor(block: jax.Array) -> jax.Array:
    """The inverse of the Cholesky factor of `float[S, n, n]`, in place, with the rounds innermost."""
    size = block.shape[1]
    row = np.arange(size, dtype=np.int32)[:, None]

    def eliminate_column(k: jax.Array, matrix: jax.Array) -> jax.Array:
        """float[n, n, S]: the matrix with column k of the factor taken, and that of the inverse in its place."""
        inverse_pivot = jax.lax.rsqrt(matrix[k, k])[None]
        factor_column = matrix[:, k] * inverse_pivot
        # Row k comes out divided by the pivot, those below it less their multiple of that, those above as they are.
        multipliers = jnp.where(row > k, factor_column, jnp.where(row == k, 1 / inverse_pivot - 1, 0))
        unit_column = jnp.asarray(row == k, block.dtype)  # column k turns from the block's into that of the inverse
        matrix = jnp.where((row == k)[None], unit_column[:, None], matrix)
        row_multipliers = multipliers[:, None]
        scaled_pivot_row = matrix[k] * inverse_pivot
        return matrix - row_multipliers * scaled_pivot_row[None]

    rounds_innermost = jnp.transpose(block, (1, 2, 0))
    inverse = jax.lax.fori_loop(0, size, eliminate_column, rounds_innermost)
    return jnp.tril(jnp.transpose(inverse, (2, 0, 1)))


def _divide_by_transposed_factor(node: Any, rows: jax.Array) -> jax.Array:
    """float[S, m, n]: `rows float[S, m, n]` times the inverse of the transposed factor, a tree of blocks or a leaf."""
    if not isinstance(node, _Node):
        inverse_factor = node
        return rows @ jnp.swapaxes(inverse_factor, 1, 2)
    size_of_first = node.below.shape[2]
    first_part = _divide_by_transposed_factor(node.first, rows[:, :, :size_of_first])
    remaining_rows = rows[:, :, size_of_first:] - first_part @ jnp.swapaxes(node.below, 1, 2)
    last_part = _divide_by_transposed_factor(node.last, remaining_rows)
    return jnp.concatenate([first_part, last_part], axis=2)


def solve_forward(node: Any, right_side: jax.Array) -> jax.Array:
    """The inverse of the factor (a tree, or the inverse of a leaf) times `right_side float[S, n, columns]`."""
    if not isinstance(node, _Node):
        inverse_factor = node
        return inverse_factor @ right_side
    size_of_first = node.below.shape[2]
    first_part = solve_forward(node.first, right_side[:, :size_of_first])
    last_part = solve_forward(node.last, right_side[:, size_of_first:] - node.below @ first_part)
    return jnp.concatenate([first_part, last_part], axis=1)


def solve_backward(node: Any, right_side: jax.Array) -> jax.Array:
    """The inverse of the transposed factor (a tree, or a leaf's inverse) times `right_side float[S, n, columns]`."""
    if not isinstance(node, _Node):
        inverse_factor = node
        return jnp.swapaxes(inverse_factor, 1, 2) @ right_side
    size_of_first = node.below.shape[2]
    last_part = solve_backward(node.last, right_side[:, size_of_first:])
    remaining_right_side = right_side[:, :size_of_first] - jnp.swapaxes(node.below, 1, 2) @ last_part
    first_part = solve_backward(node.first, remaining_right_side)
    return jnp.concatenate([first_part, last_part], axis=1)
