"""Approximate gradient coding with graphs and optimal decoding (Glasgow and Wootters 2021, arXiv 2006.09638).

Chunks are the vertices of a graph, workers its edges: a worker holds two chunks.
"""

from typing import Any

import jax
import numpy as np

from gcjax import _validate
from gcjax.codes.approximate import optimal_decoding
from gcjax.codes.assignments import from_pairs
from gcjax.codes.base import Assignment, GradientCode
from gcjax.codes.whole import whole_workers
from gcjax.equality import comparable


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
    index = {vertex: i for i, vertex in enumerate(sorted(graph.nodes))}
    ends = np.array(sorted(sorted((index[u], index[v])) for u, v in graph.edges), np.int64).reshape(-1, 2)
    workers = np.repeat(np.arange(len(ends)), 2)
    return from_pairs(workers, ends.ravel(), num_workers=len(ends), num_chunks=len(index))


@comparable
def graph_code(num_workers: int, *, replication: int, rng_key: jax.Array) -> GradientCode:
    """A random regular graph, a worker an edge, with optimal decoding. L = M = 1, K = 2, N = 2 W / R.

    A connected piece of the graph of finished workers is decoded exactly unless it is bipartite; see `graph_error`.

    Args:
      num_workers: W, the edges.
      replication: R, the degree of the graph.
      rng_key: draws the graph.

    Raises:
      ValueError: if there is no such graph: R must divide 2 W, and be smaller than the vertices.
    """
    import networkx as nx

    _validate.integer("num_workers", num_workers, minimum=1)
    _validate.integer("replication", replication, minimum=1)
    vertices, rest = divmod(2 * num_workers, replication)
    if rest or vertices <= replication:
        least = replication * (replication + 1) // 2
        near = max(num_workers - num_workers % replication, -(-least // replication) * replication)
        raise ValueError(
            "a graph code needs a replication that divides 2 W and is smaller than the vertices 2 W / R; got "
            f"num_workers={num_workers}, replication={replication}. Use num_workers={near} or {near + replication}."
        )
    graph = nx.random_regular_graph(replication, vertices, seed=int(jax.random.bits(_validate.rng_key(rng_key))))
    return whole_workers(optimal_decoding(edges(graph)))


def graph_error(assignment: Assignment, finished: np.ndarray) -> float:
    """The squared residual of optimal decoding, in closed form and linear time (Glasgow and Wootters 2021, section 3).

    A piece of the graph of finished edges contributes 0 if it is not bipartite, and `(|A| - |B|)² / (|A| + |B|)` if its
    sides are A and B; a vertex by itself contributes 1.

    Args:
      assignment: every worker holds two chunks.
      finished: bool[W].

    Raises:
      ValueError: if a worker holds another number of chunks.
    """
    if (assignment.loads != 2).any() or assignment.load != 2:
        raise ValueError(f"graph_error needs workers that hold two chunks; got loads {set(assignment.loads.tolist())}.")
    n = assignment.num_chunks
    u, v = assignment.chunks[np.asarray(finished, bool)].T.astype(np.int64)
    # In the double cover a piece falls apart into two, with the sides exchanged, iff it is bipartite.
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    cover = csr_matrix((np.ones(2 * u.size), (np.concatenate([u, u + n]), np.concatenate([v + n, v]))), (2 * n, 2 * n))
    label = connected_components(cover, directed=False)[1]
    bipartite = label[:n] != label[n:]
    sizes = np.bincount(label)
    ones = np.bincount(label[:n], minlength=sizes.size)  # of a piece with sides A and B, one copy has |A| of these
    share = (2 * ones - sizes) / sizes
    return float((share[label[:n][bipartite]] ** 2).sum())  # every one of the |A| + |B| vertices counts its part
