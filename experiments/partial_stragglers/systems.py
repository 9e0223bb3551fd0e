"""The systems of a partial code for many trials at once: one for each chunk, deadline and trial.

Chunk n needs the coefficients x with `sum_j r_j x_j^T = I` over its finished holders j. The least-norm ones are
`x_j = (sum_i r_i r_i^T)^+ r_j`; the pseudo-inverse, L × L, is looked up for the set of those that have finished, and
coefficients and error are arithmetic, vectorised over deadlines and trials. `gcjax.codes.partial` says the same, one
progress at a time.
"""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import codes

MAX_TABLE_SETS = 2**21
"""Sets of finished holders, of all chunks, that are kept in a table."""

_BLOCK = 250
"""Trials at a time, so that what is in between stays in the cache."""


def by_holder(finish: jax.Array, slots: np.ndarray, workers: np.ndarray) -> list[jax.Array]:
    """R arrays float[N, S]: when the j-th holder `workers[:, j]` of a chunk has finished slot `slots[:, j]`.

    Args:
      finish: float[K, W, S] seconds.
      slots: int[N, R], -1 where there is no holder: that one never finishes.
      workers: int[N, R].
    """
    flat = finish.reshape(-1, finish.shape[2])
    place = slots.clip(0) * finish.shape[1] + workers.clip(0)
    there = slots >= 0
    return [
        flat[place[:, j]] if there[:, j].all() else jnp.where(there[:, j, None], flat[place[:, j]], jnp.inf)
        for j in range(slots.shape[1])
    ]


def partial_errors(code: codes.GradientCode, deadlines: np.ndarray) -> Callable[[jax.Array], jax.Array]:
    """A function `finish float[K, W, S] -> float[S, D]`: the errors of a partial code at the deadlines."""
    held = codes.holders(code.assignment)
    num_chunks, num_holders = held.workers.shape
    if num_holders > 20 or num_chunks * 2**num_holders > MAX_TABLE_SETS:
        return _by_plan(code, deadlines)
    rows = np.asarray(code.plan(jnp.asarray(code.assignment.loads)).decode, np.float64)[:, 0]
    rows = np.where((held.workers >= 0)[..., None], rows[held.workers], 0.0)
    table = _table(rows)
    first = (np.arange(num_chunks) * 2**num_holders).astype(np.int32)

    # Two programs: in one, XLA would merge the look-ups into the arithmetic, which is then no longer vectorised.
    @jax.jit
    def look_up(finish: jax.Array, table: jax.Array) -> tuple[jax.Array, jax.Array]:
        index = jnp.asarray(first)[:, None, None]
        for j, moment in enumerate(by_holder(finish, held.slots, held.workers)):
            index = index + ((moment[:, None] <= deadlines[None, :, None]).astype(jnp.int32) << j)
        index = index.reshape(num_chunks, -1)
        return index - first[:, None], table[:, index]

    def errors(finish: jax.Array) -> jax.Array:
        device_table, parts = jnp.asarray(table), []
        for start in range(0, finish.shape[2], _BLOCK):
            finished, inverse = look_up(finish[:, :, start : start + _BLOCK], device_table)
            parts.append(_errors(jnp.asarray(rows), finished, inverse).reshape(deadlines.size, -1))
        return jnp.concatenate(parts, axis=1).T

    return errors


@jax.jit
def _errors(rows: jax.Array, finished: jax.Array, inverse: jax.Array) -> jax.Array:
    """The distance from the identity of what the coefficients make, over all chunks.

    Args:
      rows: float[N, R, L].
      finished: int32[N, D·S], bit j says that holder j has finished.
      inverse: float[L(L+1)/2, N, D·S], the pseudo-inverse, its upper triangle.

    Returns:
      float[D·S].
    """
    _, num_holders, num_blocks = rows.shape
    upper = dict(zip(itertools.combinations_with_replacement(range(num_blocks), 2), inverse, strict=True))
    done = [((finished >> j) & 1).astype(rows.dtype) for j in range(num_holders)]
    total = jnp.zeros((), rows.dtype)
    for b in range(num_blocks):
        column = [upper[min(a, b), max(a, b)] for a in range(num_blocks)]
        coefficients = [done[j] * _combine(rows[:, j], column) for j in range(num_holders)]
        for a in range(num_blocks):
            distance = _combine(rows[:, :, a], coefficients) - float(a == b)
            total = total + distance**2
    return jnp.sqrt(total.sum(axis=0))


def _combine(weights: jax.Array, values: list[jax.Array]) -> jax.Array:
    """`sum_i weights[:, i] values[i]`."""
    return sum((weights[:, i, None] * value for i, value in enumerate(values[1:], 1)), weights[:, :1] * values[0])


def _table(rows: np.ndarray) -> np.ndarray:
    """float64[L(L+1)/2, N·2^R]: `(sum_j r_j r_j^T)^+` over every set of holders j, its upper triangle."""
    num_holders = rows.shape[1]
    sets = np.arange(2**num_holders)[:, None] >> np.arange(num_holders) & 1
    chosen = rows[:, None] * sets[None, :, :, None]
    inverse = np.linalg.pinv(chosen, rcond=1e-10)
    square = inverse @ np.swapaxes(inverse, -1, -2)
    first, second = np.triu_indices(rows.shape[2])
    return np.ascontiguousarray(square[..., first, second].reshape(-1, first.size).T)


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
