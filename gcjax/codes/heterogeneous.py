"""Loads that follow known speeds (Wang, Guo, Tang, Li, Li, ICDCS 2019: heterogeneity-aware gradient coding)."""

from collections.abc import Sequence

import jax
import numpy as np

from gcjax import _validate
from gcjax.codes.base import Assignment, GradientCode, host_generator
from gcjax.codes.fixed import fastest_decode, fixed_code
from gcjax.codes.mds import round_robin, unit_messages
from gcjax.equality import comparable


def proportional(speeds: Sequence[float], *, num_chunks: int, replication: int) -> Assignment:
    """Loads proportional to speeds, so that all workers take about as long; every chunk on the same number of workers.

    Worker w holds about `N R speeds[w] / sum(speeds)` chunks, at most N, rounded by largest remainders. The chunks are
    dealt out one after the other (Wang et al. 2019, section IV).

    Args:
      speeds: float[W], chunks a second, up to a common factor; a worker of speed 0 holds nothing.
      num_chunks: N.
      replication: R, at most the workers with a speed above 0.

    Raises:
      ValueError: if a speed is negative or not finite, or the replication is too large.
    """
    each = np.asarray(_validate.number("speeds", speeds, finite=True), np.float64)
    if each.ndim != 1 or each.size == 0:
        raise ValueError(f"speeds must be float[W], one number a worker; got shape {each.shape}.")
    _validate.integer("num_chunks", num_chunks, minimum=1)
    _validate.integer(
        "replication", replication, minimum=1, maximum=int((each > 0).sum()),
        hint="A chunk cannot be on more workers than have a speed above 0.",
    )  # fmt: skip
    return round_robin(num_chunks, _loads(each, num_chunks, replication))


@comparable
def heterogeneous(speeds: Sequence[float], *, num_chunks: int, num_stragglers: int, rng_key: jax.Array) -> GradientCode:
    """Heterogeneity-aware code: loads follow the speeds, and any s stragglers are tolerated. L = M = 1.

    Each chunk is on s+1 workers. With a random matrix C float[s+1, W], whose every s+1 columns are independent, the
    coefficients x of a chunk's holders solve `C_holders x = 1` (Wang et al. 2019, algorithm 1): a combination of the
    rows of C that vanishes on the stragglers decodes. A worker so slow that its share rounds to nothing holds nothing.

    Args:
      speeds: float[W], chunks a second, up to a common factor.
      num_chunks: N; the more, the closer the loads follow the speeds.
      num_stragglers: s.
      rng_key: draws C, the best conditioned for the holders out of 16.

    Raises:
      ValueError: if a speed is not above 0 and finite, or s is not below W.
    """
    _validate.number("speeds", speeds, above=True, finite=True)
    count = int(np.size(speeds))
    _validate.integer("num_stragglers", num_stragglers, minimum=0, maximum=count - 1)
    assignment = proportional(speeds, num_chunks=num_chunks, replication=num_stragglers + 1)
    rng = host_generator(rng_key)
    draws = [_coefficients(assignment, rng.normal(size=(num_stragglers + 1, count))) for _ in range(16)]
    coefficients = min(draws, key=lambda values: float(np.abs(values).max()))
    guaranteed = fastest_decode(int((assignment.loads > 0).sum()) - num_stragglers)
    return fixed_code(assignment, unit_messages(coefficients[:, None, :, None]), guaranteed=guaranteed)


def _loads(speeds: np.ndarray, num_chunks: int, replication: int) -> np.ndarray:
    """int[W]: shares of N·R in proportion to the speeds, none above N, rounded by largest remainders."""
    shares = np.zeros(speeds.size)
    free = speeds > 0
    while True:
        rest = num_chunks * (replication - (shares[~free] > 0).sum())
        shares[free] = rest * speeds[free] / speeds[free].sum()
        over = free & (shares > num_chunks)
        if not over.any():
            break
        shares[over], free = num_chunks, free & ~over
    loads = np.floor(shares + 1e-9).astype(int)
    missing = num_chunks * replication - loads.sum()
    rank = np.argsort(-(shares - loads + np.where(loads < num_chunks, 0, -np.inf)), kind="stable")
    loads[rank[:missing]] += 1
    return loads


def _coefficients(assignment: Assignment, matrix: np.ndarray) -> np.ndarray:
    """float[W, K]: for the holders of every chunk the solution of `matrix[:, holders] x = 1`."""
    found = np.zeros(assignment.chunks.shape)
    for chunk in range(assignment.num_chunks):
        worker, slot = np.nonzero(assignment.chunks == chunk)
        found[worker, slot] = np.linalg.solve(matrix[:, worker], np.ones(matrix.shape[0]))
    return found
