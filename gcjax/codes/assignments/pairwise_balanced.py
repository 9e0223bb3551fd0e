"""Assignments in which no two chunks share many workers (Bitar, Wootters, El Rouayheb 2020, arXiv 1905.05383)."""

from collections.abc import Sequence

import jax
import numpy as np

from gcjax import _validate
from gcjax._generators import generator_of_key
from gcjax.codes.assignments.conversions import from_pairs
from gcjax.codes.base import Assignment


def pairwise_balanced(
    num_workers: int, *, num_chunks: int, replication: int | Sequence[int], rng_key: jax.Array
) -> Assignment:
    """Chunk i is on d_i workers, drawn so that any two chunks share about as many workers as any other two.

    Pair-wise balanced are assignments in which chunks i and j share d_i d_j / W workers (Bitar et al. 2020), which
    whole numbers seldom allow. Ours for any numbers: chunks are placed in random order, each copy on the worker that
    adds least to the sum of the squares of what pairs share; ties are drawn. Loads come out about equal.

    Args:
      num_workers: W.
      num_chunks: N.
      replication: d, of all chunks, or int[N]; at most W.
      rng_key: draws the order of the chunks, in which workers process them, too, and the ties.

    Raises:
      ValueError: if a replication is not between 1 and W, or there is not one for every chunk.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    num_chunks = _validate.integer("num_chunks", num_chunks, minimum=1)
    _validate.whole("replication", replication, minimum=1, maximum=num_workers, hint="A worker holds a chunk once.")
    if np.shape(replication) not in ((), (num_chunks,)):
        raise ValueError(
            f"replication must be one number or int[{num_chunks}], one a chunk; got shape {np.shape(replication)}."
        )
    replications = np.broadcast_to(np.asarray(replication), num_chunks)
    rng = generator_of_key(rng_key)
    chunks_of_worker: list[list[int]] = [[] for _ in range(num_workers)]
    holders_of_chunk: dict[int, list[int]] = {}
    for chunk in rng.permutation(num_chunks).tolist():
        holders = _holders_of_next_chunk(rng, chunks_of_worker, holders_of_chunk, int(replications[chunk]))
        holders_of_chunk[chunk] = holders
        for worker in holders:
            chunks_of_worker[worker].append(chunk)
    loads = [len(chunks) for chunks in chunks_of_worker]
    workers = np.repeat(np.arange(num_workers), loads)
    chunks = np.concatenate([np.array(chunks, np.int64) for chunks in chunks_of_worker])
    return from_pairs(workers, chunks, num_workers=num_workers, num_chunks=num_chunks)


def _holders_of_next_chunk(
    rng: np.random.Generator,
    chunks_of_worker: list[list[int]],
    holders_of_chunk: dict[int, list[int]],
    num_holders: int,
) -> list[int]:
    """`num_holders` workers for the next chunk, chosen one after the other, each the one that costs least.

    A worker costs 2 s + 1 for each chunk that it holds, where s is what that chunk and the next one share so far: by so
    much the square of s grows with it.
    """
    cost = np.array([len(chunks) for chunks in chunks_of_worker], np.float64)
    cost += rng.uniform(0, 0.5, cost.size)  # ties: costs are whole numbers
    holders: list[int] = []
    for _ in range(num_holders):
        worker = int(np.argmin(cost))
        holders.append(worker)
        for chunk in chunks_of_worker[worker]:
            cost[holders_of_chunk[chunk]] += 2
        cost[worker] = np.inf  # it holds the chunk once
    return holders
