"""Codes that work next to each other, on workers and chunks of their own."""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes.alternatives import padded_with_zeros
from gcjax.codes.base import Assignment, Coding, GradientCode, check_code, check_progress
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
    for code in codes:
        check_code(code, "side_by_side")
    nums_blocks = {code.num_blocks for code in codes}
    if len(nums_blocks) != 1:
        raise ValueError(
            f"side_by_side needs codes with the same number of blocks; got {sorted(nums_blocks) or 'no code'}."
        )
    assignment = _joint_assignment([code.assignment for code in codes])
    num_blocks = nums_blocks.pop()
    num_messages = max(code.num_messages for code in codes)

    def plan(progress: jax.Array) -> Coding:
        """The plans of all codes, of their workers one after the other; their squared residuals add up.

        What a code with fewer messages or slots lacks is 0.
        """
        codes_with_progress = _codes_with_rows(codes, check_progress(assignment, progress))
        plans = [code.plan(code_progress) for code, code_progress in codes_with_progress]
        encode = _all_rows([plan.encode for plan in plans], num_messages, assignment.load, num_blocks)
        decode = _all_rows([plan.decode for plan in plans], num_messages, num_blocks)
        squared_residual = sum((plan.residual**2 for plan in plans[1:]), plans[0].residual ** 2)
        return Coding(encode, decode, jnp.sqrt(squared_residual))

    def last_part_completion(finish: jax.Array) -> jax.Array:
        """float[]: when the last of the codes is first exact, from `finish float[W, K]`, of all workers."""
        codes_with_finish = _codes_with_rows(codes, finish)
        times = [code.completion(code_finish[:, : code.assignment.load]) for code, code_finish in codes_with_finish]
        return jnp.stack(times).max()

    def sent(progress: jax.Array) -> jax.Array:
        """bool[W, M]: which messages the codes send; False for those that a code with fewer messages lacks."""
        codes_with_progress = _codes_with_rows(codes, check_progress(assignment, progress))
        return _all_rows([code.sent(code_progress) for code, code_progress in codes_with_progress], num_messages)

    def weights_from_messages(messages: jax.Array, coding: Coding) -> jax.Array:
        """float[W, M, L]: the weights that each code finds in its own messages, or those of its plan."""
        rows_of_codes = zip(
            *(_codes_with_rows(codes, values) for values in (messages, coding.encode, coding.decode)), strict=True
        )
        weights = []
        for (code, own_messages), (_, encode), (_, decode) in rows_of_codes:
            m, load = code.num_messages, code.assignment.load  # what it lacks of M and K was padded
            own_coding = Coding(encode[:, :m, :load], decode[:, :m], coding.residual)
            find_weights = code.weights_from_messages
            weights.append(own_coding.decode if find_weights is None else find_weights(own_messages[:, :m], own_coding))
        return _all_rows(weights, num_messages, num_blocks)

    is_by_messages = any(code.weights_from_messages is not None for code in codes)
    return joint_code(
        assignment, num_blocks, num_messages, plan, last_part_completion=last_part_completion, sent=sent,
        only_whole_loads=all(code.only_whole_loads for code in codes),
        stays_exact=all(code.stays_exact for code in codes),
        weights_from_messages=weights_from_messages if is_by_messages else None,
    )  # fmt: skip


def _codes_with_rows(codes: tuple[GradientCode, ...], values: jax.Array) -> list[tuple[GradientCode, jax.Array]]:
    """Each code with the rows of `values`, [W, ...], of its workers."""
    ends = np.cumsum([code.assignment.num_workers for code in codes])
    return list(zip(codes, jnp.split(values, ends[:-1]), strict=True))


def _all_rows(values_by_code: list[jax.Array], *shape: int) -> jax.Array:
    """[W, *shape]: the arrays of the codes one after the other, each with zeros behind what it lacks."""
    return jnp.concatenate([padded_with_zeros(values, (len(values), *shape)) for values in values_by_code])


def _joint_assignment(assignments: list[Assignment]) -> Assignment:
    """All workers and chunks of the assignments, those of the first one first; -1 behind the chunks of a worker."""
    load = max(assignment.load for assignment in assignments)
    padded_chunks, num_chunks_before = [], 0
    for chunks, num_chunks in assignments:
        shifted_chunks = np.where(chunks >= 0, chunks + num_chunks_before, -1)
        padded_chunks.append(np.pad(shifted_chunks, ((0, 0), (0, load - chunks.shape[1])), constant_values=-1))
        num_chunks_before += num_chunks
    return Assignment(np.concatenate(padded_chunks).astype(np.int32), num_chunks_before)
