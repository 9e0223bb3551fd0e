"""Loads that follow known speeds (Wang, Guo, Tang, Li, Li, ICDCS 2019: heterogeneity-aware gradient coding)."""

from collections.abc import Sequence

import numpy as np

from gcjax import _validate
from gcjax.codes.base import Assignment
from gcjax.codes.mds import round_robin


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
    _validate.integer("num_chunks", num_chunks, minimum=1)
    _validate.integer(
        "replication", replication, minimum=1, maximum=int((rates > 0).sum()),
        hint="A chunk cannot be on more workers than have a speed above 0.",
    )  # fmt: skip
    return round_robin(num_chunks, _proportional_loads(rates, num_chunks, replication))


def _proportional_loads(speeds: np.ndarray, num_chunks: int, replication: int) -> np.ndarray:
    """int[W]: shares of N·R in proportion to the speeds, none above N, rounded by largest remainders."""
    shares = np.zeros(speeds.size)
    is_below_n = speeds > 0
    while True:  # what shares are above N is given to the workers below it
        remaining_copies = num_chunks * (replication - (shares[~is_below_n] > 0).sum())
        shares[is_below_n] = remaining_copies * speeds[is_below_n] / speeds[is_below_n].sum()
        exceeds_n = is_below_n & (shares > num_chunks)
        if not exceeds_n.any():
            break
        shares[exceeds_n], is_below_n = num_chunks, is_below_n & ~exceeds_n
    loads = np.floor(shares + 1e-9).astype(int)
    num_missing = num_chunks * replication - loads.sum()
    rounding_order = np.argsort(-(shares - loads + np.where(loads < num_chunks, 0, -np.inf)), kind="stable")
    loads[rounding_order[:num_missing]] += 1
    return loads
