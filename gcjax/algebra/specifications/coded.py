"""Rounds of a gradient code: no commit without a set of messages that can be decoded (Tandon et al. 2017)."""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _checks
from gcjax.algebra.specifications.base import Specification, check_workers
from gcjax.algebra.specifications.rounds import Rounds, rounds


def coded(*, workers: int = 3, stragglers: int = 1, decodable: np.ndarray | None = None) -> Specification:
    """A coded round: no commit without a decodable set, all of it from the version that the commit replaces.

    Workers do their chunks in order until the server commits, which it does when their progress can be decoded; which
    progress can, the code knows. Times are left open, so everybody may do a last chunk before the server stops them.

    Args:
      workers: W.
      stragglers: how many workers may be missing, if nothing else is said.
      decodable: bool[K+1, ..., K+1], one axis a worker: whether this progress can be decoded; if None, whatever all but
        so many workers have done, with a load of one.
    """
    check_workers(workers)
    table = _whole(workers, stragglers) if decodable is None else np.asarray(decodable, bool)
    if table.ndim != workers or len(set(table.shape)) != 1 or table.shape[0] < 2:
        raise ValueError(
            f"decodable must have one axis a worker, each of length load + 1; got shape {table.shape} for {workers} "
            "workers."
        )

    def enough(state: Rounds) -> jax.Array:
        strides = np.cumprod([1, *table.shape[:0:-1]])[::-1]
        return jnp.asarray(table.ravel())[(state.work * jnp.asarray(strides.copy())).sum()]

    return rounds(
        f"coded({workers} workers, load {table.shape[0] - 1})",
        workers,
        most=table.shape[0] - 1,
        enough=enough,
        claim="no commit without a decodable set, all of it from the version that the commit replaces",
    )


def _whole(workers: int, stragglers: int) -> np.ndarray:
    _checks.integer("stragglers", stragglers, maximum=workers - 1)
    return np.indices((2,) * workers).sum(axis=0) >= workers - stragglers
