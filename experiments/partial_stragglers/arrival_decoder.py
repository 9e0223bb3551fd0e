"""Optimal decoding of a fixed code for many rounds at once, each stopped at several moments.

Workers arrive one after the other, so the sets of one round are nested, and one Cholesky factor of the messages' Gram
matrix `G`, its rows in the order of arrival, solves for all of them: a set is a leading block. For sets of more than
half of the workers the few that are missing are taken out of the solution of all instead: with `P = G^-1` and C the
missing ones, `y = P (b - E_C z)` with `P_CC z = (P b)_C`, and again one factor, of the rows of P in the reverse order,
solves for all. Together that is a quarter of the work of one whole factor or less. It needs a G that is not near to
singular.

Letters: S rounds, D moments, W workers, N chunks, K chunks a worker holds, R holders of a chunk, L blocks.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.partial_stragglers.cholesky_tree import LEAF, factor_of_first, solve_backward, solve_forward
from gcjax import compiler_options
from gcjax.codes.base import Assignment, holders

RIDGE = 1e-12
"""Added to the diagonal of G, relative to its largest eigenvalue, so that messages may depend on each other."""

MAX_CONDITION = 1e8
"""Where G has a larger condition number, P loses too many digits, and every set is solved as a leading block."""

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
        if jnp.result_type(float) != np.float64:
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
        return -(-int(rows_needed.max(initial=0)) // LEAF) * LEAF

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
        leading=factor_of_first(gram, order, sizes.leading_rows) if sizes.leading_moments else None,
        missing=factor_of_first(inverse_gram, order[:, ::-1], sizes.missing_rows) if sizes.missing_moments else None,
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


def _solve_leading(
    factor: Any, right: jax.Array, order: jax.Array, rank_of_worker: jax.Array, counts: jax.Array, num_rows: int
) -> jax.Array:
    """Solves `table[o, o] x = right[o]` for o the first `counts` of `order`: float[W, S, deadlines, L], else 0.

    `right`: float[W, L]; `order`, `rank_of_worker`: int[S, W], and `counts`: int[S, deadlines]. One factor, by
    `factor_of_first` of the table, of `num_rows` rows, the most of any count or more, serves all deadlines.
    """
    num_workers, num_blocks = right.shape
    num_rounds, num_moments = counts.shape
    if not num_rows:
        return jnp.zeros((num_workers, num_rounds, num_moments, num_blocks), right.dtype)
    used_workers = order[:, :num_rows]
    num_identity_rows = num_rows - used_workers.shape[1]
    padded_right = jnp.pad(right[used_workers], ((0, 0), (0, num_identity_rows), (0, 0)))  # [S, rows, L]
    forward_solution = solve_forward(factor, padded_right)
    is_row_counted = np.arange(num_rows, dtype=np.int32)[None, :, None] < counts[:, None, :]
    # [S, rows, deadlines, L]: forward, a row depends on those before it only, so the rest is cut off afterwards.
    counted_solution = jnp.where(is_row_counted[..., None], forward_solution[:, :, None, :], 0)
    solution_by_row = solve_backward(factor, counted_solution.reshape(num_rounds, num_rows, num_moments * num_blocks))
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
