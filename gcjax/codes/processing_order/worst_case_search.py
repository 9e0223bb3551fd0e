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
from gcjax.codes.processing_order.slack import FAR, Rests, critical, in_order, rests_of

SWEEPS = 10  # in which every worker has its turn, before only the holders of the worst chunks have
TURNS = (20, 20_000)  # at most in all: so many a worker, and so many more


def search(assignment: Assignment, inverse: Holders, *, copies: int, target: int) -> Assignment:
    """Makes the smallest spare as large as it can, from the given order on.

    Args:
      assignment: who holds what, and the order to begin with.
      inverse: its holders.
      copies: L, the finished holders that a chunk needs.
      target: where the smallest spare can stop to grow.

    Returns:
      The order found; never worse than the given one, and the same for the same input.
    """
    rests = rests_of(assignment, inverse, copies)
    state = np.append(critical(rests), np.full((3, 1), FAR), axis=1)  # the last chunk stands for the padding
    rng = host_generator(jax.random.key(0))
    turns = TURNS[0] * assignment.num_workers + TURNS[1]
    passes = range(min(50 * assignment.num_workers, 5_000 + assignment.num_workers // 5))
    for _, candidates in zip(passes, _candidates(rests, state[0], inverse, rng), strict=False):
        if state[0].min() >= target or turns <= 0:
            break
        workers = _without_common_chunks(rests, candidates)
        _take_turns(rests, state, workers, rng)  # the best for each worker: the smallest spare never falls
        turns -= workers.size
    return in_order(assignment, rests)


def _candidates(rests: Rests, spares: np.ndarray, inverse: Holders, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Groups of workers to have their turn, small enough for most of them to have no chunk in common."""
    workers = rests.loads.size
    groups = min(workers, inverse.workers.shape[1] * rests.chunks.shape[1])
    for _ in range(SWEEPS):
        yield from np.array_split(rng.permutation(workers), groups)
    size = max(workers // groups, 8)
    while True:
        worst = rng.permutation(np.flatnonzero(spares == spares.min()))[:size]
        holding = inverse.workers[worst]
        yield rng.permutation(np.unique(holding[holding >= 0]))[:size]


def _without_common_chunks(rests: Rests, workers: np.ndarray) -> np.ndarray:
    """Those of the workers that no later one has a chunk in common with."""
    owner = np.full(rests.counted.size + 1, -1)
    chunks, ranks = rests.chunks[workers], np.arange(workers.size)[:, None]
    owner[chunks] = ranks
    return workers[((owner[chunks] == ranks) | (chunks == rests.counted.size)).all(axis=1)]


def _take_turns(rests: Rests, state: np.ndarray, workers: np.ndarray, rng: np.random.Generator) -> None:
    """The given workers, without a chunk in common, reorder their chunks; `state` is what `critical` says of each."""
    chunks = rests.chunks[workers]
    held = chunks < rests.counted.size
    entries = workers[:, None] * chunks.shape[1] + np.arange(chunks.shape[1])
    own, (total, last, after) = rests.values[entries], state[:, chunks]
    # With the rest r at this worker, a chunk has the spare without + min(r, most).
    without, most = total - np.minimum(own, last), np.where(own <= last, after, last)
    without = np.where(held, without + 0.5 * rng.random(own.shape), -FAR)  # below 1: only ties are broken
    for rest in range(1, chunks.shape[1] + 1):
        rows = np.flatnonzero(rests.loads[workers] >= rest)
        column = (without[rows] + np.minimum(rest, most[rows])).argmax(axis=1)
        rests.values[entries[rows, column]] = rest
        without[rows, column] = -FAR
    state[:, chunks[held]] = critical(rests, chunks[held])
