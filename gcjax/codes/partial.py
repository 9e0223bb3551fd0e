"""Gradient coding with partial stragglers (Ramamoorthy, Meng, Girimaji, NeurIPS 2024, arXiv 2405.19509).

A worker reports how many chunks it has finished and then sends one vector of d/L numbers: block b of its finished
chunk c with the coefficient `x[w, c, b]`. The server multiplies the message of worker w by a fixed random row r_w in
R^L. For chunk c and block b the finished holders need `sum_w r_w x[w, c, b] = e_b`: solvable iff at least L of them
have finished, since random rows are in general position; otherwise the least-squares choice is the best there is.
Nothing is interpolated, so the code is numerically stable.

Rows are scaled to length one (our choice: it changes no solvability and keeps the coefficients small); for L = 1 all
are 1, and a chunk's coefficient is one over the number of its finished holders.
"""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.base import (
    Assignment,
    Coding,
    GradientCode,
    Holders,
    check_finish,
    check_progress,
    gather_by_chunk,
    has_repeated_chunks,
    holders,
)
from gcjax.codes.chunk_systems import min_norm_solver
from gcjax.codes.decoding_rows import harmonic_rows, random_rows
from gcjax.equality import comparable


@comparable
def partial(
    assignment: Assignment, *, num_blocks: int = 1, rows: str = "random", rng_key: jax.Array | None = None
) -> GradientCode:
    """The partial-straggler code: exact when every chunk has L finished holders, best approximation before.

    M = 1. A plan costs O(N·R·L²), without a LAPACK call.

    Args:
      assignment: who holds what, in which order; see `gcjax.codes.assignments.order_chunks`.
      num_blocks: L; a message has d/L numbers.
      rows: "random", as in the paper, or "harmonic": evenly spread ones, with which rounding errors grow less
        (`gcjax.codes.decoding_rows`).
      rng_key: draws random rows r_w; needed for them for L > 1.

    Returns:
      The code; with every chunk's finished holders h, `residual` is `sqrt(sum over chunks of max(0, L - h))`.

    Raises:
      ValueError: if random rows are asked for, L > 1 and there is no key; or if L > 1 and a worker has a chunk twice.

    Example:
      >>> code = gcjax.codes.partial(gcjax.codes.assignments.cyclic(4, load=2))
      >>> coding = code.plan([2, 0, 2, 0])  # two workers have done everything, two nothing
      >>> bool(coding.residual < 1e-6)
      True
      >>> float(code.plan([2, 0, 1, 0]).residual)  # nobody has done chunk 3
      1.0
    """
    num_blocks = _validate.integer("num_blocks", num_blocks, minimum=1)
    chunk_holders = holders(assignment)
    is_repeating = has_repeated_chunks(assignment)
    if num_blocks > 1 and is_repeating.any():
        worker = int(is_repeating.argmax())
        raise ValueError(
            f"with num_blocks={num_blocks} each chunk needs as many workers, so none may have it twice; worker "
            f"{worker} has {assignment.chunks[worker].tolist()}."
        )
    decoding_rows = _decoding_rows(assignment, chunk_holders, num_blocks, rows, rng_key)
    solve_chunk_systems = min_norm_solver(
        np.where((chunk_holders.workers >= 0)[..., None], decoding_rows[chunk_holders.workers], 0.0)
    )
    solution_row_of_slot = _solution_row_of_slot(assignment, chunk_holders)
    has_ragged_holders = bool((chunk_holders.workers < 0).any())

    def plan(progress: jax.Array) -> Coding:
        """The coding: each chunk is encoded for its finished holders, each worker with a finished chunk is decoded.

        encode float[W, 1, K, L], decode float[W, 1, L], one message a worker. `chunk_holders` are the workers of each
        chunk and its slots at them, int32[N, R], -1 pads; `decoding_rows float[W, L]` are the decode of who sends.
        """
        progress = check_progress(assignment, progress)
        # Adding zero makes the indices depend on the progress, so that under vmap the masks stay the outermost axis;
        # with constant indices XLA puts them innermost and then copies all coefficients.
        traced_zero = progress[0] * 0
        is_finished = progress[chunk_holders.workers + traced_zero] > chunk_holders.slots  # bool[N, R]
        if has_ragged_holders:
            is_finished = is_finished & (chunk_holders.workers >= 0)
        solution, squared_distances = solve_chunk_systems(is_finished)  # [N, R, L] and [N]
        encode = solution.reshape(-1, num_blocks)[solution_row_of_slot + traced_zero]  # [W, 1, K, L]
        # That progress is not negative XLA does not know: without a choice at the end it copies all coefficients once
        # more under vmap, to put the axis of the one message, of length one, elsewhere.
        is_held = (progress >= 0)[:, None] & (assignment.chunks >= 0)
        encode = jnp.where(is_held[:, None, :, None], encode, 0)
        decode = jnp.where(
            (progress > 0)[:, None, None], jnp.asarray(decoding_rows[:, None], jnp.result_type(float)), 0
        )
        return Coding(encode, decode, jnp.sqrt(squared_distances.sum()))

    def completion(finish: jax.Array) -> jax.Array:
        """float[]: when the last chunk has its L-th finished holder, L = `num_blocks`, from `finish float[W, K]`.

        inf if a chunk has fewer than L holders.
        """
        finish = check_finish(assignment, finish)
        if chunk_holders.workers.shape[1] < num_blocks:
            return jnp.full((), jnp.inf, finish.dtype)
        finish_by_chunk = gather_by_chunk(finish, chunk_holders)  # [N, R], of each holder
        sorted_finish = jnp.sort(jnp.where(chunk_holders.workers >= 0, finish_by_chunk, jnp.inf), axis=1)
        chunk_times = sorted_finish[:, num_blocks - 1]
        return chunk_times.max()

    def sent(progress: jax.Array) -> jax.Array:
        """A worker that has finished any chunk sends its one message."""
        return check_progress(assignment, progress)[:, None] > 0

    return GradientCode(
        assignment=assignment, num_blocks=num_blocks, num_messages=1, plan=plan, completion=completion, sent=sent
    )


def _solution_row_of_slot(assignment: Assignment, chunk_holders: Holders) -> np.ndarray:
    """int32[W, 1, K]: where the coefficients of slot k of worker w stand in those by chunk `[N, R, L]`, as `[N·R, L]`.

    The axis of the one message is there from the start: adding it to the result makes XLA copy all coefficients. Slots
    without a chunk have row 0, of which the plan makes 0.
    """
    row_of_slot = np.zeros((assignment.num_workers, 1, assignment.load), dtype=np.int32)
    chunks, holder_ranks = np.nonzero(chunk_holders.workers >= 0)
    workers, slots = chunk_holders.workers[chunks, holder_ranks], chunk_holders.slots[chunks, holder_ranks]
    row_of_slot[workers, 0, slots] = chunks * chunk_holders.workers.shape[1] + holder_ranks
    return row_of_slot


def _decoding_rows(
    assignment: Assignment, chunk_holders: Holders, num_blocks: int, rows: str, rng_key: jax.Array | None
) -> np.ndarray:
    """float64[W, L]: the server's fixed rows, of length one: by `rows` "harmonic" or "random", drawn with the key.

    Raises:
      ValueError: if `rows` is neither, or random ones for L > 1 lack a key.
    """
    if _validate.choice("rows", rows, ("random", "harmonic")) == "harmonic":
        return harmonic_rows(assignment, chunk_holders, num_blocks)
    if num_blocks == 1:
        return np.ones((assignment.num_workers, 1))
    if rng_key is None:
        raise ValueError(
            f"partial needs rng_key to draw its rows when num_blocks > 1; got num_blocks={num_blocks} and no key. "
            'Pass rng_key=jax.random.key(0), or rows="harmonic", which draws nothing.'
        )
    return random_rows(assignment.num_workers, num_blocks, rng_key)
