"""The processing order for workers of known speeds: exact for one speed each, by local search for sampled speeds.

A round is complete once every chunk has L finished holders. By the time t a worker can finish as many chunks as fit;
all chunks can have L finished holders by then iff a flow from the workers, each with the chunks that fit, over its
chunks, one unit each, to the chunks, L units each, reaches N·L. The least such t is found by halving.
"""

from typing import Any

import numpy as np

from gcjax import _validate
from gcjax.codes.base import Assignment, Holders, holders
from gcjax.codes.processing_order.mean_time_search import improve
from gcjax.codes.processing_order.worst_case import check_copies, order_chunks

SAMPLES = 16  # whose optimal orders the local search may begin with


def order_by_speed(assignment: Assignment, chunk_seconds: Any, *, copies: int = 1) -> Assignment:
    """The order with the least completion time, or the least mean completion time over samples of the speeds.

    The completion time is the largest over the chunks of the `copies`-th smallest time at which a holder finishes the
    chunk; a worker finishes the chunk in slot k (from 0) after k + 1 times its seconds a chunk.

    For one time a worker, the result is optimal (by maximum flow).

    For S samples, the mean over these samples is lowered by a local search that exchanges two chunks of a worker. The
    result is not proven optimal. Its mean is never above that of the given order, of `order_chunks`, of the optimal
    orders for the harmonic mean, the median and the upper quartile of the seconds of each worker, and of those for
    the first 16 samples; among all orders of small assignments it is mostly the best and within 5 % of it. No order
    has a mean below that of `least_completion_time`, which knows each sample beforehand. Samples in which a chunk has
    fewer than `copies` holders that have not failed are infinite in any order and left out. With few samples the
    order fits these samples more than the law they were drawn from.

    Args:
      assignment: who holds what.
      chunk_seconds: float[W], seconds that each worker takes for a chunk, or float[S, W], S samples of them; inf for
        a failed worker.
      copies: the finished holders needed of each chunk: L for a partial code with L blocks.

    Returns:
      The same chunks for every worker, in another order; as given if no order is ever complete. The same for the same
      input.

    Raises:
      ValueError: if the shape is another, a time is negative or NaN, or a chunk has fewer holders than `copies`.
    """
    inverse = holders(assignment)
    check_copies(inverse, copies)
    seconds = _checked_seconds(assignment, chunk_seconds)
    if seconds.ndim == 1:
        return _exact(assignment, inverse, seconds, copies)[0]
    alive = np.isfinite(seconds).astype(np.int64)
    seconds = seconds[[_can_complete(inverse, row, copies) for row in alive]]
    if not seconds.size:
        return assignment
    with np.errstate(divide="ignore"):
        harmonic = 1 / (1 / seconds).mean(axis=0)
    typical = [harmonic, *np.quantile(seconds, [0.5, 0.75], axis=0, method="higher")]
    starts = [assignment, order_chunks(assignment, copies=copies)]
    starts += [_exact(assignment, inverse, row, copies)[0] for row in [*typical, *seconds[:SAMPLES]]]
    return improve(starts, seconds, copies=copies)


def least_completion_time(assignment: Assignment, chunk_seconds: Any, *, copies: int = 1) -> np.ndarray:
    """The least completion time that any processing order has, for speeds known beforehand.

    Args:
      assignment: who holds what; the order plays no role.
      chunk_seconds: float[W] or float[S, W], as in `order_by_speed`.
      copies: as in `order_by_speed`.

    Returns:
      float64[] or float64[S] seconds; inf where a chunk has fewer than `copies` holders that have not failed. The
      mean over the samples is a lower bound on the mean completion time of every order.

    Raises:
      ValueError: as in `order_by_speed`.
    """
    inverse = holders(assignment)
    check_copies(inverse, copies)
    seconds = _checked_seconds(assignment, chunk_seconds)
    least = [_exact(assignment, inverse, row, copies)[1] for row in np.atleast_2d(seconds)]
    return np.array(least).reshape(seconds.shape[:-1])


def _exact(assignment: Assignment, inverse: Holders, seconds: np.ndarray, copies: int) -> tuple[Assignment, float]:
    """An order with the least completion time, and that time; the given order and inf if there is none."""
    if not _can_complete(inverse, np.isfinite(seconds), copies):
        return assignment, np.inf
    held = assignment.chunks >= 0
    finish = np.where(held, seconds[:, None] * np.arange(1, assignment.load + 1), np.inf)
    times = np.unique(finish[np.isfinite(finish)])
    # No order is complete before N·L chunks are finished, nor before L holders of each chunk have finished a chunk.
    all_done = np.partition(finish, assignment.num_chunks * copies - 1, axis=None)[assignment.num_chunks * copies - 1]
    first = np.where(inverse.workers >= 0, seconds[inverse.workers], np.inf)
    each_done = np.partition(first, copies - 1, axis=1)[:, copies - 1].max()
    low = int(np.searchsorted(times, max(all_done, each_done)))
    high = times.size - 1
    edges = np.nonzero(held)
    chosen = np.ones(edges[0].size, dtype=bool)  # with all chunks finished every order is complete
    while low < high:
        middle = (low + high) // 2
        flow = _in_time(assignment, edges, finish <= times[middle], copies)
        if flow is None:
            low = middle + 1
        else:
            high, chosen = middle, flow
    later = np.full(held.shape, 2)
    later[edges] = ~chosen
    order = np.argsort(later, axis=1, kind="stable")
    return assignment._replace(chunks=np.take_along_axis(assignment.chunks, order, axis=1)), float(times[high])


def _in_time(assignment: Assignment, edges: tuple[np.ndarray, ...], fits: np.ndarray, copies: int) -> np.ndarray | None:
    """Which of the pairs of worker and chunk to finish so that every chunk has `copies`; None if that cannot be.

    Args:
      assignment: who holds what.
      edges: the entries [w, k] of `assignment.chunks` that hold a chunk.
      fits: bool[W, K], true for as many entries of a row as the worker can finish.
      copies: L.
    """
    workers, chunks = assignment.num_workers, assignment.num_chunks
    worker, chunk = 1 + edges[0], 1 + workers + assignment.chunks[edges]
    source, sink = 0, 1 + workers + chunks
    tails = np.concatenate([np.full(workers, source), worker, 1 + workers + np.arange(chunks)])
    heads = np.concatenate([1 + np.arange(workers), chunk, np.full(chunks, sink)])
    room = np.concatenate([fits.sum(axis=1), np.ones(worker.size), np.full(chunks, copies)]).astype(np.int32)
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    graph = csr_array((room, (tails.astype(np.int32), heads.astype(np.int32))), shape=(sink + 1, sink + 1))
    flow = maximum_flow(graph, source, sink)
    if flow.flow_value < chunks * copies:
        return None
    return np.asarray(flow.flow[worker, chunk]).ravel() > 0


def _can_complete(inverse: Holders, alive: np.ndarray, copies: int) -> bool:
    """Whether every chunk has `copies` holders that have not failed."""
    return bool((np.where(inverse.workers >= 0, alive[inverse.workers], 0).sum(axis=1) >= copies).all())


def _checked_seconds(assignment: Assignment, chunk_seconds: Any) -> np.ndarray:
    shape = np.shape(chunk_seconds)
    if len(shape) not in (1, 2) or shape[-1] != assignment.num_workers or 0 in shape:
        raise ValueError(
            f"chunk_seconds must be float[{assignment.num_workers}], one time a worker, or "
            f"float[S, {assignment.num_workers}], S >= 1 samples; got shape {shape}."
        )
    _validate.number("chunk_seconds", chunk_seconds)
    return np.asarray(chunk_seconds, dtype=np.float64)
