"""Codes that work next to each other, on workers and chunks of their own."""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes.base import Assignment, Coding, GradientCode, check_progress
from gcjax.codes.completion import joint_code
from gcjax.equality import comparable


@comparable
def side_by_side(*codes: GradientCode) -> GradientCode:
    """One code for all workers and chunks of several: those of the first code come first.

    The sum is exact when each code's is. For copies of one code, `clustered` is faster.

    Args:
      *codes: one or more, with the same number of blocks.

    Raises:
      ValueError: if there is none, or the blocks differ.
    """
    blocks = {code.num_blocks for code in codes}
    if len(blocks) != 1:
        raise ValueError(f"side_by_side needs codes with the same number of blocks; got {sorted(blocks) or 'no code'}.")
    assignment = _joint_assignment([code.assignment for code in codes])
    num_messages = max(code.num_messages for code in codes)
    ends = np.cumsum([code.assignment.num_workers for code in codes])

    def by_code(values: jax.Array) -> list[jax.Array]:
        parts = jnp.split(values, ends[:-1])
        return [part[:, : c.assignment.load] if part.ndim > 1 else part for c, part in zip(codes, parts, strict=True)]

    def widened(values: jax.Array, axes: dict[int, int]) -> jax.Array:
        return jnp.pad(values, [(0, axes.get(i, n) - n) for i, n in enumerate(values.shape)])

    def plan(progress: jax.Array) -> Coding:
        done = by_code(check_progress(assignment, progress))
        codings = [code.plan(part) for code, part in zip(codes, done, strict=True)]
        return Coding(
            jnp.concatenate([widened(c.encode, {1: num_messages, 2: assignment.load}) for c in codings]),
            jnp.concatenate([widened(c.decode, {1: num_messages}) for c in codings]),
            jnp.sqrt(sum((c.residual**2 for c in codings[1:]), codings[0].residual ** 2)),
        )

    def parts(finish: jax.Array) -> jax.Array:
        return jnp.stack([code.completion(part) for code, part in zip(codes, by_code(finish), strict=True)]).max()

    def sent(progress: jax.Array) -> jax.Array:
        done = by_code(check_progress(assignment, progress))
        messages = [code.sent(part) for code, part in zip(codes, done, strict=True)]
        return jnp.concatenate([widened(part, {1: num_messages}) for part in messages])

    whole, stays_exact = all(code.whole_workers for code in codes), all(code.stays_exact for code in codes)
    return joint_code(
        assignment,
        blocks.pop(),
        num_messages,
        plan,
        parts=parts,
        sent=sent,
        whole_workers=whole,
        stays_exact=stays_exact,
    )


def _joint_assignment(assignments: list[Assignment]) -> Assignment:
    """All workers and chunks of the assignments, those of the first one first."""
    load = max(assignment.load for assignment in assignments)
    rows, num_chunks = [], 0
    for chunks, own_chunks in assignments:
        shifted = np.where(chunks >= 0, chunks + num_chunks, -1)
        rows.append(np.pad(shifted, ((0, 0), (0, load - chunks.shape[1])), constant_values=-1))
        num_chunks += own_chunks
    return Assignment(np.concatenate(rows).astype(np.int32), num_chunks)
