"""Stochastic gradient push (Assran, Loizou, Ballas, Rabbat, ICML 2019)."""

from typing import Any

from gcjax import specifications
from gcjax.equality import comparable
from gcjax.mixing_matrices import mixing_matrices
from gcjax.protocols.base import Protocol
from gcjax.protocols.gossip import iterations_with_neighbours


@comparable
def sgp(*, mixing: Any = "one_peer_exponential") -> Protocol:
    """SGP: as `d_psgd`, along the arcs of a directed graph; push-sum weights take out what the graph gets wrong.

    Worker w has parameters x_w and a weight u_w, at first 1. Its gradient is taken at `z_w = x_w / u_w`, its step
    changes x_w; then `x_w = sum_v M[w, v] x_v` and `u_w = sum_v M[w, v] u_v` (Assran et al. 2019, algorithm 1). The
    columns of M add up to 1, so that nothing is lost; rows need not. Worker w waits for those it hears, the v with
    M[w, v] > 0, and for nobody whom it only sends to: with N(w) those v and w, its iteration t, of D[t, w] seconds,
    ends at `F[t, w] = max_{v in N(w)} F[t-1, v] + D[t, w]`. Commits, messages and the run's parameters, the mean of all
    x_w, are those of `d_psgd`.

    Args:
      mixing: M, float[W, W] with columns that add up to 1; or float[turns, W, W], which take turns; or the name of a
        graph, as in `d_psgd`, where all u_w stay 1. In the paper's each sends to one worker, 1, 2, 4, ... further on.

    Raises:
      ValueError: if there is no such graph, or the matrix is of other workers, or its columns do not add up to 1.
    """
    return iterations_with_neighbours(
        lambda num_workers: mixing_matrices(mixing, num_workers, keeps_equal=False),
        lambda num_workers: specifications.sgp(num_workers, mixing=mixing),
        push_sum=True,
    )
