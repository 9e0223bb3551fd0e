"""The error of optimal decoding of a fixed code, for many rounds, each stopped at several moments.

Workers arrive one after the other, so the sets of one round are nested, and one Cholesky factor of the messages' Gram
matrix `G`, its rows in the order of arrival, serves all of them: a set is a leading block. With `y = F^-1 b`, F the
factor and b the inner products of the messages with the target, the first n entries of y have as their squares' sum
what the first n messages take off the target's squared norm. For sets of more than half of the workers the few that
are missing are counted instead: with `P = G^-1`, taking the workers C out adds `(P b)_C' P_CC^-1 (P b)_C` to the
squared error, and again one factor, of the rows of P in the reverse order, serves all. Together that is a quarter of
the work of one whole factor or less. Where G is near to singular, each set is solved by itself instead.

Letters: S rounds, D moments, W workers, N chunks, K chunks a worker holds, L blocks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from gcjax.codes.base import Assignment

RIDGE = 1e-12
"""Added to the diagonal of G, relative to its largest eigenvalue, so that messages may depend on each other."""

MAX_CONDITION = 1e8
"""Where G has a larger condition number, differences of squares and P lose too many digits."""

_MIN_SQUARED_ERROR = 1e-8
"""Relative to the target's squared norm: below it, a difference from that norm has too few digits left."""


class _Code(NamedTuple):
    """What does not depend on who arrives, of a code whose messages are those of W workers, one each.

    Attributes:
      messages: float64[W, N·L], the coefficients of all blocks of all chunks.
      target: float64[N·L, L], the sum of each block over all chunks.
      gram: float64[W, W], G, with its ridge.
      inverse_gram: float64[W, W], P; None where G is near to singular.
      right_side: float64[W, L], b.
      weights_of_all: float64[W, L], P b.
      squared_error_of_all: with the messages of all workers.
    """

    messages: np.ndarray
    target: np.ndarray
    gram: np.ndarray
    inverse_gram: np.ndarray | None
    right_side: np.ndarray
    weights_of_all: np.ndarray
    squared_error_of_all: float


def optimal_errors(assignment: Assignment, coefficients: np.ndarray) -> Callable[[Any, Any], np.ndarray]:
    """The errors of optimal (least-squares) decoding of one message a worker, after any number of arrivals.

    Args:
      assignment: who holds what.
      coefficients: float[W, K, L], of block l of the chunk in slot k in the message of a worker.

    Returns:
      A function `(order int[S, W], counts int[S, D]) -> float64[S, D]`: from the workers in the order of their arrival,
      and how many have arrived at each moment, the Frobenius distance of the decoded coefficients of all chunks from
      the identity. In float64 whatever JAX is set to.

    Raises:
      ValueError: if shapes do not fit, coefficients are not finite or all 0, or a count is not between 0 and W.
    """
    code = _code(assignment, coefficients)

    def errors(order: Any, counts: Any) -> np.ndarray:
        """float64[S, D]: the error of each round and moment; `order int[S, W]`, `counts int[S, D]`."""
        order, counts = _valid_arrivals(assignment, order, counts)
        return np.sqrt([_squared_errors(code, order[s], counts[s]) for s in range(len(order))])

    return errors


def _code(assignment: Assignment, coefficients: np.ndarray) -> _Code:
    """The code as arrays; `coefficients float[W, K, L]`. A `ValueError` for others, or another shape."""
    coefficients = np.asarray(coefficients, np.float64)
    if coefficients.ndim != 3 or coefficients.shape[:2] != assignment.chunks.shape or not coefficients.shape[2]:
        raise ValueError(
            f"coefficients must be float[W, K, L] with W={assignment.num_workers} and K={assignment.load}; "
            f"got shape {coefficients.shape}."
        )
    if not np.isfinite(coefficients).all() or not coefficients.any():
        raise ValueError(f"coefficients must be finite, and not all 0; got {coefficients}.")
    num_workers, _, num_blocks = coefficients.shape
    by_chunk = np.zeros((num_workers, assignment.num_chunks, num_blocks))
    worker, slot = np.nonzero(assignment.chunks >= 0)
    by_chunk[worker, assignment.chunks[worker, slot]] = coefficients[worker, slot]
    messages = by_chunk.reshape(num_workers, -1)
    target = np.tile(np.eye(num_blocks), (assignment.num_chunks, 1))
    right_side = messages @ target
    eigenvalues, eigenvectors = np.linalg.eigh(messages @ messages.T)
    eigenvalues = eigenvalues.clip(0) + RIDGE * eigenvalues.max()
    is_invertible = eigenvalues.max() <= MAX_CONDITION * eigenvalues.min()
    inverse_gram = (eigenvectors / eigenvalues) @ eigenvectors.T
    weights_of_all = inverse_gram @ right_side
    return _Code(
        messages=messages,
        target=target,
        gram=(eigenvectors * eigenvalues) @ eigenvectors.T,
        inverse_gram=inverse_gram if is_invertible else None,
        right_side=right_side,
        weights_of_all=weights_of_all,
        squared_error_of_all=float(np.sum((target - messages.T @ weights_of_all) ** 2)),
    )


def _valid_arrivals(assignment: Assignment, order: Any, counts: Any) -> tuple[np.ndarray, np.ndarray]:
    """`order int[S, W]` and `counts int[S, D]`; a `ValueError` for a wrong shape, or a count that is none."""
    num_workers, order, counts = assignment.num_workers, np.asarray(order), np.asarray(counts)
    if order.ndim != 2 or order.shape[1] != num_workers or counts.ndim != 2 or len(counts) != len(order):
        raise ValueError(
            f"order must be int[S, {num_workers}] and counts int[S, deadlines]; got {order.shape} and {counts.shape}."
        )
    if counts.dtype.kind not in "iu" or counts.size == 0 or counts.min() < 0 or counts.max() > num_workers:
        raise ValueError(f"counts must be whole numbers between 0 and {num_workers}, the workers; got {counts}.")
    return order, counts


def _squared_errors(code: _Code, order: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """float64[D]: the squared errors of one round, `order int[W]`, `counts int[D]`."""
    if code.inverse_gram is None:
        return np.array([_squared_error_by_weights(code, order[:count]) for count in counts])
    num_workers, squared_norm = len(order), float(code.target.shape[0])
    is_leading = 2 * counts <= num_workers
    arrived, missing = counts * is_leading, (num_workers - counts) * ~is_leading
    taken_off = _squares_of_first(code.gram, code.right_side, order[: arrived.max()])
    added = _squares_of_first(code.inverse_gram, code.weights_of_all, order[::-1][: missing.max()])
    squared_errors = np.where(is_leading, squared_norm - taken_off[arrived], code.squared_error_of_all + added[missing])
    for i in np.flatnonzero(is_leading & (squared_errors < _MIN_SQUARED_ERROR * squared_norm)):
        squared_errors[i] = _squared_error_by_weights(code, order[: counts[i]])
    return squared_errors


def _squares_of_first(table: np.ndarray, right_side: np.ndarray, workers: np.ndarray) -> np.ndarray:
    """float64[n + 1]: `r[w]' table[w, w]^-1 r[w]` for w the first 0 to n workers, r the right side; summed over blocks.

    `table`: float64[W, W], positive definite; `right_side`: float64[W, L]; `workers`: int[n].
    """
    if not workers.size:  # LAPACK, as SciPy 1.13 calls it, takes no system of nothing
        return np.zeros(1)
    factor = np.linalg.cholesky(table[workers][:, workers])
    solution = scipy.linalg.solve_triangular(factor, right_side[workers], lower=True, check_finite=False)
    return np.concatenate([[0.0], np.cumsum(np.sum(solution**2, axis=1))])


def _squared_error_by_weights(code: _Code, workers: np.ndarray) -> float:
    """The squared error of one set of workers, `int[n]`, from the weights of their messages."""
    weights = np.linalg.solve(code.gram[np.ix_(workers, workers)], code.right_side[workers])
    return float(np.sum((code.target - code.messages[workers].T @ weights) ** 2))
