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

    def plan(progress: jax.Array) -> Coding:
        """The plans of all codes, of their workers one after the other; their squared residuals add up."""
        by_code = _by_code(codes, check_progress(assignment, progress))
        plans = [code.plan(code_progress) for code, code_progress in by_code]
        sizes = {1: num_messages, 2: assignment.load}
        encode = jnp.concatenate([_with_zeros_behind(plan.encode, sizes) for plan in plans])
        decode = jnp.concatenate([_with_zeros_behind(plan.decode, {1: num_messages}) for plan in plans])
        return Coding(encode, decode, jnp.sqrt(sum((c.residual**2 for c in plans[1:]), plans[0].residual ** 2)))

    def last_completion(finish: jax.Array) -> jax.Array:
        """float[]: when the last of the codes is first exact."""
        return jnp.stack(
            [code.completion(times[:, : code.assignment.load]) for code, times in _by_code(codes, finish)]
        ).max()

    def sent(progress: jax.Array) -> jax.Array:
        """bool[W, M]: which messages the codes send; False for those that a code with fewer messages lacks."""
        messages = [code.sent(done) for code, done in _by_code(codes, check_progress(assignment, progress))]
        return jnp.concatenate([_with_zeros_behind(flags, {1: num_messages}) for flags in messages])

    return joint_code(
        assignment, blocks.pop(), num_messages, plan, last_completion=last_completion, sent=sent,
        whole_workers=all(code.whole_workers for code in codes), stays_exact=all(code.stays_exact for code in codes),
    )  # fmt: skip


def _by_code(codes: tuple[GradientCode, ...], values: jax.Array) -> list[tuple[GradientCode, jax.Array]]:
    """Each code with the rows of `values`, [W, ...], of its workers."""
    ends = np.cumsum([code.assignment.num_workers for code in codes])
    return list(zip(codes, jnp.split(values, ends[:-1]), strict=True))


def _with_zeros_behind(values: jax.Array, lengths: dict[int, int]) -> jax.Array:
    """The array with zeros behind it along some axes; `lengths`: axis -> its new length."""
    return jnp.pad(values, [(0, lengths.get(axis, n) - n) for axis, n in enumerate(values.shape)])


def _joint_assignment(assignments: list[Assignment]) -> Assignment:
    """All workers and chunks of the assignments, those of the first one first."""
    load = max(assignment.load for assignment in assignments)
    rows, num_chunks = [], 0
    for chunks, num_shifted in assignments:
        shifted = np.where(chunks >= 0, chunks + num_chunks, -1)
        rows.append(np.pad(shifted, ((0, 0), (0, load - chunks.shape[1])), constant_values=-1))
        num_chunks += num_shifted
    return Assignment(np.concatenate(rows).astype(np.int32), num_chunks)
