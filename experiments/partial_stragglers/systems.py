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
    """Where each holder has finished a chunk, or, for whole workers, its last one."""
    held = codes.holders(assignment)
    slots = assignment.loads[held.workers] - 1 if whole_workers else held.slots
    position = slots * assignment.num_workers + held.workers
    return HolderPositions(position.clip(0).astype(np.int32), held.workers >= 0)


def by_holder(finish: jax.Array, where: HolderPositions) -> list[jax.Array]:
    """R arrays float[N, S]: when the j-th holder of a chunk has finished; inf if there is none."""
    flat = finish.reshape(-1, finish.shape[2])
    columns = zip(where.position.T, where.exists.T, strict=True)
    return [jnp.where(exists[:, None], flat[position], jnp.inf) for position, exists in columns]


def finished(finish: jax.Array, where: HolderPositions, deadlines: jax.Array) -> list[jax.Array]:
    """R arrays int32[N, deadlines, S]: 1 where the j-th holder of a chunk has finished by a deadline."""
    return [(times[:, None] <= deadlines[None, :, None]).astype(jnp.int32) for times in by_holder(finish, where)]


@jax.jit
def estimate(finish: jax.Array, where: HolderPositions, deadlines: jax.Array, num_blocks: int) -> jax.Array:
    """float[S, deadlines]: `sqrt(sum over chunks of max(0, L - finished holders))`."""
    missing = (num_blocks - _sum(finished(finish, where, deadlines))).clip(0).sum(axis=0, dtype=jnp.int32)
    return jnp.sqrt(missing.astype(finish.dtype)).T


def partial_errors(code: codes.GradientCode, deadlines: np.ndarray) -> Callable[[jax.Array], jax.Array]:
    """A function `finish float[K, W, S] -> float[S, deadlines]`: the errors of a partial code at the deadlines."""
    held = codes.holders(code.assignment)
    num_chunks, num_holders = held.workers.shape
    if num_holders > 20 or num_chunks * 2**num_holders > MAX_TABLE_SETS:
        return _by_plan(code, deadlines)
    rows = np.asarray(jax.jit(code.plan)(jnp.asarray(code.assignment.loads)).decode, np.float64)[:, 0]
    rows = np.where((held.workers >= 0)[..., None], rows[held.workers], 0.0)
    table, where = jax.device_put((_table(rows), holder_positions(code.assignment)))

    def errors(finish: jax.Array) -> jax.Array:
        parts = []
        for start in range(0, finish.shape[2], _BLOCK):
            sets = _sets(finish[:, :, start : start + _BLOCK], where, deadlines)
            parts.append(_look_up(table, sets, num_holders).reshape(deadlines.size, -1))
        return jnp.concatenate(parts, axis=1).T

    return errors


# Separate programs: in one, XLA would merge them into a loop that is no longer vectorised.
@jax.jit
def _sets(finish: jax.Array, where: HolderPositions, deadlines: jax.Array) -> jax.Array:
    """int32[N, deadlines·S], the set of finished holders of a chunk: bit j is holder j."""
    bits = [done << j for j, done in enumerate(finished(finish, where, deadlines))]
    return _sum(bits).reshape(where.position.shape[0], -1)


@functools.partial(jax.jit, static_argnums=2)
def _look_up(table: jax.Array, sets: jax.Array, num_holders: int) -> jax.Array:
    """float[deadlines·S], the distance of all chunks together, from the squared distance of each set."""
    index = (jnp.arange(len(sets), dtype=jnp.int32)[:, None] << num_holders) + sets
    return jnp.sqrt(table.at[index].get(mode="promise_in_bounds").sum(axis=0))


def _sum(values: list[jax.Array]) -> jax.Array:
    return functools.reduce(operator.add, values)


def _table(rows: np.ndarray) -> np.ndarray:
    """float64[N·2^R]: the squared distance from the identity of what the coefficients make, for every set of holders.

    Args:
      rows: float64[N, R, L].
    """
    _, num_holders, num_blocks = rows.shape
    sets = np.arange(2**num_holders)[:, None] >> np.arange(num_holders) & 1
    squares = []
    for chunk in rows:
        chosen = chunk * sets[:, :, None]  # [sets, R, L]
        decoded = np.linalg.pinv(chosen, rcond=1e-10) @ chosen
        squares.append(((decoded - np.eye(num_blocks)) ** 2).sum(axis=(1, 2)))
    return np.concatenate(squares)


def _by_plan(code: codes.GradientCode, deadlines: np.ndarray) -> Callable[[jax.Array], jax.Array]:
    """The same by the code's own plan, for chunks with many holders."""
    held = jnp.asarray(code.assignment.chunks >= 0).T[:, :, None]

    @jax.jit
    def errors(finish: jax.Array) -> jax.Array:
        def one(trial: jax.Array) -> jax.Array:
            done = (trial[None] <= deadlines[:, None, None]) & held[None, :, :, 0]
            return jax.vmap(lambda progress: code.plan(progress).residual)(done.sum(axis=1, dtype=jnp.int32))

        return jax.lax.map(one, jnp.moveaxis(finish, 2, 0))

    return errors
