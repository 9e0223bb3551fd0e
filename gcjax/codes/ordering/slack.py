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
      values: int64[W·K + 1], the remaining work of entry [w, k] of `chunks` at w·K + k; 0 where there is no chunk, and
        INFINITE at the end.
      entries: int[N, R], where the remaining works of a chunk stand in `values`; W·K where there is no holder.
      num_counted: int[N], how many of the smallest remaining works count: the holders of the chunk - L + 1.
    """

    chunks: np.ndarray
    loads: np.ndarray
    values: np.ndarray
    entries: np.ndarray
    num_counted: np.ndarray


def remaining_work(assignment: Assignment, inverse: Holders, num_blocks: int) -> RemainingWork:
    """The remaining works of an assignment in its present order."""
    num_workers, load = assignment.chunks.shape
    loads = assignment.loads.astype(np.int64)
    values = np.maximum(loads[:, None] - np.arange(load), 0)
    entries = inverse.workers.astype(np.int64) * load + inverse.slots
    return RemainingWork(
        chunks=np.where(assignment.chunks >= 0, assignment.chunks, assignment.num_chunks),
        loads=loads,
        values=np.append(values.ravel(), INFINITE),
        entries=np.where(inverse.workers >= 0, entries, num_workers * load),
        num_counted=inverse.counts - num_blocks + 1,
    )


def slack(work: RemainingWork, chunks: np.ndarray | slice = slice(None)) -> np.ndarray:
    """int[...]: the slack of the given chunks."""
    return slack_terms(work, chunks)[0]


def slack_terms(work: RemainingWork, chunks: np.ndarray | slice = slice(None)) -> np.ndarray:
    """int[3, ...]: of the given chunks the slack, the largest remaining work in it, and the next larger or INFINITE."""
    num_counted = work.num_counted[chunks, None]
    values = np.sort(work.values[work.entries[chunks]], axis=-1)
    slacks = np.where(np.arange(values.shape[-1]) < num_counted, values, 0).sum(axis=-1)
    largest = np.take_along_axis(values, num_counted - 1, axis=-1)[..., 0]
    next_larger = np.take_along_axis(values, np.minimum(num_counted, values.shape[-1] - 1), axis=-1)[..., 0]
    return np.stack([slacks, largest, np.where(num_counted[..., 0] < values.shape[-1], next_larger, INFINITE)])


def ordered_assignment(assignment: Assignment, work: RemainingWork) -> Assignment:
    """The assignment in the order that the remaining works say."""
    slots = work.loads[:, None] - work.values[:-1].reshape(work.chunks.shape)
    rows, columns = np.nonzero(assignment.chunks >= 0)
    chunks = np.full_like(assignment.chunks, -1)
    chunks[rows, slots[rows, columns]] = assignment.chunks[rows, columns]
    return assignment._replace(chunks=chunks)
