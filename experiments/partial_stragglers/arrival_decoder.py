"""Optimal decoding of a fixed code for many rounds at once, each stopped at several moments.

Workers arrive one after the other, so the sets of one round are nested, and one Cholesky factor of the messages' Gram
matrix `G`, its rows in the order of arrival, solves for all of them: a set is a leading block. For sets of more than
half of the workers the few that are missing are taken out of the solution of all instead: with `P = G^-1` and C the
missing ones, `y = P (b - E_C z)` with `P_CC z = (P b)_C`, and again one factor, of the rows of P in the reverse order,
solves for all. Together that is a quarter of the work of one whole factor or less. It needs a G that is not near to
singular.

The factor is a tree of blocks with the inverses of small diagonal blocks, so that all is batched products: XLA hands
a batch of factorisations or triangular solves to LAPACK one by one on a CPU, which is ten times slower.

Letters: S rounds, D moments, W workers, N chunks, K chunks a worker holds, R holders of a chunk, L blocks.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import compiler_options
from gcjax.codes.base import Assignment, default_float, holders

RIDGE = 1e-12
"""Added to the diagonal of G, relative to its largest eigenvalue, so that messages may depend on each other."""

MAX_CONDITION = 1e8
"""Where G has a larger condition number, P loses too many digits, and every set is solved as a leading block."""

_LEAF = 16
_BLOCK = 50
"""Rounds that are solved together: few enough for the cache, many enough for the processor."""


class Arrivals(NamedTuple):
    """How a fixed code decodes what has arrived; arrays of NumPy, or of JAX where they are computed.

    Attributes:
      weights: float[W, S, deadlines, L], of the message of each worker in each output block; 0 for those not arrived.
      residual: float[S, deadlines], the Frobenius distance of the decoded coefficients of all chunks from the identity.
    """

    weights: Any
    residual: Any


class _Code(NamedTuple):
    """What does not depend on who arrives: G, P, b and P b, and the coefficients by chunk, with the holders; arrays."""

    gram: Any  # float[W, W]
    inverse_gram: Any  # float[W, W]
    right_side: Any  # float[W, L]
    weights_of_all: Any  # float[W, L]
    encode_by_holder: Any  # float[R, N, L]
    holder_workers: Any  # int32[R, N]


class _Factors(NamedTuple):
    """The Cholesky factors of a block of rounds, trees of blocks: of G and of P; None where no moment needs it."""

    leading: Any
    missing: Any


class _Sizes(NamedTuple):
    """Static sizes: rows of either factor, and which moments it serves."""

    leading_rows: int
    leading_moments: tuple[int, ...]
    missing_rows: int
    missing_moments: tuple[int, ...]


def arrival_decoder(
    assignment: Assignment, coefficients: np.ndarray
) -> Callable[[np.ndarray | jax.Array, np.ndarray | jax.Array], Arrivals]:
    """Optimal (least-squares) decoding of one message a worker, after any number of arrivals.

    Args:
      assignment: who holds what.
      coefficients: float[W, K, L], of block l of the chunk in slot k in the message of a worker.

    Returns:
      A function `(order int[S, W], counts int[S, deadlines]) -> Arrivals`: the workers in the order of their arrival,
      and how many have arrived at each moment. It looks at `counts` to choose the sizes of its arrays, so it cannot be
      traced. Messages that depend on each other share their weight: to the least norm, up to `RIDGE`.

    Raises:
      ValueError: if shapes do not fit, a count is not between 0 and W, or JAX is not switched to 64 bits.
    """
    coefficients = _masked_coefficients(assignment, coefficients)
    code, gram_condition = _code_and_condition(assignment, coefficients)

    def decode(order: np.ndarray | jax.Array, counts: np.ndarray | jax.Array) -> Arrivals:
        """How S rounds are decoded, `_BLOCK` at a time: `order int[S, W]`, `counts int[S, deadlines]`."""
        if default_float() != np.float64:
            raise ValueError(
                "arrival_decoder needs float64, since forming G squares the condition number; JAX is set to float32. "
                "Call it within jax.enable_x64(True)."
            )
        counts = _valid_counts(assignment, order, counts)
        code_on_device, order = jax.device_put(code), jnp.asarray(order, jnp.int32)
        sizes = _sizes(counts, assignment.num_workers, is_invertible=gram_condition <= MAX_CONDITION)
        arrivals_of_trial_blocks = []
        for first_trial in range(0, len(counts), _BLOCK):
            of_block = slice(first_trial, first_trial + _BLOCK)
            # By itself, so that one program serves any number of output blocks.
            factors = _compiled(_factors, 2)(code_on_device.gram, code_on_device.inverse_gram, sizes, order[of_block])
            arrivals_of_trial_blocks.append(
                _compiled(_decode_block, 1)(code_on_device, sizes, factors, order[of_block], counts[of_block])
            )
        return Arrivals(
            weights=np.concatenate([arrivals.weights for arrivals in arrivals_of_trial_blocks], axis=1),
            residual=np.concatenate([arrivals.residual for arrivals in arrivals_of_trial_blocks]),
        )

    return decode


def _masked_coefficients(assignment: Assignment, coefficients: np.ndarray) -> np.ndarray:
    """float64[W, K, L]: the coefficients, 0 where there is no chunk; a `ValueError` for another shape."""
    array = np.asarray(coefficients, np.float64)
    if array.ndim != 3 or array.shape[:2] != assignment.chunks.shape or not array.shape[2]:
        raise ValueError(
            f"coefficients must be float[W, K, L] with W={assignment.num_workers} and K={assignment.load}; "
            f"got shape {array.shape}."
        )
    return np.where((assignment.chunks >= 0)[..., None], array, 0.0)


def _valid_counts(assignment: Assignment, order: Any, counts: Any) -> np.ndarray:
    """int32[S, deadlines]: the counts; a `ValueError` for a wrong shape, or one that is no number of workers."""
    num_workers, array = assignment.num_workers, np.asarray(counts)
    if np.ndim(order) != 2 or np.shape(order)[1] != num_workers or array.ndim != 2 or len(array) != len(order):
        raise ValueError(
            f"order must be int[S, {num_workers}] and counts int[S, deadlines]; got {np.shape(order)} and "
            f"{array.shape}."
        )
    if array.dtype.kind not in "iu" or array.size == 0 or array.min() < 0 or array.max() > num_workers:
        raise ValueError(f"counts must be whole numbers between 0 and {num_workers}, the workers; got {array}.")
    return array.astype(np.int32)


def _code_and_condition(assignment: Assignment, coefficients: np.ndarray) -> tuple[_Code, float]:
    """The code as arrays, and the condition number of G float64[W, W], the inner products of the messages.

    `coefficients`: float[W, K, L], of block l of the chunk in slot k; b is float64[W, L], the inner products of the
    messages with the exact sum of each block.
    """
    num_workers, num_blocks = len(coefficients), coefficients.shape[2]
    messages = np.zeros((num_workers, assignment.num_chunks, num_blocks))  # [W, N, L]
    worker, slot = np.nonzero(assignment.chunks >= 0)
    messages[worker, assignment.chunks[worker, slot]] = coefficients[worker, slot]
    right_side = messages.sum(axis=1)  # b: over chunks
    flat_messages = messages.reshape(num_workers, -1)  # [W, N·L]
    eigenvalues, eigenvectors = np.linalg.eigh(flat_messages @ flat_messages.T)
    eigenvalues = eigenvalues.clip(0) + RIDGE * eigenvalues.max()
    gram = (eigenvectors * eigenvalues) @ eigenvectors.T
    inverse_gram = (eigenvectors / eigenvalues) @ eigenvectors.T
    chunk_holders = holders(assignment)  # -1 pads; such a holder has coefficients 0, and stands for worker 0 below
    encode_by_chunk = np.where(
        (chunk_holders.workers >= 0)[..., None], coefficients[chunk_holders.workers, chunk_holders.slots], 0.0
    )
    code = _Code(
        gram=gram, inverse_gram=inverse_gram, right_side=right_side, weights_of_all=inverse_gram @ right_side,
        encode_by_holder=np.swapaxes(encode_by_chunk, 0, 1),
        holder_workers=np.ascontiguousarray(chunk_holders.workers.T.clip(0).astype(np.int32)),
    )  # fmt: skip
    return code, float(eigenvalues.max() / eigenvalues.min())


def _sizes(counts: np.ndarray, num_workers: int, *, is_invertible: bool) -> _Sizes:
    """Which factor solves for which moment: that with fewer rows, of the arrived workers or of the missing ones.

    `counts`: int[S, moments], the arrived. The one of the arrived (leading) if the inverse of G is not good enough.
    """
    most_arrived, most_missing = counts.max(axis=0), num_workers - counts.min(axis=0)
    is_leading = (most_arrived <= most_missing) | (not is_invertible)

    def rows_in_whole_leaves(rows_needed: np.ndarray) -> int:  # the most of any moment, rounded up
        return -(-int(rows_needed.max(initial=0)) // _LEAF) * _LEAF

    return _Sizes(
        leading_rows=rows_in_whole_leaves(most_arrived[is_leading]),
        leading_moments=tuple(np.flatnonzero(is_leading).tolist()),
        missing_rows=rows_in_whole_leaves(most_missing[~is_leading]),
        missing_moments=tuple(np.flatnonzero(~is_leading).tolist()),
    )


@functools.cache
def _compiled(function: Callable[..., Any], static_argument: int) -> Any:
    """The function, to be compiled for all shapes and for each value of the argument with this number."""
    return jax.jit(function, static_argnums=static_argument, compiler_options=compiler_options.quick_to_compile())


def _factors(gram: jax.Array, inverse_gram: jax.Array, sizes: _Sizes, order: jax.Array) -> _Factors:
    """The factors for a block of rounds, `order int[S, W]`, whose rows are workers as they arrive; G and P [W, W]."""
    return _Factors(
        leading=_factor_of_first(gram, order, sizes.leading_rows) if sizes.leading_moments else None,
        missing=_factor_of_first(inverse_gram, order[:, ::-1], sizes.missing_rows) if sizes.missing_moments else None,
    )


def _decode_block(code: _Code, sizes: _Sizes, factors: _Factors, order: jax.Array, counts: jax.Array) -> Arrivals:
    """How a block of rounds is decoded, of which everything is on a device."""
    weights = _weights(code, sizes, factors, order, counts)
    return Arrivals(weights, _residual(code.encode_by_holder, code.holder_workers, weights))


def _weights(code: _Code, sizes: _Sizes, factors: _Factors, order: jax.Array, counts: jax.Array) -> jax.Array:
    """float[W, S, deadlines, L]: the weights of the messages of who has arrived, 0 for the others.

    `order`: int[S, W], workers as they arrive; `counts`: int[S, deadlines], how many have.
    """
    num_workers = order.shape[1]
    ranks = np.arange(num_workers, dtype=np.int32)[None]
    # int[S, W]: the place of each worker in the order.
    rank_of_worker = jnp.put_along_axis(
        jnp.zeros_like(order), order, jnp.broadcast_to(ranks, order.shape), axis=1, inplace=False
    )
    weights_of_factors = []
    if sizes.leading_moments:
        leading_counts = counts[:, np.array(sizes.leading_moments)]
        weights_of_factors.append(
            _solve_leading(factors.leading, code.right_side, order, rank_of_worker, leading_counts, sizes.leading_rows)
        )
    if sizes.missing_moments:
        missing_counts = num_workers - counts[:, np.array(sizes.missing_moments)]
        weights_of_factors.append(
            _weights_without_missing(code, factors.missing, order, rank_of_worker, missing_counts, sizes.missing_rows)
        )
    moment_order = np.argsort(np.array(sizes.leading_moments + sizes.missing_moments))  # back to that of `counts`
    weights = jnp.concatenate(weights_of_factors, axis=2)  # along moments
    is_in_order = (np.diff(moment_order) == 1).all()
    return weights if is_in_order else weights[:, :, moment_order]


def _weights_without_missing(
    code: _Code, factor: Any, order: jax.Array, rank_of_worker: jax.Array, missing_counts: jax.Array, num_rows: int
) -> jax.Array:
    """float[W, S, missing moments, L]: the weights of all workers, less what the missing ones take out of them.

    `factor`, of `num_rows` rows, is that of P; `order`, `rank_of_worker`: int[S, W]; `missing_counts`:
    int[S, missing moments], the last so many of the order.
    """
    num_workers = order.shape[1]
    rank_from_end = num_workers - 1 - rank_of_worker
    reversed_order = order[:, ::-1]
    taken_by_missing = _solve_leading(
        factor, code.weights_of_all, reversed_order, rank_from_end, missing_counts, num_rows
    )
    taken_from_weights = (code.inverse_gram @ taken_by_missing.reshape(num_workers, -1)).reshape(taken_by_missing.shape)
    has_arrived = rank_from_end.T[:, :, None, None] >= missing_counts[None, :, :, None]
    return jnp.where(has_arrived, code.weights_of_all[:, None, None] - taken_from_weights, 0)


def _factor_of_first(table: jax.Array, order: jax.Array, num_rows: int) -> Any:
    """The factor, a tree of blocks, of the first `num_rows` workers of `order int[S, W]` in a symmetric table [W, W].

    Rows beyond the W workers are those of the identity. None without rows.
    """
    if not num_rows:
        return None
    used_workers = order[:, :num_rows]
    num_identity_rows = num_rows - used_workers.shape[1]
    padded_workers = jnp.pad(used_workers, ((0, 0), (0, num_identity_rows)), constant_values=-1)
    return _cholesky_factor(_Gram(table, padded_workers), update=None)


def _solve_leading(
    factor: Any, right: jax.Array, order: jax.Array, rank_of_worker: jax.Array, counts: jax.Array, num_rows: int
) -> jax.Array:
    """Solves `table[o, o] x = right[o]` for o the first `counts` of `order`: float[W, S, deadlines, L], else 0.

    `right`: float[W, L]; `order`, `rank_of_worker`: int[S, W], and `counts`: int[S, deadlines]. One factor, by
    `_factor_of_first` of the table, of `num_rows` rows, the most of any count or more, serves all deadlines.
    """
    num_workers, num_blocks = right.shape
    num_rounds, num_moments = counts.shape
    if not num_rows:
        return jnp.zeros((num_workers, num_rounds, num_moments, num_blocks), right.dtype)
    used_workers = order[:, :num_rows]
    num_identity_rows = num_rows - used_workers.shape[1]
    padded_right = jnp.pad(right[used_workers], ((0, 0), (0, num_identity_rows), (0, 0)))  # [S, rows, L]
    forward_solution = _solve_forward(factor, padded_right)
    is_row_counted = np.arange(num_rows, dtype=np.int32)[None, :, None] < counts[:, None, :]
    # [S, rows, deadlines, L]: forward, a row depends on those before it only, so the rest is cut off afterwards.
    counted_solution = jnp.where(is_row_counted[..., None], forward_solution[:, :, None, :], 0)
    solution_by_row = _solve_backward(factor, counted_solution.reshape(num_rounds, num_rows, num_moments * num_blocks))
    row_of_worker = jnp.minimum(rank_of_worker.T, num_rows - 1)  # who is in no row counts for no deadline
    rounds = np.arange(num_rounds, dtype=np.int32)[None]
    solution_by_worker = solution_by_row[rounds, row_of_worker].reshape(
        num_workers, num_rounds, num_moments, num_blocks
    )
    is_worker_counted = rank_of_worker.T[:, :, None] < counts[None]
    return jnp.where(is_worker_counted[..., None], solution_by_worker, 0)


def _residual(encode_by_holder: jax.Array, holder_workers: jax.Array, weights: jax.Array) -> jax.Array:
    """float[S, deadlines]: the residual of the decoded sum, from the weights, by the non-zero coefficients only.

    `encode_by_holder`: float[R, N, L]; `holder_workers`: int[R, N]; `weights`: float[W, S, deadlines, L].
    """
    num_blocks = encode_by_holder.shape[2]
    flat_weights = weights.reshape(weights.shape[0], -1)  # [W, S·deadlines·L]
    squared_error = jnp.zeros_like(flat_weights[0])
    for block in range(num_blocks):
        identity = jnp.eye(num_blocks, dtype=weights.dtype)
        exact = jnp.broadcast_to(identity[block], weights.shape[1:]).reshape(1, -1)  # 1 for the output of this block
        decoded_by_holder = (
            encode_by_holder[holder, :, block][:, None] * flat_weights[workers]
            for holder, workers in enumerate(holder_workers)
        )
        error = sum(decoded_by_holder, -exact)  # [N, S·deadlines·L]
        squared_error = squared_error + (error**2).sum(axis=0)  # over chunks alone: the outermost axis is vectorised
    # Over outputs, the last axis.
    return jnp.sqrt(squared_error.reshape(weights.shape[1:]).sum(axis=-1))


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

    n = stop - start; None takes nothing off. A part of at most `_LEAF` rows is the inverse of its factor, no `_Node`.
    """
    stop = gram.order.shape[1] if stop is None else stop
    size = stop - start
    if size <= _LEAF:
        block = gram.block(slice(start, stop), slice(start, stop))
        return _inverse_cholesky_factor(block if update is None else block - update)
    half = (size // _LEAF + 1) // 2 * _LEAF
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


def _solve_forward(node: Any, right_side: jax.Array) -> jax.Array:
    """The inverse of the factor (a tree, or the inverse of a leaf) times `right_side float[S, n, columns]`."""
    if not isinstance(node, _Node):
        inverse_factor = node
        return inverse_factor @ right_side
    size_of_first = node.below.shape[2]
    first_part = _solve_forward(node.first, right_side[:, :size_of_first])
    last_part = _solve_forward(node.last, right_side[:, size_of_first:] - node.below @ first_part)
    return jnp.concatenate([first_part, last_part], axis=1)


def _solve_backward(node: Any, right_side: jax.Array) -> jax.Array:
    """The inverse of the transposed factor (a tree, or a leaf's inverse) times `right_side float[S, n, columns]`."""
    if not isinstance(node, _Node):
        inverse_factor = node
        return jnp.swapaxes(inverse_factor, 1, 2) @ right_side
    size_of_first = node.below.shape[2]
    last_part = _solve_backward(node.last, right_side[:, size_of_first:])
    remaining_right_side = right_side[:, :size_of_first] - jnp.swapaxes(node.below, 1, 2) @ last_part
    first_part = _solve_backward(node.first, remaining_right_side)
    return jnp.concatenate([first_part, last_part], axis=1)
