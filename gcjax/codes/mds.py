"""What the codes built on maximum distance separable (MDS) matrices share.

Letters: n = W workers, s stragglers, N chunks, K chunks a worker holds, L blocks.
"""

import numpy as np

from gcjax import _validate
from gcjax.codes.base import Assignment, holders


def interpolating_coefficients(assignment: Assignment, weights: np.ndarray, null_basis: np.ndarray) -> np.ndarray:
    """Coefficients that any n - s workers can be decoded from (Ye and Abbe 2018, in matrix form).

    Every n - s columns of the generator V are independent. For chunk c the rows b_c of L vectors of length n - s are
    chosen with `b_c V[:, w] = 0` for all workers w that do not hold it and with the identity as their last L columns.
    Worker w multiplies block l of chunk c by `b_c[l] V[:, w]`. The weights D with `V_F D = [0; I]` then decode from the
    finished workers F.

    The products `b_c V` are computed without b_c: they are the rows that only its holders have entries in, that are
    orthogonal to all that V maps to zero, and whose products with `weights` are the identity. That is a system of the
    size of the s + L holders.

    Args:
      assignment: who holds what; every chunk has s + L holders.
      weights: float[n, L], with `V weights = [0; I]` (see `full_weights_and_null_basis`).
      null_basis: float[n, s], a basis of what V maps to zero.

    Returns:
      float[W, 1, K, L]: of block l of the chunk in slot k, in the one message of worker w.
    """
    chunk_holders, num_blocks = holders(assignment), weights.shape[1]
    null_basis_and_weights = np.concatenate([null_basis, weights], axis=1)
    transposed_systems = null_basis_and_weights[chunk_holders.workers]  # [N, holders, s + L], all of one size
    zeros_and_identity = np.eye(transposed_systems.shape[1])[:, -num_blocks:]  # [s + L, L]
    coefficients_of_holders = np.linalg.solve(np.swapaxes(transposed_systems, 1, 2), zeros_and_identity[None])
    coefficients = np.zeros((*assignment.chunks.shape, num_blocks))
    coefficients[chunk_holders.workers, chunk_holders.slots] = coefficients_of_holders
    return coefficients[:, None]


def full_weights_and_null_basis(generator: np.ndarray, num_blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """The least weights float[n, L] with `V weights = [0; I]`, and an orthonormal basis float[n, s] of V's null space.

    I are the last L of the n - s rows.

    Args:
      generator: V, float[n - s, n].
      num_blocks: L.
    """
    num_needed = generator.shape[0]
    orthonormal, triangular = np.linalg.qr(generator.T, mode="complete")
    row_space, null_space = orthonormal[:, :num_needed], orthonormal[:, num_needed:]
    zeros_and_identity = np.eye(num_needed)[:, num_needed - num_blocks :]  # [n - s, L]
    weights = row_space @ np.linalg.solve(triangular[:num_needed].T, zeros_and_identity)
    return weights, null_space


def messages_of_length_one(coefficients: np.ndarray) -> np.ndarray:
    """Every message `[W, M, K, L]` scaled so that its coefficients have length one; empty ones stay zero."""
    norms = np.sqrt((coefficients**2).sum(axis=(2, 3), keepdims=True))
    return coefficients / np.where(norms > 0, norms, 1)


def complex_as_real_blocks(coefficients: np.ndarray) -> np.ndarray:
    """Complex coefficients `[W, K]` as real ones `[W, 2, K, 2]`: two messages a worker, two blocks a gradient.

    The first half of the gradient is taken as the real, the second as the imaginary part of a complex gradient of half
    the length. A complex message of d/2 numbers then is two real messages of d/2: what is sent does not grow.
    """
    real, imaginary = coefficients.real, coefficients.imag
    return np.stack([np.stack([real, -imaginary], axis=-1), np.stack([imaginary, real], axis=-1)], axis=1)


def chebyshev_generator(size: int, num_workers: int) -> np.ndarray:
    """float[size, n]: the Chebyshev polynomials of degrees below `size` at the n Chebyshev points.

    A Vandermonde matrix up to a change of basis, which keeps it far from singular.
    """
    points = np.cos(np.pi * (np.arange(num_workers) + 0.5) / num_workers)
    return np.polynomial.chebyshev.chebvander(points, size - 1).T


def round_robin(num_chunks: int, loads: np.ndarray) -> Assignment:
    """Chunks dealt out one after the other, round and round: worker w takes the next `loads[w]`, with -1 behind them.

    With loads that add up to N·R and none above N every chunk has R holders.
    """
    # The place in the deal at which each worker's chunks begin; the remainder of a place by N is the chunk.
    first_place_in_deal = np.concatenate([[0], np.cumsum(loads)[:-1]])
    slots = np.arange(loads.max())
    chunks = np.where(slots < loads[:, None], (first_place_in_deal[:, None] + slots) % num_chunks, -1)
    return Assignment(chunks.astype(np.int32), num_chunks)


def valid_tolerance(num_workers: int, num_stragglers: int, num_blocks: int = 1) -> tuple[int, int, int]:
    """n, s and L as ints; raises `ValueError` unless s + L workers can hold a chunk: s + L <= n."""
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    num_blocks = _validate.integer("num_blocks", num_blocks, minimum=1, maximum=num_workers)
    num_stragglers = _validate.integer(
        "num_stragglers",
        num_stragglers,
        minimum=0,
        maximum=num_workers - num_blocks,
        hint="The s + L workers that hold a chunk cannot be more than there are.",
    )
    return num_workers, num_stragglers, num_blocks
