"""Coded steps on meshes of many devices, by counting: compiled ahead of time from shapes, and never run.

A process has at most 2048 CPU devices, so `pod_processes` has two, of which the first compiles for the devices of both.
"""

import os
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import pod_processes
from benchmarks.timing import KEY, Row, rows_of_child
from gcjax import codes, engine
from gcjax.codes import assignments

NUM_DEVICES = (64, 512, 4096)
LOADS = {1: 2, 2: 3}
"""L, the blocks of a gradient -> chunks that a device holds: enough for one straggler in either case."""
INPUTS, OUTPUTS, EXAMPLES = 256, 4096, 4
NUM_PARAMS, BYTES_OF_FLOAT = INPUTS * OUTPUTS, 4


class Pod(NamedTuple):
    """Devices and links for which the time of a step is predicted.

    Attributes:
      name: of them.
      flops: operations a second that a device reaches in training.
      link_bytes: that a device sends a second.
    """

    name: str
    flops: float
    link_bytes: float


PODS = (
    Pod("0.4 of an H100's 989 TFLOP/s, 400 Gb/s a device", flops=0.4 * 989e12, link_bytes=50e9),
    Pod("0.5 of a TPU v5e's 197 TFLOP/s, 1600 Gb/s a device", flops=0.5 * 197e12, link_bytes=200e9),
)
MODEL_PARAMS, CHUNK_TOKENS = 1e9, 8192


class Count(NamedTuple):
    """What the compiler says of one device's part of a step.

    Attributes:
      bytes_over_4d: that it sends, over the bytes of the gradient; a collective in a loop would count once.
      flops: operations; those of a loop's body count once.
      temporary_bytes: memory beyond arguments and results.
      compile_seconds: wall time of compiling.
    """

    bytes_over_4d: float
    flops: float
    temporary_bytes: int
    compile_seconds: float


def count(num_devices: int, num_blocks: int | None) -> Count:
    """Of the gradient of a linear layer of d = 2^20 numbers: L blocks a message, or uncoded with one chunk each."""
    devices = np.asarray(jax.devices()[:num_devices])
    mesh = jax.sharding.Mesh(devices, ("workers",), axis_types=(jax.sharding.AxisType.Auto,))
    load = 1 if num_blocks is None else LOADS[num_blocks]
    code = codes.partial(assignments.cyclic(num_devices, load=load), num_blocks=num_blocks or 1, rng_key=KEY)

    def losses(params: jax.Array, inputs: jax.Array) -> jax.Array:
        """float[B]: of examples float[B, inputs]."""
        return ((inputs @ params) ** 2).mean(axis=-1)

    def uncoded(params: jax.Array, batch: jax.Array, progress: jax.Array) -> jax.Array:
        """The mean gradient of all examples."""
        del progress
        inputs = batch.reshape(-1, INPUTS)
        return jax.grad(lambda params: losses(params, inputs).mean())(params)

    gradient = uncoded if num_blocks is None else engine.coded_value_and_grad(losses, code, mesh)
    everywhere, by_worker = jax.NamedSharding(mesh, jax.P()), jax.NamedSharding(mesh, jax.P("workers"))
    shapes = (
        jax.ShapeDtypeStruct((INPUTS, OUTPUTS), jnp.float32, sharding=everywhere),
        jax.ShapeDtypeStruct((num_devices, load, EXAMPLES, INPUTS), jnp.float32, sharding=by_worker),
        jax.ShapeDtypeStruct((num_devices,), jnp.int32, sharding=everywhere),
    )
    lowered = jax.jit(gradient).lower(*shapes)
    begin_time = time.perf_counter()
    compiled: Any = lowered.compile()
    compile_seconds = time.perf_counter() - begin_time
    num_bytes_sent = sum(engine.bytes_sent(compiled).values())
    return Count(
        bytes_over_4d=num_bytes_sent / (BYTES_OF_FLOAT * NUM_PARAMS),
        flops=_account(compiled).get("flops", 0.0),
        temporary_bytes=compiled.memory_analysis().temp_size_in_bytes,
        compile_seconds=compile_seconds,
    )


def _account(compiled: Any) -> dict[str, float]:
    """XLA's cost analysis of one device's program."""
    account = compiled.cost_analysis()
    return account[0] if isinstance(account, list) else account


def predicted_cost(pod: Pod, load: int, coded: Count, uncoded: Count) -> float:
    """The time of a coded step over that of the uncoded one, if nothing overlaps, for a model of 10^9 parameters."""
    seconds_of_chunk = 6 * MODEL_PARAMS * CHUNK_TOKENS / pod.flops
    coded_send, uncoded_send = (
        BYTES_OF_FLOAT * MODEL_PARAMS * counted.bytes_over_4d / pod.link_bytes for counted in (coded, uncoded)
    )
    return (load * seconds_of_chunk + coded_send) / (seconds_of_chunk + uncoded_send)


def pod_rows() -> list[Row]:
    """Bytes, operations and memory a device on each mesh, and the predicted cost of a coded step."""
    rows = []
    count_on_fewest_devices: dict[int, Count] = {}
    for num_devices in NUM_DEVICES:
        uncoded = count(num_devices, num_blocks=None)
        for num_blocks, load in LOADS.items():
            coded = count(num_devices, num_blocks)
            fewest_devices_count = count_on_fewest_devices.setdefault(num_blocks, coded)
            growth = max(
                coded.flops / fewest_devices_count.flops, coded.temporary_bytes / fewest_devices_count.temporary_bytes
            )
            costs = ", ".join(f"{predicted_cost(pod, load, coded, uncoded):.2f} ({pod.name})" for pod in PODS)
            rows.append(
                Row(
                    what=f"{num_devices} devices, L = {num_blocks}: a device's operations and memory over 64 devices'",
                    value=f"{growth:.3f}", target="<= 1.02", met=growth <= 1.02,
                    note=f"sends {coded.bytes_over_4d:.2f} x 4d, uncoded {uncoded.bytes_over_4d:.2f}; predicted cost "
                    f"with {load} chunks a device, 10^9 parameters: {costs}; compiled in {coded.compile_seconds:.1f} s",
                )
            )  # fmt: skip
    return rows


def pods() -> list[Row]:
    """The rows, from a process of its own with half of the devices."""
    num_devices_of_process = max(NUM_DEVICES) // pod_processes.NUM_PROCESSES
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={num_devices_of_process}"
    return rows_of_child("benchmarks.pod_processes", XLA_FLAGS=flags, JAX_PLATFORMS="cpu")
