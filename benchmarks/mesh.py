"""Benchmarks on eight CPU devices, which `benchmarks` runs in a process of its own."""

import os

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import json
import statistics
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from benchmarks.timing import KEY, Row, alternate, json_of_child, ratio
from gcjax import codes, engine, protocols, stragglers, tasks
from gcjax.codes import assignments

NUM_WORKERS, LOAD, FEATURES, WIDTH, CLASSES = 8, 4, 256, 1024, 10
BYTES_OF_FLOAT = 4
NUM_PROCESSES = 5


class CodedStepCase(NamedTuple):
    """A coded step: L, the examples of a chunk, and what it may take at most as a multiple of the uncoded one."""

    num_blocks: int
    chunk_examples: int
    cost_limit: float


CODED_STEPS = CodedStepCase(1, 64, 1.03), CodedStepCase(2, 64, 1.25), CodedStepCase(2, 256, 1.25)


def losses(params: Any, chunk: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Of the examples of a chunk, under an MLP with one hidden layer."""
    inputs, labels = chunk
    hidden = jax.nn.relu(inputs @ params["in"] + params["bias"])
    return optax.softmax_cross_entropy_with_integer_labels(hidden @ params["out"], labels)


def coded_steps(mesh: Any) -> list[Row]:
    """Coded steps on eight devices over the uncoded data-parallel one with as many chunk gradients, and their bytes.

    Processes differ by more than repetitions do, so a row is the median of several.
    """
    costs_of_processes = [_costs(mesh), *(json_of_child("benchmarks.mesh", "costs") for _ in range(NUM_PROCESSES - 1))]
    rows = []
    for case, *costs in zip(CODED_STEPS, *costs_of_processes, strict=True):
        median_cost = statistics.median(costs)
        sizes = f"L = {case.num_blocks}, {case.chunk_examples} examples a chunk"
        rows.append(
            Row(
                what=f"coded step over the uncoded one, 8 devices, {sizes}",
                value=f"{median_cost:.2f}",
                target=f"<= {case.cost_limit}",
                met=median_cost <= case.cost_limit,
                note=f"{min(costs):.2f} to {max(costs):.2f} in {NUM_PROCESSES} processes",
                peer="the uncoded data-parallel step",
            )
        )
        if case.chunk_examples == 64:
            _, coded_step = _uncoded_and_coded_step(mesh, case)
            rows += _traffic_rows(coded_step, case.num_blocks)
    return rows


def _costs(mesh: Any) -> list[float]:
    """The time of each coded step over that of the uncoded one, in this process."""
    costs = []
    for case in CODED_STEPS:
        uncoded_step, coded_step = _uncoded_and_coded_step(mesh, case)
        uncoded_seconds, coded_seconds = alternate(uncoded_step.run, coded_step.run, repeats=41)
        costs.append(1 / ratio(coded_seconds, uncoded_seconds))
    return costs


class Step(NamedTuple):
    """A compiled training step, and what it is called with."""

    function: Any
    arguments: tuple[Any, ...]

    def run(self) -> Any:
        """Calls it."""
        return self.function(*self.arguments)


def _uncoded_and_coded_step(mesh: Any, case: CodedStepCase) -> tuple[Step, Step]:
    """The uncoded step, and the coded one with everybody's full progress."""
    num_blocks, chunk_examples, _ = case
    rng = np.random.default_rng(0)
    params = {
        "in": rng.normal(size=(FEATURES, WIDTH)).astype(np.float32) / 16,
        "bias": np.zeros(WIDTH, np.float32),
        "out": rng.normal(size=(WIDTH, CLASSES)).astype(np.float32) / 32,
    }
    inputs = rng.normal(size=(NUM_WORKERS, chunk_examples, FEATURES)).astype(np.float32)
    labels = rng.integers(0, CLASSES, (NUM_WORKERS, chunk_examples))
    code = codes.partial(assignments.cyclic(NUM_WORKERS, load=LOAD), num_blocks=num_blocks, rng_key=KEY)
    optimizer = optax.adam(1e-3)
    params, progress = engine.replicate((params, np.full(NUM_WORKERS, LOAD, np.int32)), mesh)
    state = engine.replicate(optimizer.init(params), mesh)
    batch_by_chunk = engine.shard_chunks((inputs, labels), code, mesh)
    merged_batch = jax.tree.map(
        lambda x: jax.device_put(np.asarray(x).reshape(-1, *x.shape[2:]), x.sharding), batch_by_chunk
    )

    def step_with(value_and_gradient: Callable[..., Any], *batch_arguments: Any) -> Step:
        @jax.jit
        def step(params: Any, state: Any, *batch_arguments: Any) -> Any:
            gradient = value_and_gradient(params, *batch_arguments)[1]
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        return Step(step, (params, state, *batch_arguments))

    uncoded_step = step_with(jax.value_and_grad(lambda p, b: losses(p, b).mean()), merged_batch)
    coded_step = step_with(engine.coded_value_and_grad(losses, code, mesh), batch_by_chunk, progress)
    return uncoded_step, coded_step


def _traffic_rows(step: Step, num_blocks: int) -> list[Row]:
    """The bytes that a device sends in a step, and the programs compiled for another progress."""
    params, *_, progress = step.arguments
    num_params = sum(x.size for x in jax.tree.leaves(params))
    bytes_by_operation = engine.bytes_sent(step.function.lower(*step.arguments).compile())
    models_sent = sum(bytes_by_operation.values()) / (BYTES_OF_FLOAT * num_params)
    models_of_ring = (2 if num_blocks == 1 else 1 + 1 / num_blocks) * (NUM_WORKERS - 1) / NUM_WORKERS
    most_models = models_of_ring * 1.01
    half_progress = progress - progress // 2
    step.function(*step.arguments[:-1], half_progress)
    num_compiled_again = step.function._cache_size() - 1
    return [
        Row(
            what=f"bytes sent by a device over 4d, L = {num_blocks}",
            value=f"{models_sent:.2f}",
            target=f"<= {most_models:.2f}",
            met=models_sent <= most_models,
            note=f"d = {num_params:,}",
        ),
        Row(
            what=f"programs compiled for another progress, L = {num_blocks}",
            value=f"{num_compiled_again}",
            target="0",
            met=num_compiled_again == 0,
            note="",
        ),
    ]


class WavefrontCase(NamedTuple):
    """A model of the digits, and how ASP is run on it.

    Attributes:
      hidden: units of its hidden layer.
      batch_size: examples a gradient.
      num_rounds: units of each worker.
      widths: of wavefronts.
    """

    hidden: int
    batch_size: int
    num_rounds: int
    widths: tuple[int, ...]


WAVEFRONT_CASES = (
    WavefrontCase(hidden=128, batch_size=32, num_rounds=50, widths=(8, 64)),
    WavefrontCase(hidden=512, batch_size=32, num_rounds=8, widths=(8,)),
    WavefrontCase(hidden=512, batch_size=512, num_rounds=8, widths=(8,)),
)


def wavefronts(mesh: Any) -> list[Row]:
    """Gradients a second of ASP in wavefronts on the mesh, over those of BSP, for models of several sizes."""
    return [row for case in WAVEFRONT_CASES for row in _wavefront_rows(mesh, case)]


def _wavefront_rows(mesh: Any, case: WavefrontCase) -> list[Row]:
    """The rows of one model."""
    num_workers = 64
    task = tasks.digits(num_workers, batch_size=case.batch_size, hidden=(case.hidden,))
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, case.num_rounds, num_workers)
    optimizer, asp, bsp = optax.sgd(0.1), protocols.asp(), protocols.bsp()
    asp_commits, bsp_commits = (int(np.isfinite(protocol(durations).time).sum()) for protocol in (asp, bsp))

    def run_function(protocol: Any, wavefront_width: int | None = None) -> Callable[[], Any]:
        return lambda: (
            engine.run(
                task,
                protocol,
                optimizer,
                durations,
                rng_key=KEY,
                eval_every=10**6,
                mesh=mesh,
                wavefront_width=wavefront_width,
            ).params
        )

    bsp_seconds, *seconds_of_widths = alternate(
        run_function(bsp), *(run_function(asp, width) for width in case.widths), repeats=5
    )
    bsp_rate = num_workers * bsp_commits / statistics.median(bsp_seconds)
    rows = []
    for width, seconds in zip(case.widths, seconds_of_widths, strict=True):
        asp_rate = asp_commits / statistics.median(seconds)
        rows.append(
            Row(
                what=f"ASP in wavefronts of {width} over BSP, gradients a second, 8 devices, {case.hidden} hidden, "
                f"batches of {case.batch_size}",
                value=f"{asp_rate / bsp_rate:.2f}",
                target="-",
                met=True,
                note=f"{asp_rate:,.0f} gradients/s; BSP {bsp_rate:,.0f}",
            )
        )
    return rows


def main() -> None:
    """Prints the rows as JSON; with the argument `costs`, those of the coded steps in this process alone."""
    mesh = jax.make_mesh((8,), ("workers",))
    if sys.argv[1:] == ["costs"]:
        json.dump(_costs(mesh), sys.stdout)
        return
    json.dump([row._asdict() for benchmark in (coded_steps, wavefronts) for row in benchmark(mesh)], sys.stdout)


if __name__ == "__main__":
    main()
