"""An uncoded part first, a coded part last (Tandon, Lei, Dimakis, Karampatziakis 2017: partial stragglers)."""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.base import Assignment, Coding, GradientCode, check_progress
from gcjax.codes.completion import check_decodes_by_plan, joint_code
from gcjax.equality import comparable


@comparable
def two_part(code: GradientCode, *, num_uncoded: int) -> GradientCode:
    """Every worker first processes chunks that nobody else holds, and then those of a code.

    With P chunks a worker, s+1 of them coded, s workers may be slower by the factor P / (P - s - 1): all must finish
    their uncoded chunks, but only n - s the coded ones. `num_uncoded` is P - s - 1. Workers send whatever they have
    finished of the uncoded part: M = L + M of the code, the first L messages with the blocks of the uncoded sum.

    Args:
      code: of the coded part, for example `gcjax.codes.cyclic_repetition`.
      num_uncoded: the uncoded chunks of each worker. Chunk u of worker w is number `w * num_uncoded + u`; those of the
        code come after them all.

    Raises:
      ValueError: if a number is out of its range, or the code looks at what was sent to decode it.
    """
    check_decodes_by_plan(code, "two_part")
    num_uncoded = _validate.integer("num_uncoded", num_uncoded, minimum=1)
    coded_assignment, num_blocks = code.assignment, code.num_blocks
    num_uncoded_chunks = num_uncoded * coded_assignment.num_workers  # they come first in the numbering of chunks, too
    uncoded_chunks = np.arange(num_uncoded_chunks, dtype=np.int32).reshape(-1, num_uncoded)
    is_held = coded_assignment.chunks >= 0
    coded_chunks = np.where(is_held, coded_assignment.chunks + num_uncoded_chunks, -1).astype(np.int32)
    all_chunks = np.concatenate([uncoded_chunks, coded_chunks], axis=1)
    assignment = Assignment(all_chunks, num_uncoded_chunks + coded_assignment.num_chunks)

    def coded_progress(progress: jax.Array) -> jax.Array:
        """int[W]: the coded chunks that each worker has finished; they come after the uncoded ones."""
        return (progress - num_uncoded).clip(0)

    def plan(progress: jax.Array) -> Coding:
        """The first L messages are the blocks of the uncoded sum, the others those of the code.

        `num_uncoded` slots of each worker come first, then those of the code: encode float[W, M, K, L] has 0 where a
        message has nothing of a slot; decode float[W, M, L].
        """
        progress = check_progress(assignment, progress)
        coded_plan = code.plan(coded_progress(progress))
        is_finished = jnp.arange(num_uncoded, dtype=jnp.int32)[None] < progress[:, None]  # bool[W, num_uncoded]
        identity = jnp.eye(num_blocks, dtype=jnp.result_type(float))
        # [W, L, num_uncoded, L]: message b has block b of the finished chunks.
        uncoded_encode = jnp.where(is_finished[:, None, :, None], identity[None, :, None], 0)
        uncoded_padded = _pad_slots(uncoded_encode, num_before=0, num_after=coded_assignment.load)
        coded_padded = _pad_slots(coded_plan.encode, num_before=num_uncoded, num_after=0)
        uncoded_decode = jnp.where((progress > 0)[:, None, None], identity[None], 0)  # [W, L, L]
        # Each missing chunk leaves an L×L identity, of squared norm L.
        num_missing = num_uncoded_chunks - is_finished.sum(dtype=jnp.int32)
        uncoded_squared_error = num_blocks * num_missing.astype(coded_plan.residual.dtype)
        decode = jnp.concatenate([uncoded_decode, coded_plan.decode], axis=1)
        encode = jnp.concatenate([uncoded_padded, coded_padded], axis=1)
        return Coding(encode, decode, jnp.sqrt(uncoded_squared_error + coded_plan.residual**2))

    def last_part_completion(finish: jax.Array) -> jax.Array:
        """float[]: when all uncoded chunks are finished and the coded part is first exact, by `finish float[W, K]`."""
        return jnp.maximum(finish[:, num_uncoded - 1].max(), code.completion(finish[:, num_uncoded:]))

    def sent(progress: jax.Array) -> jax.Array:
        """bool[W, M]: the uncoded messages are sent from the first chunk on, the others as by the code."""
        progress = check_progress(assignment, progress)
        sends_uncoded = jnp.broadcast_to((progress > 0)[:, None], (coded_assignment.num_workers, num_blocks))
        return jnp.concatenate([sends_uncoded, code.sent(coded_progress(progress))], axis=1)

    return joint_code(
        assignment, num_blocks, num_blocks + code.num_messages, plan,
        last_part_completion=last_part_completion, sent=sent, stays_exact=code.stays_exact,
    )  # fmt: skip


def _pad_slots(encode: jax.Array, num_before: int, num_after: int) -> jax.Array:
    """float[W, M, num_before + K + num_after, L]: zeros for the slots of the other part, before or after."""
    return jnp.pad(encode, ((0, 0), (0, 0), (num_before, num_after), (0, 0)))
