"""A local search for the processing order: workers reorder their chunks in turn, many of them at a time.

What a worker does best, all others staying as they are, is known: fill the positions from the last to the first, each
with the chunk that suffers least there (Lawler 1973, for the largest of costs that grow with the position). Workers
without a chunk in common do so at the same time. Chunks that are equally well off change places at random, which
carries an excess from chunk to chunk to where there is room for it.
"""

import itertools
from collections.abc import Iterator

import jax
import numpy as np

from gcjax._generators import generator_of_key
from gcjax.codes.base import Assignment, Holders
from gcjax.codes.ordering.slack import (
    INFINITE,
    RemainingWork,
    ordered_assignment,
    remaining_work,
    slack_and_largest_term,
)

NUM_SWEEPS = 10  # in which every worker reorders its chunks, before only the holders of the worst chunks do
MAX_REORDERS_PER_WORKER, MAX_FURTHER_REORDERS = 20, 20_000  # in all: so many a worker, and so many more
MIN_WORKERS_OF_GROUP = 8  # that are drawn from the holders of the worst chunks


def order_with_larger_slack(
    assignment: Assignment, chunk_holders: Holders, *, num_blocks: int, target: int
) -> Assignment:
    """Makes the smallest slack as large as it can, from the given order on.

    The slack of a chunk is the least work that is left undone, by all workers together, while the chunk still waits.

    Args:
      assignment: who holds what, and the order to begin with.
      chunk_holders: its holders.
      num_blocks: L, the finished holders that a chunk needs.
      target: where the smallest slack can stop to grow.

    Returns:
      The order at the end; never worse than the given one, and the same for the same input.
    """
    work = remaining_work(assignment, chunk_holders, num_blocks)
    no_chunk = np.full((3, 1), INFINITE)
    terms_of_chunk = np.append(slack_and_largest_term(work), no_chunk, axis=1)  # [3, N + 1], column N for no chunk
    slacks = terms_of_chunk[0]  # a view: changes with the terms
    with jax.ensure_compile_time_eval():  # also while something is traced
        rng = generator_of_key(jax.random.key(0))
    num_workers = assignment.num_workers
    num_reorders_left = MAX_REORDERS_PER_WORKER * num_workers + MAX_FURTHER_REORDERS
    max_passes = min(50 * num_workers, 5_000 + num_workers // 5)  # groups at most; for many workers not many more
    for group in itertools.islice(_candidate_groups(work, slacks, chunk_holders, rng), max_passes):
        if slacks.min() >= target or num_reorders_left <= 0:
            break
        workers = _without_common_chunks(work, group)
        _reorder_chunks(work, terms_of_chunk, workers, rng)  # the best for each worker: the smallest slack never falls
        num_reorders_left -= workers.size
    return ordered_assignment(assignment, work)


def _candidate_groups(
    work: RemainingWork, slacks: np.ndarray, chunk_holders: Holders, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Groups of workers, by number, to reorder their chunks, without end: first all workers, then holders of the worst.

    They are small enough for most of a group to have no chunk in common. The worst have the least of `slacks int[N+1]`.
    """
    num_workers = work.loads.size
    max_replication, load = chunk_holders.workers.shape[1], work.chunks.shape[1]
    num_groups = min(num_workers, max_replication * load)
    for _ in range(NUM_SWEEPS):
        yield from np.array_split(rng.permutation(num_workers), num_groups)
    max_workers = max(num_workers // num_groups, MIN_WORKERS_OF_GROUP)
    while True:
        worst_chunks = rng.permutation(np.flatnonzero(slacks == slacks.min()))[:max_workers]
        holders_or_none = chunk_holders.workers[worst_chunks]
        yield rng.permutation(np.unique(holders_or_none[holders_or_none >= 0]))[:max_workers]


def _without_common_chunks(work: RemainingWork, workers: np.ndarray) -> np.ndarray:
    """int: those of the `workers int[n]` that no later one among them has a chunk in common with."""
    num_chunks = work.num_slack_terms.size
    chunks, ranks = work.chunks[workers], np.arange(workers.size)[:, None]  # int[n, K]; N stands for no chunk
    last_rank_with_chunk = np.full(num_chunks + 1, -1)
    last_rank_with_chunk[chunks] = ranks  # the last of those with the chunk is what stays
    is_last_with_chunk, is_no_chunk = last_rank_with_chunk[chunks] == ranks, chunks == num_chunks
    return workers[(is_last_with_chunk | is_no_chunk).all(axis=1)]


def _reorder_chunks(
    work: RemainingWork, terms_of_chunk: np.ndarray, workers: np.ndarray, rng: np.random.Generator
) -> None:
    """The given workers, without a chunk in common, reorder their chunks as is best for each; changes work and terms.

    Let a chunk have the slack S, of which m is the largest term and m' the next larger remaining work, and let v be the
    remaining work at this worker. With r in place of v, its slack is `S - min(v, m) + min(r, cap)`, where the cap is m'
    if v is among the terms, and m otherwise.

    Args:
      work: of all workers.
      terms_of_chunk: int[3, N + 1], what `slack_and_largest_term` says of each chunk: S, m, m'.
      workers: int[n].
      rng: breaks ties.
    """
    chunks, load = work.chunks[workers], work.chunks.shape[1]
    is_held = chunks < work.num_slack_terms.size
    positions = workers[:, None] * load + np.arange(load)
    # int[n, K] each.
    own_work, (slacks, largest_terms, next_larger_work) = work.flat_remaining_work[positions], terms_of_chunk[:, chunks]
    slack_of_others = slacks - np.minimum(own_work, largest_terms)
    caps = np.where(own_work <= largest_terms, next_larger_work, largest_terms)
    tie_breaks = 0.5 * rng.random(own_work.shape)  # below 1: only ties are broken
    slack_of_others = np.where(is_held, slack_of_others + tie_breaks, -INFINITE)
    # From the last position (remaining work 1) to the first: the chunk that keeps the largest slack there.
    for work_left in range(1, load + 1):
        rows = np.flatnonzero(work.loads[workers] >= work_left)
        slack_at_position = slack_of_others[rows] + np.minimum(work_left, caps[rows])
        best_column = slack_at_position.argmax(axis=1)
        work.flat_remaining_work[positions[rows, best_column]] = work_left
        slack_of_others[rows, best_column] = -INFINITE  # it has its position
    terms_of_chunk[:, chunks[is_held]] = slack_and_largest_term(work, chunks[is_held])
