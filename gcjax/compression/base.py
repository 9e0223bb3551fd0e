"""The type of compressions: a worker's message becomes smaller, and the server gets an estimate of it.

Letters: W workers, d numbers of a message.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from gcjax import _validate, memory

INDEX_BYTES = 4
"""The size of the place of a number in a message."""


class Compression(NamedTuple):
    """A compression of messages: pure functions over pytrees of floats, as an optax optimizer is.

    Attributes:
      init: `(rng_key, message) -> state`, the state of a worker before its first message; () if there is none. Only
        shapes and dtypes of the message count. With `num_workers`, `(rng_key, message, worker int32[]) -> state`: what
        is a worker's own is in its state.
      compress: `(message, state, rng_key) -> (estimate, state)`: what the server makes of what is sent, a pytree like
        the message, and the worker's state after it.
      num_bytes: `message -> int`, the bytes that are sent for it; only shapes and dtypes count. With `num_workers`,
        `message -> int[W]`; a worker with 0 of them sends nothing.
      same_key: whether all workers get the same key for the units of the same number, and so make the same random
        choices; otherwise each has its own.
      is_contraction: whether what is lost is smaller than the message, `E|message - estimate|^2 < |message|^2` unless
        that is 0. `error_feedback` needs it.
      num_workers: W, if each worker compresses in a way of its own; None if all do the same.
    """

    init: Callable[..., Any]
    compress: Callable[[Any, Any, jax.Array], tuple[Any, Any]]
    num_bytes: Callable[[Any], Any]
    same_key: bool = False
    is_contraction: bool = False
    num_workers: int | None = None


def stateless(
    compress: Callable[..., jax.Array],
    num_bytes: Callable[..., Any],
    *,
    worker_values: np.ndarray | None = None,
    **properties: bool,
) -> Compression:
    """A compression of all numbers of a message as one vector, whose state never changes.

    Args:
      compress: pure function `(float[d], rng_key) -> float[d]`, of float32 at least; the estimate is rounded to the
        message's dtype, and what is beyond its range to its largest number: of float16, 65504.
      num_bytes: `(d, bytes of a number) -> int`, the bytes of a message; where its dtypes differ, the mean of their
        bytes, a fraction, and the result is rounded up.
      worker_values: [W], a number for each worker, in which their compressions differ. Both functions then take it as
        their last argument: `compress` as a float[], `num_bytes` as it is. None where they do not differ.
      **properties: those fields of `Compression` that say what it is.
    """

    def init(rng_key: jax.Array, message: Any, *worker: Any) -> Any:
        """The worker's value, a tuple of one float[]; () where workers do not differ. `worker`: int32[], if they do."""
        del rng_key
        if worker_values is None:
            return ()
        dtype = float32_at_least(_flat(message)[0])
        return (jnp.asarray(worker_values, dtype)[worker],)  # [W], indexed by `worker`, a tuple of one

    def compress_message(message: Any, state: Any, rng_key: jax.Array) -> tuple[Any, Any]:
        """The estimate of a message, a pytree like it, and the same state: () or (the worker's value,)."""
        flat, unravel = _flat(message)  # float[d]
        if flat.size == 0:
            return message, state
        estimate = compress(flat.astype(float32_at_least(flat)), rng_key, *state)
        return unravel(rounded_to(flat.dtype, estimate)), state

    def bytes_of_message(message: Any) -> Any:
        """The bytes that are sent for a message, of which shapes and dtypes count; int[W] where workers differ."""
        leaves = jax.tree.leaves(jax.eval_shape(_checked_floats, message))
        num_numbers = sum(leaf.size for leaf in leaves)
        number_bytes = Fraction(memory.bytes_of_arrays(leaves), max(1, num_numbers))
        if worker_values is None:
            return math.ceil(num_bytes(num_numbers, number_bytes))
        return np.asarray([math.ceil(num_bytes(num_numbers, number_bytes, value)) for value in worker_values.tolist()])

    num_workers = None if worker_values is None else len(worker_values)
    return Compression(init, compress_message, bytes_of_message, num_workers=num_workers, **properties)


def blockwise(
    round_blocks: Callable[[jax.Array, jax.Array], jax.Array], *, block_size: int, num_bits: int, is_contraction: bool
) -> Compression:
    """A compression of blocks of consecutive numbers, each with a scale, which is sent as it is uncompressed.

    Args:
      round_blocks: pure function `(blocks float[blocks, block_size], largest float[blocks, 1]) -> float[blocks,
        block_size]`; `largest` is the largest magnitude of each block.
      block_size: all arrays of a message are cut as one vector.
      num_bits: of each number.
      is_contraction: as in `Compression`.
    """

    def rounded(flat: jax.Array, rng_key: jax.Array) -> jax.Array:
        """float[d], the numbers of all blocks rounded."""
        del rng_key
        blocks = blocks_of(flat, block_size)
        return round_blocks(blocks, jnp.max(jnp.abs(blocks), axis=1, keepdims=True)).reshape(-1)[: flat.size]

    def num_bytes(num_numbers: int, number_bytes: int) -> int:
        """Those of the bits of all numbers, and a scale of `number_bytes`, as a number has uncompressed, a block."""
        return -(-num_numbers * num_bits // 8) + -(-num_numbers // block_size) * number_bytes

    return stateless(rounded, num_bytes, is_contraction=is_contraction)


def _flat(message: Any) -> tuple[jax.Array, Callable[[jax.Array], Any]]:
    """The numbers of a message, float[d] of the widest of its dtypes, and the function that makes a message of such.

    Raises:
      ValueError: if an array is not of floats.
    """
    flat, unravel = ravel_pytree(_checked_floats(message))
    return flat, unravel


def _checked_floats(message: Any) -> Any:
    """The message, if all its arrays are of floats; otherwise raises a `ValueError`."""
    for leaf in jax.tree.leaves(message):
        float32_at_least(jnp.asarray(leaf))
    return message


def num_sent(share: float, num_numbers: int) -> int:
    """How many of so many numbers are sent: this share of them, to the nearest; at least one, if there is any."""
    return min(num_numbers, max(1, round(share * num_numbers)))


def float32_at_least(array: Any) -> Any:
    """The dtype in which an array is compressed: its own, but float32 for a narrower one.

    Raises:
      ValueError: if it is not of floats.
    """
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"messages that are compressed must be of floats; got {array.dtype}{list(array.shape)}.")
    return array.dtype if jnp.finfo(array.dtype).bits >= 32 else jnp.dtype(jnp.float32)


def rounded_to(dtype: Any, numbers: jax.Array) -> jax.Array:
    """The numbers in a dtype; finite ones beyond its range are its largest."""
    if numbers.dtype == dtype or not jnp.issubdtype(numbers.dtype, jnp.floating):
        return numbers.astype(dtype)
    largest = jnp.finfo(dtype).max.astype(numbers.dtype)
    return jnp.where(jnp.isfinite(numbers), numbers.clip(-largest, largest), numbers).astype(dtype)


def check_share(share: float) -> None:
    """Raises a `ValueError` unless the share of the numbers that are kept is one number in (0, 1]."""
    _validate.single_number("share", share, above=True, maximum=1.0)


def blocks_of(flat: jax.Array, block_size: int) -> jax.Array:
    """float[blocks, block_size]: the blocks of float[d], the last one padded with zeros."""
    return jnp.pad(flat, (0, -flat.size % block_size)).reshape(-1, block_size)


def validated(compression: Any) -> Compression:
    """The compression; raises a `ValueError` if it is not a `Compression`."""
    _validate.instance("compression", compression, Compression, "gcjax.compression.int8()")
    return compression
