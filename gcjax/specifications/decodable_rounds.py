"""Rounds of a gradient code: no commit without a set of messages that can be decoded (Tandon et al. 2017)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Specification, check_workers
from gcjax.specifications.rounds import rounds


class Decodable(NamedTuple):
    """What a code can decode.

    Attributes:
      load: K, the chunks of a worker.
      whether: pure function `progress int[W] -> bool[]`, whether so many chunks of each worker can be decoded.
    """

    load: int
    whether: Callable[[jax.Array], jax.Array]


@comparable
def coded(*, workers: int = 3, stragglers: int = 1, decodable: Decodable | np.ndarray | None = None) -> Specification:
    """A coded round: no commit without a decodable set, all of it from the version that the commit replaces.

    Workers do their chunks in order until the server commits, which it does when their progress can be decoded; which
    progress can, the code knows. Times are left open, so everybody may do a last chunk before the server stops them.

    Args:
      workers: W.
      stragglers: how many workers may be missing, if nothing else is said.
      decodable: which progress can be decoded, as a function, or as a table bool[K+1, ..., K+1] with one axis a worker;
        if None, whatever all but so many workers have done, with a load of one.
    """
    check_workers(workers)
    if decodable is None:
        _validate.integer("stragglers", stragglers, maximum=workers - 1)
        code = Decodable(1, lambda progress: (progress > 0).sum() >= workers - stragglers)
    else:
        code = decodable if isinstance(decodable, Decodable) else _looked_up(np.asarray(decodable, bool), workers)
    return rounds(
        f"coded({workers} workers, load {code.load})",
        workers,
        most=code.load,
        enough=lambda state: code.whether(state.work),
        claim="no commit without a decodable set, all of it from the version that the commit replaces",
    )


def _looked_up(table: np.ndarray, workers: int) -> Decodable:
    """What a table says."""
    if table.ndim != workers or len(set(table.shape)) != 1 or table.shape[0] < 2:
        raise ValueError(
            f"decodable must have one axis a worker, each of length load + 1; got shape {table.shape} for {workers} "
            "workers."
        )
    strides = np.cumprod([1, *table.shape[:0:-1]])[::-1].copy()
    flat = table.ravel()
    return Decodable(table.shape[0] - 1, lambda work: jnp.asarray(flat)[(work * jnp.asarray(strides)).sum()])
