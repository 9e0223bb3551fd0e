"""Loads that follow known speeds (Wang, Guo, Tang, Li, Li, ICDCS 2019: heterogeneity-aware gradient coding)."""

from collections.abc import Sequence

import numpy as np

from gcjax import _validate
from gcjax.codes.base import Assignment
from gcjax.codes.mds import round_robin


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
    rates = np.asarray(_validate.number("speeds", speeds, finite=True), np.float64)
    if rates.ndim != 1 or rates.size == 0:
        raise ValueError(f"speeds must be float[W], one number a worker; got shape {rates.shape}.")
    _validate.integer("num_chunks", num_chunks, minimum=1)
    _validate.integer(
        "replication", replication, minimum=1, maximum=int((rates > 0).sum()),
        hint="A chunk cannot be on more workers than have a speed above 0.",
    )  # fmt: skip
    return round_robin(num_chunks, _loads(rates, num_chunks, replication))


def _loads(speeds: np.ndarray, num_chunks: int, replication: int) -> np.ndarray:
    """int[W]: shares of N·R in proportion to the speeds, none above N, rounded by largest remainders."""
    shares = np.zeros(speeds.size)
    free = speeds > 0
    while True:
        remaining = num_chunks * (replication - (shares[~free] > 0).sum())
        shares[free] = remaining * speeds[free] / speeds[free].sum()
        over = free & (shares > num_chunks)
        if not over.any():
            break
        shares[over], free = num_chunks, free & ~over
    loads = np.floor(shares + 1e-9).astype(int)
    missing = num_chunks * replication - loads.sum()
    rank = np.argsort(-(shares - loads + np.where(loads < num_chunks, 0, -np.inf)), kind="stable")
    loads[rank[:missing]] += 1
    return loads
