"""The messages of coded workers, for any number of blocks and messages.

Letters: U workers at hand (all W, or those of one device), K chunks a worker holds, L blocks, M messages.
A gradient is cut into L blocks array by array: a block has an L-th of each array, flattened and padded with zeros to a
multiple of L, one after the other. Its width is the sum of `ceil(n / L)` over the arrays, of n numbers each.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from gcjax._products import einsum, matmul

_MAX_TERMS = 8  # of sums that are written out


def worker_messages(
    loss: Callable[[Any, Any], Any],
    params: Any,
    chunks: Any,
    encode: jax.Array,
    *,
    has_aux: bool = False,
    one_by_one: bool = False,
) -> tuple[jax.Array, Any]:
    """The messages of all workers: each adds its chunk gradients, one after the other, to its messages.

    Args:
      loss: `(params, chunk) -> float[]`.
      params: pytree.
      chunks: pytree, every leaf [U, K, ...].
      encode: float[U, M, K, L].
      has_aux: whether the loss is `(params, chunk) -> (float[], aux)`.
      one_by_one: one worker after the other, which needs the memory of one chunk gradient instead of U.

    Returns:
      The messages float[U, M, width], added up in float32 or wider, and the losses float[U, K]; with `has_aux` these
      and aux, every leaf [U, K, ...].
    """
    num_workers, num_messages, _, num_blocks = encode.shape
    if one_by_one and num_workers > 1:
        messages_of_worker = partial(worker_messages, loss, params, has_aux=has_aux)
        rows = jax.tree.map(lambda x: x[:, None], (chunks, encode))  # [U, 1, ...]: each worker by itself
        return jax.tree.map(lambda x: x[:, 0], jax.lax.map(lambda row: messages_of_worker(*row), rows))
    dtype = accumulation_dtype(block_shape(params, num_blocks).dtype)
    encode_chunk = partial(_message_terms_and_loss, loss, has_aux, dtype, params)
    # A product with a batch axis is slower on CPUs, also if the axis has length one.
    encode_chunks = jax.vmap(encode_chunk) if num_workers > 1 else _on_only_row(encode_chunk)

    def add_slot(parts: list[jax.Array], slot: tuple[Any, jax.Array]) -> tuple[list[jax.Array], Any]:
        """Adds each worker's chunk in one slot, (chunks [U, ...], coefficients [U, M, L]), by `encode_chunk`."""
        chunks_in_slot, coefficients_in_slot = slot
        increments, losses_and_aux = encode_chunks(chunks_in_slot, coefficients_in_slot)
        return jax.tree.map(jnp.add, parts, increments), losses_and_aux

    # A part of the messages for each array: to put each chunk's gradient together first would copy it.
    zero_parts = [jnp.zeros((num_workers, num_messages, width), dtype) for width in _widths(params, num_blocks)]
    # The scan goes over the K slots, so their axis comes first: [K, U, ...] and [K, U, M, L].
    chunks_by_slot = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), chunks)
    coefficients_by_slot = jnp.moveaxis(encode, 2, 0)
    parts, losses_by_slot = jax.lax.scan(add_slot, zero_parts, (chunks_by_slot, coefficients_by_slot))
    losses_by_worker = jax.tree.map(lambda x: x.swapaxes(0, 1), losses_by_slot)  # [U, K] from [K, U]
    return _side_by_side(parts, (num_workers, num_messages), dtype), losses_by_worker


def _on_only_row(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function mapped over the first axis of its arguments, which has length one."""

    def mapped(*arguments: Any) -> Any:
        """The function of the only rows, its results with the axis again."""
        rows = jax.tree.map(lambda x: x[0], arguments)
        return jax.tree.map(lambda x: jnp.asarray(x)[None], function(*rows))

    return mapped


def _message_terms_and_loss(
    loss: Callable[[Any, Any], Any], has_aux: bool, dtype: Any, params: Any, chunk: Any, coefficients: jax.Array
) -> tuple[list[jax.Array], Any]:
    """What a worker adds to its M messages for one chunk, and the chunk's loss, or loss and aux.

    The first is float[M, ceil(n / L)] for each array of n numbers. `coefficients`: float[M, L] of the chunk. With
    `has_aux` the second is (loss, aux), see `worker_messages`.
    """
    loss_and_aux, gradient = jax.value_and_grad(loss, has_aux=has_aux)(params, chunk)
    num_blocks = coefficients.shape[1]
    return [combined_rows(coefficients, blocks) for blocks in _array_blocks(gradient, num_blocks, dtype)], loss_and_aux


def combined_rows(coefficients: jax.Array, rows: jax.Array) -> jax.Array:
    """float[M, width]: the product of `coefficients float[M, L]` and `rows float[L, width]`.

    Written out as sums of rows, since XLA then reads the rows once, while it adds; a matrix product would copy them.
    With many coefficients it is one all the same: for each array, so many sums would take long to compile.
    """
    if coefficients.size > _MAX_TERMS:
        return matmul(coefficients.astype(rows.dtype), rows)
    terms_of_messages = [
        [coefficient * row for coefficient, row in zip(coefficients_of_message, rows, strict=True)]
        for coefficients_of_message in coefficients.astype(rows.dtype)
    ]
    return jnp.stack([sum(terms[1:], terms[0]) for terms in terms_of_messages])


def gradient_blocks(gradient: Any, num_blocks: int) -> jax.Array:
    """float[L, width]: the blocks of a gradient pytree."""
    dtype = block_shape(gradient, num_blocks).dtype
    return _side_by_side(_array_blocks(gradient, num_blocks, dtype), (num_blocks,), dtype)


def _side_by_side(parts: Sequence[jax.Array], shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """One array [*shape, width] of all parts, joined along their last axis; there may be none."""
    return jnp.concatenate([jnp.zeros((*shape, 0), dtype), *parts], axis=-1)


def block_shape(params: Any, num_blocks: int) -> jax.ShapeDtypeStruct:
    """The shape (width,) and the dtype of a block of a gradient, from the parameters or their shapes and dtypes."""
    flat = jax.eval_shape(lambda params: ravel_pytree(params)[0], params)
    return jax.ShapeDtypeStruct((sum(_widths(params, num_blocks)),), flat.dtype)


def _widths(params: Any, num_blocks: int) -> list[int]:
    """The numbers of each array in a block."""
    return [-(-math.prod(jnp.shape(x)) // num_blocks) for x in jax.tree.leaves(params)]


def _array_blocks(gradient: Any, num_blocks: int, dtype: Any) -> list[jax.Array]:
    """The blocks of each array of a gradient pytree, float[L, ceil(n / L)] of one of n numbers."""
    flat_arrays = [jnp.ravel(array).astype(dtype) for array in jax.tree.leaves(gradient)]
    return [jnp.pad(flat, (0, -flat.size % num_blocks)).reshape(num_blocks, -1) for flat in flat_arrays]


def decoded_blocks(decode: jax.Array, messages: jax.Array) -> jax.Array:
    """float[L, width]: the estimate's blocks from `decode float[U, M, L]` and `messages float[U, M, width]`."""
    return einsum("uml,umi->li", decode.astype(messages.dtype), messages)


def gradient_from_blocks(blocks: jax.Array, params: Any) -> Any:
    """A pytree like the parameters, dtypes included, from the blocks float[L, width] of an estimate."""
    arrays, structure = jax.tree.flatten(params)
    ends = list(itertools.accumulate(_widths(params, blocks.shape[0])))
    blocks_of_arrays = jnp.split(blocks, ends, axis=1)[:-1]  # nothing stands behind the last end
    parts = [
        rows.reshape(-1)[: math.prod(jnp.shape(array))].reshape(jnp.shape(array)).astype(jnp.result_type(array))
        for rows, array in zip(blocks_of_arrays, arrays, strict=True)
    ]
    return jax.tree.unflatten(structure, parts)


def chunk_weights(encode: jax.Array, decode: jax.Array) -> jax.Array:
    """float[U, K]: how much of each worker's k-th chunk is in the estimate, added up over the blocks.

    Shapes: encode float[U, M, K, L], decode float[U, M, L].
    """
    return einsum("uml,umkl->uk", decode, encode)


def accumulation_dtype(dtype: Any) -> Any:
    """The dtype in which numbers of a dtype are added up: float32, or their own if it is wider."""
    return dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32


def zero_sum(params: Any) -> Any:
    """Zeros like the parameters, in the dtypes in which they are added up."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, accumulation_dtype(x.dtype)), params)


def weighted(tree: Any, weight: jax.Array) -> Any:
    """The tree times `weight float[]`, in the dtypes in which it is added up."""

    def weighted_leaf(x: jax.Array) -> jax.Array:
        """A leaf of it."""
        dtype = accumulation_dtype(x.dtype)
        return weight.astype(dtype) * x.astype(dtype)

    return jax.tree.map(weighted_leaf, tree)


def in_dtypes_of(sums: Any, params: Any) -> Any:
    """Sums in the dtypes of the parameters: rounded once, at the end."""
    return jax.tree.map(lambda total, x: total.astype(x.dtype), sums, params)
