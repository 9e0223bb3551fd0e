"""Mixing matrices: how much of whose parameters a worker takes over, where workers average with their neighbours.

After an iteration the parameters of worker w become `sum_v M[w, v] x_v`; w waits for those v that it takes something
of. There are several matrices where they take turns: M[t % turns] after iteration t. Letter: W workers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from gcjax import _validate

UNBOUNDED = 1 << 30
"""The iterations that somebody can be ahead of a worker that it never hears of."""
_ROUNDING = 1e-6
"""By so much a sum that must be 1 may miss it."""
_MOST_LISTED = 16
"""Longer rows are whole: the averages of W rows by a product of matrices take no longer then."""


class MixingMatrix(NamedTuple):
    """A mixing matrix: whole, or the few entries of each row that are not 0 (as in the ELLPACK format).

    The parameters of worker w become `sum_j weights[w, j] x[columns[w, j]]`. Of a worker and its neighbour alone
    (`gcjax.protocols.Mixing.neighbour`) it is whole, [2, 2].

    Attributes:
      weights: float[W, n], the entries.
      columns: int32[W, n], the workers whose parameters they are factors of; a weight of 0 pads, whoever's it is. None
        where n is W, and these are all workers in order.
    """

    weights: jax.Array
    columns: jax.Array | None = None


def ring(num_workers: int) -> np.ndarray:
    """bool[1, W, W], one turn: each worker has the next and the previous one as neighbours."""
    return _undirected(num_workers, [(w, (w + 1) % num_workers) for w in range(num_workers)])


def torus(num_workers: int) -> np.ndarray:
    """bool[1, W, W], one turn: neighbours on a grid of workers as square as W allows, whose rows and columns are rings.

    With a prime W it is one ring: along its one row, and each column pairs a worker with itself, which is left out.
    """
    num_rows = max(n for n in range(1, int(num_workers**0.5) + 1) if num_workers % n == 0)
    grid = np.arange(num_workers).reshape(num_rows, -1)
    pairs_along_axes = [zip(grid.ravel(), np.roll(grid, -1, axis).ravel(), strict=True) for axis in (0, 1)]
    return _undirected(num_workers, [pair for pairs in pairs_along_axes for pair in pairs])


def complete(num_workers: int) -> np.ndarray:
    """bool[1, W, W], one turn: everybody is a neighbour of everybody else."""
    return ~np.eye(num_workers, dtype=bool)[None]


def bipartite(num_workers: int) -> np.ndarray:
    """bool[1, W, W], one turn: workers with even numbers are neighbours of those with odd ones."""
    is_odd = np.arange(num_workers) % 2 == 1
    return (is_odd[:, None] != is_odd)[None]


def exponential(num_workers: int) -> np.ndarray:
    """bool[1, W, W], one turn: worker w (row) hears those 1, 2, 4, ... before it; those as far after it hear it."""
    return np.asarray(one_peer_exponential(num_workers).any(axis=0, keepdims=True))


def one_peer_exponential(num_workers: int) -> np.ndarray:
    """bool[turns, W, W], who (row) hears whom in each turn: as `exponential`, one distance 2^p after the other.

    There are ceil(log2(W)) turns, 1 at least, in which one worker hears nobody.
    """
    workers = np.arange(num_workers)
    distances = [1 << p for p in range(max(1, (num_workers - 1).bit_length()))]
    return np.stack([(workers[:, None] - workers) % num_workers == distance for distance in distances]) & complete(
        num_workers
    )


GRAPHS: dict[str, Callable[[int], np.ndarray]] = {
    "bipartite": bipartite,
    "complete": complete,
    "exponential": exponential,
    "one_peer_exponential": one_peer_exponential,
    "ring": ring,
    "torus": torus,
}
"""`num_workers -> bool[turns, W, W]`, whether worker w (row) hears worker v (column); nobody hears itself."""


def metropolis_weights(graph: Any) -> np.ndarray:
    """The mixing matrix of a graph with Metropolis weights: `M[w, v] = 1 / (1 + max(deg w, deg v))` for neighbours.

    The diagonal has what is missing to 1. The matrix is symmetric, and so doubly stochastic.

    Args:
      graph: an undirected `networkx.Graph`, whose vertices in sorted order are the workers; or bool[W, W].

    Returns:
      float64[W, W].

    Raises:
      ValueError: if the graph is directed.

    Example:
      >>> gcjax.protocols.metropolis_weights([[0, 1, 0], [1, 0, 1], [0, 1, 0]]).round(2).tolist()
      [[0.67, 0.33, 0.0], [0.33, 0.33, 0.33], [0.0, 0.33, 0.67]]
    """
    adjacency = graph
    if hasattr(graph, "edges"):
        import networkx as nx

        adjacency = nx.to_numpy_array(graph, nodelist=sorted(graph.nodes), weight=None)
    neighbours = _adjacency(adjacency)
    if neighbours.ndim != 2 or not np.array_equal(neighbours, neighbours.T):
        raise ValueError(
            f"Metropolis weights are of an undirected graph, whose adjacency matrix is symmetric; got {graph!r}. "
            "A directed graph needs a matrix of its own."
        )
    return _neighbour_weights(neighbours & ~np.eye(len(neighbours), dtype=bool))


def _adjacency(values: Any) -> np.ndarray:
    """The entries as booleans; a `ValueError` unless they are booleans, or finite numbers of which 0 is no edge."""
    if isinstance(values, jax.Array) and jax.dtypes.issubdtype(values.dtype, jax.dtypes.extended):
        array = np.array(None)  # keys of JAX are no numbers
    else:
        array = np.asarray(values)
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise ValueError(
            f"a graph must be a networkx.Graph, or bool[W, W], whether two workers are neighbours; got {values!r:.100}."
        )
    return array.astype(bool)


def mixing_matrices(mixing: Any, num_workers: int, *, keeps_equal: bool = True) -> np.ndarray:
    """float64[turns, W, W]: the matrices that are meant by a name of `GRAPHS`, or by float[W, W] or float[turns, W, W].

    By each, worker w (row) takes the share M[w, v] of the parameters of worker v (column).

    Args:
      mixing: of a protocol.
      num_workers: W.
      keeps_equal: whether rows must add up to 1, too: workers with equal parameters then keep them.

    Raises:
      ValueError: if there is no such graph, or the matrices are of other workers, or have negative entries, or do not
        keep the mean of all workers' parameters, or, if they must, not equal parameters.
    """
    if isinstance(mixing, str):
        graph = GRAPHS[_validate.choice("mixing", mixing, GRAPHS)]
        return np.stack([_neighbour_weights(neighbours) for neighbours in graph(num_workers)])
    matrices = np.asarray(_validate.number("mixing", mixing, finite=True), np.float64)
    matrices = matrices[None] if matrices.ndim == 2 else matrices
    if matrices.ndim != 3 or matrices.shape[1:] != (num_workers, num_workers) or not len(matrices):
        raise ValueError(
            f"mixing must be a name of a graph, or float[W, W] or float[turns, W, W] for W={num_workers} workers; got "
            f"shape {np.shape(mixing)}."
        )
    _check_sums("columns", "the mean of all workers' parameters stays as it is", matrices.sum(axis=1))
    if keeps_equal:
        _check_sums("rows", "workers with equal parameters keep them", matrices.sum(axis=2))
    return matrices


def short_rows(is_nonzero: np.ndarray) -> np.ndarray | None:
    """int32[turns, W, n]: columns for `MixingMatrix`, those of each row that are not 0 first, n the most that are not.

    None if there are so many that rows should be whole: more than 16, or a third of all W.

    Args:
      is_nonzero: bool[turns, W, W].
    """
    num_workers, num_listed = is_nonzero.shape[2], int(is_nonzero.sum(axis=2).max())
    if not are_short(num_listed, num_workers):
        return None
    return np.argsort(~is_nonzero, axis=2, kind="stable")[:, :, :num_listed].astype(np.int32)


def are_short(num_listed: int, num_workers: int) -> bool:
    """Whether rows with so many entries of W should be listed, and not be whole."""
    return num_listed <= min(_MOST_LISTED, num_workers // 3)


def undirected_neighbours(graph: Any, num_workers: int, *, bipartite: bool = False) -> np.ndarray:
    """bool[W, W]: who is a neighbour of whom; nobody is one of itself.

    Args:
      graph: a name of `GRAPHS`, or bool[W, W], or an undirected `networkx.Graph`.
      num_workers: W.
      bipartite: whether it must be.

    Raises:
      ValueError: if there is no such graph, or it is directed, or of other workers, or not bipartite.
    """
    if isinstance(graph, str):
        # In any of the turns of bool[turns, W, W], which have no True on their diagonals.
        neighbours = np.asarray(GRAPHS[_validate.choice("graph", graph, GRAPHS)](num_workers).any(axis=0))
    else:
        # It reads all of these kinds, and refuses directed ones; a worker has a weight for itself, too.
        neighbours = metropolis_weights(graph) > 0
        np.fill_diagonal(neighbours, val=False)
    is_symmetric = neighbours.shape == (num_workers, num_workers) and np.array_equal(neighbours, neighbours.T)
    graph_text = f"{repr(graph) if isinstance(graph, str) else 'one'} of {len(neighbours)} workers"
    if not is_symmetric:
        raise ValueError(
            f"graph must be an undirected graph of {num_workers} workers, such as 'ring'; got {graph_text}."
        )
    if bipartite and not _is_bipartite(neighbours):
        raise ValueError(
            f"graph must be bipartite, so that no circle of workers can wait for each other; got {graph_text}. "
            "'bipartite' is one for any number, 'ring' for an even one."
        )
    return neighbours


def iterations_ahead(hears: np.ndarray) -> np.ndarray:
    """int64[turns, W, W]: how many more iterations than v a worker w can have done, by the turn of its last one.

    By the law that w begins iteration t + 1 when it has done t, and so have those whom it then hears. With one
    undirected graph it is the distance of v and w. `UNBOUNDED` if w never waits for v, nor for somebody who does.

    Args:
      hears: bool[turns, W, W], whether w (row) hears v (column) after an iteration of this turn.
    """
    from scipy.sparse import csr_array

    num_turns, num_workers = hears.shape[:2]
    itself = np.eye(num_workers, dtype=bool)
    is_heard_by = [csr_array((hears_now | itself).T.astype(np.float32)) for hears_now in hears]  # [v, w] of each turn
    ahead = np.full(hears.shape, UNBOUNDED)
    for turn in range(num_turns):
        ahead_after_turn = ahead[turn].T  # [v, w], a view
        is_awaited, hops, hops_without_change = itself, 0, 0  # bool[v, w]: whether w waits for v within so many hops
        ahead_after_turn[itself] = 0
        while hops_without_change < num_turns:
            hops += 1  # w waits for v if it waits for somebody who heard v one iteration further back
            was_awaited = is_awaited
            is_awaited = is_heard_by[(turn - hops) % num_turns] @ was_awaited.astype(np.float32) > 0
            ahead_after_turn[is_awaited & ~was_awaited] = hops
            has_changed = (is_awaited & ~was_awaited).any()
            hops_without_change = 0 if has_changed else hops_without_change + 1
    return ahead


def _undirected(num_workers: int, pairs: Any) -> np.ndarray:
    """bool[1, W, W], one turn: whether two workers are one of the pairs, in either order.

    Nobody is a neighbour of itself: a pair of a worker with itself sets False.
    """
    neighbours = np.zeros((num_workers, num_workers), bool)
    for worker, other_worker in pairs:
        neighbours[worker, other_worker] = neighbours[other_worker, worker] = worker != other_worker
    return neighbours[None]


def _neighbour_weights(hears: np.ndarray) -> np.ndarray:
    """float64[W, W]: Metropolis weights; of a directed graph where everybody hears as many, equal ones.

    `hears bool[W, W]`, whether w (row) hears v, has no True on its diagonal; that of the weights has what is missing
    to 1.
    """
    degree = hears.sum(axis=1)
    weights = np.where(hears, 1 / (1 + np.maximum(degree[:, None], degree)), 0)
    return weights + np.diag(1 - weights.sum(axis=1))


def _is_bipartite(neighbours: np.ndarray) -> bool:
    """Whether no two of one half are neighbours, for some division into halves."""
    import networkx as nx

    return bool(nx.is_bipartite(nx.from_numpy_array(neighbours)))


def _check_sums(rows_or_columns: str, purpose: str, sums: np.ndarray) -> None:
    """Raises a `ValueError` unless the sums float64[turns, W] of all rows, or of all columns, are 1."""
    if (np.abs(sums - 1) > _ROUNDING).any():
        raise ValueError(
            f"the {rows_or_columns} of mixing must add up to 1, so that {purpose}; some add up to {sums.max():g}, "
            f"some to {sums.min():g}. gcjax.protocols.metropolis_weights(graph) does."
        )
