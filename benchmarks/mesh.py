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

from benchmarks.timing import KEY, Row, alternate, ratio
from gcjax import codes, engine, protocols, stragglers, tasks
from gcjax.codes import assignments

LOAD, FEATURES, WIDTH, CLASSES = 4, 256, 1024, 10


def losses(params: Any, chunk: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Of the examples of a chunk, under an MLP with one hidden layer."""
    hidden = jax.nn.relu(chunk[0] @ params["in"] + params["bias"])
    return optax.softmax_cross_entropy_with_integer_labels(hidden @ params["out"], chunk[1])


def coded_steps(mesh: Any) -> list[Row]:
    """Coded steps on eight devices over the uncoded data-parallel one with as many chunk gradients, and their bytes."""
    rows = []
    for blocks, examples, limit in ((1, 64, 1.03), (2, 64, 1.25), (2, 256, 1.25)):
        plain, coded = _steps(mesh, blocks, examples)
        times = alternate(plain.run, coded.run, repeats=41)
        cost = 1 / ratio(times[1], times[0])
        note = f"{1e3 * statistics.median(times[1]):.1f} ms; uncoded {1e3 * statistics.median(times[0]):.1f} ms"
        what = f"coded step over the uncoded one, 8 devices, L = {blocks}, {examples} examples a chunk"
        rows.append(
            Row(
                what=what,
                value=f"{cost:.2f}",
                target=f"<= {limit}",
                met=cost <= limit,
                note=note,
                peer="the uncoded data-parallel step",
            )
        )
        if examples == 64:
            rows += _traffic(coded, blocks)
    return rows


class Step(NamedTuple):
    """A compiled training step, and what it is called with."""

    function: Any
    arguments: tuple[Any, ...]

    def run(self) -> Any:
        """Calls it."""
        return self.function(*self.arguments)


def _steps(mesh: Any, blocks: int, examples: int) -> tuple[Step, Step]:
    """The uncoded step, and the coded one with everybody's full progress."""
    draw = np.random.default_rng(0)
    params = {
        "in": draw.normal(size=(FEATURES, WIDTH)).astype(np.float32) / 16,
        "bias": np.zeros(WIDTH, np.float32),
        "out": draw.normal(size=(WIDTH, CLASSES)).astype(np.float32) / 32,
    }
    chunks = draw.normal(size=(8, examples, FEATURES)).astype(np.float32), draw.integers(0, CLASSES, (8, examples))
    code, optimizer = codes.partial(assignments.cyclic(8, load=LOAD), num_blocks=blocks, rng_key=KEY), optax.adam(1e-3)
    params, progress = engine.replicate((params, np.full(8, LOAD, np.int32)), mesh)
    state = engine.replicate(optimizer.init(params), mesh)
    batch = engine.shard_chunks(chunks, code, mesh)
    merged = jax.tree.map(lambda x: jax.device_put(np.asarray(x).reshape(-1, *x.shape[2:]), x.sharding), batch)

    def step_with(gradient_of: Callable[..., Any], *given: Any) -> Step:
        @jax.jit
        def step(params: Any, state: Any, *given: Any) -> Any:
            gradient = gradient_of(params, *given)[1]
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        return Step(step, (params, state, *given))

    plain = step_with(jax.value_and_grad(lambda p, b: losses(p, b).mean()), merged)
    return plain, step_with(engine.coded_value_and_grad(losses, code, mesh), batch, progress)


def _traffic(step: Step, blocks: int) -> list[Row]:
    """The bytes that a device sends in a step, and the programs compiled for another progress."""
    params, *_, progress = step.arguments
    size = sum(x.size for x in jax.tree.leaves(params))
    sent = sum(engine.bytes_sent(step.function.lower(*step.arguments).compile()).values()) / (4 * size)
    most = (2 if blocks == 1 else 1 + 1 / blocks) * 7 / 8 * 1.01
    step.function(*step.arguments[:-1], progress - progress // 2)
    compiled = step.function._cache_size() - 1
    return [
        Row(
            what=f"bytes sent by a device over 4d, L = {blocks}",
            value=f"{sent:.2f}",
            target=f"<= {most:.2f}",
            met=sent <= most,
            note=f"d = {size:,}",
        ),
        Row(
            what=f"programs compiled for another progress, L = {blocks}",
            value=f"{compiled}",
            target="0",
            met=compiled == 0,
            note="",
        ),
    ]


def wavefronts(mesh: Any) -> list[Row]:
    """Gradients a second of ASP in wavefronts on the mesh, over those of BSP."""
    num_workers, num_rounds = 64, 50
    task = tasks.digits(num_workers, batch_size=32)
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, num_rounds, num_workers)
    optimizer, asp, bsp = optax.sgd(0.1), protocols.asp(), protocols.bsp()
    counts = {name: int(np.isfinite(p(durations).time).sum()) for name, p in (("asp", asp), ("bsp", bsp))}

    def run(protocol: Any, width: int | None = None) -> Callable[[], Any]:
        return lambda: (
            engine.run(
                task, protocol, optimizer, durations, rng_key=KEY, eval_every=10**6, mesh=mesh, wavefront_width=width
            ).params
        )

    bsp_seconds, *others = alternate(run(bsp), *(run(asp, width) for width in (8, 64)), repeats=5)
    rounds = num_workers * counts["bsp"] / statistics.median(bsp_seconds)
    rows = []
    for width, seconds in zip((8, 64), others, strict=True):
        rate = counts["asp"] / statistics.median(seconds)
        note = f"{rate:,.0f} gradients/s; BSP {rounds:,.0f}"
        rows.append(
            Row(
                what=f"ASP in wavefronts of {width} over BSP, gradients a second, 8 devices",
                value=f"{rate / rounds:.2f}",
                target="-",
                met=True,
                note=note,
            )
        )
    return rows


def main() -> None:
    """Prints the rows as JSON."""
    mesh = jax.make_mesh((8,), ("workers",))
    json.dump([row._asdict() for benchmark in (coded_steps, wavefronts) for row in benchmark(mesh)], sys.stdout)


if __name__ == "__main__":
    main()
