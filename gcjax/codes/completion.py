"""When the sum can first be decoded, for codes and combinations of codes without a closed form."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.base import Assignment, Coding, GradientCode, check_code, check_finish, norm_of_exact_sum

_Plan = Callable[[jax.Array], Coding]
_Completion = Callable[[jax.Array], jax.Array]


def first_exact_time(
    assignment: Assignment, num_blocks: int, plan: _Plan, finish: jax.Array, *, stays_exact: bool
) -> jax.Array:
    """float[]: the earliest time at which the plan is exact, as `is_exact_enough` says; inf if it never is.

    By when chunks are finished, `finish float[W, K]`, and `plan`: `(progress int32[W]) -> Coding`. Where what is exact
    stays so with further progress, it takes log2(W·K) plans. Elsewhere one moment after the other is tried, from that
    at which each chunk has been finished once: the sum of the chunks finished so far may fit better than a later one.
    """
    sorted_times = jnp.sort(jnp.where(assignment.chunks >= 0, finish, jnp.inf), axis=None)  # [W·K], inf without a chunk
    search = _bisection if stays_exact else _first_of_all
    return search(assignment, num_blocks, plan, finish, sorted_times)


def _first_of_all(
    assignment: Assignment, num_blocks: int, plan: _Plan, finish: jax.Array, sorted_times: jax.Array
) -> jax.Array:
    """float[]: the first of `sorted_times float[W·K]` at which the plan is exact, inf if it is at none."""

    def is_exact(index: jax.Array) -> jax.Array:
        """bool[]: whether the plan is exact at the time with this index."""
        progress = progress_at(assignment, finish, sorted_times[index.clip(0, sorted_times.size - 1)])
        return is_exact_enough(assignment, num_blocks, plan(progress).residual)

    def later_index(index_and_exactness: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """The index of the next later time, and whether the plan is exact then."""
        index, _ = index_and_exactness
        next_index = jnp.searchsorted(sorted_times, sorted_times[index], side="right").astype(jnp.int32)
        return next_index, is_exact(next_index)

    def goes_on(index_and_exactness: tuple[jax.Array, jax.Array]) -> jax.Array:
        """bool[]: whether the plan is not exact yet, and there is a time left."""
        index, was_exact = index_and_exactness
        is_time = (index < sorted_times.size) & jnp.isfinite(sorted_times[index.clip(0, sorted_times.size - 1)])
        return ~was_exact & is_time

    chunk_or_none = np.where(assignment.chunks >= 0, assignment.chunks, assignment.num_chunks)  # N is none: dropped
    first_finish_of_chunk = jnp.full(assignment.num_chunks, jnp.inf, finish.dtype)
    first_finish_of_chunk = first_finish_of_chunk.at[chunk_or_none].min(finish, mode="drop")
    first_index = jnp.searchsorted(sorted_times, first_finish_of_chunk.max()).astype(jnp.int32)
    index, was_exact = jax.lax.while_loop(goes_on, later_index, (first_index, is_exact(first_index)))
    return jnp.where(was_exact, sorted_times[index.clip(0, sorted_times.size - 1)], jnp.inf)


def _bisection(
    assignment: Assignment, num_blocks: int, plan: _Plan, finish: jax.Array, sorted_times: jax.Array
) -> jax.Array:
    """float[]: the first of `sorted_times float[W·K]` from which on the plan is exact, inf if it is at none."""

    def bisection_step(_: int, num_chunks: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """Numbers of chunks half as far apart, by one plan: too few of the earliest ones, and enough of them.

        `sorted_times float[W·K]` are when chunks are finished, of which the plan at a time has all that are by then.
        """
        too_few, enough = num_chunks
        # Below 1 it is only once 1 is known to be enough: then it looks at the first time again, to the same end.
        num_tried = (too_few + enough) // 2
        progress = progress_at(assignment, finish, sorted_times[(num_tried - 1).clip(0)])
        is_enough = is_exact_enough(assignment, num_blocks, plan(progress).residual)
        return jnp.where(is_enough, too_few, num_tried), jnp.where(is_enough, num_tried, enough)

    num_steps = int(np.ceil(np.log2(sorted_times.size + 1)))
    none_and_all_plus_1 = jnp.full((), 0, jnp.int32), jnp.full((), sorted_times.size + 1, jnp.int32)
    _, enough = jax.lax.fori_loop(0, num_steps, bisection_step, none_and_all_plus_1)
    # Only where `enough` came down from all + 1 was an exact time seen.
    return jnp.where(enough <= sorted_times.size, sorted_times[(enough - 1).clip(0, sorted_times.size - 1)], jnp.inf)


def is_exact_enough(assignment: Assignment, num_blocks: int, residual: jax.Array) -> jax.Array:
    """Whether a residual is zero up to rounding: eps^(2/3), relative to the target's norm.

    That is strict, so that no round that waits for an exact sum ends early: with a piece of n workers left over, a
    graph code can have a residual as small as 1/sqrt(n).
    """
    tolerance = jnp.finfo(residual.dtype).eps ** (2 / 3) * norm_of_exact_sum(assignment.num_chunks, num_blocks)
    return residual <= tolerance


def joint_code(
    assignment: Assignment,
    num_blocks: int,
    num_messages: int,
    plan: _Plan,
    *,
    last_part_completion: _Completion,
    sent: Callable[[jax.Array], jax.Array],
    only_whole_loads: bool = False,
    stays_exact: bool,
    weights_from_messages: Callable[[jax.Array, Coding], jax.Array] | None = None,
) -> GradientCode:
    """A code that is made of others, with a completion that follows from theirs.

    Parts that stay exact are exact together when the last of them is. Others may no longer be exact by then: the
    earliest time is looked for at which the joint plan is exact.

    Args:
      assignment: of the joint code, as are `num_blocks` to `sent` and `only_whole_loads`; see `GradientCode`.
      num_blocks: L.
      num_messages: M.
      plan: `progress int32[W] -> Coding`.
      last_part_completion: `finish float[W, K] -> float[]`, the time at which the last part is first exact.
      sent: `progress int[W] -> bool[W, M]`.
      only_whole_loads: whether only whole loads count.
      stays_exact: whether all parts stay exact.
      weights_from_messages: of the joint code, see `GradientCode`.
    """

    def completion(finish: jax.Array) -> jax.Array:
        """float[]: the earliest time at which the joint code is exact, for `finish float[W, K]`."""
        finish = check_finish(assignment, finish)
        if stays_exact:
            return last_part_completion(finish)
        return first_exact_time(assignment, num_blocks, plan, finish, stays_exact=False)

    return GradientCode(
        assignment, num_blocks, num_messages, plan, completion, sent, only_whole_loads, stays_exact,
        weights_from_messages=weights_from_messages,
    )  # fmt: skip


def check_decodes_by_plan(code: GradientCode, joint_name: str) -> None:
    """Raises a `ValueError` if it is no code, or finds its weights in the messages, as `joint_name` cannot."""
    check_code(code, joint_name)
    if code.weights_from_messages is not None:
        raise ValueError(
            f"{joint_name} needs a code that decodes by its plan; got one that looks at the messages, as majority and "
            "error_correcting do. Use it by itself, in clustered or in side_by_side."
        )


def progress_at(assignment: Assignment, finish: jax.Array, time: jax.Array) -> jax.Array:
    """int32[W]: how many chunks each worker has finished by `time`, for `finish float[W, K]`; never one with inf."""
    is_finished = (assignment.chunks >= 0) & (finish <= time) & jnp.isfinite(finish)
    return jnp.sum(is_finished, axis=1, dtype=jnp.int32)


def completion_time(code: GradientCode, chunk_seconds: jax.Array) -> jax.Array:
    """The earliest time at which the sum of all chunk gradients can be decoded exactly.

    Args:
      code: a gradient code.
      chunk_seconds: float[W], the time each worker takes for a chunk; inf for a failed one.

    Returns:
      float[] seconds; inf if the sum can never be decoded.

    Raises:
      ValueError: if a time is negative or NaN, or there is not one for every worker.

    Example:
      >>> code = gcjax.codes.partial(gcjax.codes.assignments.cyclic(3, load=2))
      >>> float(gcjax.codes.completion_time(code, jnp.array([1.0, 2.0, jnp.inf])))  # worker 2 fails
      4.0
    """
    check_code(code, "completion_time")
    assignment = code.assignment
    if jnp.shape(chunk_seconds) != (assignment.num_workers,):
        raise ValueError(
            f"chunk_seconds must be float[{assignment.num_workers}], one time a worker; "
            f"got shape {jnp.shape(chunk_seconds)}."
        )
    _validate.number("chunk_seconds", chunk_seconds)
    seconds = jnp.asarray(chunk_seconds, jnp.result_type(float))
    return code.completion(seconds[:, None] * jnp.arange(1, assignment.load + 1, dtype=seconds.dtype)[None])
