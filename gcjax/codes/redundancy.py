"""Decoding through the redundancy of a code: a system for the few stragglers instead of one for all who have finished.

A code that tolerates any s stragglers has messages that depend on each other: with the messages as the rows of E there
are D = s·M independent combinations that vanish, the columns of Z, with `Z' E = 0`. If x are the weights that decode
from everybody, the weights `x + Z y` decode, too, and do without the stragglers C iff `Z_C y = -x_C`: at most D
equations. Z and x are computed once, in float64. With the columns of Z orthonormal and x orthogonal to them the
least y gives the least weights. An error in y stays within Z and so costs no exactness; what is left is what rounding
the weights and the coefficients leaves.

Letters: n = W workers, s stragglers, N chunks, K chunks a worker holds, L blocks, M messages a worker sends.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax._products import einsum
from gcjax.codes.base import Assignment, holders, residual
from gcjax.codes.diagnostics.rounding import max_exact_residual
from gcjax.codes.fixed import Decode
from gcjax.codes.least_squares import least_norm, least_squares

MAX_RESIDUAL = 1e-3
"""What an exact code may leave with everybody's full work, by rounding alone."""

NUM_ORTHOGONALISATIONS = 2
"""Twice, against rounding."""

NUM_REFINEMENTS = 4
"""Of the weights of a sparse system: its first solution can be far longer than its part that is orthogonal to Z."""


class Redundancy(NamedTuple):
    """All weights that decode from everybody, of messages that are scaled to coefficients of length one.

    Attributes:
      full_weights: float64[W, M, L], x: the least weights that decode from everybody, orthogonal to Z.
      null_basis: float64[W, M, s·M], Z: orthonormal combinations of the messages that are zero.
      lengths: float64[W, M], of the coefficients of each message.
    """

    full_weights: np.ndarray
    null_basis: np.ndarray
    lengths: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """float64[W, M, L]: the least weights for the messages as they are."""
        return self.full_weights / self.lengths[..., None]


def redundancy_of(coefficients: np.ndarray, full_weights: np.ndarray, null_basis: np.ndarray) -> Redundancy:
    """All weights that decode from everybody, from some such weights and a basis of those with the sum zero.

    They are x + Z y for any y float[s·M, L], with x the `full_weights` and Z the `null_basis` of what comes back: for
    messages scaled to length one, Z orthonormal, and x orthogonal to Z.

    Args:
      coefficients: float[W, M, K, L], of block l of the chunk in slot k in message m of worker w.
      full_weights: float[W, M, L], decode from everybody.
      null_basis: float[W, M, s·M], independent weights with which the messages add up to zero.
    """
    lengths = np.sqrt((coefficients**2).sum(axis=(2, 3)))  # [W, M]
    # A message that is divided by its length has a weight that is multiplied by it.
    scaled_basis, scaled_weights = null_basis * lengths[..., None], full_weights * lengths[..., None]
    basis = np.linalg.qr(scaled_basis.reshape(lengths.size, -1))[0]  # float64[W·M, s·M]
    weights = scaled_weights.reshape(lengths.size, -1)  # float64[W·M, L]
    for _ in range(NUM_ORTHOGONALISATIONS):
        weights = weights - basis @ (basis.T @ weights)
    return Redundancy(weights.reshape(full_weights.shape), basis.reshape(*lengths.shape, -1), lengths)


def sparse_redundancy(assignment: Assignment, coefficients: np.ndarray, num_stragglers: int) -> Redundancy:
    """All weights that decode from everybody, for a code with N = W and M = 1, by one sparse factorisation.

    What comes back has the shapes [W, 1, 1] of `full_weights`, [W, 1, s] of `null_basis` and [W, 1] of `lengths`, the
    second axis that of the one message.

    The rows of E float[n, n], n = W, are the messages, of length one, over all chunks. The bordered matrix `[[E', S],
    [S', 0]]` is regular if S float[n, s], a single 1 in each column, picks s workers that can be missing, and s chunks
    (of the same numbers) that nothing but the rank of E ties down. With banded E it takes O(n s²).

    Args:
      assignment: who holds what; N = W.
      coefficients: float[W, K], of the chunk in each slot of each worker.
      num_stragglers: s, at least 1: so much less than n is the rank of E.
    """
    from scipy.sparse import block_array, csc_array
    from scipy.sparse.linalg import splu

    num_workers = assignment.num_workers
    unit_rows = coefficients / np.linalg.norm(coefficients, axis=1, keepdims=True)
    chunk_and_worker = assignment.chunks.ravel(), np.repeat(np.arange(num_workers), assignment.load)
    transposed = csc_array((unit_rows.ravel(), chunk_and_worker), (num_workers, num_workers))  # E'
    spread_workers = np.arange(num_stragglers) * num_workers // num_stragglers  # where S has its ones
    null_shape, border_columns = (num_workers, num_stragglers), np.arange(num_stragglers)
    border = csc_array((np.ones(num_stragglers), (spread_workers, border_columns)), null_shape)
    bordered = block_array([[transposed, border], [border.T, None]], format="csc")
    bordered_factors = splu(bordered)

    def weights_for_sum(chunk_sum: np.ndarray, border_values: np.ndarray | float = 0.0) -> np.ndarray:
        """float64[n, columns]: weights of the messages that add up to `chunk_sum float[n, columns]`.

        They are the first n rows of the solution of the bordered system `bordered`, [n + s, n + s], refined once.
        `border_values`, float[s, columns], are what the weights of the s workers are that its border picks.
        """
        right_side = np.zeros((num_workers + num_stragglers, chunk_sum.shape[1]))
        right_side[:num_workers], right_side[num_workers:] = chunk_sum, border_values
        solution = bordered_factors.solve(right_side)
        correction = bordered_factors.solve(right_side - bordered @ solution)
        return (solution + correction)[:num_workers]

    null_basis = np.linalg.qr(weights_for_sum(np.zeros(null_shape), border_values=np.eye(num_stragglers)))[0]  # [n, s]
    # Without what rounding leaves of their sums.
    null_basis = np.linalg.qr(null_basis - weights_for_sum(transposed @ null_basis))[0]
    full_weights = np.zeros((num_workers, 1))
    for _ in range(NUM_REFINEMENTS):
        full_weights = full_weights + weights_for_sum(1 - transposed @ full_weights)
        full_weights = full_weights - null_basis @ (null_basis.T @ full_weights)
    lengths = np.linalg.norm(coefficients, axis=1)[:, None]
    return Redundancy(full_weights[:, None], null_basis[:, None], lengths)


def redundant_decode(assignment: Assignment, redundancy: Redundancy) -> Decode:
    """A `decode` of `fixed_code`, `(progress, encode) -> float[W, M, L]`, by a system for the stragglers alone.

    Least squares takes over with more stragglers than the redundancy makes up for, and where rounding loses so much
    that least squares leaves a smaller residual.
    """
    _, num_messages, num_blocks = redundancy.full_weights.shape
    num_tolerated = redundancy.null_basis.shape[2] // num_messages
    least_squares_weights = least_squares(assignment, num_messages, num_blocks)
    if not num_tolerated:
        return lambda progress, encode: least_squares_weights(encode)
    tolerance = max_exact_residual(assignment.num_chunks, num_blocks)
    null_and_weights = np.concatenate([redundancy.null_basis, redundancy.full_weights], axis=2)
    scaled_rows = null_and_weights / redundancy.lengths[..., None]  # divided in float64, and rounded once
    # The last row, of zeros, is read where there are fewer stragglers than the redundancy makes up for.
    rows_with_zeros = np.concatenate([null_and_weights, np.zeros_like(null_and_weights[:1])])

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        """float[W, M, L]: weights x + Z y, with coordinates y such that the stragglers get the weight 0.

        `rows_with_zeros` is float[W + 1, M, D + L]: the rows of Z, D = s·M columns, and of x, for each message; 0 at W.
        `scaled_rows` is the same for messages as they are, of any length. s = `num_tolerated` stragglers are made up
        for: with more of them, or where rounding leaves too much, the least-squares weights are tried.
        """
        is_straggler = progress < assignment.loads  # bool[W]
        straggler_ids = jnp.nonzero(is_straggler, size=num_tolerated, fill_value=assignment.num_workers)[0]
        straggler_rows = jnp.asarray(rows_with_zeros, jnp.result_type(float))[straggler_ids]
        straggler_rows = straggler_rows.reshape(num_tolerated * num_messages, -1)  # [s·M, D + L]
        straggler_null_rows, straggler_weights = straggler_rows[:, :-num_blocks], straggler_rows[:, -num_blocks:]
        coordinates = least_norm(straggler_null_rows, -straggler_weights)  # y: [D, L]
        all_rows = jnp.asarray(scaled_rows, jnp.result_type(float))
        null_combination = einsum("wmd,da->wma", all_rows[..., :-num_blocks], coordinates)
        weights = jnp.where(is_straggler[:, None, None], 0, all_rows[..., -num_blocks:] + null_combination)
        remaining_residual = residual(assignment, encode, weights)

        def smaller_residual_weights() -> jax.Array:
            """float[W, M, L]: these `weights` or those of least squares, whichever leave the smaller residual."""
            fitted_weights = least_squares_weights(encode)
            return jnp.where(residual(assignment, encode, fitted_weights) < remaining_residual, fitted_weights, weights)

        is_accurate = (is_straggler.sum() <= num_tolerated) & (remaining_residual <= tolerance)
        return jax.lax.cond(is_accurate, lambda: weights, smaller_residual_weights)

    return decode


def full_residual(coefficients: np.ndarray, assignment: Assignment, redundancy: Redundancy) -> float:
    """The residual with everybody's full work, by rounding weights and coefficients to JAX's default float type alone.

    Args:
      coefficients: float[W, M, K, L]: of message m of worker w the factor of block l of its k-th chunk.
      assignment: who holds what.
      redundancy: all decoding weights with which the full work gives the sum; its `weights` are the least of them.
    """
    dtype, num_blocks = jnp.result_type(float), coefficients.shape[3]
    encode, decode = coefficients.astype(dtype), redundancy.weights.astype(dtype)
    products_by_slot = np.einsum("wma,wmkb->wkab", decode, encode)  # [W, K, L, L]
    decoded = np.zeros((assignment.num_chunks, num_blocks, num_blocks), dtype)
    workers, slots = np.nonzero(assignment.chunks >= 0)
    np.add.at(decoded, assignment.chunks[workers, slots], products_by_slot[workers, slots])
    error = decoded - np.eye(num_blocks, dtype=dtype)  # the sum has each block of each chunk once
    return float(np.linalg.norm(error.astype(np.float64)))


def straggler_residuals(
    coefficients: np.ndarray, assignment: Assignment, redundancy: Redundancy, masks: np.ndarray
) -> np.ndarray:
    """float64[masks]: the residual without the given workers, by rounding weights and coefficients alone.

    Args:
      coefficients: float[W, M, K, L]: of message m of worker w the factor of block l of its k-th chunk.
      assignment: who holds what.
      redundancy: all decoding weights with which the full work gives the sum.
      masks: bool[masks, W], True for a straggler: as many in each as the redundancy makes up for.
    """
    _, _, _, num_blocks = coefficients.shape
    chunk_holders = holders(assignment)  # of each chunk its workers, and the slots that it has at them, [N, holders]
    encode = _rounded(coefficients)
    residuals = []
    is_held = chunk_holders.workers[..., None, None] >= 0
    for is_straggler in masks:
        decode = _rounded(_weights_without(redundancy, is_straggler))  # [W, M, L]
        products_by_slot = np.einsum("wma,wmkb->wkab", decode, encode)  # [W, K, L, L]
        products_by_holder = np.where(is_held, products_by_slot[chunk_holders.workers, chunk_holders.slots], 0)
        residuals.append(np.linalg.norm(products_by_holder.sum(axis=1) - np.eye(num_blocks)))
    return np.array(residuals)


def _rounded(values: np.ndarray) -> np.ndarray:
    """The values as float64, rounded to the type in which a run has them: float32, or float64 with 64-bit types."""
    return values.astype(jnp.result_type(float)).astype(np.float64)


def _weights_without(redundancy: Redundancy, is_straggler: np.ndarray) -> np.ndarray:
    """float64[W, M, L]: the weights x + Z y, with `coordinates` y such that the stragglers bool[W] get the weight 0."""
    num_blocks = redundancy.full_weights.shape[2]
    null_and_weights = np.concatenate([redundancy.null_basis, redundancy.full_weights], axis=2)  # Z, x: [W, M, s·M + L]
    straggler_rows = null_and_weights[is_straggler].reshape(-1, null_and_weights.shape[2])  # [s·M, s·M + L]
    coordinates = np.linalg.solve(straggler_rows[:, :-num_blocks], -straggler_rows[:, -num_blocks:])
    weights = (redundancy.full_weights + redundancy.null_basis @ coordinates) / redundancy.lengths[..., None]
    weights[is_straggler] = 0
    return weights


def check_full_residual(name: str, value: float) -> None:
    """Checks the residual with everybody's full work, `value`, of an exact code called `name`.

    Raises:
      ValueError: if it is above `MAX_RESIDUAL`.
    """
    if not value <= MAX_RESIDUAL:
        is_float32 = jnp.result_type(float) == np.float32
        advice = "Switch JAX to 64 bits (jax.config.update('jax_enable_x64', True)), or use " if is_float32 else "Use "
        raise ValueError(
            f"{name} must leave a residual of at most {MAX_RESIDUAL:g} when everybody has finished; in "
            f"{jnp.result_type(float)} this one leaves {value:.2g}, since its coefficients are ill-conditioned. "
            f"{advice}fewer workers or stragglers, or a code that only adds up: gcjax.codes.fractional_repetition or "
            "gcjax.codes.partial."
        )
