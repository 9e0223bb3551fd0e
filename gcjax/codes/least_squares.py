"""Optimal decoding: the weights of the messages that come closest to the plain sum (Charles et al. 2017).

Letters: W workers, N chunks, K chunks a worker holds, L blocks, M messages a worker sends.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes.base import Assignment, default_float, gather_by_chunk, holders

_State = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]
"""Steps, weights [W, M, L], the target minus what they decode [N, L, L], direction, squared size of the gradient."""

MAX_DENSE_MESSAGES = 512
"""Up to so many messages W·M the system is solved by a singular value decomposition, beyond by conjugate gradients."""

STEPS_PER_MESSAGE = 10
"""Conjugate gradients stop after so many steps for each message; exact numbers would need one, rounded ones more."""


def least_squares(
    assignment: Assignment, num_messages: int, num_blocks: int, *, max_iterations: int | None = None
) -> Callable[[jax.Array], jax.Array]:
    """A solver for the decoding weights that leave the least residual.

    Args:
      assignment: who holds what.
      num_messages: M.
      num_blocks: L.
      max_iterations: at most so many steps of conjugate gradients (CGLS), whatever the size; by default, a dense
        solve for up to `MAX_DENSE_MESSAGES` messages and otherwise at most `10 W·M` steps. With ill-conditioned
        messages, as those of cyclic MDS codes are, even these leave more than the least residual in float32.

    Returns:
      A pure function `encode float[W, M, K, L] -> decode float[W, M, L]`. Messages that are not there have
      coefficients 0 and get the weight 0. The dense solution has the least norm; the iterative one, too, up to its
      accuracy, and never holds an array of N·W numbers.
    """
    if max_iterations is None and assignment.num_workers * num_messages <= MAX_DENSE_MESSAGES:
        return _dense(assignment, num_messages, num_blocks)
    return _iterative(
        assignment, num_blocks, max_iterations or STEPS_PER_MESSAGE * assignment.num_workers * num_messages
    )


def message_matrix(assignment: Assignment, encode: jax.Array) -> jax.Array:
    """float[W·M, N·L]: the messages as rows over all blocks of all chunks; dense, for small sizes."""
    workers, messages, _, blocks = encode.shape
    rows = jnp.zeros((workers, assignment.num_chunks, messages, blocks), encode.dtype)
    index = np.arange(workers)[:, None], assignment.chunks.clip(0)
    rows = rows.at[index].add(jnp.swapaxes(encode, 1, 2))
    return jnp.swapaxes(rows, 1, 2).reshape(workers * messages, assignment.num_chunks * blocks)


def _dense(assignment: Assignment, num_messages: int, num_blocks: int) -> Callable[[jax.Array], jax.Array]:
    target = np.tile(np.eye(num_blocks), (assignment.num_chunks, 1))

    def solve(encode: jax.Array) -> jax.Array:
        weights = least_norm(message_matrix(assignment, encode).T, jnp.asarray(target, default_float()))
        return weights.reshape(-1, num_messages, num_blocks)

    return solve


def least_norm(matrix: jax.Array, wanted: jax.Array) -> jax.Array:
    """float[Q, L]: of all that come closest to `matrix float[P, Q] x = wanted float[P, L]`, the least; dense."""
    left, values, right = jnp.linalg.svd(matrix, full_matrices=False)
    significant = values > jnp.finfo(matrix.dtype).eps * values[0]
    inverse = jnp.where(significant, 1 / jnp.where(significant, values, 1), 0)
    solution = jnp.zeros((matrix.shape[1], wanted.shape[1]), matrix.dtype)
    for _ in range(3):  # refined: the first solution loses as many digits as the condition number has
        solution = solution + right.T @ (inverse[:, None] * (left.T @ (wanted - matrix @ solution)))
    return solution


def _iterative(assignment: Assignment, num_blocks: int, max_iterations: int) -> Callable[[jax.Array], jax.Array]:
    """CGLS (Hestenes and Stiefel 1952; Björck 1996, section 7.4), each output block with steps of its own."""
    inverse = holders(assignment)
    held = jnp.asarray(assignment.chunks >= 0)[:, :, None, None]

    def solve(encode: jax.Array) -> jax.Array:
        def to_chunks(weights: jax.Array) -> jax.Array:  # [W, M, La] -> [N, Lb, La]
            return gather_by_chunk(jnp.einsum("wmkb,wma->wkba", encode, weights), inverse).sum(axis=1)

        def to_messages(chunks: jax.Array) -> jax.Array:  # [N, Lb, La] -> [W, M, La]
            return jnp.einsum("wmkb,wkba->wma", encode, jnp.where(held, chunks[assignment.chunks.clip(0)], 0))

        eye = jnp.eye(num_blocks, dtype=encode.dtype)[None]
        target = jnp.broadcast_to(eye, (assignment.num_chunks, num_blocks, num_blocks))
        gradient = to_messages(target)
        first_size = (gradient**2).sum(axis=(0, 1))
        tolerance = (8 * jnp.finfo(encode.dtype).eps) ** 2 * first_size

        def unfinished(state: _State) -> jax.Array:
            return (state[0] < max_iterations) & jnp.any(state[4] > tolerance)

        def step(state: _State) -> _State:
            count, weights, error, direction, size = state
            change = to_chunks(direction)
            active = size > tolerance
            length = jnp.where(active, size / jnp.where(active, (change**2).sum(axis=(0, 1)), 1), 0)[None, None]
            weights, error = weights + length * direction, error - length * change
            gradient = to_messages(error)
            new_size = (gradient**2).sum(axis=(0, 1))
            ratio = jnp.where(active, new_size / jnp.where(active, size, 1), 0)[None, None]
            return count + 1, weights, error, gradient + ratio * direction, jnp.where(active, new_size, size)

        initial = jnp.zeros((), jnp.int32), jnp.zeros_like(gradient), target, gradient, first_size
        return jax.lax.while_loop(unfinished, step, initial)[1]

    return solve
