"""Assignments from matrices, graphs and lists of pairs."""

from typing import Any

import numpy as np

from gcjax.codes.base import Assignment, numbers_in_groups


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
      graph: a `networkx.Graph`, or its adjacency matrix `[nodes, nodes]`.

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
    vertex_index = {vertex: i for i, vertex in enumerate(sorted(graph.nodes))}
    edge_ends = np.array([(vertex_index[u], vertex_index[v]) for u, v in graph.edges], dtype=np.int64).reshape(-1, 2)
    neighbour_pairs = np.unique(np.concatenate([edge_ends, edge_ends[:, ::-1]]), axis=0)
    workers, neighbours = neighbour_pairs.T
    return from_pairs(workers, neighbours, num_workers=len(vertex_index), num_chunks=len(vertex_index))


def edges(graph: Any) -> Assignment:
    """Worker e holds the two ends of edge e; edges are sorted, vertices numbered in sorted order. K = 2.

    Args:
      graph: an undirected `networkx.Graph` without loops.

    Raises:
      ValueError: if the graph is directed, or has a loop or a vertex without an edge.
    """
    import networkx as nx

    if not isinstance(graph, nx.Graph) or graph.is_directed() or nx.number_of_selfloops(graph):
        raise ValueError(f"edges needs an undirected networkx graph without loops; got {graph!r}.")
    vertex_index = {vertex: i for i, vertex in enumerate(sorted(graph.nodes))}
    sorted_edges = sorted(sorted((vertex_index[u], vertex_index[v])) for u, v in graph.edges)
    edge_ends = np.array(sorted_edges, np.int64).reshape(-1, 2)
    workers = np.repeat(np.arange(len(edge_ends)), 2)
    return from_pairs(workers, edge_ends.ravel(), num_workers=len(edge_ends), num_chunks=len(vertex_index))


def from_pairs(workers: np.ndarray, chunks: np.ndarray, *, num_workers: int, num_chunks: int) -> Assignment:
    """From arrays of the workers and chunks of all pairs, each pair once, sorted by worker; never holds N×W numbers."""
    if num_workers == 0 or num_chunks == 0:
        raise ValueError(f"there must be workers and chunks; got {num_workers} and {num_chunks}. Is the graph empty?")
    num_holders = np.bincount(chunks, minlength=num_chunks)
    if (num_holders == 0).any():
        chunks_without_holder = np.flatnonzero(num_holders == 0)
        raise ValueError(
            f"every chunk must be held by a worker; nobody holds chunk {chunks_without_holder[0]} "
            f"({chunks_without_holder.size} such chunks)."
        )
    loads = np.bincount(workers, minlength=num_workers)
    chunks_by_worker = np.full((num_workers, loads.max()), -1, dtype=np.int32)
    chunks_by_worker[workers, numbers_in_groups(loads)] = chunks
    return Assignment(chunks_by_worker, num_chunks)
