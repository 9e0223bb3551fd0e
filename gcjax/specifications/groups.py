"""Asynchronous pushes: of single workers, and of groups that are synchronous inside (Basu et al. 2018)."""

import itertools
from collections.abc import Sequence

import jax
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Specification, check_num_workers
from gcjax.specifications.decodable_rounds import Decodable
from gcjax.specifications.group_servers import Grouping, groups_specification
from gcjax.specifications.group_states import Groups


@comparable
def asp(num_workers: int = 3) -> Specification:
    """ASP: nobody waits, and a push is stale by at most the pushes of others since its read (Dean et al. 2012).

    Args:
      num_workers: W.
    """
    return _single_workers("asp", num_workers)


@comparable
def ad_psgd(num_workers: int = 3) -> Specification:
    """AD-PSGD: nobody waits, and a step is stale by at most the others' steps since its worker's own last one.

    With whom a worker averages is left open (Lian et al. 2018).

    Args:
      num_workers: W.
    """
    return _single_workers("ad_psgd", num_workers)


@comparable
def adsp(num_workers: int = 3) -> Specification:
    """ADSP: nobody waits, and a push is stale by at most the pushes of others since its read.

    A worker pushes after any number of steps, one or more; which one the search makes it is left open (Hu et al. 2020).

    Args:
      num_workers: W.
    """
    return _single_workers("adsp", num_workers, any_num_steps=True)


@comparable
def async_local_sgd(num_workers: int = 3, *, num_local_steps: int = 2, dynamic: bool = False) -> Specification:
    """Asynchronous local SGD: nobody waits, and a push is stale by at most the pushes of others since its read.

    Args:
      num_workers: W.
      num_local_steps: H, the steps of a push.
      dynamic: whether a push can have any number of steps, one or more (Liu et al. 2024).
    """
    steps = 1 if dynamic else num_local_steps
    return _single_workers("async_local_sgd", num_workers, any_num_steps=dynamic, num_local_steps=steps)


@comparable
def grouped(
    num_workers: int = 4,
    *,
    groups: int | Sequence[Sequence[int]] = 2,
    num_local_steps: int = 1,
    decodable: Sequence[Decodable] = (),
) -> Specification:
    """Groups: BSP inside, and a group's push is stale by at most the pushes of other groups since its read.

    With codes it is coded rounds inside: a push takes what its members have done once their code can decode it.

    Args:
      num_workers: W.
      groups: how many, neighbours together; or the workers of each.
      num_local_steps: H, the rounds between two pushes.
      decodable: of each group, which progress of its workers its code can decode; none without codes.

    Raises:
      ValueError: if not every worker is in one group, or groups with codes are too many, too few, or of several rounds.
    """
    check_num_workers(num_workers)
    workers_of_group = workers_of_groups(groups, num_workers)
    name = f"grouped({num_workers} workers, {len(workers_of_group)} groups, {num_local_steps} steps)"
    levels = _lowest_member_of_group(num_workers, workers_of_group)[None]
    if not decodable:
        return groups_specification(name, num_workers, Grouping(levels, num_local_steps))
    if len(decodable) != len(workers_of_group) or num_local_steps > 1:
        raise ValueError(
            f"decodable must have an entry for each group, and groups with codes push after one round; got "
            f"{len(decodable)} for {len(workers_of_group)} groups, num_local_steps={num_local_steps}."
        )
    codes = tuple((tuple(workers), of_group) for workers, of_group in zip(workers_of_group, decodable, strict=True))
    name = f"grouped({num_workers} workers, {len(workers_of_group)} groups with codes)"
    return groups_specification(name, num_workers, Grouping(levels, num_local_steps=1, codes=codes))


@comparable
def progressive_groups(num_workers: int = 4, *, order: Sequence[int] | None = None) -> Specification:
    """Progressive grouping: as `grouped`, while groups are halved after their next push.

    When a trial is over, and whether it was fast enough, is left open (Basu et al. 2018).

    If W is no power of two, a check can refuse a record that is right: where the first of a group to begin is alone at
    two levels, its unit does not show which of them is meant, and the lower one is taken.

    Args:
      num_workers: W.
      order: of the workers; neighbours stay together longest. By their numbers if None.
    """
    check_num_workers(num_workers)
    # One group of all, two, four, ..., and at last one for each worker.
    num_groups_of_level = [min(2**level, num_workers) for level in range((num_workers - 1).bit_length() + 1)]
    (workers,) = workers_of_groups([range(num_workers) if order is None else order], num_workers)
    groups_of_level = [consecutive_groups(workers, num_groups) for num_groups in num_groups_of_level]
    levels = np.stack([_lowest_member_of_group(num_workers, groups) for groups in groups_of_level])  # int[levels, W]
    grouping = Grouping(levels, num_local_steps=1)
    return groups_specification(f"progressive_groups({num_workers} workers)", num_workers, grouping)


def _single_workers(
    name: str, num_workers: int, *, any_num_steps: bool = False, num_local_steps: int = 1
) -> Specification:
    """The specification of workers that are a group each (`levels`: worker w is in group w), and wait for nobody.

    A worker pushes after `num_local_steps` units, or after any number from that on with `any_num_steps`.
    """
    check_num_workers(num_workers)
    levels = np.arange(num_workers)[None]
    grouping = Grouping(
        levels=levels,
        num_local_steps=num_local_steps,
        any_num_steps=any_num_steps,
        has_group_servers=False,
    )
    specification = groups_specification(f"{name}({num_workers} workers)", num_workers, grouping)

    def state_after_join(state: Groups, worker: jax.Array) -> Groups:
        """The state in which the worker must read before it does a unit; what it had done and not pushed is lost."""
        return state._replace(
            num_unread_pushes=state.num_unread_pushes.at[worker].set(1),
            pending_units=state.pending_units.at[worker].set(0),
        )

    # Nobody waits for anybody, so it is the same whoever takes part.
    return specification._replace(members=lambda alive: specification._replace(state_after_join=state_after_join))


def consecutive_groups(workers: Sequence[int], num_groups: int) -> tuple[tuple[int, ...], ...]:
    """Cuts a sequence of workers into groups as equal as possible; twice as many groups are halves of these."""
    num_workers, hint = len(workers), "A group has a worker at least."
    num_groups = _validate.integer("num_groups", num_groups, minimum=1, maximum=num_workers, hint=hint)
    group_bounds = [group_number * num_workers // num_groups for group_number in range(num_groups + 1)]
    return tuple(tuple(workers[begin:end]) for begin, end in itertools.pairwise(group_bounds))


def workers_of_groups(groups: int | Sequence[Sequence[int]], num_workers: int) -> tuple[tuple[int, ...], ...]:
    """The workers of each group, or of so many of neighbours; a `ValueError` unless every worker is in exactly one."""
    if isinstance(groups, (int, np.integer)):
        num_groups = _validate.integer("groups", groups, minimum=1, maximum=num_workers)
        return consecutive_groups(range(num_workers), num_groups)
    workers_of_group = tuple(tuple(group) for group in groups)
    workers = sorted(worker for group in workers_of_group for worker in group)
    if workers != list(range(num_workers)) or not all(workers_of_group):
        raise ValueError(
            f"every worker 0, ..., {num_workers - 1} must be in exactly one group, and none be empty; got {groups!r}."
        )
    return workers_of_group


def _lowest_member_of_group(num_workers: int, groups: Sequence[Sequence[int]]) -> np.ndarray:
    """int[W]: the lowest worker of each worker's group, by which it is known."""
    lowest_member = np.zeros(num_workers, np.int32)
    for group in groups:
        lowest_member[list(group)] = min(group)
    return lowest_member
