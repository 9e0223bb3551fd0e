"""Benchmarks on eight CPU devices, which `experiments.speed` runs in a process of its own."""

import os

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

from experiments.speed import KEY, Row, alternate, ratio
from gcjax import codes, engine, protocols, stragglers, tasks

LOAD, EXAMPLES, FEATURES, WIDTH, CLASSES = 4, 64, 256, 1024, 10


def losses(params: Any, chunk: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Of the examples of a chunk, under an MLP with one hidden layer."""
    hidden = jax.nn.relu(chunk[0] @ params["in"] + params["bias"])
    return optax.softmax_cross_entropy_with_integer_labels(hidden @ params["out"], chunk[1])


def coded_steps(mesh: Any) -> list[Row]:
    """A coded step on eight devices over the uncoded data-parallel one with as many chunk gradients, and its bytes."""
    draw = np.random.default_rng(0)
    params = {
        "in": draw.normal(size=(FEATURES, WIDTH)).astype(np.float32) / 16,
        "bias": np.zeros(WIDTH, np.float32),
        "out": draw.normal(size=(WIDTH, CLASSES)).astype(np.float32) / 32,
    }
    params, size = engine.replicate(params, mesh), sum(x.size for x in params.values())
    chunks = draw.normal(size=(8, EXAMPLES, FEATURES)).astype(np.float32), draw.integers(0, CLASSES, (8, EXAMPLES))
    optimizer = optax.adam(1e-3)

    def step_with(gradient_of: Callable[..., Any]) -> Any:
        @jax.jit
        def step(params: Any, state: Any, *given: Any) -> Any:
            gradient = gradient_of(params, *given)[1]
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        return step

    coded = {blocks: codes.partial(codes.cyclic(8, load=LOAD), num_blocks=blocks, rng_key=KEY) for blocks in (1, 2)}
    batch = engine.shard_chunks(chunks, coded[1], mesh)
    merged = jax.tree.map(lambda x: jax.device_put(np.asarray(x).reshape(-1, *x.shape[2:]), x.sharding), batch)
    plain = step_with(jax.value_and_grad(lambda p, b: losses(p, b).mean()))
    steps = {blocks: step_with(engine.coded_value_and_grad(losses, code, mesh)) for blocks, code in coded.items()}
    state, progress = engine.replicate((optimizer.init(params), np.full(8, LOAD, np.int32)), mesh)

    times = alternate(
        lambda: plain(params, state, merged), *(lambda s=s: s(params, state, batch, progress) for s in steps.values()),
        repeats=41,
    )  # fmt: skip
    other = engine.replicate(np.arange(8, dtype=np.int32) % LOAD + 1, mesh)
    for step in steps.values():
        step(params, state, batch, other)
    compiled = sum(step._cache_size() - 1 for step in steps.values())
    rows = []
    for (blocks, step), seconds, limit in zip(steps.items(), times[1:], (1.03, 1.25), strict=True):
        cost = 1 / ratio(seconds, times[0])
        sent = sum(engine.bytes_sent(step.lower(params, state, batch, progress).compile()).values()) / (4 * size)
        note = f"{1e3 * statistics.median(seconds):.1f} ms; uncoded {1e3 * statistics.median(times[0]):.1f} ms"
        what = f"coded step, L = {blocks}, over the uncoded one, 8 devices"
        rows.append(Row(what, f"{cost:.2f}", f"<= {limit}", cost <= limit, note))
        most = (2 if blocks == 1 else 1 + 1 / blocks) * 7 / 8 * 1.01
        rows.append(
            Row(
                f"bytes sent by a device over 4d, L = {blocks}",
                f"{sent:.2f}",
                f"<= {most:.2f}",
                sent <= most,
                f"d = {size:,}",
            )
        )
    rows.append(Row("programs compiled by coded steps with other progress", f"{compiled}", "0", compiled == 0, ""))
    return rows


def fronts(mesh: Any) -> list[Row]:
    """Gradients a second of ASP in fronts on the mesh, over those of BSP."""
    num_workers, num_rounds = 64, 50
    task = tasks.digits(num_workers, batch_size=32)
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, num_rounds, num_workers)
    optimizer, asp, bsp = optax.sgd(0.1), protocols.asp(), protocols.bsp()
    counts = {name: int(np.isfinite(p(durations).time).sum()) for name, p in (("asp", asp), ("bsp", bsp))}

    def run(protocol: Any, width: int | None = None) -> Callable[[], Any]:
        return lambda: (
            engine.run(
                task, protocol, optimizer, durations, rng_key=KEY, eval_every=10**6, mesh=mesh, front_width=width
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
                f"ASP in fronts of {width} over BSP, gradients a second, 8 devices",
                f"{rate / rounds:.2f}",
                "-",
                True,
                note,
            )
        )
    return rows


def main() -> None:
    """Prints the rows as JSON."""
    mesh = jax.make_mesh((8,), ("workers",))
    json.dump([row._asdict() for benchmark in (coded_steps, fronts) for row in benchmark(mesh)], sys.stdout)


if __name__ == "__main__":
    main()
