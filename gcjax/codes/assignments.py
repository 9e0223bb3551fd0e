"""Assignments of data chunks to workers."""

from typing import Any

import jax
import numpy as np

from gcjax import _validate, memory
from gcjax.codes.base import Assignment


def cyclic(num_workers: int, *, load: int) -> Assignment:
    """Worker w holds chunks w, w+1, ..., w+load-1 (mod W), in this order (Tandon et al. 2017).

    Args:
      num_workers: W, also the number of chunks.
      load: K.

    Raises:
      ValueError: if the load exceeds the number of chunks.
    """
    _check_load(num_workers, load)
    chunks = (np.arange(num_workers)[:, None] + np.arange(load)) % num_workers
    return Assignment(chunks.astype(np.int32), num_workers)


def repetition(num_workers: int, *, load: int) -> Assignment:
    """Groups of `load` workers all hold the same `load` chunks (Tandon et al. 2017, fractional repetition).

    Args:
      num_workers: W, also the number of chunks.
      load: K, also the size of a group.

    Raises:
      ValueError: if `load` does not divide `num_workers`.
    """
    _check_load(num_workers, load)
    if num_workers % load:
        below = num_workers - num_workers % load
        raise ValueError(
            f"repetition needs a load that divides the workers; got load={load}, num_workers={num_workers}. "
            f"Use num_workers={below} or {below + load}, or gcjax.codes.cyclic."
        )
    chunks = np.arange(num_workers)[:, None] // load * load + np.arange(load)
    return Assignment(chunks.astype(np.int32), num_workers)


def random_regular(num_workers: int, *, load: int, rng_key: jax.Array) -> Assignment:
    """The adjacency of a random `load`-regular graph: chunks = workers = vertices (Raviv et al. 2018).

    Args:
      num_workers: W, also the number of chunks.
      load: K, the degree of the graph.
      rng_key: a JAX key; the same key gives the same graph.

    Raises:
      ValueError: if no such graph exists (`num_workers * load` odd, or `load >= num_workers`).
    """
    import networkx as nx

    _check_load(num_workers, load)
    if load >= num_workers or (num_workers * load) % 2:
        raise ValueError(
            "a regular graph needs load < num_workers and num_workers * load even; "
            f"got num_workers={num_workers}, load={load}. Change either by one."
        )
    seed = int(jax.random.bits(_validate.rng_key(rng_key)))
    return from_graph(nx.random_regular_graph(load, num_workers, seed=seed))


def from_matrix(matrix: Any) -> Assignment:
    """From a 0/1 matrix `[N, W]`: entry [c, w] says that worker w holds chunk c; chunks in increasing order.

    Raises:
      ValueError: if the matrix is not 0/1, or a chunk is held by nobody.
    """
    matrix = np.asarray(matrix)
    if matrix.ndim != 2 or 0 in matrix.shape or not np.isin(matrix, (0, 1)).all():
        raise ValueError(f"an assignment matrix must be 0/1 of shape [N, W]; got shape {matrix.shape}.")
    workers, chunks = np.nonzero(matrix.T)
    return from_pairs(workers, chunks, num_workers=matrix.shape[1], num_chunks=matrix.shape[0])


def from_graph(graph: Any) -> Assignment:
    """From an undirected graph: chunks = workers = vertices, a worker holds its neighbours (Raviv et al. 2018).

    Args:
      graph: a `networkx.Graph`, or its adjacency matrix `[V, V]`.

    Raises:
      ValueError: if the graph is directed, or a vertex has no neighbour.
    """
    import networkx as nx

    if not isinstance(graph, nx.Graph):
        adjacency = np.asarray(graph)
        if adjacency.ndim != 2 or not np.array_equal(adjacency, adjacency.T):
            raise ValueError(f"an adjacency matrix must be square and symmetric; got shape {adjacency.shape}.")
        return from_matrix(adjacency)
    if graph.is_directed():
        raise ValueError("from_graph needs an undirected graph; got a directed one. Use from_matrix.")
    index = {vertex: i for i, vertex in enumerate(sorted(graph.nodes))}
    edges = np.array([(index[u], index[v]) for u, v in graph.edges], dtype=np.int64).reshape(-1, 2)
    pairs = np.unique(np.concatenate([edges, edges[:, ::-1]]), axis=0)
    return from_pairs(pairs[:, 0], pairs[:, 1], num_workers=len(index), num_chunks=len(index))


def from_pairs(workers: np.ndarray, chunks: np.ndarray, *, num_workers: int, num_chunks: int) -> Assignment:
    """From parallel lists of (worker, chunk), each pair once, sorted by worker; nothing dense in N×W."""
    counts = np.bincount(chunks, minlength=num_chunks)
    if (counts == 0).any():
        missing = np.flatnonzero(counts == 0)
        raise ValueError(
            f"every chunk must be held by a worker; nobody holds chunk {missing[0]} ({missing.size} such chunks)."
        )
    loads = np.bincount(workers, minlength=num_workers)
    table = np.full((num_workers, loads.max()), -1, dtype=np.int32)
    table[workers, np.arange(workers.size) - np.repeat(np.cumsum(loads) - loads, loads)] = chunks
    return Assignment(table, num_chunks)


def _check_load(num_workers: int, load: int) -> None:
    _validate.integer("num_workers", num_workers, minimum=1)
    _validate.integer("load", load, minimum=1, maximum=num_workers, hint="A worker holds a chunk at most once.")
    table = f"assignments of {load} chunks to each of {num_workers} workers"
    memory.check(table, 8 * num_workers * load, "Lower num_workers or the load.")
