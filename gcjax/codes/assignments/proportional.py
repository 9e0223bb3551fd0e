"""Loads that follow known speeds (Wang, Guo, Tang, Li, Li, ICDCS 2019: heterogeneity-aware gradient coding)."""

from collections.abc import Sequence

import numpy as np

from gcjax import _validate
from gcjax.codes.base import Assignment
from gcjax.codes.mds import round_robin

ROUNDING = 1e-9  # by which a share may miss a whole number and still count as that


def proportional(speeds: Sequence[float], *, num_chunks: int, replication: int) -> Assignment:
    """Loads proportional to speeds, so that all workers take about as long; every chunk on the same number of workers.

    Worker w holds about `N R speeds[w] / sum(speeds)` chunks, at most N, rounded by largest remainders. The chunks are
    dealt out one after the other (Wang et al. 2019).

    Args:
      speeds: float[W], chunks a second, up to a common factor; a worker of speed 0 holds nothing.
      num_chunks: N.
      replication: R, at most the workers with a speed above 0.

    Raises:
      ValueError: if a speed is negative or not finite, or the replication is too large.
    """
    rates = np.asarray(_validate.number("speeds", speeds, finite=True), np.float64)
    if rates.ndim != 1 or rates.size == 0:
        raise ValueError(f"speeds must be float[W], one number a worker; got shape {rates.shape}.")
    num_chunks = _validate.integer("num_chunks", num_chunks, minimum=1)
    replication = _validate.integer(
        "replication", replication, minimum=1, maximum=int((rates > 0).sum()),
        hint="A chunk cannot be on more workers than have a speed above 0.",
    )  # fmt: skip
    # By a power of 2, so that nothing is rounded, and their sums are not too large for a number.
    _, exponent = np.frexp(rates.max())
    return round_robin(num_chunks, _proportional_loads(np.ldexp(rates, -exponent), num_chunks, replication))


def _proportional_loads(speeds: np.ndarray, num_chunks: int, replication: int) -> np.ndarray:
    """int[W]: shares of N·R copies in proportion to the speeds, none above N, rounded by largest remainders.

    N = `num_chunks`, of each of which R = `replication` workers have a copy.
    """
    shares = np.zeros(speeds.size)
    has_fewer_than_all = speeds > 0
    while True:  # what shares are above N is given to the workers below it
        # Workers that have left `has_fewer_than_all` with a share have N copies each; those of speed 0 have none.
        remaining_copies = num_chunks * (replication - (shares[~has_fewer_than_all] > 0).sum())
        shares[has_fewer_than_all] = remaining_copies * speeds[has_fewer_than_all] / speeds[has_fewer_than_all].sum()
        exceeds_all = has_fewer_than_all & (shares > num_chunks)
        if not exceeds_all.any():
            break
        shares[exceeds_all], has_fewer_than_all = num_chunks, has_fewer_than_all & ~exceeds_all
    return rounded_by_largest_remainders(shares, num_chunks * replication, maximum=num_chunks)


def rounded_by_largest_remainders(shares: np.ndarray, total: int, *, maximum: float = np.inf) -> np.ndarray:
    """int[n], at most `maximum` each, that add up to `total`, as the `shares float[n]` do.

    The shares are rounded down, and up where the remainders are largest.
    """
    counts = np.floor(shares + ROUNDING).astype(np.int64)
    remainders = np.where(counts < maximum, shares - counts, -np.inf)
    by_falling_remainder = np.argsort(-remainders, kind="stable")
    counts[by_falling_remainder[: total - counts.sum()]] += 1
    return counts
