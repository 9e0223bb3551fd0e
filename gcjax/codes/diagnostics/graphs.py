"""What codes from graphs leave of an error, in closed form."""

import numpy as np

from gcjax.codes.base import Assignment


def expander_bound(assignment: Assignment, num_stragglers: int) -> float:
    """The largest residual of fixed decoding on a regular graph: `(λ/d) sqrt(n s / (n - s))` (Raviv et al. 2018).

    Args:
      assignment: from a regular graph (`random_regular`, `from_graph`).
      num_stragglers: s, below n.

    Raises:
      ValueError: if the assignment is not that of a regular graph.
    """
    n = assignment.num_workers
    matrix = np.zeros((n, assignment.num_chunks))
    matrix[np.arange(n)[:, None], assignment.chunks] = 1
    if assignment.num_chunks != n or (assignment.chunks < 0).any() or not np.array_equal(matrix, matrix.T):
        raise ValueError(
            "expander_bound needs the assignment of a regular undirected graph: as many chunks as workers, equal loads "
            "and a symmetric matrix. Make it with gcjax.codes.assignments.random_regular."
        )
    eigenvalues = np.sort(np.abs(np.linalg.eigvalsh(matrix)))
    return float(eigenvalues[-2] / assignment.load * np.sqrt(n * num_stragglers / (n - num_stragglers)))


def graph_error(assignment: Assignment, finished: np.ndarray) -> float:
    """The squared residual of optimal decoding, in closed form and linear time (Glasgow and Wootters 2021).

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
    n = assignment.num_chunks  # the vertices
    u, v = assignment.chunks[np.asarray(finished, bool)].T.astype(np.int64)
    # In the double cover a piece falls apart into two, with the sides exchanged, iff it is bipartite.
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    ends = np.concatenate([u, u + n]), np.concatenate([v + n, v])
    double_cover = csr_matrix((np.ones(2 * u.size), ends), (2 * n, 2 * n))
    component = connected_components(double_cover, directed=False)[1]
    is_bipartite = component[:n] != component[n:]
    component_sizes = np.bincount(component)
    # A bipartite piece with sides A and B has two components of size |A| + |B|; one has A from the first copy.
    first_copy_counts = np.bincount(component[:n], minlength=component_sizes.size)  # |A| or |B|
    imbalance = (2 * first_copy_counts - component_sizes) / component_sizes
    vertex_shares = imbalance[component[:n][is_bipartite]] ** 2  # each of the |A| + |B| vertices counts its part
    return float(vertex_shares.sum())
