"""What the processes of a live round tell each other: their chunk times, then their messages.

Letters: W workers, K chunks a worker holds, L blocks, M messages, d parameters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from gcjax._products import einsum
from gcjax.codes.base import GradientCode
from gcjax.engine.collectives import estimate_from_messages
from gcjax.engine.gradients import mean_from_sums
from gcjax.engine.live.chunk_work import ChunkGradients
from gcjax.engine.messages import accumulation_dtype, chunk_weights, gradient_from_blocks
from gcjax.engine.spread import on_each_device

AXIS = "workers"


class SharedProgress(NamedTuple):
    """What all processes know of the workers' progress in a round; arrays of JAX or, once on the host, of numpy.

    Attributes:
      seconds: float[W, K], the time of each chunk; NaN for those that are not finished.
      progress: int32[W], the chunks that each worker has finished.
      residual: float[], of the plan for this progress.
    """

    seconds: Any
    progress: Any
    residual: Any


class Exchange(NamedTuple):
    """The two collectives of a round, each compiled once.

    Attributes:
      mesh: one device a worker.
      share_progress: `(seconds float[W, K], one row a process, NaN for unfinished chunks) -> SharedProgress`, the same
        everywhere.
      update: `(params, opt_state, chunk_gradients, progress int[W]) -> (params, opt_state, loss float[])`.
    """

    mesh: Mesh
    share_progress: Callable[[jax.Array], SharedProgress]
    update: Callable[[Any, Any, ChunkGradients, Any], tuple[Any, Any, jax.Array]]


def worker_mesh(num_workers: int) -> Mesh:
    """A mesh with the first device of every process, in the order of the processes.

    Raises:
      ValueError: if there are not as many processes as workers.
    """
    devices_last_to_first = reversed(jax.devices())  # so that of a process the first one is the last to be written
    first_device_of_process = {device.process_index: device for device in devices_last_to_first}
    num_processes = len(first_device_of_process)
    if num_processes != num_workers:
        raise ValueError(
            f"a live run needs one process for each worker of the code; the code has {num_workers} workers, and there "
            f"are {num_processes} processes. Start {num_workers} processes, or make the code for "
            f"{num_processes} workers."
        )
    devices = np.array([first_device_of_process[process] for process in sorted(first_device_of_process)])
    return Mesh(devices, (AXIS,), axis_types=(AxisType.Auto,))


def round_exchange(code: GradientCode, optimizer: optax.GradientTransformation, mesh: Mesh) -> Exchange:
    """The two collectives of the rounds of a code, compiled when they are first called.

    In numbers moved: W·K for the chunk times; for the gradient what `gcjax.engine.collectives` says.
    """
    replicated = NamedSharding(mesh, PartitionSpec())

    def share_progress(own_chunk_seconds: jax.Array) -> SharedProgress:
        """What all know, from float[1, K], the chunk times of this device's worker."""
        seconds_of_all = jax.lax.all_gather(own_chunk_seconds, AXIS, tiled=True)  # [W, K]
        progress = (~jnp.isnan(seconds_of_all)).sum(axis=1, dtype=jnp.int32)
        # The largest of all, so that no two processes can disagree on whether to go on, whatever their hardware.
        largest_residual = jax.lax.pmax(code.plan(progress).residual, AXIS)
        return SharedProgress(seconds=seconds_of_all, progress=progress, residual=largest_residual)

    def mean_estimate(progress: jax.Array, chunk_gradients: ChunkGradients) -> tuple[jax.Array, jax.Array]:
        """The estimate of the mean gradient, float[L, width], and the mean loss of the decoded chunks.

        `progress` int32[W] is that of all workers, `chunk_gradients` are those of this device's worker: `gradients`
        float[1, K, L, width], `losses` float[1, K].
        """
        coding, worker = code.plan(progress), jax.lax.axis_index(AXIS)
        own_encode, own_decode = coding.encode[worker], coding.decode[worker]  # [M, K, L] and [M, L]
        is_done = jnp.arange(own_encode.shape[1], dtype=progress.dtype) < progress[worker]  # [K]
        # A slot that is not done holds a gradient of an earlier round.
        own_gradients = jnp.where(is_done[:, None, None], chunk_gradients.gradients[0], 0)
        dtype = accumulation_dtype(own_gradients.dtype)
        # [M, width]
        own_messages = einsum("mkl,kli->mi", own_encode.astype(dtype), own_gradients.astype(dtype))
        sum_estimate = estimate_from_messages(own_messages[None], own_decode[None], AXIS)  # one worker a device
        own_losses = jnp.where(is_done, chunk_gradients.losses[0], 0)
        own_weights = chunk_weights(own_encode[None], own_decode[None])[0].astype(own_losses.dtype)
        own_sums = (own_losses * own_weights).sum(), own_weights.sum()
        loss_sum, weight_sum = jax.lax.psum(own_sums, AXIS)
        return sum_estimate / code.assignment.num_chunks, mean_from_sums(loss_sum, weight_sum)

    def update(
        params: Any, opt_state: Any, chunk_gradients: ChunkGradients, progress: jax.Array
    ) -> tuple[Any, Any, jax.Array]:
        """Parameters and optimizer state after the step with the decoded mean gradient, and the mean loss.

        The leaves of `chunk_gradients` are [W, ...], a row on each device; `progress` is int32[W].
        """
        mean_gradient, loss = on_each_device(mean_estimate, mesh, AXIS, num_whole_arguments=1)(
            progress, chunk_gradients
        )
        updates, opt_state = optimizer.update(gradient_from_blocks(mean_gradient, params), opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    share_progress_on_devices = on_each_device(share_progress, mesh, AXIS, num_whole_arguments=0)
    return Exchange(
        mesh,
        share_progress=jax.jit(share_progress_on_devices, out_shardings=replicated),
        update=jax.jit(update, out_shardings=replicated),
    )


def global_rows(mesh: Mesh, own_row: Any) -> Any:
    """A pytree of global arrays [W, ...], one row a process, from this process's own row [1, ...]."""
    sharding = NamedSharding(mesh, PartitionSpec(AXIS))
    (own_device,) = sharding.addressable_devices

    def global_leaf(own_row: Any) -> jax.Array:
        """[W, ...]: a global array of which this process has one row."""
        row_on_device = jax.device_put(own_row, own_device)
        global_shape = (mesh.size, *row_on_device.shape[1:])
        return jax.make_array_from_single_device_arrays(global_shape, sharding, [row_on_device])

    return jax.tree.map(global_leaf, own_row)


def own_copy(tree: Any) -> Any:
    """This process's copy of global arrays that are the same in all processes."""
    return jax.tree.map(lambda x: x.addressable_data(0), tree)
