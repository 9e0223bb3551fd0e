"""What codes from graphs leave of an error, in closed form."""

import numpy as np

from gcjax import _validate
from gcjax.codes.base import Assignment, check_assignment


def expander_bound(assignment: Assignment, num_stragglers: int) -> float:
    """The largest residual of fixed decoding on a regular graph: `(λ/d) sqrt(n s / (n - s))` (Raviv et al. 2018).

    n are the vertices, workers as well as chunks, d their degree, λ is the second largest of the absolute eigenvalues.

    Args:
      assignment: from a regular graph (`random_regular`, `from_graph`).
      num_stragglers: s, below n.

    Raises:
      ValueError: if the assignment is not that of a regular graph, or s is not below n.
    """
    check_assignment(assignment)
    num_workers = assignment.num_workers
    num_stragglers = _validate.integer("num_stragglers", num_stragglers, minimum=0, maximum=num_workers - 1)
    adjacency = np.zeros((num_workers, assignment.num_chunks))
    adjacency[np.arange(num_workers)[:, None], assignment.chunks] = 1
    is_regular = assignment.num_chunks == num_workers and (assignment.chunks >= 0).all()
    if not is_regular or not np.array_equal(adjacency, adjacency.T):
        raise ValueError(
            "expander_bound needs the assignment of a regular undirected graph: as many chunks as workers, equal loads "
            "and a symmetric matrix. Make it with gcjax.codes.assignments.random_regular."
        )
    eigenvalues = np.sort(np.abs(np.linalg.eigvalsh(adjacency)))
    second_largest, degree = eigenvalues[:-1].max(initial=0.0), assignment.load
    return float(second_largest / degree * np.sqrt(num_workers * num_stragglers / (num_workers - num_stragglers)))


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
    check_assignment(assignment)
    is_finished = np.asarray(finished)
    if is_finished.shape != (assignment.num_workers,):
        raise ValueError(
            f"finished must be bool[{assignment.num_workers}], one a worker; got shape {is_finished.shape}."
        )
    has_further_slots = assignment.load != 2  # the largest load that the table of chunks has room for
    if (assignment.loads != 2).any() or has_further_slots:
        raise ValueError(f"graph_error needs workers that hold two chunks; got loads {set(assignment.loads.tolist())}.")
    num_vertices = assignment.num_chunks
    left_ends, right_ends = assignment.chunks[is_finished.astype(bool)].T.astype(np.int64)  # of each finished edge
    # In the double cover a piece falls apart into two, with the sides exchanged, iff it is bipartite.
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    from_ends = np.concatenate([left_ends, left_ends + num_vertices])
    to_ends = np.concatenate([right_ends + num_vertices, right_ends])
    double_cover = csr_matrix((np.ones(from_ends.size), (from_ends, to_ends)), (2 * num_vertices, 2 * num_vertices))
    component_of_vertex = connected_components(double_cover, directed=False)[1]
    is_bipartite = component_of_vertex[:num_vertices] != component_of_vertex[num_vertices:]
    component_sizes = np.bincount(component_of_vertex)
    # A bipartite piece with sides A and B has two components of size |A| + |B|; one has A from the first copy.
    first_copy_counts = np.bincount(component_of_vertex[:num_vertices], minlength=component_sizes.size)  # |A| or |B|
    imbalance = (2 * first_copy_counts - component_sizes) / component_sizes
    bipartite_components = component_of_vertex[:num_vertices][is_bipartite]  # of each of the |A| + |B| vertices
    vertex_shares = imbalance[bipartite_components] ** 2
    return float(vertex_shares.sum())
