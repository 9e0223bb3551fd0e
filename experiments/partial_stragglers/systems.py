"""The systems of a partial code for many trials at once: one for each chunk, deadline and trial.

Chunk n needs the coefficients x with `sum_j r_j x_j^T = I` over its finished holders j. The least-norm ones are the
pseudo-inverse of the rows `r_j`, by singular values: a Gram matrix would square the condition number. They depend on
the set of holders that have finished alone, so they are solved once for each set, and how far from the identity they
lead is kept for it; a trial looks up the sets that occur in it. `gcjax.codes.partial` says the same, one progress at a
time.
"""

import functools
import operator
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import codes

MAX_TABLE_SETS = 2**21
"""Sets of finished holders, of all chunks, that are kept in a table."""

_BLOCK = 250
"""Trials at a time, so that what is in between stays in the cache."""


class HolderPositions(NamedTuple):
    """Where the holders of a chunk stand in `finish float[K, W, S]`.

    Attributes:
      position: int32[N, R], of the slot and worker in the first two axes, flattened.
      exists: bool[N, R], whether there is such a holder.
    """

    position: np.ndarray
    exists: np.ndarray


def holder_positions(assignment: codes.Assignment, *, whole_workers: bool = False) -> HolderPositions:
    """Where `finish float[K, W, ...]`, flat, says when each holder has finished a chunk, or for whole workers all."""
    chunk_holders = codes.holders(assignment)
    # int[N, R]; where -1 pads it says anything, and `exists` is False.
    last_slots = assignment.loads[chunk_holders.workers] - 1
    slots = last_slots if whole_workers else chunk_holders.slots
    flat_position = slots * assignment.num_workers + chunk_holders.workers
    return HolderPositions(flat_position.clip(0).astype(np.int32), exists=chunk_holders.workers >= 0)


def by_holder(finish: jax.Array, positions: HolderPositions) -> list[jax.Array]:
    """R arrays float[N, S], in S trials: when the j-th holder of a chunk has finished; inf if there is none."""
    flat = finish.reshape(-1, finish.shape[2])  # [K·W, S]
    columns = zip(positions.position.T, positions.exists.T, strict=True)
    return [jnp.where(exists[:, None], flat[position], jnp.inf) for position, exists in columns]


def finished(finish: jax.Array, positions: HolderPositions, deadlines: jax.Array) -> list[jax.Array]:
    """R arrays int32[N, deadlines, S]: 1 where the j-th holder of a chunk has finished by a deadline."""
    return [(times[:, None] <= deadlines[None, :, None]).astype(jnp.int32) for times in by_holder(finish, positions)]


@jax.jit
def estimate(finish: jax.Array, positions: HolderPositions, deadlines: jax.Array, num_blocks: int) -> jax.Array:
    """float[S, deadlines], in S trials: `sqrt(sum over chunks of max(0, L - finished holders))`; L = num_blocks."""
    num_finished = _sum_of_arrays(finished(finish, positions, deadlines))  # [N, deadlines, S]
    num_missing = (num_blocks - num_finished).clip(0).sum(axis=0, dtype=jnp.int32)
    return jnp.sqrt(num_missing.astype(finish.dtype)).T


def partial_errors(code: codes.GradientCode, deadlines: np.ndarray) -> Callable[[jax.Array], jax.Array]:
    """A function `finish float[K, W, S] -> float[S, deadlines]`: the errors of a partial code at the deadlines.

    By a table of all sets of the R holders of each of N chunks, unless that is too large.
    """
    chunk_holders = codes.holders(code.assignment)
    num_chunks, num_holders = chunk_holders.workers.shape
    is_table_too_large = num_holders > 20 or num_chunks * 2**num_holders > MAX_TABLE_SETS
    if is_table_too_large:
        return _errors_by_plan(code, deadlines)
    decode_of_full_loads = jax.jit(lambda progress: code.plan(progress).decode)(jnp.asarray(code.assignment.loads))
    row_of_worker = np.asarray(decode_of_full_loads, np.float64)[:, 0]  # [W, L], fixed
    # [N, R, L]; 0 where -1 pads.
    rows_of_holders = np.where((chunk_holders.workers >= 0)[..., None], row_of_worker[chunk_holders.workers], 0.0)
    squared_errors, positions = jax.device_put(
        (_squared_error_table(rows_of_holders), holder_positions(code.assignment))
    )

    def errors(finish: jax.Array) -> jax.Array:
        """float[S, deadlines], from `finish float[K, W, S]`, for `_BLOCK` trials at a time."""
        errors_of_trial_blocks = []
        for first_trial in range(0, finish.shape[2], _BLOCK):
            finished_sets = _finished_holder_sets(
                finish[:, :, first_trial : first_trial + _BLOCK], positions, deadlines
            )
            errors_of_trial_blocks.append(
                _errors_of_sets(squared_errors, finished_sets, num_holders).reshape(deadlines.size, -1)
            )
        return jnp.concatenate(errors_of_trial_blocks, axis=1).T

    return errors


# Separate programs: in one, XLA would merge them into a loop that is no longer vectorised.
@jax.jit
def _finished_holder_sets(finish: jax.Array, positions: HolderPositions, deadlines: jax.Array) -> jax.Array:
    """int32[N, deadlines·S], the set of finished holders of a chunk: bit j is holder j."""
    bits = [is_finished << holder for holder, is_finished in enumerate(finished(finish, positions, deadlines))]
    return _sum_of_arrays(bits).reshape(positions.position.shape[0], -1)


@functools.partial(jax.jit, static_argnums=2)
def _errors_of_sets(squared_errors: jax.Array, finished_sets: jax.Array, num_holders: int) -> jax.Array:
    """float[deadlines·S], the distance of all chunks together, from the squared distance of each set of holders.

    `squared_errors`: float[N·2^R]; `finished_sets`: int32[N, deadlines·S], a bit for each of R holders.
    """
    first_index_of_chunk = jnp.arange(len(finished_sets), dtype=jnp.int32)[:, None] << num_holders  # n·2^R of chunk n
    squared_errors_of_chunks = squared_errors.at[first_index_of_chunk + finished_sets].get(mode="promise_in_bounds")
    return jnp.sqrt(squared_errors_of_chunks.sum(axis=0))


def _sum_of_arrays(arrays: list[jax.Array]) -> jax.Array:
    return functools.reduce(operator.add, arrays)


def _squared_error_table(rows_of_holders: np.ndarray) -> np.ndarray:
    """float64[N·2^R]: the squared distance from the identity of what the coefficients make, for every set of holders.

    `rows_of_holders`: float64[N, R, L].
    """
    _, num_holders, num_blocks = rows_of_holders.shape
    is_in_set = np.arange(2**num_holders)[:, None] >> np.arange(num_holders) & 1  # [sets, R]
    squared_errors = []
    for rows_of_chunk in rows_of_holders:
        rows_of_sets = rows_of_chunk * is_in_set[:, :, None]  # [sets, R, L]
        decoded = np.linalg.pinv(rows_of_sets, rcond=1e-10) @ rows_of_sets  # [sets, L, L]
        squared_errors.append(((decoded - np.eye(num_blocks)) ** 2).sum(axis=(1, 2)))
    return np.concatenate(squared_errors)


def _errors_by_plan(code: codes.GradientCode, deadlines: np.ndarray) -> Callable[[jax.Array], jax.Array]:
    """As `partial_errors`, by the code's own plan, for chunks with many holders."""
    is_held = jnp.asarray(code.assignment.chunks >= 0).T[:, :, None]  # bool[K, W, 1]

    @jax.jit
    def errors(finish: jax.Array) -> jax.Array:
        """float[S, deadlines], from `finish float[K, W, S]`."""

        def errors_of_trial(trial_finish: jax.Array) -> jax.Array:
            """float[deadlines], from the seconds float[K, W] of one trial."""
            # bool[deadlines, K, W]: without the slots behind a worker's last chunk.
            is_done = (trial_finish[None] <= deadlines[:, None, None]) & is_held[None, :, :, 0]
            progress_at_deadlines = is_done.sum(axis=1, dtype=jnp.int32)  # [deadlines, W]
            return jax.vmap(lambda progress: code.plan(progress).residual)(progress_at_deadlines)

        finish_by_trial = jnp.moveaxis(finish, 2, 0)
        return jax.lax.map(errors_of_trial, finish_by_trial)

    return errors
