"""In which order a worker processes its chunks (Ramamoorthy, Meng, Girimaji 2024, section 4).

A chunk that all its holders process late delays the decoding. The most chunks that the cluster can process while chunk
c has fewer than L = `num_blocks` finished holders are: all chunks of the workers that do not hold c, the `slot` chunks
before c of those that do, and for the L - 1 best of them the rest of their load. `q_max` is one more than the maximum
over c: with q_max chunks processed, however slow anybody is, all is decodable.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.base import Assignment, Holders, check_assignment, holders
from gcjax.codes.ordering.bounds import min_slack_bound
from gcjax.codes.ordering.matchings import can_be_ordered_by_matchings, order_by_matchings
from gcjax.codes.ordering.slack import remaining_work, slack
from gcjax.codes.ordering.worst_case_search import order_with_larger_slack


class Ordering(NamedTuple):
    """How good a processing order is.

    Attributes:
      q_max: of this order.
      bound: no order of this assignment has a smaller `q_max`.
      gap: `q_max - bound`; 0 proves that the order is optimal.
    """

    q_max: int
    bound: int
    gap: int


def q_max(assignment: Assignment, *, num_blocks: int = 1) -> int:
    """The chunks that must be processed, in the worst case, before every chunk has `num_blocks` finished holders.

    Args:
      assignment: who holds what, in which order.
      num_blocks: L, the blocks of a partial code: so many finished holders are needed of each chunk.

    Returns:
      The number of chunks, counted over all workers (Ramamoorthy et al. 2024, section 4).

    Raises:
      ValueError: if a chunk has fewer holders than `num_blocks`.

    Example:
      >>> gcjax.codes.diagnostics.q_max(gcjax.codes.assignments.cyclic(4, load=2))
      6
    """
    return _q_max(assignment, valid_holders(assignment, num_blocks), num_blocks)


def q_max_bound(assignment: Assignment, *, num_blocks: int = 1) -> int:
    """A proven lower bound on `q_max` over all orders of this assignment.

    It is the best of three: what a chunk needs that comes first everywhere, a weighted mean over the chunks, and
    counting how many early and late positions there are; see `gcjax.codes.ordering.bounds`.

    Args:
      assignment: who holds what; the order plays no role.
      num_blocks: as in `q_max`.

    Raises:
      ValueError: if a chunk has fewer holders than `num_blocks`.
    """
    chunk_holders = valid_holders(assignment, num_blocks)
    total_work = int(assignment.loads.sum())
    return 1 + total_work - min_slack_bound(assignment, chunk_holders, num_blocks)


def ordering_gap(assignment: Assignment, *, num_blocks: int = 1) -> Ordering:
    """How far the order of an assignment is from optimal at most.

    Args:
      assignment: who holds what, in which order.
      num_blocks: as in `q_max`.

    Raises:
      ValueError: if a chunk has fewer holders than `num_blocks`.
    """
    reached_q_max, bound = q_max(assignment, num_blocks=num_blocks), q_max_bound(assignment, num_blocks=num_blocks)
    return Ordering(reached_q_max, bound, reached_q_max - bound)


def order_chunks(assignment: Assignment, *, num_blocks: int = 1) -> Assignment:
    """A processing order with a small `q_max`, never above that of the given order.

    `q_max` is the number of processed chunks after which everything can be decoded, whoever is slow. Where all loads
    are K and all replications the same multiple of K, as with as many chunks as workers, each chunk stands equally
    often at each position (perfect matchings). For L = 1 that is optimal, since the positions of all chunks add up to
    the same in any order. It is not always so for more blocks (on random 8-regular graphs there are orders with a
    `q_max` one smaller for L = 3 and 4), so a local search goes on from there, as it does for all other assignments;
    `ordering_gap` tells how far from optimal the result can be.

    Args:
      assignment: who holds what.
      num_blocks: as in `q_max`.

    Returns:
      The same chunks for every worker, in another order; the same for the same input.

    Raises:
      ValueError: if a chunk has fewer holders than `num_blocks`.
    """
    chunk_holders = valid_holders(assignment, num_blocks)
    if can_be_ordered_by_matchings(assignment, chunk_holders):
        matched_order = order_by_matchings(assignment, chunk_holders)
        assignment = min(matched_order, assignment, key=lambda order: _q_max(order, holders(order), num_blocks))
        chunk_holders = holders(assignment)
    target = min_slack_bound(assignment, chunk_holders, num_blocks)
    return order_with_larger_slack(assignment, chunk_holders, num_blocks=num_blocks, target=target)


def random_order(assignment: Assignment, *, rng_key: jax.Array) -> Assignment:
    """Every worker processes its chunks in a uniformly random order."""
    check_assignment(assignment)
    draws = np.asarray(jax.random.uniform(_validate.rng_key(rng_key), assignment.chunks.shape, dtype=jnp.float32))
    order = np.argsort(np.where(assignment.chunks >= 0, draws, 2.0), axis=1, kind="stable")  # no chunk stays last
    return assignment._replace(chunks=np.take_along_axis(assignment.chunks, order, axis=1))


def _q_max(assignment: Assignment, chunk_holders: Holders, num_blocks: int) -> int:
    """`q_max` of an assignment whose holders are known: one more than all work, in chunks, but the smallest slack.

    The slack of a chunk is the least work that is left undone while it has fewer than `num_blocks` finished holders.
    """
    total_work = int(assignment.loads.sum())
    smallest_slack = int(slack(remaining_work(assignment, chunk_holders, num_blocks)).min())
    return 1 + total_work - smallest_slack


def valid_holders(assignment: Assignment, num_blocks: int) -> Holders:
    """The holders of each chunk; raises `ValueError` if a chunk has fewer than `num_blocks`."""
    chunk_holders = holders(assignment)
    fewest_holders = int(chunk_holders.counts.min())
    hint = "A chunk cannot have more finished holders than it has holders."
    _validate.integer("num_blocks", num_blocks, minimum=1, maximum=fewest_holders, hint=hint)
    return chunk_holders
