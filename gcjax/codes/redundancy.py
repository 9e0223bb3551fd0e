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

from gcjax.codes.base import Assignment, default_float, holders, residual
from gcjax.codes.diagnostics.rounding import MOSTLY_EXACT
from gcjax.codes.fixed import Decode
from gcjax.codes.least_squares import least_norm, least_squares

MAX_RESIDUAL = 1e-3
"""What an exact code may leave with everybody's full work, by rounding alone."""


class Redundancy(NamedTuple):
    """All weights that decode from everybody, of messages that are scaled to coefficients of length one.

    Attributes:
      everybody: float64[W, M, L], x: the least weights, orthogonal to those that vanish.
      vanishing: float64[W, M, D], Z: orthonormal combinations of the messages that are zero.
      lengths: float64[W, M], of the coefficients of each message.
    """

    everybody: np.ndarray
    vanishing: np.ndarray
    lengths: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """float64[W, M, L]: the least weights for the messages as they are."""
        return self.everybody / self.lengths[..., None]


def redundancy_of(coefficients: np.ndarray, everybody: np.ndarray, vanishing: np.ndarray) -> Redundancy:
    """The redundancy from any weights that decode and any basis of those that vanish.

    Args:
      coefficients: float[W, M, K, L].
      everybody: float[W, M, L], decodes from everybody.
      vanishing: float[W, M, D], independent.
    """
    lengths = np.sqrt((coefficients**2).sum(axis=(2, 3)))
    shape = everybody.shape
    basis = np.linalg.qr((vanishing * lengths[..., None]).reshape(lengths.size, -1))[0]
    weights = (everybody * lengths[..., None]).reshape(lengths.size, -1)
    for _ in range(2):
        weights = weights - basis @ (basis.T @ weights)
    return Redundancy(weights.reshape(shape), basis.reshape(*lengths.shape, -1), lengths)


def sparse_redundancy(assignment: Assignment, coefficients: np.ndarray, num_stragglers: int) -> Redundancy:
    """The redundancy of a code with one message and as many chunks as workers, by one sparse factorisation.

    The matrix is bordered: `[[E', S], [S', 0]]` is regular if S picks s workers that can be missing, and s chunks
    that nothing but the rank of E ties down. With banded E this takes O(n s²).

    Args:
      assignment: who holds what; N = W.
      coefficients: float[W, K].
      num_stragglers: s, at least 1.
    """
    from scipy.sparse import block_array, csc_array
    from scipy.sparse.linalg import splu

    n, s = assignment.num_workers, num_stragglers
    unit = coefficients / np.linalg.norm(coefficients, axis=1, keepdims=True)
    index = assignment.chunks.ravel(), np.repeat(np.arange(n), assignment.load)
    columns = csc_array((unit.ravel(), index), (n, n))
    picked = csc_array((np.ones(s), (np.arange(s) * n // s, np.arange(s))), (n, s))
    bordered = block_array([[columns, picked], [picked.T, None]], format="csc")
    factor = splu(bordered)

    def solve(chunks: np.ndarray, picked: np.ndarray | float = 0.0) -> np.ndarray:
        right_side = np.zeros((n + s, chunks.shape[1]))
        right_side[:n], right_side[n:] = chunks, picked
        solution = factor.solve(right_side)
        return (solution + factor.solve(right_side - bordered @ solution))[:n]

    # Both are refined: the first solutions can be far longer than what is left of them once they are orthogonal.
    vanishing = np.linalg.qr(solve(np.zeros((n, s)), np.eye(s)))[0]
    vanishing = np.linalg.qr(vanishing - solve(columns @ vanishing))[0]
    everybody = np.zeros((n, 1))
    for _ in range(4):
        everybody = everybody + solve(1 - columns @ everybody)
        everybody = everybody - vanishing @ (vanishing.T @ everybody)
    lengths = np.linalg.norm(coefficients, axis=1)[:, None]
    return Redundancy(everybody[:, None], vanishing[:, None], lengths)


def redundant_decode(assignment: Assignment, redundancy: Redundancy) -> Decode:
    """The weights through the redundancy; least squares where more are missing than it makes up for.

    So it does, too, where so much is lost in rounding that least squares leaves less.
    """
    _, num_messages, num_blocks = redundancy.everybody.shape
    tolerated = redundancy.vanishing.shape[2] // num_messages
    otherwise = least_squares(assignment, num_messages, num_blocks)
    if not tolerated:
        return lambda progress, encode: otherwise(encode)
    tolerance = MOSTLY_EXACT * np.sqrt(assignment.num_chunks * num_blocks)
    table = np.concatenate([redundancy.vanishing, redundancy.everybody], axis=2)
    for_messages = table / redundancy.lengths[..., None]  # divided in float64, and rounded once
    with_zeros = np.concatenate([table, np.zeros_like(table[:1])])  # the last row: for stragglers that there are not

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        stragglers = progress < assignment.loads
        index = jnp.nonzero(stragglers, size=tolerated, fill_value=assignment.num_workers)[0]
        rows = jnp.asarray(with_zeros, default_float())[index].reshape(tolerated * num_messages, -1)
        shift = least_norm(rows[:, :-num_blocks], -rows[:, -num_blocks:])
        numbers = jnp.asarray(for_messages, default_float())
        change = jnp.einsum("wmd,da->wma", numbers[..., :-num_blocks], shift, precision="highest")
        weights = jnp.where(stragglers[:, None, None], 0, numbers[..., -num_blocks:] + change)
        left = residual(assignment, encode, weights)

        def fitted() -> jax.Array:
            other = otherwise(encode)
            return jnp.where(residual(assignment, encode, other) < left, other, weights)

        enough = (stragglers.sum() <= tolerated) & (left <= tolerance)
        return jax.lax.cond(enough, lambda: weights, fitted)

    return decode


def full_residual(coefficients: np.ndarray, assignment: Assignment, redundancy: Redundancy) -> float:
    """What everybody's full work leaves in the type of numbers that JAX is set to, without any other error.

    Args:
      coefficients: float[W, M, K, L].
      assignment: who holds what.
      redundancy: the weights.
    """
    dtype = default_float()
    encode, decode = coefficients.astype(dtype), redundancy.weights.astype(dtype)
    products = np.einsum("wma,wmkb->wkab", decode, encode)
    total = np.zeros((assignment.num_chunks, *products.shape[2:]), dtype)
    worker, slot = np.nonzero(assignment.chunks >= 0)
    np.add.at(total, assignment.chunks[worker, slot], products[worker, slot])
    return float(np.linalg.norm((total - np.eye(products.shape[2], dtype=dtype)).astype(np.float64)))


def straggler_residuals(
    coefficients: np.ndarray, assignment: Assignment, redundancy: Redundancy, masks: np.ndarray
) -> np.ndarray:
    """float64[masks]: what rounding weights and coefficients leaves without the given workers, and nothing else.

    Args:
      coefficients: float[W, M, K, L].
      assignment: who holds what.
      redundancy: the weights.
      masks: bool[masks, W], True for a straggler: as many in each as the redundancy makes up for.
    """
    num_blocks, inverse = coefficients.shape[3], holders(assignment)
    encode = coefficients.astype(default_float()).astype(np.float64)
    residuals = []
    for stragglers in masks:
        rows = np.concatenate([redundancy.vanishing[stragglers], redundancy.everybody[stragglers]], axis=2)
        rows = rows.reshape(-1, rows.shape[2])
        shift = np.linalg.solve(rows[:, :-num_blocks], -rows[:, -num_blocks:])
        weights = (redundancy.everybody + redundancy.vanishing @ shift) / redundancy.lengths[..., None]
        weights[stragglers] = 0
        products = np.einsum("wma,wmkb->wkab", weights.astype(default_float()).astype(np.float64), encode)
        by_chunk = np.where(inverse.workers[..., None, None] >= 0, products[inverse.workers, inverse.slots], 0)
        residuals.append(np.linalg.norm(by_chunk.sum(axis=1) - np.eye(num_blocks)))
    return np.array(residuals)


def check_full_residual(name: str, left: float) -> None:
    """Checks that an exact code decodes exactly from everybody.

    Raises:
      ValueError: if it leaves more than `MAX_RESIDUAL`.
    """
    if not left <= MAX_RESIDUAL:
        single = default_float() == np.float32
        wide = "Switch JAX to 64 bits (jax.config.update('jax_enable_x64', True)), or use " if single else "Use "
        raise ValueError(
            f"{name} must leave a residual of at most {MAX_RESIDUAL:g} when everybody has finished; in "
            f"{default_float()} this one leaves {left:.2g}, since its coefficients are ill-conditioned. {wide}fewer "
            "workers or stragglers, or a code that only adds up: gcjax.codes.fractional_repetition or "
            "gcjax.codes.partial."
        )
