"""Matrices H whose null space the messages of a cyclic repetition code lie in (Tandon 2017, algorithm 2).

Any s columns of H float[s, n] must be independent, and all must add up to zero. How much is lost in rounding depends on
more. With the workers w+1, ..., w+s missing, the messages up to worker j add up to the sum of their chunks, but for
chunks j+1, ..., j+s: what they have there is -M^{-1} S, with M the columns of these chunks and S the sum of the columns
from w+1 up to j. So neighbouring columns should be close to orthogonal, and the sums of consecutive columns short. With
other stragglers, columns far apart meet: then none should be nearly parallel, which is all there is to s = 2.

Letters: n = W workers, s stragglers.
"""

from collections.abc import Iterator

import numpy as np

MAX_PLAIN_WORKERS = 32
"""Up to so many workers the plain random matrix is good enough, and kept."""

NUM_CANDIDATES = 256
"""Directions that are drawn for each column of a spread matrix."""

NUM_FINALISTS = 32
"""The best of them for their neighbours and the sums, which are compared with all earlier columns."""

SIMILARITY_WEIGHT = 0.3
"""Of the penalty for columns that are nearly parallel to an earlier one; balances it with the other penalties."""

LOOK_BACK = 1024
"""Earlier columns that a column of a spread matrix is kept apart from."""


def null_matrices(rng: np.random.Generator, num_workers: int, num_stragglers: int) -> Iterator[np.ndarray]:
    """Random H float64[s, n] without end, for `cyclic_rows`: any s columns independent, and all with the sum zero."""
    # With many workers plain random columns lose too much by rounding.
    matrices = spread_matrices if num_workers > MAX_PLAIN_WORKERS and num_stragglers else plain_matrices
    return matrices(rng, num_workers, num_stragglers)


def plain_matrices(rng: np.random.Generator, num_workers: int, num_stragglers: int) -> Iterator[np.ndarray]:
    """H float64[s, n], normal, its last column such that the columns add up to zero (Tandon 2017, algorithm 2)."""
    while True:
        matrix = rng.normal(size=(num_stragglers, num_workers))
        matrix[:, -1] = -matrix[:, :-1].sum(axis=1)
        yield matrix


def spread_matrices(rng: np.random.Generator, num_workers: int, num_stragglers: int) -> Iterator[np.ndarray]:
    """Matrices H as in `null_matrices`, whose columns have the best of some random directions each; s >= 1.

    Neighbouring columns should be close to orthogonal and sums of consecutive ones short, for little loss by rounding.
    The lengths are random between 3/4 and 5/4, up to what makes the columns add up to zero (least squares): with equal
    ones many sums of consecutive columns would be equal, too, for s = 1.
    """
    while True:
        directions, lengths = np.zeros((num_stragglers, num_workers)), rng.uniform(0.75, 1.25, num_workers)
        column_sum = np.zeros(num_stragglers)
        for column, length in enumerate(lengths):
            candidates = rng.normal(size=(NUM_CANDIDATES, num_stragglers))
            candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
            sums_with_candidate = length * candidates + column_sum
            length_penalties = 0.5 * (sums_with_candidate**2).mean(axis=1)  # of the sum of all columns so far
            penalties = _neighbour_penalties(candidates, directions, column) + length_penalties
            # Only the best are compared with all earlier columns, which takes longer.
            finalists = np.argsort(penalties)[:NUM_FINALISTS]
            penalties = penalties[finalists] + _similarity_penalties(candidates[finalists], directions, column)
            directions[:, column] = candidates[finalists[np.argmin(penalties)]]
            column_sum += length * directions[:, column]
        matrix = lengths * directions
        # The lengths are changed as little as makes the columns add up to zero: what of the factors 1, ..., 1 lies in
        # the row space is taken off, and the matrix maps the rest to zero.
        ones_in_row_space = np.linalg.lstsq(matrix.T, np.ones(num_workers))[0] @ matrix  # [n]
        length_factors = 1 - ones_in_row_space
        yield matrix * length_factors


def _neighbour_penalties(candidates: np.ndarray, directions: np.ndarray, column: int) -> np.ndarray:
    """float64[candidates]: how parallel each would be to the s - 1 columns on each side as column j: squared cosines.

    Args:
      candidates: float64[candidates, s], of length one.
      directions: float64[s, n], of the columns before j; 0 from j on, which are not chosen yet.
      column: j.
    """
    num_stragglers, num_workers = directions.shape
    columns_before = directions[:, max(0, column - num_stragglers + 1) : column]
    # The columns are a circle: behind the last one comes the first. None of these unless j is near the end.
    columns_across_the_end = directions[:, : max(0, column + num_stragglers - num_workers)]
    cosines_before, cosines_across = candidates @ columns_before, candidates @ columns_across_the_end
    return (cosines_before**2).sum(axis=1) + (cosines_across**2).sum(axis=1)


def _similarity_penalties(candidates: np.ndarray, directions: np.ndarray, column: int) -> np.ndarray:
    """float64[candidates]: how parallel to any of the up to `LOOK_BACK` columns before `column`.

    0 unless s is 2 or 3: numbers, s = 1, are all parallel, and in more dimensions few directions come close.
    Shapes: candidates float64[candidates, s] and the columns of directions float64[s, n], all of length one.
    """
    num_stragglers, num_workers = directions.shape
    directions_come_close = 2 <= num_stragglers <= 3
    if column == 0 or not directions_come_close:
        return np.zeros(len(candidates))
    squared_cosines = (candidates @ directions[:, max(0, column - LOOK_BACK) : column]) ** 2
    squared_sine = np.maximum(1 - squared_cosines.max(axis=1), np.finfo(np.float64).eps)
    return SIMILARITY_WEIGHT / (num_workers**2 * squared_sine)  # large for a sine around 1/n


def cyclic_rows(null_matrix: np.ndarray) -> np.ndarray:
    """The coefficients of a cyclic repetition code, orthogonal to the rows of `null_matrix` H float64[s, n].

    Returns:
      float64[n, s+1]: row i is 1 and then -H_rest^{-1} H_i, on the chunks i, i+1, ..., i+s (mod n); H_rest are the
      columns i+1, ..., i+s of H.
    """
    num_stragglers, num_workers = null_matrix.shape
    chunks = (np.arange(num_workers)[:, None] + np.arange(num_stragglers + 1)) % num_workers  # of each worker
    chunk_columns = np.moveaxis(null_matrix[:, chunks], 1, 0)  # [n, s, s + 1]
    coefficients = -np.linalg.solve(chunk_columns[:, :, 1:], chunk_columns[:, :, :1])[:, :, 0]
    return np.concatenate([np.ones((num_workers, 1)), coefficients], axis=1)
