"""The types of gradient coding: who holds which chunk, and what is sent and decoded.

Letters: W workers, N chunks, K chunks a worker holds, R holders of a chunk, L blocks of the gradient,
M messages a worker sends.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax._products import einsum


class Assignment(NamedTuple):
    """Which chunks each worker processes, in the order in which it processes them.

    Attributes:
      chunks: int32[W, K], row w lists the chunks of worker w in processing order, padded at the end with -1. A code
        of L blocks may have a worker compute them one after the other: then a chunk stands there up to L times.
      num_chunks: N.
    """

    chunks: np.ndarray
    num_chunks: int

    @property
    def num_workers(self) -> int:
        """W."""
        return int(self.chunks.shape[0])

    @property
    def load(self) -> int:
        """K, the most chunks that a worker holds."""
        return int(self.chunks.shape[1])

    @property
    def loads(self) -> np.ndarray:
        """int32[W], the chunks that each worker holds."""
        return (self.chunks >= 0).sum(axis=1).astype(np.int32)

    def __eq__(self, other: object) -> bool:
        """Equal assignments hold the same chunks in the same order."""
        return (
            isinstance(other, Assignment)
            and self.num_chunks == other.num_chunks
            and np.array_equal(self.chunks, other.chunks)
        )

    def __ne__(self, other: object) -> bool:
        """The opposite of `==`; a tuple has its own."""
        return not self == other

    def __hash__(self) -> int:
        """Hash of the contents, so that an assignment can be a static argument of jit."""
        return hash((self.num_chunks, self.chunks.shape, self.chunks.astype(np.int64).tobytes()))  # of any type


class Holders(NamedTuple):
    """The inverse of an assignment: who holds a chunk, and when they reach it.

    Attributes:
      workers: int32[N, R], the holders of each chunk, padded with -1; one that has it in several slots, so often.
      slots: int32[N, R], the position of the chunk in that worker's order, padded with -1.
    """

    workers: np.ndarray
    slots: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """int32[N], how many workers hold each chunk."""
        return (self.workers >= 0).sum(axis=1).astype(np.int32)


class Coding(NamedTuple):
    """What is sent and how it is decoded, for one state of progress.

    Message m of worker w is `sum over k, b of encode[w, m, k, b] * gradient(chunks[w, k])[block b]`; block a of the
    estimate of the gradient sum is `sum over w, m of decode[w, m, a] * message[w, m]`.

    Attributes:
      encode: float[W, M, K, L].
      decode: float[W, M, L].
      residual: float[], the Frobenius distance of the decoded coefficients of all chunks from the L×L identity; 0 iff
        the estimate is the exact sum of all chunk gradients.
    """

    encode: jax.Array
    decode: jax.Array
    residual: jax.Array


class GradientCode(NamedTuple):
    """A gradient code: progress in, coefficients out.

    Attributes:
      assignment: who computes what, in which order.
      num_blocks: L, the blocks a gradient is cut into; a message has d/L numbers.
      num_messages: M, the messages a worker sends in a round.
      plan: pure function `progress int32[W] -> Coding`; `progress[w]` counts the chunks that w has finished. The codes
        of this package, here and below, take lists too, and bool[W] for who has finished the whole load.
      completion: pure function `finish float[W, K] -> float[]`: from the time at which each worker finishes each of
        its chunks, the earliest time at which the sum can be decoded exactly; inf if never. What is finished by then
        decodes exactly; whether it still does later, `stays_exact` says.
      sent: pure function `progress int[W] -> bool[W, M]`: which messages a worker sends at this progress.
      only_whole_loads: whether a worker counts only once its whole load is done; otherwise partial work is used.
      stays_exact: whether whoever can decode exactly still can after further progress. Not so where all messages share
        one weight, or where messages grow. Combinations of such codes ask for their own plan.
      weights_from_messages: pure function `(messages float[W, M, width], coding) -> decode float[W, M, L]`: the weights
        of messages that the server compares, from those of the plan. None where the plan's are taken whatever was sent.
        Used where `wrong_senders` may send others (`gcjax.engine.run`); elsewhere the plan's are taken.
      num_alternatives: of how many codes the rows are, one after the other, of which a plan uses one; see
        `gcjax.codes.alternatives`.
    """

    assignment: Assignment
    num_blocks: int
    num_messages: int
    plan: Callable[[jax.Array], Coding]
    completion: Callable[[jax.Array], jax.Array]
    sent: Callable[[jax.Array], jax.Array]
    only_whole_loads: bool = False
    stays_exact: bool = True
    weights_from_messages: Callable[[jax.Array, Coding], jax.Array] | None = None
    num_alternatives: int = 1


def check_code(code: GradientCode, needed_by: str) -> None:
    """Raises a `ValueError` if `code`, which the function `needed_by` is given, is no code."""
    if not isinstance(code, GradientCode):
        raise ValueError(f"{needed_by} needs a GradientCode, for example gcjax.codes.partial(...); got {code!r}.")


def check_assignment(assignment: Assignment) -> None:
    """Raises a `ValueError` if `assignment` is no assignment, or its chunks are not as it says."""
    if not isinstance(assignment, Assignment):
        raise ValueError(
            f"who holds what must be an Assignment, as of gcjax.codes.assignments.cyclic(...); got {assignment!r}."
        )
    chunks, num_chunks = assignment.chunks, assignment.num_chunks
    if not isinstance(chunks, np.ndarray) or chunks.ndim != 2 or chunks.dtype.kind not in "iu":
        kind = f"{chunks.dtype}{list(chunks.shape)}" if isinstance(chunks, np.ndarray) else f"a {type(chunks).__name__}"
        raise ValueError(f"the chunks of an assignment must be a NumPy array int[W, K]; got {kind}.")
    is_misplaced = (chunks < -1) | (chunks >= num_chunks)
    is_misplaced[:, 1:] |= (chunks[:, 1:] >= 0) & (chunks[:, :-1] < 0)
    if is_misplaced.any():
        worker = int(is_misplaced.any(axis=1).argmax())
        raise ValueError(
            f"the chunks of each worker must be among 0, ..., {num_chunks - 1}, with -1 only behind the last one; got "
            f"{chunks[worker].tolist()} of worker {worker}."
        )


def has_repeated_chunks(assignment: Assignment) -> np.ndarray:
    """bool[W]: whether a chunk stands several times in the load of each worker."""
    sorted_chunks = np.sort(assignment.chunks, axis=1)  # int[W, K]; -1 pads
    return ((np.diff(sorted_chunks, axis=1) == 0) & (sorted_chunks[:, 1:] >= 0)).any(axis=1)


def host_seed(rng_key: jax.Array) -> int:
    """A seed of 32 bits that a JAX key decides, for libraries that draw by one; also while something is traced."""
    _validate.rng_key(rng_key)
    with jax.ensure_compile_time_eval():
        return int(jax.random.bits(rng_key))


def key_with(rng_key: jax.Array, number: int) -> jax.Array:
    """The key with a number folded in, which has values also while something is traced."""
    _validate.rng_key(rng_key)
    with jax.ensure_compile_time_eval():
        return jax.random.fold_in(rng_key, number)


def holders(assignment: Assignment) -> Holders:
    """Inverts an assignment in O(W·K): who holds each chunk, and at which position.

    Two tables int32[N, R], R the most holders of a chunk (at least 1), with -1 behind those of a chunk with fewer.

    Raises:
      ValueError: if it is no assignment.
    """
    check_assignment(assignment)
    workers, slots = np.nonzero(assignment.chunks >= 0)  # int[pairs]: each slot with a chunk in it
    chunks = assignment.chunks[workers, slots]
    by_chunk = np.argsort(chunks, kind="stable")
    workers, slots, chunks = workers[by_chunk], slots[by_chunk], chunks[by_chunk]
    num_holders = np.bincount(chunks, minlength=assignment.num_chunks)
    holder_rank = numbers_in_groups(num_holders)
    no_holders = np.full((assignment.num_chunks, max(num_holders.max(), 1)), -1, dtype=np.int32)
    workers_of_chunk, slots_of_chunk = no_holders.copy(), no_holders.copy()
    workers_of_chunk[chunks, holder_rank] = workers
    slots_of_chunk[chunks, holder_rank] = slots
    return Holders(workers=workers_of_chunk, slots=slots_of_chunk)


def numbers_in_groups(sizes: np.ndarray) -> np.ndarray:
    """int[sum of sizes]: 0, 1, ..., size - 1 for each of the groups of these `sizes int[groups]`, group after group."""
    first_of_group = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) - np.repeat(first_of_group, sizes)


def gather_by_chunk(values: jax.Array, chunk_holders: Holders) -> jax.Array:
    """Rearranges `values[W, K, ...]` to `[N, R, ...]`, with zeros where a chunk has fewer than R holders."""
    is_held = jnp.asarray(chunk_holders.workers >= 0).reshape(chunk_holders.workers.shape + (1,) * (values.ndim - 2))
    return jnp.where(is_held, values[chunk_holders.workers, chunk_holders.slots], jnp.zeros((), values.dtype))


def chunk_coefficients(assignment: Assignment, encode: jax.Array, decode: jax.Array) -> jax.Array:
    """The coefficient of every chunk in the estimate.

    Args:
      assignment: who holds what.
      encode: float[W, M, K, L], of block l of the chunk in slot k in message m of worker w.
      decode: float[W, M, L], of message m of worker w in block l of the estimate.

    Returns:
      float[N, L, L]: entry [c, a, b] multiplies block b of chunk c's gradient in block a of the estimate.
    """
    products_by_slot = einsum("wma,wmkb->wkab", decode, encode)
    return gather_by_chunk(products_by_slot, holders(assignment)).sum(axis=1)  # over the holders


def residual(assignment: Assignment, encode: jax.Array, decode: jax.Array) -> jax.Array:
    """Frobenius distance of the decoded coefficients from `1 ⊗ I_L` (Ramamoorthy et al. 2024, section 5)."""
    error = chunk_coefficients(assignment, encode, decode) - jnp.eye(decode.shape[-1], dtype=decode.dtype)[None]
    return jnp.sqrt(jnp.sum(error**2))


def norm_of_exact_sum(num_chunks: int, num_blocks: int) -> float:
    """sqrt(N L), the Frobenius norm of `1 ⊗ I_L`, which an exact decode gives: also the residual if nothing came."""
    return math.sqrt(num_chunks * num_blocks)


def check_progress(assignment: Assignment, progress: Any) -> jax.Array:
    """Checks that `progress` is int[W] or bool[W] and, where it is known, that it stays within the loads.

    Lists, tuples and arrays of NumPy are taken as well.

    Returns:
      int32[W]; for bool[W], who has arrived, the whole load of those and nothing of the others.

    Raises:
      ValueError: if it is something else.
    """
    progress = _as_array("progress", progress)
    shape, dtype = progress.shape, progress.dtype
    is_whole_load_mask = shape == (assignment.num_workers,) and jnp.issubdtype(dtype, jnp.bool_)
    if is_whole_load_mask:
        return jnp.where(jnp.asarray(progress), jnp.asarray(assignment.loads), 0)
    if shape != (assignment.num_workers,) or not jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(
            f"progress must be int[{assignment.num_workers}], one count of finished chunks a worker, or "
            f"bool[{assignment.num_workers}], who has finished the whole load; got {dtype}{list(shape)}."
            + (" Was it made for another assignment?" if shape != (assignment.num_workers,) else "")
        )
    if not _validate.is_traced(progress):
        num_finished = np.asarray(progress)
        wrong_workers = np.flatnonzero((num_finished < 0) | (num_finished > assignment.loads))
        if wrong_workers.size:
            worker = wrong_workers[0]
            raise ValueError(
                f"progress must lie between 0 and the worker's load; got {num_finished[worker]} for worker {worker}, "
                f"which holds {assignment.loads[worker]} chunks."
            )
    return jnp.asarray(progress, jnp.int32)


def check_finish(assignment: Assignment, finish: Any) -> jax.Array:
    """Checks that `finish` is float[W, K]; takes whole numbers, lists, tuples and arrays of NumPy as well.

    Returns:
      float[W, K], seconds at which each worker finishes each of its chunks.

    Raises:
      ValueError: if it is something else.
    """
    finish = _as_array("finish", finish)
    shape = (assignment.num_workers, assignment.load)
    if jnp.issubdtype(finish.dtype, jnp.integer):
        finish = jnp.asarray(finish, jnp.result_type(float))
    if finish.shape != shape or not jnp.issubdtype(finish.dtype, jnp.floating):
        raise ValueError(
            f"finish must be float{list(shape)}, when each worker finishes each of its chunks; got "
            f"{finish.dtype}{list(finish.shape)}. From one time a chunk for each worker, completion_time makes it."
        )
    return jnp.asarray(finish)


def _as_array(name: str, value: Any) -> Any:
    """An array of NumPy or JAX as it is; anything else, as a list of numbers (also traced ones), as a JAX array."""
    if isinstance(value, (jax.Array, np.ndarray)):
        return value
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be an array, or a list of numbers; got {value!r}.") from None
