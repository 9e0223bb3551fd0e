"""Stochastic gradient coding (Bitar, Wootters, El Rouayheb 2020, arXiv 1905.05383)."""

from collections.abc import Sequence

import jax

from gcjax import _validate
from gcjax.codes.assignments.pairwise_balanced import pairwise_balanced
from gcjax.codes.base import GradientCode
from gcjax.codes.unbiased import unbiased
from gcjax.equality import comparable


@comparable
def stochastic(
    num_workers: int,
    *,
    num_chunks: int,
    replication: int | Sequence[int],
    straggler_probability: float,
    rng_key: jax.Array,
) -> GradientCode:
    """Pair-wise balanced chunks, messages that are scaled up, and a server that adds what arrives (SGC). L = M = 1.

    A worker sends the sum of its chunks i over d_i (1 - p). If every worker is late with probability p, independently
    of the others, the estimate is unbiased. It is not exact even with everybody, unless p is 0: end rounds with
    `gcjax.codes.stopping.deadline` or `fastest`. For probabilities that differ: `gcjax.codes.unbiased`. L are blocks, M
    messages a worker.

    Args:
      num_workers: W.
      num_chunks: N.
      replication: d, of all chunks, or int[N]; how many workers hold a chunk. The paper gives more to what matters
        more.
      straggler_probability: p, at least 0 and below 1.
      rng_key: draws the assignment, `gcjax.codes.assignments.pairwise_balanced`.

    Raises:
      ValueError: if a replication is not between 1 and W, or p is not in [0, 1).
    """
    _validate.single_number("straggler_probability", straggler_probability)
    assignment = pairwise_balanced(num_workers, num_chunks=num_chunks, replication=replication, rng_key=rng_key)
    return unbiased(assignment, straggler_probabilities=straggler_probability)
