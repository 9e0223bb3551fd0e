"""The processing order for workers of known speeds: exact for one speed each, by local search for sampled speeds.

A round is complete once every chunk has L finished holders. By the time t a worker can finish as many chunks as fit;
all chunks can have L finished holders by then iff a flow from the workers, each with the chunks that fit, over its
chunks, one unit each, to the chunks, L units each, reaches N·L. The least such t is found by halving.
"""

from typing import Any

import numpy as np

from gcjax import _validate
from gcjax.codes.base import Assignment, Holders
from gcjax.codes.ordering.mean_time_search import improved_order
from gcjax.codes.ordering.worst_case import order_chunks, valid_holders

NUM_SAMPLES = 16  # whose optimal orders the local search may begin with


def order_by_speed(assignment: Assignment, chunk_seconds: Any, *, num_blocks: int = 1) -> Assignment:
    """The order with the least completion time, or the least mean completion time over samples of the speeds.

    The completion time is the largest over the chunks of the L-th smallest time at which a holder finishes the chunk; a
    worker finishes the chunk in slot k (from 0) after k + 1 times its seconds a chunk.

    For one time a worker, the result is optimal (by maximum flow).

    For S samples, the mean over these samples is lowered by a local search that exchanges two chunks of a worker. The
    result is not proven optimal. Its mean is never above that of the given order, of `order_chunks`, of the optimal
    orders for the harmonic mean, the median and the upper quartile of the seconds of each worker, and of those for
    the first 16 samples; among all orders of small assignments it is mostly the best and within 5 % of it. No order
    has a mean below that of `min_completion_time`, which knows each sample beforehand. Samples in which a chunk has
    fewer than `num_blocks` holders that have not failed are infinite in any order and left out. With few samples the
    order fits these samples more than the law they were drawn from.

    Args:
      assignment: who holds what.
      chunk_seconds: float[W], seconds that each worker takes for a chunk, or float[S, W], S samples of them; inf for
        a failed worker.
      num_blocks: L, the blocks of a partial code: so many finished holders are needed of each chunk.

    Returns:
      The same chunks for every worker, in another order; as given if no order is ever complete. The same for the same
      input.

    Raises:
      ValueError: if the shape is another, a time is negative or NaN, or a chunk has fewer holders than `num_blocks`.
    """
    chunk_holders = valid_holders(assignment, num_blocks)
    seconds = _valid_seconds(assignment, chunk_seconds)
    if seconds.ndim == 1:
        optimal_assignment, _ = _optimal_order(assignment, chunk_holders, seconds, num_blocks)
        return optimal_assignment
    seconds = seconds[[_can_complete(chunk_holders, is_alive, num_blocks) for is_alive in np.isfinite(seconds)]]
    if not seconds.size:
        return assignment
    with np.errstate(divide="ignore"):
        harmonic_mean = 1 / (1 / seconds).mean(axis=0)
    typical_seconds = [harmonic_mean, *np.quantile(seconds, [0.5, 0.75], axis=0, method="higher")]  # float[W] each
    orders = [assignment, order_chunks(assignment, num_blocks=num_blocks)]
    for worker_seconds in [*typical_seconds, *seconds[:NUM_SAMPLES]]:
        optimal_assignment, _ = _optimal_order(assignment, chunk_holders, worker_seconds, num_blocks)
        orders.append(optimal_assignment)
    return improved_order(orders, seconds, num_blocks=num_blocks)


def min_completion_time(assignment: Assignment, chunk_seconds: Any, *, num_blocks: int = 1) -> np.ndarray:
    """The least completion time that any processing order has, for speeds known beforehand.

    Args:
      assignment: who holds what; the order plays no role.
      chunk_seconds: float[W] or float[S, W], as in `order_by_speed`.
      num_blocks: as in `order_by_speed`.

    Returns:
      float64[] or float64[S] seconds; inf where a chunk has fewer than `num_blocks` holders that have not failed. The
      mean over the samples is a lower bound on the mean completion time of every order.

    Raises:
      ValueError: as in `order_by_speed`.
    """
    chunk_holders = valid_holders(assignment, num_blocks)
    seconds = _valid_seconds(assignment, chunk_seconds)
    samples = np.atleast_2d(seconds)
    optimal_orders = (_optimal_order(assignment, chunk_holders, sample, num_blocks) for sample in samples)
    times = [completion_time for _, completion_time in optimal_orders]
    return np.array(times).reshape(seconds.shape[:-1])


def _optimal_order(
    assignment: Assignment, chunk_holders: Holders, seconds: np.ndarray, num_blocks: int
) -> tuple[Assignment, float]:
    """An order with the least completion time, and that time; the given order and inf if there is none.

    Args:
      assignment: who holds what.
      chunk_holders: its holders.
      seconds: float[W], of a chunk.
      num_blocks: L.
    """
    if not _can_complete(chunk_holders, np.isfinite(seconds), num_blocks):
        return assignment, np.inf
    is_held = assignment.chunks >= 0
    finish = np.where(is_held, seconds[:, None] * np.arange(1, assignment.load + 1), np.inf)  # [W, K], of any order
    finish_times = np.unique(finish[np.isfinite(finish)])
    # No order is complete before N·L chunks are finished, nor before L holders of each chunk have finished a chunk.
    time_of_enough_chunks = _kth_smallest(finish.ravel(), assignment.num_chunks * num_blocks)
    first_chunk_times = np.where(chunk_holders.workers >= 0, seconds[chunk_holders.workers], np.inf)  # [N, R]
    time_of_enough_holders = _kth_smallest(first_chunk_times, num_blocks).max()
    lowest_index = int(np.searchsorted(finish_times, max(time_of_enough_chunks, time_of_enough_holders)))
    complete_index = finish_times.size - 1  # of a time at which an order is complete; `lowest_index` comes up to it
    held_entries = np.nonzero(is_held)
    is_in_time = np.ones(held_entries[0].size, dtype=bool)  # with all chunks finished every order is complete
    while lowest_index < complete_index:
        middle_index = (lowest_index + complete_index) // 2
        pairs_in_time = _pairs_in_time(assignment, held_entries, finish <= finish_times[middle_index], num_blocks)
        if pairs_in_time is None:
            lowest_index = middle_index + 1
        else:
            complete_index, is_in_time = middle_index, pairs_in_time
    return _with_chunks_first(assignment, held_entries, is_in_time), float(finish_times[complete_index])


def _with_chunks_first(
    assignment: Assignment, held_entries: tuple[np.ndarray, ...], is_first: np.ndarray
) -> Assignment:
    """Every worker with its chunks of `is_first bool[entries]` first, and otherwise in the given order.

    `held_entries` are the indices w and k, int[entries] each, of the chunks in `assignment.chunks`; -1 stays behind.
    """
    rank_of_first, rank_of_other, rank_of_no_chunk = 0, 1, 2
    ranks = np.full(assignment.chunks.shape, rank_of_no_chunk)
    ranks[held_entries] = np.where(is_first, rank_of_first, rank_of_other)
    order = np.argsort(ranks, axis=1, kind="stable")
    return assignment._replace(chunks=np.take_along_axis(assignment.chunks, order, axis=1))


def _kth_smallest(values: np.ndarray, k: int) -> np.ndarray:
    """The k-th smallest value along the last axis, counted from 1."""
    return np.partition(values, k - 1, axis=-1)[..., k - 1]


def _pairs_in_time(
    assignment: Assignment, held_entries: tuple[np.ndarray, ...], fits_in_time: np.ndarray, num_blocks: int
) -> np.ndarray | None:
    """Which pairs of worker and chunk to finish so that every chunk has L finished holders; None if that cannot be.

    bool[entries], of the pairs of `held_entries`, by a maximum flow: a worker passes on as many units as it can finish
    chunks, a pair one, and a chunk L.

    Args:
      assignment: who holds what.
      held_entries: the indices w and k, int[entries] each, of the entries of `assignment.chunks` that hold a chunk.
      fits_in_time: bool[W, K], true for as many entries of a row as the worker can finish.
      num_blocks: L.
    """
    num_workers, num_chunks = assignment.num_workers, assignment.num_chunks
    # Nodes: the source 0, the workers, the chunks, the sink.
    source, worker_nodes, chunk_nodes = 0, 1 + np.arange(num_workers), 1 + num_workers + np.arange(num_chunks)
    sink = 1 + num_workers + num_chunks
    pair_workers, pair_chunks = worker_nodes[held_entries[0]], chunk_nodes[assignment.chunks[held_entries]]
    tail_nodes = np.concatenate([np.full(num_workers, source), pair_workers, chunk_nodes])
    head_nodes = np.concatenate([worker_nodes, pair_chunks, np.full(num_chunks, sink)])
    capacities = fits_in_time.sum(axis=1), np.ones(pair_workers.size), np.full(num_chunks, num_blocks)
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    arcs = tail_nodes.astype(np.int32), head_nodes.astype(np.int32)
    graph = csr_array((np.concatenate(capacities).astype(np.int32), arcs), shape=(sink + 1, sink + 1))
    flow = maximum_flow(graph, source, sink)
    if flow.flow_value < num_chunks * num_blocks:
        return None
    return np.asarray(flow.flow[pair_workers, pair_chunks]).ravel() > 0


def _can_complete(chunk_holders: Holders, is_alive: np.ndarray, num_blocks: int) -> bool:
    """Whether every chunk has `num_blocks` holders that have not failed, of the workers `is_alive bool[W]`."""
    num_alive_holders = np.where(chunk_holders.workers >= 0, is_alive[chunk_holders.workers], 0).sum(axis=1)
    return bool((num_alive_holders >= num_blocks).all())


def _valid_seconds(assignment: Assignment, chunk_seconds: Any) -> np.ndarray:
    """float64[W] or float64[S, W]; raises `ValueError` for other shapes, negative times or NaN."""
    shape = np.shape(chunk_seconds)
    if len(shape) not in (1, 2) or shape[-1] != assignment.num_workers or 0 in shape:
        raise ValueError(
            f"chunk_seconds must be float[{assignment.num_workers}], one time a worker, or "
            f"float[S, {assignment.num_workers}], S >= 1 samples; got shape {shape}."
        )
    _validate.number("chunk_seconds", chunk_seconds)
    return np.asarray(chunk_seconds, dtype=np.float64)
