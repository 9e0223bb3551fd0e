"""Many small least-squares systems at once: one for each chunk, over the holders that have finished.

For chunk n with rows `r_j in R^L` of its holders j, wanted are the least-norm coefficients x with
`sum_j finished_j r_j x_jb = e_b` for every b, or the closest there is. Where all `2^R` sets of finished holders of
all chunks fit into a table, it is computed once, in float64, and a plan only looks up. Otherwise the systems are
solved by orthogonalisation, all chunks at once. Neither calls LAPACK per system.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes.base import default_float

MAX_TABLE_ENTRIES = 2**24
"""Numbers in a table of solutions (128 MiB in float64)."""

Solver = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def min_norm_solver(rows: np.ndarray) -> Solver:
    """A solver for fixed rows.

    Args:
      rows: float64[N, R, L], zero where a chunk has fewer than R holders.

    Returns:
      A pure function `finished bool[N, R] -> (solution float[N, R, L], squared distance to the identity float[N])`;
      the coefficients of holders that have not finished are exactly zero.
    """
    num_chunks, num_holders, num_blocks = rows.shape
    if num_holders < 24 and num_chunks * 2**num_holders * num_holders * num_blocks <= MAX_TABLE_ENTRIES:
        return _table_solver(rows)
    return _direct_solver(rows)


def _table_solver(rows: np.ndarray) -> Solver:
    """Looks solutions up: entry `n 2^R + sum_j finished_j 2^j` of the table is that of chunk n."""
    num_chunks, num_holders, num_blocks = rows.shape
    bits = np.arange(2**num_holders)[:, None] >> np.arange(num_holders) & 1
    masked = np.swapaxes(rows[:, None] * bits[None, :, :, None], -1, -2)
    solutions = np.linalg.pinv(masked, rcond=1e-10) * bits[None, :, :, None]
    distances = ((masked @ solutions - np.eye(num_blocks)) ** 2).sum(axis=(-1, -2)).ravel()
    solutions = solutions.reshape(-1, num_holders * num_blocks)
    first = np.arange(num_chunks, dtype=np.int32) * 2**num_holders
    powers = 1 << np.arange(num_holders, dtype=np.int32)

    def solve(finished: jax.Array) -> tuple[jax.Array, jax.Array]:
        index = first + (finished.astype(jnp.int32) * powers[None]).sum(axis=1, dtype=jnp.int32)
        solution = jnp.asarray(solutions, default_float())[index]
        return solution.reshape(num_chunks, num_holders, num_blocks), jnp.asarray(distances, default_float())[index]

    return solve


def _direct_solver(rows: np.ndarray) -> Solver:
    """Solves all systems by orthogonalisation, whenever it is asked."""
    num_blocks = rows.shape[2]

    def solve(finished: jax.Array) -> tuple[jax.Array, jax.Array]:
        masked = jnp.where(finished[..., None], jnp.asarray(rows, default_float()), 0)
        enough = finished.sum(axis=1) >= num_blocks
        # Fewer than L rows span too little: stand-ins for the missing directions make the system square without
        # touching the least-norm solution, since they are orthogonal to all rows there are.
        missing = jnp.where(enough[:, None, None], 0, _complement(masked))
        basis, upper = _orthogonalise(jnp.concatenate([masked, missing], axis=1))
        solution = _back_substitute(basis, upper)[:, : rows.shape[1]]
        product = jnp.einsum("nja,njb->nab", masked, solution)
        return solution, ((product - jnp.eye(num_blocks, dtype=product.dtype)[None]) ** 2).sum(axis=(1, 2))

    return solve


def _complement(rows: jax.Array) -> jax.Array:
    """float[N, L, L]: the projection onto what is orthogonal to all rows `[N, R, L]`."""
    tiny = jnp.finfo(rows.dtype).eps ** 1.5
    identity = jnp.broadcast_to(jnp.eye(rows.shape[2], dtype=rows.dtype), (rows.shape[0], *rows.shape[2:] * 2))

    def remove(j: jax.Array, projection: jax.Array) -> jax.Array:
        vector = jnp.einsum("nab,nb->na", projection, rows[:, j])
        vector = jnp.einsum("nab,nb->na", projection, vector)  # twice is enough
        length = (vector**2).sum(axis=1)[:, None]
        unit = vector * jnp.where(length > tiny, jax.lax.rsqrt(jnp.where(length > tiny, length, 1)), 0)
        return projection - unit[:, :, None] * unit[:, None, :]

    return jax.lax.fori_loop(0, rows.shape[1], remove, identity)


def _orthogonalise(columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Q, U with Q U = `columns float[N, P, L]`, Q orthonormal, U upper triangular; Gram-Schmidt, done twice."""

    def add(b: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        basis, upper = state
        vector = columns[:, :, b]
        along = jnp.zeros_like(upper[:, :, 0])
        for _ in range(2):
            step = jnp.einsum("npa,np->na", basis, vector)
            vector = vector - jnp.einsum("npa,na->np", basis, step)
            along = along + step
        length = jnp.sqrt((vector**2).sum(axis=1))
        upper = upper.at[:, :, b].set(along.at[:, b].set(length))
        return basis.at[:, :, b].set(vector / length[:, None]), upper

    num_blocks = columns.shape[2]
    upper = jnp.zeros((columns.shape[0], num_blocks, num_blocks), columns.dtype)
    return jax.lax.fori_loop(0, num_blocks, add, (jnp.zeros_like(columns), upper))


def _back_substitute(basis: jax.Array, upper: jax.Array) -> jax.Array:
    """X with X U^T = Q."""
    num_blocks = upper.shape[1]

    def column(i: jax.Array, solution: jax.Array) -> jax.Array:
        b = num_blocks - 1 - i
        known = jnp.einsum("npa,na->np", solution, upper[:, b])
        return solution.at[:, :, b].set((basis[:, :, b] - known) / upper[:, b, b][:, None])

    return jax.lax.fori_loop(0, num_blocks, column, jnp.zeros_like(basis))
