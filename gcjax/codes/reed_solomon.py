"""Gradient coding from Reed-Solomon codes with a balanced mask (Halbawi, Azizan, Salehi, Hassibi, ISIT 2018)."""

import numpy as np

from gcjax import _validate
from gcjax.codes.base import Assignment, GradientCode
from gcjax.codes.fixed import completion_by_fastest, fixed_code
from gcjax.codes.mds import complex_as_real_blocks, messages_of_length_one, round_robin, valid_tolerance
from gcjax.equality import comparable


@comparable
def reed_solomon(num_workers: int, *, num_chunks: int, num_stragglers: int, points: str = "chebyshev") -> GradientCode:
    """Reed-Solomon code: any n-s workers decode, with any number of chunks and loads that differ by at most one.

    Smaller sets decode, too, where the mask allows it.

    Every worker has a point. Chunk c is held by s+1 workers; their coefficients are the values of the polynomial of
    degree n-s-1, with leading coefficient 1, that vanishes at the points of all others. The message is the value of a
    polynomial whose leading coefficient is the sum of all gradients (Halbawi et al. 2018).

    Args:
      num_workers: n = W.
      num_chunks: N.
      num_stragglers: s.
      points: "chebyshev" (real, L = M = 1) or "roots_of_unity" (complex, L = M = 2: half of the gradient serves as the
        imaginary part, so that a worker still sends d numbers).

    Raises:
      ValueError: if s is not below n, or there are so few chunks that a worker would hold none.
    """
    num_workers, num_stragglers, _ = valid_tolerance(num_workers, num_stragglers)
    min_chunks = -(-num_workers // (num_stragglers + 1))
    hint = "With fewer chunks some worker would hold none."
    num_chunks = _validate.integer("num_chunks", num_chunks, minimum=min_chunks, hint=hint)
    _validate.choice("points", points, ("chebyshev", "roots_of_unity"))
    num_copies = num_chunks * (num_stragglers + 1)  # of all chunks
    holds_one_more = np.arange(num_workers) < num_copies % num_workers
    loads = num_copies // num_workers + holds_one_more
    assignment = round_robin(num_chunks, loads)
    angles = np.pi * (np.arange(num_workers) + 0.5) / num_workers
    worker_points = np.cos(angles) if points == "chebyshev" else np.exp(2j * angles)
    coefficients = reed_solomon_coefficients(
        assignment, worker_points, mean_distance=0.5 if points == "chebyshev" else 1.0
    )
    messages = complex_as_real_blocks(coefficients) if points == "roots_of_unity" else coefficients[:, None, :, None]
    return fixed_code(
        assignment,
        messages_of_length_one(messages),
        guaranteed_time=completion_by_fastest(num_workers - num_stragglers),
    )


def reed_solomon_coefficients(assignment: Assignment, worker_points: np.ndarray, *, mean_distance: float) -> np.ndarray:
    """[W, K], real or complex as the `worker_points [W]`: of each chunk in the message of each of its holders.

    At a holder's point it is the value of the polynomial that vanishes at the points of all who do not hold the chunk.
    All chunks are scaled alike, by the mean distance of points, so that no product over- or underflows. Slots without a
    chunk have 0.
    """
    coefficients = np.zeros(assignment.chunks.shape, worker_points.dtype)
    for chunk in range(assignment.num_chunks):
        workers, slots = np.nonzero(assignment.chunks == chunk)
        differences = worker_points[workers, None] - np.delete(worker_points, workers)[None]  # [holders, all others]
        distances = np.abs(differences)
        signs = (differences / distances).prod(axis=1)
        coefficients[workers, slots] = signs * np.exp(np.log(distances / mean_distance).sum(axis=1))
    return coefficients
