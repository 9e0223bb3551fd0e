"""Loads that follow known speeds (Wang, Guo, Tang, Li, Li, ICDCS 2019: heterogeneity-aware gradient coding)."""

from collections.abc import Sequence

import jax
import numpy as np

from gcjax import _validate
from gcjax._generators import generator_of_key
from gcjax.codes.assignments.proportional import proportional
from gcjax.codes.base import Assignment, GradientCode
from gcjax.codes.fixed import completion_by_fastest, fixed_code
from gcjax.codes.mds import messages_of_length_one
from gcjax.equality import comparable

NUM_DRAWS = 16  # of the random matrix


@comparable
def heterogeneous(speeds: Sequence[float], *, num_chunks: int, num_stragglers: int, rng_key: jax.Array) -> GradientCode:
    """Heterogeneity-aware code: loads follow the speeds, and any s stragglers are tolerated. L = M = 1.

    Each chunk is on s+1 workers. With a random matrix C float[s+1, W], whose every s+1 columns are independent, the
    coefficients x of a chunk's holders solve `C_holders x = 1` (Wang et al. 2019): a combination of the
    rows of C that vanishes on the stragglers decodes. A worker so slow that its share rounds to nothing holds nothing.
    L are blocks, M messages a worker.

    Args:
      speeds: float[W], chunks a second, up to a common factor.
      num_chunks: N; the more, the closer the loads follow the speeds.
      num_stragglers: s.
      rng_key: draws C: of 16 draws, that which leads to the smallest coefficients.

    Raises:
      ValueError: if a speed is not above 0 and finite, or s is not below W.
    """
    _validate.number("speeds", speeds, above=True, finite=True)
    num_workers = int(np.size(speeds))
    num_stragglers = _validate.integer("num_stragglers", num_stragglers, minimum=0, maximum=num_workers - 1)
    assignment = proportional(speeds, num_chunks=num_chunks, replication=num_stragglers + 1)
    rng, matrix_shape = generator_of_key(rng_key), (num_stragglers + 1, num_workers)
    candidates = [_holder_coefficients(assignment, rng.normal(size=matrix_shape)) for _ in range(NUM_DRAWS)]
    # The matrix that leads to the smallest coefficients: large ones are ill-conditioned.
    coefficients = min(candidates, key=lambda candidate: float(np.abs(candidate).max()))
    # Any s of those that hold anything can be missing.
    guaranteed_time = completion_by_fastest(int((assignment.loads > 0).sum()) - num_stragglers)
    return fixed_code(
        assignment, messages_of_length_one(coefficients[:, None, :, None]), guaranteed_time=guaranteed_time
    )


def _holder_coefficients(assignment: Assignment, random_matrix: np.ndarray) -> np.ndarray:
    """float[W, K]: the coefficient of each worker for each chunk that it holds.

    The coefficients x of the s + 1 holders of a chunk solve `C[:, holders] x = 1`, with C = `random_matrix float[s+1,
    W]`. So each row of C, as weights of the messages, decodes the sum, and so do combinations of rows whose factors add
    up to 1. Slots without a chunk have the coefficient 0.
    """
    coefficients = np.zeros(assignment.chunks.shape)
    for chunk in range(assignment.num_chunks):
        workers, slots = np.nonzero(assignment.chunks == chunk)
        coefficients[workers, slots] = np.linalg.solve(random_matrix[:, workers], np.ones(len(random_matrix)))
    return coefficients
