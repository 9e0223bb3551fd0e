"""What is sent between devices: sums of gradients, and the exchange of coded messages.

All functions run inside `jax.shard_map`, along one axis of n devices. In numbers that each device sends, with d
parameters and P messages of d/L numbers a device: an all-reduce 2d(n-1)/n; the exchange of messages
(P·d/L + d)(n-1)/n, which is less iff P < L.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from gcjax.engine.messages import accumulation_dtype, decoded_blocks


def sum_over_devices(tree: Any, axis: str) -> Any:
    """The sum of a pytree over the devices of an axis; itself if there is one, for which XLA has no sum on a mesh."""
    return tree if jax.lax.axis_size(axis) == 1 else jax.lax.psum(tree, axis)


def all_sum(tree: Any, axis: str, message_dtype: Any) -> Any:
    """The sum of a pytree over the devices; sent as `message_dtype` (if not None), added up in float32 or wider."""
    if message_dtype is None:
        return sum_over_devices(tree, axis)
    flat, unravel = ravel_pytree(tree)
    one_row = flat[None]
    # A reduce-scatter and an all-gather, so that the sum itself is not rounded to `message_dtype` at every addition.
    own_slices = exchange_slices(one_row, axis, message_dtype).astype(accumulation_dtype(flat.dtype))
    own_slice_of_sum = own_slices.sum(axis=0)  # [1, slice], from those of n devices, [n, 1, slice]
    flat_sum = gather_slices(own_slice_of_sum, axis, message_dtype)[0, : flat.size]
    return unravel(flat_sum.astype(flat.dtype))


def estimate_from_messages(messages: jax.Array, decode: jax.Array, axis: str, message_dtype: Any = None) -> jax.Array:
    """The estimate of the gradient sum that the messages of all workers decode to.

    Args:
      messages: float[U, M, width], those of this device's U workers, each as wide as a block.
      decode: float[U, M, L].
      axis: of the mesh.
      message_dtype: of what is sent; None for the messages' own.

    Returns:
      float[L, width], the same on all devices.
    """
    num_own_messages, num_blocks, width = messages.shape[0] * messages.shape[1], decode.shape[2], messages.shape[2]
    sum_moves_no_more = num_own_messages >= num_blocks  # numbers than the exchange of messages
    if sum_moves_no_more:
        return all_sum(decoded_blocks(decode, messages), axis, message_dtype)
    # A device gets its slice of all messages, [n, rows, slice], the rows = U·M of each of n devices, decodes it to
    # [L, slice], and the slices are gathered.
    message_rows = messages.reshape(num_own_messages, width)
    own_slices = exchange_slices(message_rows, axis, message_dtype).astype(messages.dtype)
    decode_of_all = jax.lax.all_gather(decode.reshape(num_own_messages, num_blocks), axis)  # [n, rows, L]
    own_slice_of_blocks = decoded_blocks(decode_of_all, own_slices)
    return gather_slices(own_slice_of_blocks, axis, message_dtype)[:, :width].astype(messages.dtype)


def exchange_slices(rows: jax.Array, axis: str, message_dtype: Any) -> jax.Array:
    """[n, rows, ceil(width / n)]: this device's slice of the [rows, width] of each of the n devices along the axis.

    Given are this device's rows; sent as `message_dtype`, as they are if None.
    """
    num_rows, width = rows.shape
    num_devices = jax.lax.axis_size(axis)  # n
    padded_rows = jnp.pad(rows, ((0, 0), (0, -width % num_devices)))
    slices_by_row = padded_rows.reshape(num_rows, num_devices, -1)
    slices_by_device = jnp.moveaxis(slices_by_row, 1, 0)  # [n, rows, slice]: slice i goes to device i
    packed_slices, unpack = _pack_to_send(slices_by_device, message_dtype)
    return unpack(jax.lax.all_to_all(packed_slices, axis, split_axis=0, concat_axis=0, tiled=True))


def gather_slices(own_slice: jax.Array, axis: str, message_dtype: Any) -> jax.Array:
    """The rows [L, width], put together from the slices [L, width / n] of the n devices along the axis.

    Sent, and given back, as `message_dtype`, or as they are if None.
    """
    packed_slice, unpack = _pack_to_send(own_slice, message_dtype)
    return unpack(jax.lax.all_gather(packed_slice, axis, axis=1, tiled=True))


def _pack_to_send(x: jax.Array, message_dtype: Any) -> tuple[jax.Array, Any]:
    """The numbers as they are sent, and the function that turns what is received back into floats of that dtype.

    Half-precision floats travel as integers: XLA would send them as float32 on a CPU.
    """
    dtype = jnp.dtype(message_dtype or x.dtype)
    floats = x.astype(dtype)
    sent_as_it_is = dtype.itemsize > 2
    if sent_as_it_is:
        return floats, lambda received: received
    integer_dtype = jnp.uint16 if dtype.itemsize == 2 else jnp.uint8
    integers = jax.lax.bitcast_convert_type(floats, integer_dtype)
    return integers, lambda received: jax.lax.bitcast_convert_type(received, dtype)
