"""Approximate gradient coding with graphs and optimal decoding (Glasgow and Wootters 2021, arXiv 2006.09638).

Chunks are the vertices of a graph, workers its edges: a worker holds two chunks.
"""

import jax

from gcjax import _validate
from gcjax.codes.approximate import optimal_decoding
from gcjax.codes.assignments.conversions import edges
from gcjax.codes.base import GradientCode, host_seed
from gcjax.codes.whole import whole_workers
from gcjax.equality import comparable


@comparable
def graph_code(num_workers: int, *, replication: int, rng_key: jax.Array) -> GradientCode:
    """A random regular graph, a worker an edge, with optimal decoding. L = M = 1, K = 2, N = 2 W / R.

    A connected piece of the graph of finished workers is decoded exactly unless it is bipartite; see `graph_error`.
    L are blocks, M messages a worker, K its chunks, the ends of its edge, and N all chunks, the vertices.

    Args:
      num_workers: W, the edges.
      replication: R, the degree of the graph.
      rng_key: draws the graph.

    Raises:
      ValueError: if there is no such graph: R must divide 2 W, and be smaller than the vertices.
    """
    import networkx as nx

    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    replication = _validate.integer("replication", replication, minimum=1)
    num_vertices, remainder = divmod(2 * num_workers, replication)
    if remainder or num_vertices <= replication:
        edges_of_complete_graph = replication * (replication + 1) // 2  # with R + 1 vertices
        smallest_multiple = -(-edges_of_complete_graph // replication) * replication
        nearest_num_workers = max(num_workers - num_workers % replication, smallest_multiple)
        raise ValueError(
            "a graph code needs a replication that divides 2 W and is smaller than the vertices 2 W / R; got "
            f"num_workers={num_workers}, replication={replication}. Use "
            f"num_workers={nearest_num_workers} or {nearest_num_workers + replication}."
        )
    graph = nx.random_regular_graph(replication, num_vertices, seed=host_seed(rng_key))
    return whole_workers(optimal_decoding(edges(graph)))
