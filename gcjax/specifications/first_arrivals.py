"""The first K gradients (Dutta et al. 2018), and backup workers (Chen et al. 2016): who is late is cut off.

The server commits at the K-th push, before it takes the next one. Times are left open: anybody may push next.
"""

from functools import partial
from typing import Any

import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Specification, check_num_workers
from gcjax.specifications.rounds import specification_of_rounds
from gcjax.wording import counted


@comparable
def k_sync(num_workers: int = 3, *, num_contributions: int = 2) -> Specification:
    """K-sync: a commit takes one gradient each of K workers, on the version that it replaces.

    Args:
      num_workers: W.
      num_contributions: K, at most W.
    """
    return _specification_with_cancelling("k_sync", num_workers, num_contributions, one_push_per_worker=True)


@comparable
def k_batch_sync(num_workers: int = 3, *, num_contributions: int = 2) -> Specification:
    """K-batch-sync: a commit takes K gradients, all on the version that it replaces.

    Args:
      num_workers: W.
      num_contributions: K.
    """
    return _specification_with_cancelling("k_batch_sync", num_workers, num_contributions, one_push_per_worker=False)


@comparable
def backup_workers(num_workers: int = 3, *, num_backup: int = 1) -> Specification:
    """Backup workers: a commit takes one gradient each of W - b workers, on the version that it replaces.

    Args:
      num_workers: W.
      num_backup: b, below W.
    """
    check_num_workers(num_workers)
    num_backup = _validate.integer(
        "num_backup", num_backup, maximum=num_workers - 1, hint="Somebody must be waited for."
    )
    return _specification_with_cancelling(
        "backup_workers", num_workers, num_workers - num_backup, one_push_per_worker=True
    )


def check_num_contributions(num_workers: int, num_contributions: int, one_push_per_worker: bool) -> int:
    """K, if it is in its range: at most W if a commit takes one push of each worker."""
    check_num_workers(num_workers)
    return _validate.integer(
        "num_contributions", num_contributions, minimum=1, maximum=num_workers if one_push_per_worker else None
    )


def _specification_with_cancelling(
    name: str, num_workers: int, num_contributions: int, *, one_push_per_worker: bool
) -> Specification:
    """A commit takes K = `num_contributions` pushes of a unit and cuts off all others, so that all are in rounds.

    `one_push_per_worker`: whether the K pushes are of K different workers.
    """
    check_num_contributions(num_workers, num_contributions, one_push_per_worker)
    members = partial(_cancelling_with_members, name, num_workers, num_contributions, one_push_per_worker)
    return Specification.of_all_workers(num_workers, members)


def _cancelling_with_members(
    name: str, num_workers: int, num_contributions: int, one_push_per_worker: bool, alive: Any
) -> Specification:
    """Commits of K pushes that cut off all other units, if the workers `alive bool[W]` take part.

    With one push per worker a commit takes fewer once all who take part have pushed. `pending_units int[W]` are the
    pushes of each in this round.
    """
    contents = (
        f"one gradient each of {num_contributions} workers"
        if one_push_per_worker
        else counted(num_contributions, "gradient")
    )
    return specification_of_rounds(
        f"{name}({num_workers} workers, takes {num_contributions})",
        num_workers,
        max_pending_units=1 if one_push_per_worker else num_contributions,
        has_room=lambda state: state.pending_units.sum() < num_contributions,
        has_enough_to_commit=lambda state: (
            (state.pending_units.sum() == num_contributions) | (one_push_per_worker & all_have_pushed(state, alive))
        ),
        further_invariant=lambda state: (
            (state.pending_units.sum() <= num_contributions)
            & (~np.bool_(one_push_per_worker) | (state.pending_units <= 1).all())
        ),
        claim=f"a commit takes {contents}, on the version that it replaces",
    )


def all_have_pushed(state: Any, alive: Any) -> Any:
    """bool[]: whether all of `alive bool[W]` have pushed, who may be fewer than K, and anybody has."""
    return ((state.pending_units > 0) | ~alive).all() & (state.pending_units > 0).any()
