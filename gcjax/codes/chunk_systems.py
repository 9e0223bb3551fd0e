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

from gcjax._products import einsum

MAX_TABLE_ENTRIES = 2**24
"""Numbers in a table of solutions (128 MiB in float64)."""

GRAM_SCHMIDT_PASSES = 2
"""Twice, against rounding."""

MAX_TABLE_HOLDERS = 23
"""Holders of a chunk, of whose sets there may be a table."""

Solver = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def min_norm_solver(rows: np.ndarray) -> Solver:
    """A solver for fixed rows.

    Args:
      rows: float64[N, R, L], of each of the R holders of each chunk; zero where a chunk has fewer holders.

    Returns:
      A pure function `is_finished bool[N, R] -> (solution float[N, R, L], squared distance to the identity float[N])`;
      the coefficients of holders that have not finished are exactly zero.
    """
    num_chunks, num_holders, num_blocks = rows.shape
    num_table_entries = num_chunks * 2**num_holders * num_holders * num_blocks
    if num_holders <= MAX_TABLE_HOLDERS and num_table_entries <= MAX_TABLE_ENTRIES:
        return _table_solver(rows)
    return _direct_solver(rows)


def _table_solver(rows: np.ndarray) -> Solver:
    """As `min_norm_solver`, from a table: entry `n 2^R + sum_j finished_j 2^j` is the solution of chunk n."""
    num_chunks, num_holders, num_blocks = rows.shape
    subset_masks = np.arange(2**num_holders)[:, None] >> np.arange(num_holders) & 1  # [2^R, R], every set of holders
    masked_columns = np.swapaxes(rows[:, None] * subset_masks[None, :, :, None], -1, -2)  # [N, 2^R, L, R]
    solutions = np.linalg.pinv(masked_columns, rcond=1e-10) * subset_masks[None, :, :, None]
    squared_distances = ((masked_columns @ solutions - np.eye(num_blocks)) ** 2).sum(axis=(-1, -2)).ravel()
    flat_solutions = solutions.reshape(-1, num_holders * num_blocks)
    first_index_of_chunk = np.arange(num_chunks, dtype=np.int32) * 2**num_holders
    bit_values = 1 << np.arange(num_holders, dtype=np.int32)

    def solve(is_finished: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Solutions float[N, R, L] and squared distances float[N] of all chunks, for `is_finished bool[N, R]`.

        The table has a row for each set of holders of each chunk: `flat_solutions [N·2^R, R·L]`, `squared_distances
        [N·2^R]`. Holder j of a chunk has the bit 2^j in the index, of `bit_values [R]`.
        """
        subset_index = (is_finished.astype(jnp.int32) * bit_values[None]).sum(axis=1, dtype=jnp.int32)
        table_index = first_index_of_chunk + subset_index
        solution = jnp.asarray(flat_solutions, jnp.result_type(float))[table_index].reshape(rows.shape)
        return solution, jnp.asarray(squared_distances, jnp.result_type(float))[table_index]

    return solve


def _direct_solver(rows: np.ndarray) -> Solver:
    """As `min_norm_solver`, but every call solves the systems anew, by orthogonalisation.

    `rows` are float64[N, R, L], of the R holders of each chunk, and 0 where there are fewer. It takes for granted that
    any L rows of holders of a chunk are independent: L = `num_blocks` finished ones then determine a solution.
    """
    num_blocks = rows.shape[2]

    def solve(is_finished: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Solutions float[N, R, L] and squared distances float[N] of all chunks, for `is_finished bool[N, R]`.

        By Q U = `rows float[N, R, L]`, for each chunk those of its finished holders: the least-norm solution is Q U^-T.
        """
        masked_rows = jnp.where(is_finished[..., None], jnp.asarray(rows, jnp.result_type(float)), 0)
        is_determined = is_finished.sum(axis=1) >= num_blocks  # L independent rows, taken for granted
        # Fewer than L rows span too little: L stand-ins for the missing directions, [N, L, L], make the system square
        # without touching the least-norm solution, since they are orthogonal to all rows of the finished holders.
        missing_directions = jnp.where(is_determined[:, None, None], 0, _orthogonal_projection(masked_rows))
        completed_rows = jnp.concatenate([masked_rows, missing_directions], axis=1)  # [N, R + L, L]
        basis, upper_factor = _qr_factors(completed_rows)
        solution = _solve_transposed(basis, upper_factor)[:, : rows.shape[1]]  # of the holders, without the stand-ins
        decoded = einsum("nja,njb->nab", masked_rows, solution)  # [N, L, L], over the holders
        error = decoded - jnp.eye(num_blocks, dtype=decoded.dtype)[None]
        return solution, (error**2).sum(axis=(1, 2))

    return solve


def _orthogonal_projection(rows: jax.Array) -> jax.Array:
    """float[N, L, L]: for each chunk, the projection onto what is orthogonal to its rows, of `rows float[N, R, L]`."""
    rounding_square = jnp.finfo(rows.dtype).eps ** 1.5  # of a length below which what is left of a row is rounding
    identity = jnp.broadcast_to(jnp.eye(rows.shape[2], dtype=rows.dtype), (rows.shape[0], *rows.shape[2:] * 2))

    def project_off_row(row_index: jax.Array, projection: jax.Array) -> jax.Array:
        """float[N, L, L]: the projection that maps this row of each chunk to zero, too.

        As it was where the row, of `rows float[N, R, L]`, is zero, or a combination of those before.
        """
        projected_once = einsum("nab,nb->na", projection, rows[:, row_index])  # [N, L]
        projected = einsum("nab,nb->na", projection, projected_once)  # again, against rounding
        square = (projected**2).sum(axis=1)[:, None]
        inverse_length = jnp.where(
            square > rounding_square, jax.lax.rsqrt(jnp.where(square > rounding_square, square, 1)), 0
        )
        unit_vector = projected * inverse_length
        return projection - unit_vector[:, :, None] * unit_vector[:, None, :]

    return jax.lax.fori_loop(0, rows.shape[1], project_off_row, identity)


def _qr_factors(columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Q, U with Q U = `columns float[N, rows, L]`, Q orthonormal, U upper triangular; Gram-Schmidt done twice."""

    def orthogonalise_column(b: jax.Array, factors: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """Q `[N, rows, L]` and U `[N, L, L]` with column b, from the columns before it; those after it are still 0."""
        basis, upper_factor = factors
        remainder = columns[:, :, b]
        components = jnp.zeros_like(upper_factor[:, :, 0])
        for _ in range(GRAM_SCHMIDT_PASSES):
            new_components = einsum("npa,np->na", basis, remainder)
            remainder = remainder - einsum("npa,na->np", basis, new_components)
            components = components + new_components
        length = jnp.sqrt((remainder**2).sum(axis=1))
        upper_factor = upper_factor.at[:, :, b].set(components.at[:, b].set(length))
        return basis.at[:, :, b].set(remainder / length[:, None]), upper_factor

    num_blocks = columns.shape[2]
    upper_factor = jnp.zeros((columns.shape[0], num_blocks, num_blocks), columns.dtype)
    return jax.lax.fori_loop(0, num_blocks, orthogonalise_column, (jnp.zeros_like(columns), upper_factor))


def _solve_transposed(basis: jax.Array, upper: jax.Array) -> jax.Array:
    """float[N, rows, L]: X with X U^T = Q, for `basis` Q `[N, rows, L]` and upper triangular `upper` U `[N, L, L]`."""
    num_blocks = upper.shape[1]

    def solve_column(num_solved: jax.Array, solution: jax.Array) -> jax.Array:
        """X `[N, rows, L]` with column b = L - 1 - `num_solved`, from the columns after it; all others are still 0."""
        b = num_blocks - 1 - num_solved
        solved_part = einsum("npa,na->np", solution, upper[:, b])
        return solution.at[:, :, b].set((basis[:, :, b] - solved_part) / upper[:, b, b][:, None])

    return jax.lax.fori_loop(0, num_blocks, solve_column, jnp.zeros_like(basis))
