"""Decoding any assignment approximately (Charles, Papailiopoulos, Ellenberg 2017, arXiv 1711.06771).

Every worker sends the plain sum of its chunk gradients. The server weighs the sums: all alike (one-step decoding,
no system to solve) or by least squares (optimal decoding).
"""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes.assignments.regular import random_regular
from gcjax.codes.base import Assignment, GradientCode, check_assignment
from gcjax.codes.fixed import fixed_code
from gcjax.codes.least_squares import least_squares
from gcjax.codes.whole import whole_workers
from gcjax.equality import comparable


@comparable
def one_step(assignment: Assignment) -> GradientCode:
    """One-step decoding: all sums get the same weight, N over the chunks in them (Charles et al. 2017).

    With f workers that have finished their load K the weight is N / (f K). Workers send the sum of whatever they have
    finished; in the paper only that of all their chunks: `whole_workers(one_step(...))`. One message a worker, of one
    block: L = M = 1.

    Args:
      assignment: who holds what.
    """
    check_assignment(assignment)

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        """float[W, 1, 1], one message and one block: N over the number of chunks in all sums, for every worker."""
        num_chunks_in_sums = jnp.sum(encode, dtype=encode.dtype)  # all coefficients are 1, so their sum counts chunks
        return jnp.broadcast_to(assignment.num_chunks / num_chunks_in_sums.clip(1), (assignment.num_workers, 1, 1))

    plain_sums, one_chunk = np.ones(assignment.chunks.shape), np.ones((assignment.num_workers, 1), int)
    # Each sum is sent from its first chunk on.
    return fixed_code(assignment, plain_sums, num_chunks_needed=one_chunk, decode=decode)


@comparable
def optimal_decoding(assignment: Assignment, *, max_iterations: int | None = None) -> GradientCode:
    """Optimal decoding: the weights of the sums with the least residual (Charles et al. 2017). L = M = 1.

    Workers send the sum of whatever they have finished, which never makes the estimate worse than leaving them out; in
    the paper only that of all their chunks: `whole_workers(optimal_decoding(...))`. L are blocks, M messages a worker.

    Args:
      assignment: who holds what.
      max_iterations: see `gcjax.codes.least_squares`; up to 512 workers a dense solve, beyond an iterative one.

    Raises:
      ValueError: if `max_iterations` is not at least 1.
    """
    check_assignment(assignment)
    weights_of_least_residual = least_squares(assignment, num_messages=1, num_blocks=1, max_iterations=max_iterations)
    plain_sums, one_chunk = np.ones(assignment.chunks.shape), np.ones((assignment.num_workers, 1), int)
    return fixed_code(
        assignment,
        plain_sums,
        num_chunks_needed=one_chunk,  # a message is sent from its first chunk on
        decode=lambda progress, encode: weights_of_least_residual(encode),
    )


@comparable
def expander(num_workers: int, *, load: int, rng_key: jax.Array) -> GradientCode:
    """A random regular graph, in all likelihood an expander, with fixed decoding (Raviv et al. 2018).

    Chunks and workers are the vertices; a worker holds its neighbours and sends their sum. With f whole workers the
    weight of a message is n / (f d), so that of the mean in the paper is n / f. The residual is at most
    `expander_bound`. One message a worker, of one block: L = M = 1.

    Args:
      num_workers: n = W = N.
      load: d, the degree.
      rng_key: draws the graph.

    Raises:
      ValueError: if no such graph exists.
    """
    return whole_workers(one_step(random_regular(num_workers, load=load, rng_key=rng_key)))
