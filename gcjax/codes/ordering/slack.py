"""How much work can be left undone while a chunk still waits: the quantity behind `q_max`.

Let the *remaining work* of a chunk at a worker be what the worker has left when it comes to that chunk: its load minus
the slot, from 1 for the last chunk to the whole load for the first. While a chunk with R holders has fewer than L
finished ones, at least R - L + 1 of them have at least their remaining work undone. So the least work left undone, the
*slack* of the chunk, is the sum of its R - L + 1 smallest remaining works; in the worst case all other work has been
done before. Hence `q_max = 1 + all work - the smallest slack`, and the best order makes the smallest slack as large as
possible. The remaining works at one worker are 1, 2, ..., K in some order, whatever the order.
"""

from typing import NamedTuple

import numpy as np

from gcjax.codes.base import Assignment, Holders

INFINITE = 2**40  # a whole number above all sums of remaining work; the remaining work at a holder that does not exist


class RemainingWork(NamedTuple):
    """An assignment with an order that can be changed in place.

    Attributes:
      chunks: int32[W, K], with N where a worker has fewer than K chunks; stays as it is.
      loads: int[W].
      flat_remaining_work: int64[W·K + 1], the remaining work of entry [w, k] of `chunks` at w·K + k; 0 where there is
        no chunk, and INFINITE at the end.
      positions_in_flat: int[N, R], where the remaining works of a chunk stand in `flat_remaining_work`; W·K where there
        is no holder.
      num_slack_terms: int[N], how many of the smallest remaining works of a chunk add up to its slack: R - L + 1.
    """

    chunks: np.ndarray
    loads: np.ndarray
    flat_remaining_work: np.ndarray
    positions_in_flat: np.ndarray
    num_slack_terms: np.ndarray


def remaining_work(assignment: Assignment, chunk_holders: Holders, num_blocks: int) -> RemainingWork:
    """The remaining works of an assignment in its present order; L = `num_blocks` holders can decode a chunk.

    The remaining work of a chunk at a worker is what that worker has left when it comes to it: its load minus the slot.
    """
    num_workers, load = assignment.chunks.shape
    loads = assignment.loads.astype(np.int64)
    remaining_works = np.maximum(loads[:, None] - np.arange(load), 0)
    held_positions = chunk_holders.workers.astype(np.int64) * load + chunk_holders.slots
    position_of_infinite = num_workers * load
    return RemainingWork(
        chunks=np.where(assignment.chunks >= 0, assignment.chunks, assignment.num_chunks),
        loads=loads,
        flat_remaining_work=np.append(remaining_works.ravel(), INFINITE),
        positions_in_flat=np.where(chunk_holders.workers >= 0, held_positions, position_of_infinite),
        num_slack_terms=chunk_holders.counts - num_blocks + 1,
    )


def slack(work: RemainingWork, chunks: np.ndarray | slice = slice(None)) -> np.ndarray:
    """int[...]: the slack of the given chunks."""
    return slack_and_largest_term(work, chunks)[0]


def slack_and_largest_term(work: RemainingWork, chunks: np.ndarray | slice = slice(None)) -> np.ndarray:
    """int[3, chunks]: the slack of each chunk, its largest term, and the next larger remaining work or INFINITE.

    The slack is the sum of the `num_slack_terms` smallest of the remaining works that a chunk has at its holders.
    """
    num_slack_terms = work.num_slack_terms[chunks, None]  # [chunks, 1]
    sorted_works = np.sort(work.flat_remaining_work[work.positions_in_flat[chunks]], axis=-1)  # [chunks, R]
    max_holders = sorted_works.shape[-1]
    slacks = np.where(np.arange(max_holders) < num_slack_terms, sorted_works, 0).sum(axis=-1)
    largest_term = np.take_along_axis(sorted_works, num_slack_terms - 1, axis=-1)[..., 0]
    next_larger = np.take_along_axis(sorted_works, np.minimum(num_slack_terms, max_holders - 1), axis=-1)[..., 0]
    next_larger_or_infinite = np.where(num_slack_terms[..., 0] < max_holders, next_larger, INFINITE)
    return np.stack([slacks, largest_term, next_larger_or_infinite])


def ordered_assignment(assignment: Assignment, work: RemainingWork) -> Assignment:
    """The assignment in the order that the remaining works say: a worker's first chunk has its whole load left."""
    remaining_works = work.flat_remaining_work[:-1].reshape(work.chunks.shape)  # [W, K], without INFINITE at the end
    new_slots = work.loads[:, None] - remaining_works
    workers, old_slots = np.nonzero(assignment.chunks >= 0)
    chunks = np.full_like(assignment.chunks, -1)
    chunks[workers, new_slots[workers, old_slots]] = assignment.chunks[workers, old_slots]
    return assignment._replace(chunks=chunks)
