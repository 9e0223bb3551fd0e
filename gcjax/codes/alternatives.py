"""Several codes of the same chunks, of which a round uses one: which one, its progress shows.

Letters: P codes, W workers of the largest, N chunks, K chunks a worker holds at most, L blocks, M messages.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes.base import Assignment, Coding, GradientCode, check_finish, check_progress, has_repeated_chunks
from gcjax.codes.completion import check_decodes_by_plan
from gcjax.equality import comparable


class UsedRows(NamedTuple):
    """What a round needs of a coding: the rows of the one code that it uses.

    Attributes:
      chunks: int32[W, K], each chunk of a row once, -1 behind them.
      coding: encode float[W, M, K, L] and decode float[W, M, L], of these rows.
      first_row: int32[], where they begin among the P W rows of all codes, p W for code p; 0 if there is one code.
    """

    chunks: jax.Array
    coding: Coding
    first_row: jax.Array | int = 0


@comparable
def alternatives(*codes: GradientCode) -> GradientCode:
    """One code whose rows are those of several; a plan uses the rows of one of them.

    Row p W + w is worker w of code p; a code of fewer workers has rows without chunks behind its own. A round makes
    progress in the rows of one code. If there is progress in several, the plan is that of the least residual.

    Blocks are those of the least common multiple L of all codes: a message of a code of L' blocks becomes L / L'
    messages of d/L numbers each, with the same numbers in them.

    Args:
      *codes: one or more, of the same chunks.

    Raises:
      ValueError: if there is none, they cut the data into other numbers of chunks, or one looks at what was sent to
        decode it.
    """
    for code in codes:
        check_decodes_by_plan(code, "alternatives")
    num_chunks = _common_num_chunks(codes)
    num_workers = max(code.assignment.num_workers for code in codes)
    load = max(code.assignment.load for code in codes)
    num_blocks = math.lcm(*(code.num_blocks for code in codes))
    num_messages = max(code.num_messages * (num_blocks // code.num_blocks) for code in codes)
    chunks = np.concatenate([_padded_chunks(code.assignment.chunks, num_workers, load) for code in codes])
    assignment = Assignment(chunks, num_chunks)

    def unpadded_rows(rows: jax.Array) -> list[jax.Array]:
        """Of `rows [P W, ...]` those that each of the P codes has itself, without those that pad."""
        rows_by_code = _by_alternative(len(codes), rows)
        return [code_rows[: code.assignment.num_workers] for code, code_rows in zip(codes, rows_by_code, strict=True)]

    def plan(progress: jax.Array) -> Coding:
        """The plan of the code in whose rows there is progress, with 0 in the rows of all others.

        Rows are the workers of the P `codes`, one code after the other: encode is float[P W, M, K, L], decode
        float[P W, M, L]. With progress in several codes it is the plan of the least residual; with none, that of the
        first code.
        """
        progress = check_progress(assignment, progress)
        plans = [
            _with_split_blocks(code, code.plan(code_progress), num_blocks)
            for code, code_progress in zip(codes, unpadded_rows(progress), strict=True)
        ]
        has_progress = progress.reshape(len(codes), num_workers).any(axis=1)  # [P]
        residuals = jnp.stack([plan.residual for plan in plans])  # [P]
        used_code = jnp.argmin(jnp.where(has_progress, residuals, jnp.inf))
        return _in_rows_of_all(plans, used_code, (num_workers, num_messages, load, num_blocks))

    def completion(finish: jax.Array) -> jax.Array:
        """float[]: when the first of the P codes is exact, from `finish float[P W, K]`, the rows of all of them."""
        finish_by_code = zip(codes, unpadded_rows(check_finish(assignment, finish)), strict=True)
        # Slots behind those of a code pad, too.
        return jnp.stack([code.completion(finish[:, : code.assignment.load]) for code, finish in finish_by_code]).min()

    def sent(progress: jax.Array) -> jax.Array:
        """bool[P W, M]: what each of the P codes sends at the progress in its rows; False for what pads.

        A message of a code of L' blocks is L / L' messages here, with L = `num_blocks`.
        """
        progress_by_code = zip(codes, unpadded_rows(check_progress(assignment, progress)), strict=True)
        rows = [
            jnp.repeat(code.sent(code_progress), num_blocks // code.num_blocks, axis=1)
            for code, code_progress in progress_by_code
        ]
        return jnp.concatenate([padded_with_zeros(is_sent, (num_workers, num_messages)) for is_sent in rows])

    return GradientCode(
        assignment=assignment,
        num_blocks=num_blocks,
        num_messages=num_messages,
        plan=plan,
        completion=completion,
        sent=sent,
        only_whole_loads=all(code.only_whole_loads for code in codes),
        stays_exact=all(code.stays_exact for code in codes),
        num_alternatives=len(codes),
    )


def _common_num_chunks(codes: Sequence[GradientCode]) -> int:
    """N; raises `ValueError` if there is no code, or they cut the data into other numbers of chunks."""
    nums_chunks = {code.assignment.num_chunks for code in codes}
    if len(nums_chunks) != 1:
        raise ValueError(
            f"alternatives needs codes of the same chunks; got codes of {sorted(nums_chunks) or 'no'} chunks."
        )
    return nums_chunks.pop()


def _in_rows_of_all(plans: Sequence[Coding], used_code: jax.Array, shape: tuple[int, int, int, int]) -> Coding:
    """The plan of code number `used_code int32[]`, one of P, in the rows of all, [P W, ...], with 0 in the others'.

    `shape`: W, M, K, L of the joint code, to which each plan is padded.
    """
    encode = jnp.stack([padded_with_zeros(plan.encode, shape) for plan in plans])  # [P, W, M, K, L]
    decode = jnp.stack([padded_with_zeros(plan.decode, (*shape[:2], shape[3])) for plan in plans])
    is_used = (jnp.arange(len(plans)) == used_code)[:, None, None, None]  # [P, 1, 1, 1], as decode [P, W, M, L]
    return Coding(
        encode=jnp.where(is_used[..., None], encode, 0).reshape(-1, *shape[1:]),
        decode=jnp.where(is_used, decode, 0).reshape(-1, *decode.shape[2:]),
        residual=jnp.stack([plan.residual for plan in plans])[used_code],
    )


def used_rows(code: GradientCode, coding: Coding) -> UsedRows:
    """The rows that a coding of the code decodes from: all of them, or those of one of its alternatives.

    A row of `coding` (encode [P W, M, K, L], decode [P W, M, L]) is a worker: with P = `num_alternatives` codes, row
    p W + w is worker w under code p. The plan uses one code p: only there decode is not 0. What comes back has its W
    rows, and their offset p W in the coding as `first_row`: 0 with one code, or if nothing is decoded.
    A chunk stands once in a row: of a code that has a worker compute its blocks one after the other, the coefficients
    of all slots with that chunk are added up.
    """
    chunks, coding, _ = _each_chunk_once(code.assignment, coding)  # still all rows: the third, `first_row`, is 0
    if code.num_alternatives == 1:
        return UsedRows(chunks, coding)
    by_alternative = functools.partial(_by_alternative, code.num_alternatives)  # from [P W, ...] to [P, W, ...]
    used_alternative = jnp.argmax((by_alternative(coding.decode) != 0).any(axis=(1, 2, 3)))  # of bool[P]
    rows = Coding(
        by_alternative(coding.encode)[used_alternative],
        by_alternative(coding.decode)[used_alternative],
        coding.residual,
    )
    chunks_by_alternative = by_alternative(chunks)  # [P, W, K]
    first_row = (used_alternative * chunks_by_alternative.shape[1]).astype(jnp.int32)
    return UsedRows(chunks_by_alternative[used_alternative], rows, first_row)


def _each_chunk_once(assignment: Assignment, coding: Coding) -> UsedRows:
    """All rows, with chunks int32[rows, K'], K' <= K, each once in its row, and their coding.

    The coefficients of slots with the same chunk are added up. Slots without a chunk, -1, become one slot with 0.
    """
    chunks, slots = assignment.chunks, np.arange(assignment.load)
    if not has_repeated_chunks(assignment).any():
        return UsedRows(jnp.asarray(chunks), coding)
    first_slot = (chunks[:, :, None] == chunks[:, None]).argmax(axis=2)  # int[W, K], of the same chunk
    is_first = first_slot == slots
    new_slot_of_first = np.cumsum(is_first, axis=1) - 1
    new_slot = np.take_along_axis(new_slot_of_first, first_slot, axis=1)
    workers, new_load = np.arange(len(chunks))[:, None], int(new_slot.max()) + 1
    new_chunks = np.full((len(chunks), new_load), -1, np.int32)
    new_chunks[workers, new_slot] = chunks
    encode = jnp.zeros((*coding.encode.shape[:2], new_load, coding.encode.shape[3]), coding.encode.dtype)
    # Two indices around a slice: their axes come first in what is added, [W, K, M, L].
    encode = encode.at[workers, :, new_slot].add(jnp.moveaxis(coding.encode, 2, 1))
    return UsedRows(jnp.asarray(new_chunks), coding._replace(encode=encode))


def _by_alternative(num_alternatives: int, rows: jax.Array) -> jax.Array:
    """[P, W, ...] from [P W, ...]."""
    return rows.reshape(num_alternatives, -1, *rows.shape[1:])


def _with_split_blocks(code: GradientCode, coding: Coding, num_blocks: int) -> Coding:
    """The coding with L = `num_blocks`, a multiple of the code's own L': each message and block in L / L' parts.

    Part i of a message holds part i of each block, so the identity of parts stands for every coefficient.
    """
    num_parts = num_blocks // code.num_blocks
    if num_parts == 1:
        return coding
    part_identity = jnp.eye(num_parts, dtype=coding.encode.dtype)
    # [W, M', part, K, L', part]
    encode = coding.encode[:, :, None, :, :, None] * part_identity[None, None, :, None, None]
    decode = coding.decode[:, :, None, :, None] * part_identity[None, None, :, None]  # [W, M', part, L', part]
    num_workers, num_messages, load, _ = coding.encode.shape
    return Coding(
        encode=encode.reshape(num_workers, num_messages * num_parts, load, num_blocks),
        decode=decode.reshape(num_workers, num_messages * num_parts, num_blocks),
        residual=coding.residual * math.sqrt(num_parts),  # each part is off by as much: squares add up
    )


def padded_with_zeros(values: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The array with zeros behind it along all axes, up to the shape."""
    return jnp.pad(values, [(0, size - length) for size, length in zip(shape, values.shape, strict=True)])


def _padded_chunks(chunks: np.ndarray, num_workers: int, load: int) -> np.ndarray:
    """int32[W, K]: the chunks with -1 behind them."""
    behind = (0, num_workers - chunks.shape[0]), (0, load - chunks.shape[1])
    return np.pad(chunks, behind, constant_values=-1).astype(np.int32)
