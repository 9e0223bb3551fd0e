"""How much work can be left undone while a chunk still waits: the quantity behind `q_max`.

Let the *rest* of a chunk at a worker be what the worker has left when it comes to that chunk: its load minus the slot,
from 1 for the last chunk to the whole load for the first. While a chunk with R holders has fewer than L finished ones,
at least R - L + 1 of them have at least their rest undone. So the least work left undone, the chunk's *spare* work, is
the sum of its R - L + 1 smallest rests; in the worst case all other work has been done before. Hence
`q_max = 1 + all work - the smallest spare`, and the best order makes the smallest spare as large as possible.
The rests at one worker are 1, 2, ..., K in some order, whatever the order.
"""

from typing import NamedTuple

import numpy as np

from gcjax.codes.base import Assignment, Holders

FAR = 2**40  # the rest at a holder that does not exist: never among the smallest


class Rests(NamedTuple):
    """An assignment with an order that can be changed in place.

    Attributes:
      chunks: int32[W, K], with N where a worker has fewer than K chunks; stays as it is.
      loads: int[W].
      values: int64[W·K + 1], the rest of entry [w, k] of `chunks` at w·K + k; 0 in the padding, at the end FAR.
      edges: int[N, R], where the rests of a chunk stand in `values`; padded with W·K.
      counted: int[N], how many of the smallest rests count: the holders of the chunk - L + 1.
    """

    chunks: np.ndarray
    loads: np.ndarray
    values: np.ndarray
    edges: np.ndarray
    counted: np.ndarray


def rests_of(assignment: Assignment, inverse: Holders, copies: int) -> Rests:
    """The rests of an assignment in its present order."""
    workers, load = assignment.chunks.shape
    loads = assignment.loads.astype(np.int64)
    values = np.maximum(loads[:, None] - np.arange(load), 0)
    return Rests(
        chunks=np.where(assignment.chunks >= 0, assignment.chunks, assignment.num_chunks),
        loads=loads,
        values=np.append(values.ravel(), FAR),
        edges=np.where(inverse.workers >= 0, inverse.workers.astype(np.int64) * load + inverse.slots, workers * load),
        counted=inverse.counts - copies + 1,
    )


def spare(rests: Rests, chunks: np.ndarray | slice = slice(None)) -> np.ndarray:
    """int[...]: the spare work of the given chunks."""
    return critical(rests, chunks)[0]


def critical(rests: Rests, chunks: np.ndarray | slice = slice(None)) -> np.ndarray:
    """int[3, ...]: the spare of the given chunks, the largest rest that counts, and the next larger one or FAR."""
    counted = rests.counted[chunks, None]
    values = np.sort(rests.values[rests.edges[chunks]], axis=-1)
    total = np.where(np.arange(values.shape[-1]) < counted, values, 0).sum(axis=-1)
    last = np.take_along_axis(values, counted - 1, axis=-1)[..., 0]
    after = np.take_along_axis(values, np.minimum(counted, values.shape[-1] - 1), axis=-1)[..., 0]
    return np.stack([total, last, np.where(counted[..., 0] < values.shape[-1], after, FAR)])


def in_order(assignment: Assignment, rests: Rests) -> Assignment:
    """The assignment in the order of the rests."""
    slots = rests.loads[:, None] - rests.values[:-1].reshape(rests.chunks.shape)
    rows, columns = np.nonzero(assignment.chunks >= 0)
    chunks = np.full_like(assignment.chunks, -1)
    chunks[rows, slots[rows, columns]] = assignment.chunks[rows, columns]
    return assignment._replace(chunks=chunks)
