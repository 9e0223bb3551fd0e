"""Rounds of a gradient code: no commit without a set of messages that can be decoded (Tandon et al. 2017)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Specification, check_num_workers
from gcjax.specifications.rounds import specification_of_rounds


class Decodable(NamedTuple):
    """What a code can decode.

    Attributes:
      load: K, the chunks of a worker.
      whether: pure function `progress int[W] -> bool[]`, whether so many chunks of each worker can be decoded.
    """

    load: int
    whether: Callable[[jax.Array], jax.Array]


@comparable
def coded(
    num_workers: int = 3, *, num_stragglers: int = 1, decodable: Decodable | np.ndarray | None = None
) -> Specification:
    """A coded round: no commit without a decodable set, all of it from the version that the commit replaces.

    Workers do their chunks in order until the server commits, which it does when their progress can be decoded; which
    progress can, the code knows. Times are left open, so everybody may do a last chunk before the server stops them.

    Args:
      num_workers: W.
      num_stragglers: how many workers may be missing, if nothing else is said.
      decodable: which progress can be decoded, as a function, or as a table bool[K+1, ..., K+1] with one axis a worker;
        if None, whatever all but so many workers have done, with a load of one.
    """
    check_num_workers(num_workers)
    if decodable is None:
        _validate.integer("num_stragglers", num_stragglers, maximum=num_workers - 1)
        decodable_sets = Decodable(
            load=1, whether=lambda progress: (progress > 0).sum() >= num_workers - num_stragglers
        )
    else:
        decodable_sets = (
            decodable
            if isinstance(decodable, Decodable)
            else _decodable_of_table(np.asarray(decodable, bool), num_workers)
        )
    return specification_of_rounds(
        f"coded({num_workers} workers, load {decodable_sets.load})",
        num_workers,
        max_work=decodable_sets.load,
        has_enough=lambda state: decodable_sets.whether(state.work),
        claim="no commit without a decodable set, all of it from the version that the commit replaces",
    )


def _decodable_of_table(table: np.ndarray, num_workers: int) -> Decodable:
    """What a table bool[K+1, ..., K+1] allows to decode: its entry at the chunks of each worker."""
    if table.ndim != num_workers or len(set(table.shape)) != 1 or table.shape[0] < 2:
        raise ValueError(
            f"decodable must have one axis a worker, each of length load + 1; got shape {table.shape} for "
            f"{num_workers} workers."
        )
    strides = np.cumprod([1, *table.shape[:0:-1]])[::-1].copy()  # of each axis, in the flat table
    flat_table, load = table.ravel(), table.shape[0] - 1

    def whether(progress: jax.Array) -> jax.Array:
        """bool[]: the entry of the table with the index `progress int[W]`."""
        return jnp.asarray(flat_table)[(progress * jnp.asarray(strides)).sum()]

    return Decodable(load, whether)
