"""Training data in chunks.

The shuffled examples are cut into N chunks as equal as possible: where N does not divide their number,
the first chunks have one example more. No example is dropped. The loss of a chunk of m examples is scaled
by m·N/n, which is 1 for equal chunks, so that the mean of the N chunk losses is the mean loss of all n
examples.

Letters: N chunks, n examples.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.tasks.base import Batch


class Chunks(NamedTuple):
    """Training examples, chunk by chunk, then zeros so that every chunk can be read as the rows of the largest.

    Attributes:
      inputs: [n + padding, ...], floats or bytes.
      targets: [n + padding, ...].
      first_rows: int32[N], the first row of each chunk.
      sizes: int32[N], the examples of each chunk.
      relative_sizes: float[N], the sizes over their mean: sizes * N / n.
    """

    inputs: jax.Array
    targets: jax.Array
    first_rows: jax.Array
    sizes: jax.Array
    relative_sizes: jax.Array


class Data(NamedTuple):
    """All arrays of a task.

    Attributes:
      train: the training examples.
      reference: what the metrics compare with: held-out examples, or a known optimum.
    """

    train: Chunks
    reference: Any


def split(inputs: np.ndarray, targets: np.ndarray, num_chunks: int) -> Chunks:
    """Cuts examples, which should be shuffled, into chunks and puts them on the device.

    Args:
      inputs: [n, ...], floats or integers. Bytes stay bytes, which saves memory; other integers become int32.
      targets: [n, ...], likewise.
      num_chunks: N.

    Raises:
      ValueError: if there are more chunks than examples, or not as many targets, or they are no real numbers, or beyond
        int32.
    """
    inputs, targets = np.asarray(inputs), np.asarray(targets)
    if inputs.ndim == 0 or inputs.shape[:1] != targets.shape[:1]:
        raise ValueError(f"there must be as many targets as inputs; got shapes {inputs.shape} and {targets.shape}.")
    num_examples = len(inputs)
    hint = "Every chunk needs at least one training example."
    num_chunks = _validate.integer("num_chunks", num_chunks, minimum=1, maximum=num_examples, hint=hint)
    has_extra_example = np.arange(num_chunks) < num_examples % num_chunks
    chunk_sizes = num_examples // num_chunks + has_extra_example  # [N], the larger ones first
    rows_past_last_chunk = chunk_sizes.max() - chunk_sizes[-1]  # when it is sliced as the rows of the largest chunk
    relative_sizes = chunk_sizes * num_chunks / num_examples
    return Chunks(
        inputs=_zero_padded("inputs", inputs, num_zero_rows=rows_past_last_chunk),
        targets=_zero_padded("targets", targets, num_zero_rows=rows_past_last_chunk),
        first_rows=jnp.asarray(np.cumsum(chunk_sizes) - chunk_sizes, jnp.int32),
        sizes=jnp.asarray(chunk_sizes, jnp.int32),
        relative_sizes=jnp.asarray(relative_sizes, jnp.result_type(float)),
    )


def all_examples(chunks: Chunks) -> Batch:
    """The batch of all n training examples (and padding, which counts nothing)."""
    return first_examples(chunks, chunks.targets.shape[0])


def first_examples(chunks: Chunks, max_examples: int) -> Batch:
    """The batch of the first `max_examples` training examples, or of all where there are fewer."""
    num_examples = jnp.minimum(jnp.sum(chunks.sizes), max_examples)  # the weight of each is 1 over these; of padding 0
    inputs, targets = chunks.inputs[:max_examples], chunks.targets[:max_examples]
    is_no_padding = jnp.arange(targets.shape[0], dtype=num_examples.dtype) < num_examples
    weights = jnp.where(is_no_padding, 1 / num_examples.astype(chunks.relative_sizes.dtype), 0.0)
    return Batch(inputs, targets, weights)


def _zero_padded(name: str, rows: np.ndarray, *, num_zero_rows: int) -> jax.Array:
    """The rows and then so many rows of zeros, on the device: bytes as they are, other integers int32, else floats."""
    rows = np.concatenate([rows, np.zeros((num_zero_rows, *rows.shape[1:]), rows.dtype)])
    is_bytes, is_integer = rows.dtype == np.uint8, rows.dtype.kind in "iu"
    return with_dtype(name, rows, np.uint8 if is_bytes else np.int32 if is_integer else jnp.result_type(float))


def with_dtype(name: str, values: np.ndarray, dtype: Any) -> jax.Array:
    """Numbers on the device, as `dtype`; floats may be rounded, integers must stay what they are.

    Raises:
      ValueError: with the name, if they are no real numbers, or an integer type cannot hold them.
    """
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be real numbers; got an array of {values.dtype}.")
    with np.errstate(invalid="ignore"):  # an infinite number becomes an integer, which is refused below
        converted = values.astype(dtype)
    is_lost = converted != values if np.issubdtype(dtype, np.integer) else np.zeros(0, bool)
    if is_lost.any():
        raise ValueError(f"{name} must be whole numbers that {np.dtype(dtype)} can hold; got {values[is_lost][0]}.")
    return jnp.asarray(converted)
