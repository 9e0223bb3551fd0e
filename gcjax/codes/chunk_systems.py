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
    """As `min_norm_solver`, from a table: entry `n 2^R + sum_j finished_j 2^j` is the solution of chunk n."""
    num_chunks, num_holders, num_blocks = rows.shape
    is_finished = np.arange(2**num_holders)[:, None] >> np.arange(num_holders) & 1  # [2^R, R], every set of holders
    masked = np.swapaxes(rows[:, None] * is_finished[None, :, :, None], -1, -2)  # [N, 2^R, L, R]
    solutions = np.linalg.pinv(masked, rcond=1e-10) * is_finished[None, :, :, None]
    distances = ((masked @ solutions - np.eye(num_blocks)) ** 2).sum(axis=(-1, -2)).ravel()
    solutions = solutions.reshape(-1, num_holders * num_blocks)
    first_entry = np.arange(num_chunks, dtype=np.int32) * 2**num_holders
    powers = 1 << np.arange(num_holders, dtype=np.int32)

    def solve(finished: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Solutions and squared distances of all chunks, read from the table."""
        index = first_entry + (finished.astype(jnp.int32) * powers[None]).sum(axis=1, dtype=jnp.int32)
        solution = jnp.asarray(solutions, default_float())[index]
        return solution.reshape(num_chunks, num_holders, num_blocks), jnp.asarray(distances, default_float())[index]

    return solve


def _direct_solver(rows: np.ndarray) -> Solver:
    """As `min_norm_solver`, but every call solves the systems anew, by orthogonalisation."""
    num_blocks = rows.shape[2]

    def solve(finished: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Solutions and squared distances of all chunks, by Q U = rows: the least-norm solution is Q U^-T."""
        masked = jnp.where(finished[..., None], jnp.asarray(rows, default_float()), 0)
        is_determined = finished.sum(axis=1) >= num_blocks
        # Fewer than L rows span too little: stand-ins for the missing directions make the system square without
        # touching the least-norm solution, since they are orthogonal to all rows of the finished holders.
        stand_ins = jnp.where(is_determined[:, None, None], 0, _orthogonal_projection(masked))
        basis, upper = _qr_factors(jnp.concatenate([masked, stand_ins], axis=1))
        solution = _solve_transposed(basis, upper)[:, : rows.shape[1]]
        product = jnp.einsum("nja,njb->nab", masked, solution)
        return solution, ((product - jnp.eye(num_blocks, dtype=product.dtype)[None]) ** 2).sum(axis=(1, 2))

    return solve


def _orthogonal_projection(rows: jax.Array) -> jax.Array:
    """float[N, L, L]: for each chunk, the projection onto what is orthogonal to its rows, of `rows float[N, R, L]`."""
    min_square = jnp.finfo(rows.dtype).eps ** 1.5
    identity = jnp.broadcast_to(jnp.eye(rows.shape[2], dtype=rows.dtype), (rows.shape[0], *rows.shape[2:] * 2))

    def without_row(j: jax.Array, projection: jax.Array) -> jax.Array:
        """The projection that maps row j to zero, too."""
        vector = jnp.einsum("nab,nb->na", projection, rows[:, j])
        vector = jnp.einsum("nab,nb->na", projection, vector)  # twice, against rounding
        square = (vector**2).sum(axis=1)[:, None]
        direction = vector * jnp.where(square > min_square, jax.lax.rsqrt(jnp.where(square > min_square, square, 1)), 0)
        return projection - direction[:, :, None] * direction[:, None, :]

    return jax.lax.fori_loop(0, rows.shape[1], without_row, identity)


def _qr_factors(columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Q, U with Q U = `columns float[N, rows, L]`, Q orthonormal, U upper triangular; Gram-Schmidt done twice."""

    def add_column(b: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """Column b of Q and U, from the columns before it."""
        basis, upper = state
        vector = columns[:, :, b]
        components = jnp.zeros_like(upper[:, :, 0])
        for _ in range(2):
            correction = jnp.einsum("npa,np->na", basis, vector)
            vector = vector - jnp.einsum("npa,na->np", basis, correction)
            components = components + correction
        length = jnp.sqrt((vector**2).sum(axis=1))
        upper = upper.at[:, :, b].set(components.at[:, b].set(length))
        return basis.at[:, :, b].set(vector / length[:, None]), upper

    num_blocks = columns.shape[2]
    upper = jnp.zeros((columns.shape[0], num_blocks, num_blocks), columns.dtype)
    return jax.lax.fori_loop(0, num_blocks, add_column, (jnp.zeros_like(columns), upper))


def _solve_transposed(basis: jax.Array, upper: jax.Array) -> jax.Array:
    """float[N, rows, L]: X with X U^T = Q, for `basis` Q `[N, rows, L]` and upper triangular `upper` U `[N, L, L]`."""
    num_blocks = upper.shape[1]

    def add_column(i: jax.Array, solution: jax.Array) -> jax.Array:
        """Column b of X, from the columns after it, which are solved."""
        b = num_blocks - 1 - i
        solved_part = jnp.einsum("npa,na->np", solution, upper[:, b])
        return solution.at[:, :, b].set((basis[:, :, b] - solved_part) / upper[:, b, b][:, None])

    return jax.lax.fori_loop(0, num_blocks, add_column, jnp.zeros_like(basis))
