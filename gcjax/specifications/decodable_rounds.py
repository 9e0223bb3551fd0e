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
      is_decodable: pure function `progress int[W] -> bool[]`, whether so many chunks of each worker can be decoded.
    """

    load: int
    is_decodable: Callable[[jax.Array], jax.Array]


def all_but(num_stragglers: int, num_workers: int) -> Decodable:
    """With one chunk a worker, what decodes if at most so many of the workers are missing."""
    return Decodable(load=1, is_decodable=lambda progress: (progress > 0).sum() >= num_workers - num_stragglers)


@comparable
def coded(num_workers: int = 3, *, num_stragglers: int = 1, decodable: Decodable | None = None) -> Specification:
    """A coded round: no commit without a decodable set, all of it from the version that the commit replaces.

    Workers do their chunks in order until the server commits, which it does when their progress can be decoded; which
    progress can, the code knows. Times are left open, so everybody may do a last chunk before the server stops them.

    Args:
      num_workers: W.
      num_stragglers: how many workers may be missing, if nothing else is said.
      decodable: the load, and which progress int[W], the chunks done, can be decoded; if None, whatever all but so many
        workers have done, with a load of one.
    """
    check_num_workers(num_workers)
    if decodable is None:
        num_stragglers = _validate.integer("num_stragglers", num_stragglers, maximum=num_workers - 1)
    decodable_sets = all_but(num_stragglers, num_workers) if decodable is None else decodable
    return specification_of_rounds(
        f"coded({num_workers} workers, load {decodable_sets.load})",
        num_workers,
        max_pending_units=decodable_sets.load,
        has_enough_to_commit=lambda state: decodable_sets.is_decodable(state.pending_units),
        claim="no commit without a decodable set, all of it from the version that the commit replaces",
    )


@comparable
def coded_reduce(
    num_workers: int = 3, *, num_layers: int = 1, num_stragglers: int = 1, decodable: Decodable | None = None
) -> Specification:
    """Coded rounds up a tree: no commit without a set that decodes from node to node, all of the replaced version.

    Workers do their chunks until the server commits, which it does when enough of those below it have sent; who has
    workers below it sends when enough of these have. Times are left open (Reisizadeh et al. 2019).

    Args:
      num_workers: W = n + n^2 + ... + n^layers, numbered layer by layer, those below one node next to each other.
      num_layers: of the tree.
      num_stragglers: how many of the n below each node may be missing, if nothing else is said.
      decodable: the load, which is the chunks of a worker, and which progress int[W], the chunks done, can be decoded;
        if None, whatever all but so many below each node have done, with a load of one.

    Raises:
      ValueError: if there is no such tree of W workers, and `decodable` is None.
    """
    check_num_workers(num_workers)
    decodable_sets = _decodable_up_a_tree(num_workers, num_layers, num_stragglers) if decodable is None else decodable
    return specification_of_rounds(
        f"coded_reduce({num_workers} workers, {num_layers} layers)",
        num_workers,
        max_pending_units=decodable_sets.load,
        has_enough_to_commit=lambda state: decodable_sets.is_decodable(state.pending_units),
        claim="no commit without a set that decodes from node to node, all of it from the version that it replaces",
    )


def _decodable_up_a_tree(num_workers: int, num_layers: int, num_stragglers: int) -> Decodable:
    """What can be decoded if any `num_stragglers` of those below each node may be missing, with a load of one."""
    num_layers = _validate.integer("num_layers", num_layers, minimum=1)
    layer_sizes = [num_workers]
    for num_children in range(1, num_workers + 1):
        layer_sizes = [num_children**layer for layer in range(1, num_layers + 1)]
        if sum(layer_sizes) >= num_workers:
            break
    if sum(layer_sizes) != num_workers:
        raise ValueError(
            f"the workers must be those of a regular tree of {num_layers} layers, n + n^2 + ... of them; got "
            f"{num_workers}."
        )
    num_stragglers = _validate.integer("num_stragglers", num_stragglers, maximum=layer_sizes[0] - 1)

    def is_decodable(progress: jax.Array) -> jax.Array:
        """bool[]: whether enough send to the server; `progress int[W]` are chunks done, layer by layer of the tree.

        `layer_sizes` are its workers n, n^2, ..., from below the server on.
        """
        layer_ends, num_children = np.cumsum(layer_sizes), layer_sizes[0]  # n below each node
        # Leaves send when done, others if they are done and enough of their children send: layers from below.
        sends = progress[layer_ends[-1] - layer_sizes[-1] :] > 0
        for size, end in zip(layer_sizes[-2::-1], layer_ends[-2::-1], strict=True):
            num_sending = sends.reshape(size, num_children).sum(axis=1, dtype=jnp.int32)  # of each node's children
            sends = (progress[end - size : end] > 0) & (num_sending >= num_children - num_stragglers)
        return sends.sum(dtype=jnp.int32) >= num_children - num_stragglers

    return Decodable(1, is_decodable)
