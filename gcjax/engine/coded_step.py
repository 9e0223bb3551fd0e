"""Gradient coding inside a training step of one's own: workers are the devices along an axis of a mesh.

Letters: W workers, U workers of one device, N chunks, K chunks a worker holds, L blocks, M messages a worker sends, B
examples of a chunk, d parameters.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gcjax import _validate
from gcjax.codes.alternatives import used_rows
from gcjax.codes.base import Coding, GradientCode, check_code, check_progress
from gcjax.engine.collectives import all_sum, estimate_from_messages, sum_over_devices
from gcjax.engine.gradients import Estimate, RoundInputs, chunk_batch, chunk_loss, mean_from_sums, weighted_loss
from gcjax.engine.layout import Layout
from gcjax.engine.losses import Losses, check_loss, loss_forms, merged_axes, weighted_sum
from gcjax.engine.messages import chunk_weights, gradient_from_blocks, worker_messages
from gcjax.engine.spread import check_auto_axes, mesh_with_axis, on_each_device, pad_leading_axis
from gcjax.tasks.base import Task


class CodedInfo(NamedTuple):
    """What a coded step tells a person.

    Attributes:
      residual: float[], the distance of the decoded coefficients from the exact sum; 0 iff the gradient is exact.
      contributed: bool[W], the workers whose messages are in the gradient.
    """

    residual: jax.Array
    contributed: jax.Array


def coded_value_and_grad(
    loss: Callable[..., Any],
    code: GradientCode,
    mesh: Mesh,
    axis: str = "workers",
    *,
    message_dtype: Any = None,
    accumulate: bool = False,
    has_aux: bool = False,
) -> Callable[..., tuple[Any, Any, CodedInfo]]:
    """A gradient code's replacement for `jax.value_and_grad` in a data-parallel training step.

    With L = M = 1 encoding and decoding are weights in the loss: one backward pass a device and one all-reduce of d
    numbers, as without a code. Otherwise the chunk gradients stream into the messages, and each device decodes what it
    must: the messages are exchanged (d/L numbers each) and the decoded slices gathered (d numbers) where that moves
    less than an all-reduce (2d numbers).

    Args:
      loss: `(params, chunk, *args) -> float[]`, the mean loss of a chunk; or `float[B]`, the losses of its
        examples, each of its own example alone. With the latter all chunks of a device go through one backward pass as
        one batch, which is fastest, if all arrays of a chunk are [B, ...]; one of them that is not of the examples must
        have another first axis, unless `accumulate` is True. A loss that draws at random must take its key from the
        chunk, as all holders must draw the same.
      code: the gradient code.
      mesh: has the axis; along other axes parameters may be sharded as they like.
      axis: of the workers. Several workers share a device where there are more of them.
      message_dtype: of what is sent, for example `jnp.bfloat16`; sums are formed in float32 or wider. The gradient's
        own dtype by default.
      accumulate: form the gradients of a device one after the other, which needs the memory of one chunk instead of
        all; for L > 1 the chunks of a worker come one after the other in any case.
      has_aux: whether the loss returns `(loss, aux)`. Every leaf of aux is a float of the chunk, of any shape; where
        the losses are float[B], those of its examples, [B, ...]. Chunks are not told apart: aux is averaged over them
        with the weights of `value`, so that it belongs to the same chunks.

    Returns:
      A pure function `(params, batch, progress, *args) -> (value, gradient, info)`. Every leaf of `batch` is
      [W, K, ...], or [padded_workers, K, ...] with its first axis sharded (see `shard_chunks`); `progress` is int32[W],
      the chunks that each worker has finished, or bool[W], who has finished the whole load; `args` go to the loss as
      they are. `gradient`, like `params`, is the estimate of the mean of the N chunk gradients, `value` the mean loss
      of the chunks in it, or with `has_aux` this and the mean of aux, `(value, aux)`.

    Raises:
      ValueError: if the mesh has no such axis; when called, if the batch or the progress do not fit the code, or the
        batch is known not to be sharded over the axis, or the loss returns something else.

    Source: Tandon et al. 2017 (L = 1); Ye and Abbe 2018, Ramamoorthy et al. 2024 (L > 1).

    Example:
      >>> code = gcjax.codes.partial(gcjax.codes.assignments.cyclic(4, load=2))
      >>> mesh = jax.make_mesh((1,), ("workers",))
      >>> chunks = jnp.arange(4.0)[:, None]  # [N, examples]
      >>> batch = gcjax.engine.shard_chunks(chunks, code, mesh)  # [W, K, examples]
      >>> gradient_of = gcjax.engine.coded_value_and_grad(lambda params, x: params * x.mean(), code, mesh)
      >>> value, gradient, info = gradient_of(jnp.float32(2.0), batch, [2, 0, 2, 0])  # chunks that each has finished
      >>> round(float(gradient), 3), bool(info.residual < 1e-6)  # the mean of 0, 1, 2, 3
      (1.5, True)
    """
    check_code(code, "coded_value_and_grad")
    check_loss(loss)
    _check_message_dtype(message_dtype)
    auto_mesh = mesh_with_axis(mesh, axis)
    estimate = estimate_on_mesh(
        loss_forms(loss, has_aux), code, auto_mesh, axis, message_dtype=message_dtype, accumulate=accumulate
    )

    def step(params: Any, batch: Any, progress: jax.Array, args: tuple[Any, ...]) -> tuple[Any, Any, CodedInfo]:
        """(value, gradient, info): the mean loss (with `has_aux`, (loss, aux)), and the mean gradient, as decoded.

        `progress`: int32[W], the chunks that each worker has finished, or bool[W]; `args` go to the loss.
        """
        coding = code.plan(progress)
        decode_mean = coding.decode / code.assignment.num_chunks  # instead of the sum
        gradient, (value, aux) = estimate(params, batch, coding._replace(decode=decode_mean), *args)
        is_in_gradient = jnp.any(coding.decode != 0, axis=(1, 2))  # decode: [W, M, L]
        info = CodedInfo(residual=coding.residual, contributed=is_in_gradient)
        return (value, aux) if has_aux else value, gradient, info

    compiled_step = jax.jit(step)

    def checked_step(params: Any, batch: Any, progress: Any, *args: Any) -> tuple[Any, Any, CodedInfo]:
        """(value, gradient, info) that `step`, compiled, gives, once the arguments have been checked."""
        check_auto_axes((params, batch), axis)
        check_batch(batch, code, auto_mesh, axis)
        return compiled_step(params, batch, check_progress(code.assignment, progress), args)

    return checked_step


def _check_message_dtype(message_dtype: Any) -> None:
    """Raises `ValueError` unless it is None, or a type of signed floats, each of which takes whole bytes."""
    if message_dtype is None:
        return
    try:
        dtype = jnp.dtype(message_dtype)
        is_fit = jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits >= 8
        # Scales such as float8_e8m0fnu are floats without a sign and a zero.
        is_fit = is_fit and bool((np.array([0.0, -1.0]).astype(dtype) == np.array([0, -1], dtype)).all())
    except TypeError:  # there is no such type
        is_fit = False
    if not is_fit:
        raise ValueError(
            "message_dtype must be a type of floats of 8 bits or more, with a sign and a zero, such as jnp.bfloat16; "
            f"got {message_dtype!r}."
        )


def estimate_on_mesh(
    losses: Losses, code: GradientCode, mesh: Mesh, axis: str, *, message_dtype: Any = None, accumulate: bool = False
) -> Callable[..., tuple[Any, tuple[jax.Array, Any]]]:
    """`(params, batch, coding, *args) -> (gradient, (value, aux))`: the estimate of the sum, as the coding decodes it.

    Leaves of `batch` are [W, K, ...] or [padded_workers, K, ...]; `value` is the weighted mean of the losses of the
    chunks in the estimate, `aux` that of what else the loss returns. All of this runs under `jit`. `padded_workers` is
    W, rounded up to a multiple of the devices.
    """
    adds_chunk_by_chunk = accumulate or code.num_blocks > 1 or code.num_messages > 1
    estimate_sums = partial(_streamed_sums, one_by_one=accumulate) if adds_chunk_by_chunk else _weighted_sums

    def estimate_on_device(
        params: Any, args: tuple[Any, ...], batch: Any, encode: jax.Array, decode: jax.Array
    ) -> tuple[Any, tuple[jax.Array, Any]]:
        """(gradient, (loss, aux)): the estimate of the sum, the weighted means over its chunks; as on every device.

        `batch` [U, K, ...], `encode` [U, M, K, L] and `decode` [U, M, L] are those of this device's U workers. Of what
        `estimate_sums` gives, the gradient is summed over all devices already, loss, aux and weights are not.
        """
        losses_with_args = Losses(
            chunk_loss_and_aux=lambda *values: losses.chunk_loss_and_aux(*values, *args),
            weighted_loss_and_aux=lambda *values: losses.weighted_loss_and_aux(*values, *args),
        )
        gradient, own_loss_and_aux_sums, own_weight_sum = estimate_sums(
            losses_with_args, params, batch, encode, decode, axis, message_dtype
        )
        loss_and_aux_sums, weight_sum = sum_over_devices((own_loss_and_aux_sums, own_weight_sum), axis)
        return gradient, jax.tree.map(lambda x: mean_from_sums(x, weight_sum.astype(x.dtype)), loss_and_aux_sums)

    def estimate(params: Any, batch: Any, coding: Coding, *args: Any) -> tuple[Any, tuple[jax.Array, Any]]:
        """(gradient, (loss, aux)) on the whole mesh: batch and coding are cut by worker for `estimate_on_device`.

        Workers are padded up to a multiple of the devices; the coefficients of those that pad are 0.
        """
        num_devices = mesh.shape[axis]
        batch = jax.tree.map(lambda x: pad_workers(x, num_devices), batch)
        # Every device plans for itself: spread over the devices, the plan would need collectives of its own.
        coding_everywhere = Layout(mesh).replicate((coding.encode, coding.decode))
        encode, decode = pad_leading_axis(coding_everywhere, num_devices)
        return on_each_device(estimate_on_device, mesh, axis, num_whole_arguments=2)(
            params, args, batch, encode, decode
        )

    return estimate


def mesh_estimate(task: Task, code: GradientCode, layout: Layout) -> Estimate | None:
    """`(params, round_inputs, coding) -> (gradient, loss)`: what is decoded in a coded round of `run` on a mesh.

    Every device draws the batches of its workers' chunks. None without a mesh.
    """
    mesh, axis = layout.mesh, layout.axis
    if mesh is None or axis is None:
        return None

    def chunk_loss_and_aux(params: Any, chunk: jax.Array, round_inputs: RoundInputs) -> tuple[jax.Array, tuple[()]]:
        """The loss of chunk number `chunk`; there is no aux."""
        return chunk_loss(task, round_inputs)(params, chunk), ()

    def weighted_chunk_loss(
        params: Any, chunk_numbers: jax.Array, weights: jax.Array, round_inputs: RoundInputs
    ) -> tuple[jax.Array, tuple[()]]:
        """The sum, by `weights` float[U·K], of the losses on the batches of `chunk_numbers` int32[U·K]; no aux.

        These are the chunks of the U workers of a device.
        """
        batches, keys = jax.vmap(lambda chunk: chunk_batch(task, round_inputs, chunk))(chunk_numbers)
        return weighted_loss(task, params, weights, batches, keys), ()

    on_mesh = estimate_on_mesh(
        Losses(chunk_loss_and_aux=chunk_loss_and_aux, weighted_loss_and_aux=weighted_chunk_loss), code, mesh, axis
    )

    def estimate(params: Any, round_inputs: RoundInputs, coding: Coding) -> tuple[Any, jax.Array]:
        """(gradient, loss); `round_inputs` says what the batches are drawn from, and every device draws its own."""
        # int32[W, K], of the code that this round uses; -1 pads, where coefficients are 0, so that any chunk will do.
        chunks_of_worker, coding, _ = used_rows(code, coding)
        gradient, (loss, _) = on_mesh(params, chunks_of_worker.clip(0), coding, round_inputs)
        return gradient, loss

    return estimate


def shard_chunks(chunks: Any, code: GradientCode, mesh: Mesh, axis: str = "workers") -> Any:
    """Gives every worker its chunks: the batch that `coded_value_and_grad` takes.

    Each process makes the parts of its own devices only.

    Args:
      chunks: pytree of host arrays [N, ...], one entry a chunk.
      code: its assignment says who holds what.
      mesh: as for `coded_value_and_grad`.
      axis: of the workers.

    Returns:
      The same pytree of arrays [padded_workers, K, ...], sharded over the axis. What only pads holds chunk 0.

    Raises:
      ValueError: if there are not N chunks, or the mesh has no such axis.
    """
    check_code(code, "shard_chunks")
    sharding = NamedSharding(mesh_with_axis(mesh, axis), PartitionSpec(axis))
    chunk_of_slot = _chunk_of_slot(code, mesh.shape[axis])

    def shard_leaf(values: Any) -> jax.Array:
        """[padded_workers, K, ...] from the N chunks `values` [N, ...]; a process copies its own rows only.

        `chunk_of_slot` int32[padded_workers, K] is the chunk in each slot of a worker, W rounded up for the devices.
        """
        values = np.asarray(values)
        if values.ndim == 0 or values.shape[0] != code.assignment.num_chunks:
            raise ValueError(
                f"chunks must have one entry for each of the {code.assignment.num_chunks} chunks of the code along "
                f"their first axis; got shape {values.shape}."
            )
        shape = (*chunk_of_slot.shape, *values.shape[1:])

        def values_of_shard(shard_index: tuple[slice, ...] | None) -> np.ndarray:
            """Those of a device's workers: of the slices of all axes only the first, that of the workers, cuts."""
            slice_of_workers = (shard_index or ())[:1]
            return values[chunk_of_slot[slice_of_workers]]

        return jax.make_array_from_callback(shape, sharding, values_of_shard)

    return jax.tree.map(shard_leaf, chunks)


def pad_workers(values: jax.Array, num_devices: int) -> jax.Array:
    """[padded_workers, ...], W up to a multiple of the devices, from [W, ...]: those that pad repeat the last entry."""
    return jnp.pad(values, ((0, -values.shape[0] % num_devices), *((0, 0),) * (values.ndim - 1)), mode="edge")


def _chunk_of_slot(code: GradientCode, num_devices: int) -> np.ndarray:
    """int32[padded_workers, K]: the chunk in each of a worker's K slots; 0 for padding, where coefficients are 0."""
    chunks = code.assignment.chunks.clip(0)
    return np.pad(chunks, ((0, -chunks.shape[0] % num_devices), (0, 0)))


def _weighted_sums(
    losses: Losses, params: Any, batch: Any, encode: jax.Array, decode: jax.Array, axis: str, message_dtype: Any
) -> tuple[Any, tuple[jax.Array, Any], jax.Array]:
    """For L = M = 1: one backward pass through all chunks of the device, one sum over the devices.

    Leaves of `batch` are [U, K, ...]; encode is [U, 1, K, 1], decode [U, 1, 1].

    Returns:
      The estimate of the gradient sum, which is the same on all devices; and of this device's workers only: the
      weighted sums of the losses and of aux, `(loss, aux)`, and the sum of the weights.
    """
    weights = chunk_weights(encode, decode).reshape(-1)  # of the U·K chunks that the workers of this device hold
    chunks = jax.tree.map(merged_axes, batch)  # [U·K, ...]
    (loss_sum, aux_sums), own_gradient_sum = jax.value_and_grad(
        lambda p: losses.weighted_loss_and_aux(p, chunks, weights), has_aux=True
    )(params)
    gradient_sum = all_sum(own_gradient_sum, axis, message_dtype)
    return gradient_sum, (loss_sum, aux_sums), weights.sum().astype(loss_sum.dtype)


def _streamed_sums(
    losses: Losses, params: Any, batch: Any, encode: jax.Array, decode: jax.Array, axis: str, message_dtype: Any,
    *, one_by_one: bool,
) -> tuple[Any, tuple[jax.Array, Any], jax.Array]:  # fmt: skip
    """For any L and M: each worker adds its chunks, one after the other, to its messages.

    The workers of the device do so at once, or `one_by_one`.

    Leaves of `batch` are [U, K, ...]; encode is [U, M, K, L], decode [U, M, L].
    Returns what `_weighted_sums` does: the estimate of the gradient sum; of this device's workers the weighted sums
    (loss, aux), and the sum of the weights.
    """
    messages, (loss, aux) = worker_messages(
        losses.chunk_loss_and_aux, params, batch, encode, has_aux=True, one_by_one=one_by_one
    )
    estimate_blocks = estimate_from_messages(messages, decode, axis, message_dtype)  # [L, width]
    weights = chunk_weights(encode, decode).astype(loss.dtype)  # [U, K], as the losses
    return gradient_from_blocks(estimate_blocks, params), weighted_sum(weights, (loss, aux)), weights.sum()


def check_batch(batch: Any, code: GradientCode, mesh: Mesh, axis: str) -> None:
    """Raises a `ValueError` unless every leaf is [W, K, ...], or [padded_workers, K, ...] sharded over the axis.

    `padded_workers` is W, rounded up to a multiple of the devices along the axis.
    """
    num_workers, load, num_devices = code.assignment.num_workers, code.assignment.load, mesh.shape[axis]
    padded_workers = num_workers + -num_workers % num_devices
    for path, leaf in jax.tree.leaves_with_path(batch):
        name, shape = f"batch{jax.tree_util.keystr(path)}", np.shape(leaf)
        if len(shape) < 2 or shape[0] not in (num_workers, padded_workers) or shape[1] != load:
            idle_words = " and of the idle ones" if padded_workers != num_workers else ""
            raise ValueError(
                f"every leaf of the batch must be [{padded_workers}, {load}, ...]: the chunks of each worker of the "
                f"code{idle_words}; got {name} of shape {shape}. Make it with gcjax.engine.shard_chunks."
            )
        is_concrete = isinstance(leaf, jax.Array) and not _validate.is_traced(leaf)
        if is_concrete and not _fits_mesh(leaf, padded_workers, mesh, axis):
            raise ValueError(
                f"the first axis of the batch must be sharded over the mesh axis '{axis}' ({num_devices} devices), "
                f"so that each device has its own workers' chunks; {name} has the sharding {leaf.sharding}. Make "
                "it with gcjax.engine.shard_chunks, or put it there with jax.device_put."
            )


def _fits_mesh(array: jax.Array, padded_workers: int, mesh: Mesh, axis: str) -> bool:
    """Whether an array [W, ...] is not bound to other devices, and one of all padded workers lies sharded as it must.

    With fewer workers it cannot be sharded evenly: it is padded and sharded when it is used.
    """
    if array.committed and array.sharding.device_set != set(mesh.devices.flat):
        return False
    if mesh.shape[axis] == 1 or array.shape[0] != padded_workers:
        return True
    expected_sharding = NamedSharding(mesh, PartitionSpec(axis))
    return array.sharding.shard_shape(array.shape)[0] == expected_sharding.shard_shape(array.shape)[0]
