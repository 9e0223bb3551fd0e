"""Ways to put workers into groups, and servers of groups."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
import optax

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.groups import consecutive_groups
from gcjax.stragglers.network import Network, check_own_links

Groups = Sequence[Sequence[int]]


class GroupServers(NamedTuple):
    """Servers of groups, between their workers and the central server; their parameters are of their own.

    A worker begins with the parameters of its group's server. The contributions to a commit are pushes to one such
    server, in order; it makes a step with minus the change of each. The changes by those with a weight above 0 are what
    it sends, and before the first of them it merges the central parameters that its last commit has made.

    Attributes:
      group_of_worker: the group of each of the W workers.
      optimizer: of the groups' servers.
      merge_weight: α, the share of the central parameters in a merge.
    """

    group_of_worker: tuple[int, ...]
    optimizer: optax.GradientTransformation
    merge_weight: float


@comparable
def contiguous_groups(num_workers: int, *, num_groups: int) -> tuple[tuple[int, ...], ...]:
    """Groups of workers with consecutive numbers, as equal as possible.

    Args:
      num_workers: W.
      num_groups: G, from 1 to W.

    Raises:
      ValueError: if there are more groups than workers.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    return consecutive_groups(range(num_workers), num_groups)


@comparable
def random_groups(num_workers: int, *, num_groups: int, rng_key: jax.Array) -> tuple[tuple[int, ...], ...]:
    """Groups that are drawn at random, as equal as possible.

    Args:
      num_workers: W.
      num_groups: G, from 1 to W.
      rng_key: draws them.

    Raises:
      ValueError: if there are more groups than workers.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    order = jax.random.permutation(_validate.rng_key(rng_key), num_workers)
    return consecutive_groups(np.asarray(order).tolist(), num_groups)


@comparable
def groups_by_speed(seconds: Sequence[float], *, num_groups: int) -> tuple[tuple[int, ...], ...]:
    """Groups of workers that are about as fast, as equal in size as possible.

    Args:
      seconds: that a unit takes on each worker, for example its mean over measured units.
      num_groups: G, from 1 to W.

    Raises:
      ValueError: if there are more groups than workers, or a time is negative.
    """
    if isinstance(seconds, str) or np.ndim(seconds) != 1:
        raise ValueError(f"seconds must be a sequence, one number for each worker; got {seconds!r}.")
    _validate.number("seconds", seconds)
    return consecutive_groups(np.argsort(np.asarray(seconds, np.float64), kind="stable").tolist(), num_groups)


def checked_groups(groups: Groups) -> tuple[tuple[int, ...], ...]:
    """The groups, if every worker 0, ..., W - 1 is in exactly one, and none is empty; otherwise a `ValueError`."""
    try:
        groups = tuple(tuple(group) for group in groups)
    except TypeError:
        example = "((0, 1), (2, 3))"
        raise ValueError(f"groups must name the workers of each, for example {example}; got {groups!r}.") from None
    if len(groups) == 0 or any(len(group) == 0 for group in groups):
        raise ValueError(f"groups must have a worker each; got {groups!r}.")
    workers = [_validate.integer("a worker of a group", w) for group in groups for w in group]
    repeated_workers = sorted({w for w in workers if workers.count(w) > 1})
    missing_workers = sorted(set(range(max(workers) + 1)) - set(workers))
    if repeated_workers or missing_workers:
        mistake = (
            f"worker {repeated_workers[0]} is in several"
            if repeated_workers
            else f"worker {missing_workers[0]} is in none"
        )
        raise ValueError(f"every worker 0, ..., {max(workers)} must be in exactly one group; {mistake}: {groups!r}.")
    return tuple(tuple(int(w) for w in group) for group in groups)


def check_members(durations: jax.Array, num_workers: int) -> None:
    """Raises a `ValueError` unless durations `[T, W]` are of as many workers as the groups have."""
    if durations.shape[1] != num_workers:
        raise ValueError(
            f"the groups must cover the workers; they are groups of {num_workers} workers, the durations have "
            f"{durations.shape[1]} columns." + _validate.hint_if_transposed(durations.shape, num_workers)
        )


def network_of_servers(network: Network, num_groups: int) -> Network:
    """The network between the servers of so many groups and the central one; instantaneous if the run's has none.

    Args:
      network: of the run.
      num_groups: G.

    Raises:
      ValueError: if its values are of another number of groups, or groups share a link.
    """
    servers = network.servers
    if servers is None:
        return Network()
    check_own_links(servers)
    for entry in ("latency", "upload", "download"):
        shape = np.shape(getattr(servers, entry))
        if shape not in ((), (num_groups,)):
            raise ValueError(
                f"{entry} of servers must be a number, or one for each of {num_groups} groups; got shape {shape}."
            )
    return servers


def checked_order(order: Sequence[int] | None, num_workers: int) -> list[int]:
    """The order of the workers 0, ..., W - 1, by their numbers if None; a `ValueError` unless each is in it once."""
    if order is None:
        return list(range(num_workers))
    workers = list(order) if np.iterable(order) else []
    if any(isinstance(w, str) for w in workers) or sorted(workers) != list(range(num_workers)):
        raise ValueError(f"order must name each of the workers 0, ..., {num_workers - 1} once; got {order!r}.")
    return [int(w) for w in workers]


def group_arrays(groups: tuple[tuple[int, ...], ...]) -> tuple[np.ndarray, np.ndarray]:
    """int32[G, members], the workers of each group, filled up with -1; and int32[W], the group of each worker."""
    members_of_group = np.full((len(groups), max(map(len, groups))), -1, np.int32)
    group_of_worker = np.zeros(sum(map(len, groups)), np.int32)
    for group_number, group in enumerate(groups):
        members_of_group[group_number, : len(group)] = group
        group_of_worker[list(group)] = group_number
    return members_of_group, group_of_worker
