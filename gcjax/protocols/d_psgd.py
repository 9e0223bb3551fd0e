"""Decentralised parallel SGD (Lian, Zhang, Zhang, Hsieh, Zhang, Liu, NeurIPS 2017)."""

from typing import Any

from gcjax import specifications
from gcjax.equality import comparable
from gcjax.mixing_matrices import mixing_matrices
from gcjax.protocols.base import Protocol
from gcjax.protocols.gossip import iterations_with_neighbours


@comparable
def d_psgd(*, mixing: Any = "ring") -> Protocol:
    """D-PSGD: there is no server; after each step workers average their parameters with those of their neighbours.

    Worker w takes a step on its own parameters x_w, then `x_w = sum_v M[w, v] x_v`. It goes on when its neighbours'
    parameters have come: with N(w) those v with M[w, v] > 0 and w, F[t, w] the end of its iteration t and D[t, w] the
    seconds of it, `F[t, w] = max_{v in N(w)} F[t-1, v] + D[t, w]`. So neighbours are at most one iteration apart, and
    others at most their distance in the graph. A commit is an iteration that all have done; the run's parameters are
    the mean of all workers' own. A worker sends one copy to each neighbour and receives one, on its own link; nothing
    passes a server's link. Algorithm 1 of the paper adds the step to the mixed parameters from before it, so that
    messages are under way while the gradient is computed; here the step comes first, and M = 1/W is `bsp`.

    Args:
      mixing: M, float[W, W] with rows and columns that add up to 1; or float[turns, W, W], which take turns; or the
        name of a graph, which gets Metropolis weights: "ring", "torus", "complete", "bipartite", "exponential" (w hears
        those 1, 2, 4, ... before it) or "one_peer_exponential" (one of them after the other).

    Raises:
      ValueError: if there is no such graph, or the matrix is of other workers, or its sums are not 1.

    Example:
      >>> durations = jnp.array([[1.0, 1.0, 1.0, 9.0]] + [[1.0] * 4] * 3)
      >>> schedule = gcjax.protocols.d_psgd(mixing="ring")(durations)
      >>> schedule.start[1].tolist(), schedule.start[2].tolist()  # worker 1 is two edges from worker 3
      ([9.0, 1.0, 9.0, 9.0], [10.0, 10.0, 10.0, 10.0])
    """
    return iterations_with_neighbours(
        lambda num_workers: mixing_matrices(mixing, num_workers),
        lambda num_workers: specifications.d_psgd(num_workers, mixing=mixing),
    )
