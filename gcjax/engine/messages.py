"""The messages of coded workers, for any number of blocks and messages.

Letters: U workers at hand (all W, or those of one device), K chunks a worker holds, L blocks, M messages, d parameters.
The blocks are cut from the flattened gradient, padded to a multiple of L: each has `ceil(d / L)` numbers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from gcjax._products import einsum


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
      params: pytree with d numbers.
      chunks: pytree, every leaf [U, K, ...].
      encode: float[U, M, K, L].
      has_aux: whether the loss is `(params, chunk) -> (float[], aux)`.
      one_by_one: one worker after the other, which needs the memory of one chunk gradient instead of U.

    Returns:
      The messages float[U, M, ceil(d / L)], added up in float32 or wider, and the losses float[U, K]; with `has_aux`
      these and aux, every leaf [U, K, ...].
    """
    num_workers, num_messages, _, num_blocks = encode.shape
    if one_by_one and num_workers > 1:
        messages_of_worker = partial(worker_messages, loss, params, has_aux=has_aux)
        rows = jax.tree.map(lambda x: x[:, None], (chunks, encode))  # [U, 1, ...]: each worker by itself
        return jax.tree.map(lambda x: x[:, 0], jax.lax.map(lambda row: messages_of_worker(*row), rows))
    flat_params = ravel_pytree(params)[0]
    dtype = accumulation_dtype(flat_params.dtype)
    encode_chunk = partial(_message_terms_and_loss, loss, has_aux, dtype, params)
    # A product with a batch axis is slower on CPUs, also if the axis has length one.
    encode_chunks = jax.vmap(encode_chunk) if num_workers > 1 else _on_only_row(encode_chunk)

    def add_slot(messages: jax.Array, slot: tuple[Any, jax.Array]) -> tuple[jax.Array, Any]:
        """Adds each worker's chunk in one slot, (chunks [U, ...], coefficients [U, M, L]), by `encode_chunk`."""
        chunks_in_slot, coefficients_in_slot = slot
        increments, losses_and_aux = encode_chunks(chunks_in_slot, coefficients_in_slot)
        return messages + increments, losses_and_aux

    block_size = -(-flat_params.size // num_blocks)  # rounded up
    zero_messages = jnp.zeros((num_workers, num_messages, block_size), dtype)
    # The scan goes over the K slots, so their axis comes first: [K, U, ...] and [K, U, M, L].
    chunks_by_slot = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), chunks)
    coefficients_by_slot = jnp.moveaxis(encode, 2, 0)
    messages, losses_by_slot = jax.lax.scan(add_slot, zero_messages, (chunks_by_slot, coefficients_by_slot))
    losses_by_worker = jax.tree.map(lambda x: x.swapaxes(0, 1), losses_by_slot)  # [U, K] from [K, U]
    return messages, losses_by_worker


def _on_only_row(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function mapped over the first axis of its arguments, which has length one."""

    def mapped(*arguments: Any) -> Any:
        """The function of the only rows, its results with the axis again."""
        rows = jax.tree.map(lambda x: x[0], arguments)
        return jax.tree.map(lambda x: jnp.asarray(x)[None], function(*rows))

    return mapped


def _message_terms_and_loss(
    loss: Callable[[Any, Any], Any], has_aux: bool, dtype: Any, params: Any, chunk: Any, coefficients: jax.Array
) -> tuple[jax.Array, Any]:
    """What a worker adds to its M messages for one chunk, float[M, ceil(d / L)], and the chunk's loss, or loss and aux.

    `coefficients`: float[M, L] of the chunk. With `has_aux` the second is (loss, aux), see `worker_messages`.
    """
    loss_and_aux, gradient = jax.value_and_grad(loss, has_aux=has_aux)(params, chunk)
    num_blocks = coefficients.shape[1]
    blocks = gradient_blocks(gradient, num_blocks).astype(dtype)
    return combined_rows(coefficients, blocks), loss_and_aux


def combined_rows(coefficients: jax.Array, rows: jax.Array) -> jax.Array:
    """float[M, width]: the product of `coefficients float[M, L]` and `rows float[L, width]`.

    Written out as sums of rows, since XLA then reads the rows once, while it adds; a matrix product would copy them.
    """
    terms_of_messages = [
        [coefficient * row for coefficient, row in zip(coefficients_of_message, rows, strict=True)]
        for coefficients_of_message in coefficients.astype(rows.dtype)
    ]
    return jnp.stack([sum(terms[1:], terms[0]) for terms in terms_of_messages])


def gradient_blocks(gradient: Any, num_blocks: int) -> jax.Array:
    """float[L, ceil(d / L)]: the blocks of a gradient pytree, flattened and padded with zeros."""
    flat = ravel_pytree(gradient)[0]  # float[d]
    return jnp.pad(flat, (0, -flat.size % num_blocks)).reshape(num_blocks, -1)


def decoded_blocks(decode: jax.Array, messages: jax.Array) -> jax.Array:
    """float[L, width]: the estimate's blocks from `decode float[U, M, L]` and `messages float[U, M, width=d/L]`."""
    return einsum("uml,umi->li", decode.astype(messages.dtype), messages)


def gradient_from_blocks(blocks: jax.Array, params: Any) -> Any:
    """A pytree like the parameters, dtypes included, from the blocks float[L, width] of an estimate."""
    flat_params, unravel = ravel_pytree(params)
    return unravel(blocks.reshape(-1)[: flat_params.size].astype(flat_params.dtype))


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
