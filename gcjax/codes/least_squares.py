"""Optimal decoding: the weights of the messages that come closest to the plain sum (Charles et al. 2017).

Letters: W workers, N chunks, K chunks a worker holds, L blocks, M messages a worker sends.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax._products import einsum, matmul
from gcjax.codes.base import Assignment, gather_by_chunk, holders

MAX_DENSE_MESSAGES = 512
"""Up to so many messages W·M the system is solved by a singular value decomposition, beyond by conjugate gradients."""

STEPS_PER_MESSAGE = 10
"""Conjugate gradients stop after so many steps for each message; exact numbers would need one, rounded ones more."""


NUM_REFINEMENTS = 3
"""Of a dense solution: the first loses as many digits as the condition number has."""


LEAST_ROUNDING = 4
"""Units of rounding, relative to the largest singular value, below which another one counts as 0 in any case."""

CLEARLY_LESS = 0.99
"""Times a squared norm; above it, two are the same up to rounding."""


class _Iterate(NamedTuple):
    """Where conjugate gradients stand.

    Attributes:
      num_steps: int32[], steps done.
      weights: float[W, M, L].
      error: float[N, L, L], the target minus what the weights decode.
      direction: float[W, M, L], of the next step.
      squared_gradient: float[L], the squared norm of the gradient of each output block.
    """

    num_steps: jax.Array
    weights: jax.Array
    error: jax.Array
    direction: jax.Array
    squared_gradient: jax.Array


def least_squares(
    assignment: Assignment, num_messages: int, num_blocks: int, *, max_iterations: int | None = None
) -> Callable[[jax.Array], jax.Array]:
    """A solver for the decoding weights that leave the least residual.

    Args:
      assignment: who holds what.
      num_messages: M.
      num_blocks: L.
      max_iterations: at most so many steps of conjugate gradients (CGLS), 1 or more, whatever the size; by default, a
        dense solve for up to `MAX_DENSE_MESSAGES` messages and otherwise at most `10 W·M` steps. With ill-conditioned
        messages, as those of cyclic MDS codes are, even these leave more than the least residual in float32.

    Returns:
      A pure function `encode float[W, M, K, L] -> decode float[W, M, L]`. Messages that are not there have
      coefficients 0 and get the weight 0. The dense solution has the least norm; the iterative one, too, up to its
      accuracy, and never holds an array of N·W numbers.

    Raises:
      ValueError: if `max_iterations` is not at least 1.
    """
    total_messages = assignment.num_workers * num_messages
    if max_iterations is not None:
        max_iterations = _validate.integer("max_iterations", max_iterations, minimum=1)
        return _cgls_solver(assignment, num_blocks, max_iterations)
    if total_messages <= MAX_DENSE_MESSAGES:
        return _dense_solver(assignment, num_messages, num_blocks)
    return _cgls_solver(assignment, num_blocks, STEPS_PER_MESSAGE * total_messages)


def message_matrix(assignment: Assignment, encode: jax.Array) -> jax.Array:
    """float[W·M, N·L]: the messages as rows over all blocks of all chunks; dense, for small sizes."""
    num_workers, num_messages, _, num_blocks = encode.shape
    by_worker_and_chunk = jnp.zeros((num_workers, assignment.num_chunks, num_messages, num_blocks), encode.dtype)
    worker_and_chunk = np.arange(num_workers)[:, None], assignment.chunks.clip(0)  # empty slots add 0 to chunk 0
    by_worker_and_chunk = by_worker_and_chunk.at[worker_and_chunk].add(jnp.swapaxes(encode, 1, 2))  # [W, N, M, L]
    by_message = jnp.swapaxes(by_worker_and_chunk, 1, 2)
    return by_message.reshape(num_workers * num_messages, assignment.num_chunks * num_blocks)


def _dense_solver(assignment: Assignment, num_messages: int, num_blocks: int) -> Callable[[jax.Array], jax.Array]:
    """`encode float[W, M, K, L] -> decode float[W, M, L]`: the least-norm solution of one dense system."""
    every_chunk_once = np.tile(np.eye(num_blocks), (assignment.num_chunks, 1))  # [N·L, L]

    def solve_for_weights(encode: jax.Array) -> jax.Array:
        """The decoding weights for one encoding."""
        weights = least_norm(
            message_matrix(assignment, encode).T, jnp.asarray(every_chunk_once, jnp.result_type(float))
        )
        return weights.reshape(-1, num_messages, num_blocks)

    return solve_for_weights


def least_norm(matrix: jax.Array, target: jax.Array) -> jax.Array:
    """float[columns, L]: of all x that come closest to `matrix x = target`, the one of least norm.

    Shapes: matrix float[rows, columns], target float[rows, L], L right-hand sides. Singular values that are 0 up to
    rounding count as 0. How much that is cannot be told from a singular value: of two bounds, that is taken which
    leaves less of the target. Some ill-conditioned matrices have singular values between them that are not 0.
    """
    left_vectors, singular_values, right_vectors = jnp.linalg.svd(matrix, full_matrices=False)

    def solution_above(cutoff: float) -> tuple[jax.Array, jax.Array]:
        """(x float[columns, L], the squared norm of what it leaves, float[L]) with larger singular values alone.

        `cutoff` is in units of rounding, relative to the largest.
        """
        is_above_rounding = singular_values > cutoff * jnp.finfo(matrix.dtype).eps * singular_values[0]
        inverses = jnp.where(is_above_rounding, 1 / jnp.where(is_above_rounding, singular_values, 1), 0)
        solution = jnp.zeros((matrix.shape[1], target.shape[1]), matrix.dtype)
        remainder = target
        for _ in range(NUM_REFINEMENTS):  # the first solves, the others solve for what it has left
            solution = solution + matmul(right_vectors.T, inverses[:, None] * matmul(left_vectors.T, remainder))
            remainder = target - matmul(matrix, solution)
        return solution, jnp.sum(remainder**2, axis=0)

    most_rounding = max(matrix.shape)  # as LAPACK and NumPy have it
    solution, squared_norm = solution_above(most_rounding)
    if most_rounding <= LEAST_ROUNDING:
        return solution
    bold_solution, bold_squared_norm = solution_above(LEAST_ROUNDING)
    leaves_less = bold_squared_norm < CLEARLY_LESS * squared_norm  # where it is the same, the least norm counts
    return jnp.where(leaves_less, bold_solution, solution)


def _cgls_solver(assignment: Assignment, num_blocks: int, max_iterations: int) -> Callable[[jax.Array], jax.Array]:
    """`encode -> decode` by conjugate gradients: CGLS (Hestenes and Stiefel 1952; Björck 1996, section 7.4).

    Each of the L output blocks has a step length of its own, and stops when its gradient is zero up to rounding.
    """
    chunk_holders = holders(assignment)
    is_held = jnp.asarray(assignment.chunks >= 0)[:, :, None, None]

    def solve(encode: jax.Array) -> jax.Array:
        """float[W, M, L]: the decoding weights for one encoding, `encode float[W, M, K, L]`, from weights 0 on.

        Sums over axes 0 and 1, of workers and messages, leave one number for each block of the estimate: [L].
        """

        def decode_to_chunks(weights: jax.Array) -> jax.Array:
            """What weights [W, M, La] decode: coefficients [N, Lb, La] of input block Lb in output block La."""
            return gather_by_chunk(einsum("wmkb,wma->wkba", encode, weights), chunk_holders).sum(axis=1)

        def transposed_decode(chunks: jax.Array) -> jax.Array:
            """The transpose of `decode_to_chunks`: from [N, Lb, La] to [W, M, La]."""
            return einsum("wmkb,wkba->wma", encode, jnp.where(is_held, chunks[assignment.chunks.clip(0)], 0))

        identity = jnp.eye(num_blocks, dtype=encode.dtype)[None]
        every_chunk_once = jnp.broadcast_to(identity, (assignment.num_chunks, num_blocks, num_blocks))
        gradient = transposed_decode(every_chunk_once)
        initial_square = (gradient**2).sum(axis=(0, 1))
        tolerance = (8 * jnp.finfo(encode.dtype).eps) ** 2 * initial_square

        def is_unfinished(state: _Iterate) -> jax.Array:
            """Whether a block's gradient is not yet zero up to rounding, and steps are left."""
            return (state.num_steps < max_iterations) & jnp.any(state.squared_gradient > tolerance)

        initial = _Iterate(
            num_steps=jnp.zeros((), jnp.int32),
            weights=jnp.zeros_like(gradient),
            error=every_chunk_once,
            direction=gradient,
            squared_gradient=initial_square,
        )
        step = functools.partial(_cgls_step, decode_to_chunks, transposed_decode, tolerance)
        return jax.lax.while_loop(is_unfinished, step, initial).weights

    return solve


def _cgls_step(
    decode_to_chunks: Callable[[jax.Array], jax.Array],
    transposed_decode: Callable[[jax.Array], jax.Array],
    tolerance: jax.Array,
    state: _Iterate,
) -> _Iterate:
    """One step of conjugate gradients; blocks of the estimate that are done stay, with the step length 0.

    Weights, direction and gradient are float[W, M, L], error and decoded direction float[N, L, L]; sums over the first
    two axes are float[L], one number for each block of the estimate, as is `tolerance`.
    """
    num_steps, weights, error, direction, squared_gradient = state
    is_active = squared_gradient > tolerance

    def ratio(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
        """float[1, 1, L]: the ratio for blocks that are not done, 0 for the others."""
        return jnp.where(is_active, numerator / jnp.where(is_active, denominator, 1), 0)[None, None]

    decoded_direction = decode_to_chunks(direction)
    step_length = ratio(squared_gradient, (decoded_direction**2).sum(axis=(0, 1)))
    error = error - step_length * decoded_direction
    gradient = transposed_decode(error)
    new_squared_gradient = (gradient**2).sum(axis=(0, 1))
    return _Iterate(
        num_steps=num_steps + 1,
        weights=weights + step_length * direction,
        error=error,
        direction=gradient + ratio(new_squared_gradient, squared_gradient) * direction,
        squared_gradient=jnp.where(is_active, new_squared_gradient, squared_gradient),
    )
