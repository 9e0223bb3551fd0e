"""A local search for the processing order: workers reorder their chunks in turn, many of them at a time.

What a worker does best, all others staying as they are, is known: fill the positions from the last to the first, each
with the chunk that suffers least there (Lawler 1973, for the largest of costs that grow with the position). Workers
without a chunk in common do so at the same time. Chunks that are equally well off change places at random, which
carries an excess from chunk to chunk to where there is room for it.
"""

from collections.abc import Iterator

import jax
import numpy as np

from gcjax.codes.base import Assignment, Holders, host_generator
from gcjax.codes.ordering.slack import INFINITE, RemainingWork, ordered_assignment, remaining_work, slack_terms

NUM_SWEEPS = 10  # in which every worker reorders its chunks, before only the holders of the worst chunks do
MAX_REORDERS = (20, 20_000)  # in all: so many a worker, and so many more


def search(assignment: Assignment, inverse: Holders, *, num_blocks: int, target: int) -> Assignment:
    """Makes the smallest slack as large as it can, from the given order on.

    Args:
      assignment: who holds what, and the order to begin with.
      inverse: its holders.
      num_blocks: L, the finished holders that a chunk needs.
      target: where the smallest slack can stop to grow.

    Returns:
      The order at the end; never worse than the given one, and the same for the same input.
    """
    work = remaining_work(assignment, inverse, num_blocks)
    terms = np.append(slack_terms(work), np.full((3, 1), INFINITE), axis=1)  # [3, N + 1]; the last is for "no chunk"
    rng = host_generator(jax.random.key(0))
    reorders_left = MAX_REORDERS[0] * assignment.num_workers + MAX_REORDERS[1]
    pass_ids = range(min(50 * assignment.num_workers, 5_000 + assignment.num_workers // 5))
    for _, candidates in zip(pass_ids, _candidate_groups(work, terms[0], inverse, rng), strict=False):
        if terms[0].min() >= target or reorders_left <= 0:
            break
        workers = _without_common_chunks(work, candidates)
        _reorder_chunks(work, terms, workers, rng)  # the best for each worker: the smallest slack never falls
        reorders_left -= workers.size
    return ordered_assignment(assignment, work)


def _candidate_groups(
    work: RemainingWork, slacks: np.ndarray, inverse: Holders, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Groups of workers to reorder their chunks, small enough for most of them to have no chunk in common."""
    num_workers = work.loads.size
    num_groups = min(num_workers, inverse.workers.shape[1] * work.chunks.shape[1])
    for _ in range(NUM_SWEEPS):
        yield from np.array_split(rng.permutation(num_workers), num_groups)
    max_workers = max(num_workers // num_groups, 8)
    while True:
        worst_chunks = rng.permutation(np.flatnonzero(slacks == slacks.min()))[:max_workers]
        holder_ids = inverse.workers[worst_chunks]
        yield rng.permutation(np.unique(holder_ids[holder_ids >= 0]))[:max_workers]


def _without_common_chunks(work: RemainingWork, workers: np.ndarray) -> np.ndarray:
    """Those of the workers that no later one has a chunk in common with."""
    last_rank = np.full(work.num_counted.size + 1, -1)
    chunks, ranks = work.chunks[workers], np.arange(workers.size)[:, None]
    last_rank[chunks] = ranks
    return workers[((last_rank[chunks] == ranks) | (chunks == work.num_counted.size)).all(axis=1)]


def _reorder_chunks(work: RemainingWork, terms: np.ndarray, workers: np.ndarray, rng: np.random.Generator) -> None:
    """The given workers, without a chunk in common, reorder their chunks as is best for each; changes work and terms.

    Let a chunk have the slack S, of which m is the largest term and m' the next larger remaining work, and let v be the
    remaining work at this worker. With r in place of v, its slack is `S - min(v, m) + min(r, cap)`, where the cap is m'
    if v is among the terms, and m otherwise.

    Args:
      work: of all workers.
      terms: int[3, N + 1], what `slack_terms` says of each chunk: S, m, m'.
      workers: int[n].
      rng: breaks ties.
    """
    chunks = work.chunks[workers]
    is_held = chunks < work.num_counted.size
    entries = workers[:, None] * chunks.shape[1] + np.arange(chunks.shape[1])
    own_work, (slacks, largest, next_larger) = work.values[entries], terms[:, chunks]
    other_slack, cap = slacks - np.minimum(own_work, largest), np.where(own_work <= largest, next_larger, largest)
    noise = 0.5 * rng.random(own_work.shape)  # below 1: only ties are broken
    other_slack = np.where(is_held, other_slack + noise, -INFINITE)
    # From the last position (remaining work 1) to the first: the chunk that keeps the largest slack there.
    for value in range(1, chunks.shape[1] + 1):
        active_rows = np.flatnonzero(work.loads[workers] >= value)
        best_column = (other_slack[active_rows] + np.minimum(value, cap[active_rows])).argmax(axis=1)
        work.values[entries[active_rows, best_column]] = value
        other_slack[active_rows, best_column] = -INFINITE
    terms[:, chunks[is_held]] = slack_terms(work, chunks[is_held])
