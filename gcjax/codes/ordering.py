"""In which order a worker processes its chunks (Ramamoorthy, Meng, Girimaji 2024, section 4).

A chunk that all its holders process late delays the decoding. For chunk c and `copies` needed, the most chunks that
the cluster can process while c still has fewer than `copies` finished holders is: all chunks of the workers that do
not hold c, the `slot` chunks before c of those that do, and for the `copies - 1` best of them the rest of their load.
`q_max` is one more than the maximum over c: with q_max chunks processed, however slow anybody is, all is decodable.
"""

import heapq

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from gcjax import _checks
from gcjax.codes.base import Assignment, Holders, holders


def q_max(assignment: Assignment, *, copies: int = 1) -> int:
    """The chunks that must be processed, in the worst case, before every chunk has `copies` finished holders.

    Args:
      assignment: who holds what, in which order.
      copies: the finished holders needed of each chunk: L for a partial code with L blocks.

    Returns:
      The number of chunks, counted over all workers (Ramamoorthy et al. 2024, section 4).

    Raises:
      ValueError: if a chunk has fewer holders than `copies`.
    """
    inverse = holders(assignment)
    _check_copies(inverse, copies)
    return 1 + int(_waiting(assignment, inverse, inverse.slots, copies).max())


def q_max_bound(assignment: Assignment, *, copies: int = 1) -> int:
    """A lower bound on `q_max` over all orders of this assignment.

    The slots of all chunks add up to the same number in any order, and the `copies - 1` best holders of a chunk have
    at least the average of its holders left; spreading the slots as evenly as possible gives the bound.
    """
    inverse = holders(assignment)
    _check_copies(inverse, copies)
    loads = np.where(inverse.workers >= 0, assignment.loads[inverse.workers], 0).sum(axis=1)
    share = (copies - 1) / inverse.counts
    base = assignment.loads.sum() - loads + share * loads
    total_slots = int((assignment.loads * (assignment.loads - 1) // 2).sum())
    # The level t at which sum_c max(0, t - base_c) / (1 - share_c) reaches the sum of all slots.
    order = np.argsort(base)
    base, slope = base[order], 1 / (1 - share[order])
    room = base * np.cumsum(slope) - np.cumsum(base * slope)
    last = np.flatnonzero(room <= total_slots)[-1]
    level = (total_slots + np.cumsum(base * slope)[last]) / np.cumsum(slope)[last]
    return 1 + int(np.ceil(max(level, base[-1]) - 1e-9))


def order_chunks(assignment: Assignment, *, copies: int = 1) -> Assignment:
    """The best processing order.

    With as many chunks as workers and all loads and replications equal, the result is optimal: each chunk stands once
    at each position, by peeling off perfect matchings (König). For other assignments no optimum is known; a local
    search exchanges chunks within a worker while that lowers the worst chunk, and `q_max_bound` tells how far from
    optimal the result can be at most.

    Args:
      assignment: who holds what.
      copies: the finished holders needed of each chunk, for the local search.

    Returns:
      The same chunks for every worker, in another order.
    """
    inverse = holders(assignment)
    _check_copies(inverse, copies)
    regular = assignment.num_chunks == assignment.num_workers and (inverse.counts == assignment.load).all()
    if regular and (assignment.loads == assignment.load).all():
        return _matchings(assignment)
    return _local_search(assignment, inverse, copies)


def random_order(assignment: Assignment, *, rng_key: jax.Array) -> Assignment:
    """Every worker processes its chunks in a uniformly random order."""
    draws = np.asarray(jax.random.uniform(rng_key, assignment.chunks.shape, dtype=jnp.float32))
    order = np.argsort(np.where(assignment.chunks >= 0, draws, 2.0), axis=1, kind="stable")
    return assignment._replace(chunks=np.take_along_axis(assignment.chunks, order, axis=1))


def _check_copies(inverse: Holders, copies: int) -> None:
    _checks.integer(
        "copies",
        copies,
        minimum=1,
        maximum=int(inverse.counts.min()),
        hint="A chunk cannot have more finished holders than it has holders.",
    )


def _waiting(assignment: Assignment, inverse: Holders, slots: np.ndarray, copies: int) -> np.ndarray:
    """[N]: the most chunks processed while a chunk still has fewer than `copies` finished holders."""
    held = inverse.workers >= 0
    loads = np.where(held, assignment.loads[inverse.workers], 0)
    rest = np.sort(np.where(held, loads - slots, 0), axis=1)[:, ::-1]
    own = np.where(held, slots, 0).sum(axis=1) + rest[:, : copies - 1].sum(axis=1)
    return assignment.loads.sum() - loads.sum(axis=1) + own


def _matchings(assignment: Assignment) -> Assignment:
    workers = assignment.num_workers
    rows = np.repeat(np.arange(workers), assignment.load)
    columns = assignment.chunks.ravel().copy()
    ordered = np.empty_like(assignment.chunks)
    for slot in range(assignment.load):
        graph = csr_matrix((np.ones(rows.size, np.int8), (rows, columns)), shape=(workers, workers))
        chosen = maximum_bipartite_matching(graph, perm_type="column")
        ordered[:, slot] = chosen
        keep = columns != chosen[rows]
        rows, columns = rows[keep], columns[keep]
    return assignment._replace(chunks=ordered)


def _local_search(assignment: Assignment, inverse: Holders, copies: int) -> Assignment:
    """Lowers the worst chunk by exchanges within a worker until no single exchange helps."""
    chunks = assignment.chunks.copy()
    base = assignment.loads.sum() - np.array(
        [assignment.loads[row[row >= 0]].sum() for row in inverse.workers], dtype=np.int64
    )
    position = [dict(zip(w[w >= 0], s[s >= 0], strict=True)) for w, s in zip(*inverse, strict=True)]

    def waiting(chunk: int, worker: int, slot: int) -> int:
        """What `_waiting` says of a chunk if it stood at `slot` of `worker`."""
        slots = [slot if w == worker else s for w, s in position[chunk].items()]
        rest = sorted((assignment.loads[w] - s for w, s in zip(position[chunk], slots, strict=True)), reverse=True)
        return int(base[chunk] + sum(slots) + sum(rest[: copies - 1]))

    heap = [(-waiting(c, -1, -1), c) for c in range(assignment.num_chunks)]
    heapq.heapify(heap)
    while heap:
        value, worst = heapq.heappop(heap)
        current = waiting(worst, -1, -1)
        if -value != current:
            continue
        options = [
            (max(waiting(worst, w, s), waiting(int(chunks[w, s]), w, slot)), w, s)
            for w, slot in position[worst].items()
            for s in range(slot)
        ]
        best = min(options, default=(current, -1, -1))
        if best[0] >= current:
            break
        _, worker, slot = best
        other, old = int(chunks[worker, slot]), position[worst][worker]
        chunks[worker, slot], chunks[worker, old] = worst, other
        position[worst][worker], position[other][worker] = slot, old
        for chunk in (worst, other):
            heapq.heappush(heap, (-waiting(chunk, -1, -1), chunk))
    return assignment._replace(chunks=chunks)
