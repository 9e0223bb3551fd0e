"""Codes with fixed coefficients: what a message contains is settled beforehand, how it is decoded is not.

Letters: W workers, K chunks a worker holds, L blocks, M messages a worker sends.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes.base import (
    Assignment,
    Coding,
    GradientCode,
    check_assignment,
    check_finish,
    check_progress,
    residual,
)
from gcjax.codes.completion import first_exact_time
from gcjax.codes.least_squares import least_squares
from gcjax.equality import comparable

Decode = Callable[[jax.Array, jax.Array], jax.Array]
"""`(progress int[W], encode float[W, M, K, L]) -> decode float[W, M, L]`; entries of messages not sent are ignored."""

Completion = Callable[[jax.Array], jax.Array]
"""`arrivals float[W, M] -> float[]`: from when messages are ready, the earliest time of an exact decode."""


@comparable
def fixed_code(
    assignment: Assignment,
    coefficients: np.ndarray,
    *,
    num_chunks_needed: np.ndarray | None = None,
    decode: Decode | None = None,
    completion: Completion | None = None,
    guaranteed_time: Completion | None = None,
    stays_exact: bool | None = None,
) -> GradientCode:
    """A code whose messages combine chunks with coefficients that do not depend on who is slow.

    Message m of worker w is sent once the worker has finished `num_chunks_needed[w, m]` chunks. It combines the
    chunks finished by then with their coefficients; a message that needs fewer chunks than it combines grows with
    further progress.

    Args:
      assignment: who holds what.
      coefficients: float[W, M, K, L], of block l of the chunk in slot k in message m of worker w; or float[W, K] for
        L = M = 1.
      num_chunks_needed: int[W, M]; the whole load by default.
      decode: `(progress int[W], encode float[W, M, K, L]) -> float[W, M, L]`, how messages are weighted; least squares
        by default.
      completion: when the sum can first be decoded exactly; by default the first moment at which a chunk is finished
        and the plan's residual is zero up to rounding (`gcjax.codes.completion`).
      guaranteed_time: where there is no `completion`, a time at which the construction is known to decode
        exactly, from `arrivals float[W, M]`; it counts even if rounding hides that from the plan, as it can in float32.
      stays_exact: see `GradientCode`; by default so with a completion of its own, and with least squares for messages
        that do not grow.

    Raises:
      ValueError: if the shapes do not fit the assignment, or a coefficient is not finite.
    """
    check_assignment(assignment)
    coefficients = _coefficients_with_four_axes(assignment, coefficients)
    _, num_messages, _, num_blocks = coefficients.shape
    slots, num_workers = np.arange(assignment.load, dtype=np.int32), assignment.num_workers
    whole_loads = np.maximum(assignment.loads, 1)[:, None]  # int[W, 1]
    if num_chunks_needed is None:
        num_chunks_needed = np.broadcast_to(whole_loads, (num_workers, num_messages))
    num_chunks_needed = _valid_num_chunks_needed(num_chunks_needed, num_workers)
    if stays_exact is None:
        stays_exact = completion is not None or (decode is None and not _can_grow(coefficients, num_chunks_needed))
    least_squares_weights = least_squares(assignment, num_messages, num_blocks)
    weigh_messages = decode or (lambda progress, encode: least_squares_weights(encode))

    def sent(progress: jax.Array) -> jax.Array:
        """bool[W, M]: which messages are sent: those whose `num_chunks_needed int[W, M]` chunks are finished."""
        progress = check_progress(assignment, progress)
        return progress[:, None] >= jnp.asarray(num_chunks_needed, progress.dtype)

    def plan(progress: jax.Array) -> Coding:
        """The coefficients of finished chunks in messages that are sent, and the weights of these messages.

        `coefficients` are float[W, M, K, L], `slots` 0, ..., K - 1, `weigh_messages(progress, encode)` float[W, M, L].
        """
        progress = check_progress(assignment, progress)
        is_sent = sent(progress)[:, :, None, None]  # [W, M, 1, 1]
        is_finished = (slots[None] < progress[:, None])[:, None, :, None]  # [W, 1, K, 1]
        encode = jnp.where(is_sent & is_finished, jnp.asarray(coefficients, jnp.result_type(float)), 0)
        weights = jnp.where(is_sent[..., 0], weigh_messages(progress, encode).astype(encode.dtype), 0)
        return Coding(encode, weights, residual(assignment, encode, weights))

    def completion_time(finish: jax.Array) -> jax.Array:
        """float[]: when the sum can first be decoded: by `completion` if given, otherwise by the plans' residuals.

        Also at `guaranteed_time`, if given: the construction decodes then, even if rounding hides it from a plan.
        """
        finish = check_finish(assignment, finish)  # float[W, K]
        ready_times = _message_ready_times(assignment, num_chunks_needed, finish)  # float[W, M]
        if completion is not None:
            return completion(ready_times)
        time = first_exact_time(assignment, num_blocks, plan, finish, stays_exact=stays_exact)
        return time if guaranteed_time is None else jnp.minimum(time, guaranteed_time(ready_times))

    return GradientCode(
        assignment=assignment, num_blocks=num_blocks, num_messages=num_messages, plan=plan, completion=completion_time,
        sent=sent, only_whole_loads=bool((num_chunks_needed >= whole_loads).all()), stays_exact=stays_exact,
    )  # fmt: skip


def _message_ready_times(assignment: Assignment, num_chunks_needed: np.ndarray, finish: jax.Array) -> jax.Array:
    """float[W, M]: when messages are ready, by `finish float[W, K]`; inf for those that need more than the load.

    A message is ready with the last of its `num_chunks_needed int[W, M]` chunks.
    """
    # Cut off at the load, so that it is a slot; what needs more is inf anyway.
    last_needed_slot = np.minimum(num_chunks_needed, np.maximum(assignment.loads, 1)[:, None]) - 1
    needed_finish = finish[np.arange(len(num_chunks_needed))[:, None], last_needed_slot]
    return jnp.where(num_chunks_needed <= assignment.loads[:, None], needed_finish, jnp.inf)


def _can_grow(coefficients: np.ndarray, num_chunks_needed: np.ndarray) -> bool:
    """Whether a message is sent before the last chunk with a coefficient in it is finished.

    By `coefficients float[W, M, K, L]`, and the chunks `num_chunks_needed int[W, M]` from which on it is sent.
    """
    num_chunks = np.arange(1, coefficients.shape[2] + 1)  # up to each slot
    num_combined = np.where((coefficients != 0).any(axis=3), num_chunks, 0).max(axis=2)  # int[W, M]
    return bool((num_chunks_needed < num_combined).any())


def completion_by_fastest(count: int) -> Completion:
    """The completion `arrivals float[W, M] -> float[]` of codes that any `count` whole workers decode, and no fewer."""
    return lambda arrivals: jnp.sort(arrivals[:, 0])[count - 1]


def _coefficients_with_four_axes(assignment: Assignment, coefficients: np.ndarray) -> np.ndarray:
    """The coefficients float64[W, M, K, L], 0 where there is no chunk; float[W, K] are those of M = L = 1.

    Raises:
      ValueError: for another shape, or what is not finite.
    """
    num_workers, load = assignment.num_workers, assignment.load
    try:
        array = np.asarray(coefficients, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"coefficients must be numbers, float[W, K] or float[W, M, K, L]; got {coefficients!r:.200}."
        ) from None
    array = array[:, None, :, None] if array.ndim == 2 else array
    if array.ndim != 4 or (array.shape[0], array.shape[2]) != (num_workers, load) or 0 in array.shape:
        raise ValueError(
            f"coefficients must be float[W, K] or float[W, M, K, L] with W={num_workers} and K={load}; "
            f"got shape {np.shape(coefficients)}."
        )
    array = np.where((assignment.chunks >= 0)[:, None, :, None], array, 0.0)
    if not np.isfinite(array).all():
        raise ValueError(f"coefficients must be finite; got {(~np.isfinite(array)).sum()} that are not.")
    return array


def _valid_num_chunks_needed(num_chunks_needed: np.ndarray, num_workers: int) -> np.ndarray:
    """int[W, M]: the chunks that each message needs; raises `ValueError` for another shape, or less than 1."""
    numbers = np.asarray(num_chunks_needed)
    if numbers.ndim != 2 or numbers.shape[0] != num_workers or numbers.dtype.kind not in "iu" or (numbers < 1).any():
        raise ValueError(
            f"num_chunks_needed must be int[{num_workers}, M], at least 1; got {numbers.dtype}{list(numbers.shape)}"
            + (f" with the entry {numbers.min()}." if numbers.size and numbers.dtype.kind in "iu" else ".")
        )
    return numbers
