"""Orders of regular assignments by perfect matchings: every chunk stands equally often at every position."""

import numpy as np

from gcjax.codes.base import Assignment, Holders


def can_be_ordered_by_matchings(assignment: Assignment, chunk_holders: Holders) -> bool:
    """Whether all loads are K, and all chunks have the same number of holders, a multiple of K."""
    num_holders = chunk_holders.counts
    return bool(
        (assignment.loads == assignment.load).all()
        and (num_holders == num_holders[0]).all()
        and num_holders[0] % assignment.load == 0
    )


def order_by_matchings(assignment: Assignment, chunk_holders: Holders) -> Assignment:
    """The assignment in an order in which every chunk, of R holders, stands R/K times at each of the K positions.

    The holders of a chunk are split into groups of K, as if each group had a chunk of its own; then there are as many
    chunks as workers, all with K neighbours, and perfect matchings can be peeled off one by one (König).
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    num_workers, load = assignment.num_workers, assignment.load
    num_copies = num_workers // assignment.num_chunks  # of each chunk: R/K groups of holders
    edge_workers = chunk_holders.workers.ravel()  # the two ends of every edge
    edge_copies = np.repeat(np.arange(num_workers), load)  # R/K of them in turn stand for one chunk
    chunks_in_order = np.empty_like(assignment.chunks)
    for slot in range(load):
        ones = np.ones(edge_workers.size, np.int8)
        graph = csr_matrix((ones, (edge_workers, edge_copies)), shape=(num_workers, num_workers))
        copy_of_worker = maximum_bipartite_matching(graph, perm_type="column")  # int[W]
        chunks_in_order[:, slot] = copy_of_worker // num_copies  # the chunk that the copy stands for
        is_unmatched = edge_copies != copy_of_worker[edge_workers]
        edge_workers, edge_copies = edge_workers[is_unmatched], edge_copies[is_unmatched]
    return assignment._replace(chunks=chunks_in_order)
