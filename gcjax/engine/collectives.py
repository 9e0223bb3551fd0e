"""What is sent between devices: sums of gradients, and the exchange of coded messages.

All functions run inside `jax.shard_map`, along one axis of n devices. In numbers that each device sends, with d
parameters and P messages of d/L numbers a device: an all-reduce 2d(n-1)/n; the exchange of messages
(P·d/L + d)(n-1)/n, which is less iff P < L.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from gcjax.engine.messages import accumulation_dtype, decoded


def all_sum(tree: Any, axis: str, message_dtype: Any = None) -> Any:
    """The sum of a pytree over the devices; sent as `message_dtype`, added up in float32 or wider."""
    if message_dtype is None:
        return jax.lax.psum(tree, axis)
    flat, unravel = ravel_pytree(tree)
    # A reduce-scatter and an all-gather, so that the sum itself is not rounded to `message_dtype` at every addition.
    slices = _exchange(flat[None], axis, message_dtype).astype(accumulation_dtype(flat.dtype))
    return unravel(_gather(slices.sum(axis=0), axis, message_dtype)[0, : flat.size].astype(flat.dtype))


def estimate_from_messages(messages: jax.Array, decode: jax.Array, axis: str, message_dtype: Any = None) -> jax.Array:
    """The estimate of the gradient sum that the messages of all workers decode to.

    Args:
      messages: float[U, M, width], those of this device's U workers.
      decode: float[U, M, L].
      axis: of the mesh.
      message_dtype: of what is sent; None for the messages' own.

    Returns:
      float[L, width], the same on all devices.
    """
    num_messages, num_blocks, width = messages.shape[0] * messages.shape[1], decode.shape[2], messages.shape[2]
    if num_messages >= num_blocks:  # then summing the decoded blocks moves fewer numbers than exchanging messages
        return all_sum(decoded(decode, messages), axis, message_dtype)
    # A device gets its slice of all messages [n, rows, slice], decodes it to [L, slice], and the slices are gathered.
    slices = _exchange(messages.reshape(num_messages, width), axis, message_dtype).astype(messages.dtype)
    decode_everywhere = jax.lax.all_gather(decode.reshape(num_messages, num_blocks), axis)  # [n, rows, L]
    return _gather(decoded(decode_everywhere, slices), axis, message_dtype)[:, :width].astype(messages.dtype)


def _exchange(rows: jax.Array, axis: str, dtype: Any) -> jax.Array:
    """[n, rows, ceil(width / n)]: this device's slice of the [rows, width] of each of the n devices along the axis."""
    num_devices = jax.lax.axis_size(axis)  # n
    slices = jnp.pad(rows, ((0, 0), (0, -rows.shape[1] % num_devices))).reshape(rows.shape[0], num_devices, -1)
    packed, unpack = _pack_to_send(jnp.moveaxis(slices, 1, 0), dtype)  # [n, rows, slice]: slice i goes to device i
    return unpack(jax.lax.all_to_all(packed, axis, split_axis=0, concat_axis=0, tiled=True))


def _gather(slices: jax.Array, axis: str, dtype: Any) -> jax.Array:
    """The rows [L, width], put together from the slices [L, width / n] of the n devices along the axis."""
    packed, unpack = _pack_to_send(slices, dtype)
    return unpack(jax.lax.all_gather(packed, axis, axis=1, tiled=True))


def _pack_to_send(x: jax.Array, dtype: Any) -> tuple[jax.Array, Any]:
    """The numbers as they are sent, and the function that turns what is received back into floats of `dtype`.

    Half-precision floats travel as integers: XLA would send them as float32 on a CPU.
    """
    dtype = jnp.dtype(dtype or x.dtype)
    x = x.astype(dtype)
    if dtype.itemsize > 2:
        return x, lambda received: received
    integers = jax.lax.bitcast_convert_type(x, jnp.uint16 if dtype.itemsize == 2 else jnp.uint8)
    return integers, lambda received: jax.lax.bitcast_convert_type(received, dtype)
