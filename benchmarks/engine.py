"""Benchmarks of the engine: runs over the bare computation, compilation, the demo as a whole."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.timing import KEY, Row, alternate, ratio
from gcjax import engine, protocols, stragglers, tasks


def asp_commits() -> list[Row]:
    """ASP, 64 workers, MLP 64-128-10, batch 32, against plain SGD in a scan with the same batches and optimizer."""
    num_workers = 64
    task = tasks.digits(num_workers, batch_size=32)
    optimizer, protocol = optax.sgd(0.1), protocols.asp()
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, 400, num_workers)
    schedule = protocol(durations)
    num_commits = int(np.isfinite(schedule.time).sum())
    functions, params = task._replace(data=None), task.init(KEY)

    @jax.jit
    def plain(data: Any, params: Any) -> Any:
        def step(carry: tuple[Any, Any], i: jax.Array) -> tuple[tuple[Any, Any], jax.Array]:
            params, state = carry
            batch = functions.unit_batch(data, KEY, i % num_workers, i // num_workers)
            loss, gradient = jax.value_and_grad(functions.loss)(params, batch, KEY)
            gradient = jax.tree.map(lambda g: g / num_workers, gradient)
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), loss

        return jax.lax.scan(step, (params, optimizer.init(params)), jnp.arange(num_commits))

    def ours() -> Any:
        return engine.run(task, protocol, optimizer, durations, rng_key=KEY, eval_every=10**6).params

    asp, sgd = alternate(ours, lambda: plain(task.data, params))
    value, rate = ratio(asp, sgd), num_commits / statistics.median(asp)
    note = f"{rate:,.0f} commits/s, schedule included; plain SGD {num_commits / statistics.median(sgd):,.0f} steps/s"
    return [
        Row(
            what="ASP commits per second over plain SGD steps",
            value=f"{value:.2f}",
            target=">= 0.9",
            met=value >= 0.9,
            note=note,
            peer="plain SGD in a scan, with optax",
        )
    ]


def bsp_rounds() -> list[Row]:
    """BSP rounds, 64 workers, against the vmapped gradient of 64 batches and its mean in a scan."""
    num_workers, num_rounds = 64, 300
    task = tasks.digits(num_workers, batch_size=32)
    optimizer, protocol = optax.sgd(0.1), protocols.bsp()
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, num_rounds, num_workers)
    functions, params = task._replace(data=None), task.init(KEY)

    @jax.jit
    def plain(data: Any, params: Any) -> Any:
        def step(params: Any, i: jax.Array) -> tuple[Any, None]:
            batches = jax.vmap(lambda w: functions.unit_batch(data, KEY, w, i))(jnp.arange(num_workers))
            gradients = jax.vmap(lambda batch: jax.grad(functions.loss)(params, batch, KEY))(batches)
            return jax.tree.map(lambda p, g: p - 0.1 * g.mean(axis=0), params, gradients), None

        return jax.lax.scan(step, params, jnp.arange(num_rounds))

    def ours() -> Any:
        return engine.run(task, protocol, optimizer, durations, rng_key=KEY, eval_every=10**6).params

    bsp, vmapped = alternate(ours, lambda: plain(task.data, params))
    cost = 1 / ratio(bsp, vmapped)
    note = (
        f"{num_rounds / statistics.median(bsp):,.0f} rounds/s; vmapped {num_rounds / statistics.median(vmapped):,.0f}"
    )
    return [
        Row(
            what="BSP round over plain vmapped gradient",
            value=f"{cost:.2f}",
            target="<= 1.15",
            met=cost <= 1.15,
            note=note,
            peer="the vmapped gradient of all workers in a scan",
        )
    ]


def second_run() -> list[Row]:
    """Programs compiled by a second `run` with the same shapes and other numbers."""
    task = tasks.digits(8, batch_size=8)
    optimizer, protocol = optax.sgd(0.1), protocols.ssp(staleness=3)

    def once(seed: int) -> Any:
        key = jax.random.key(seed)
        durations = stragglers.sample_durations(stragglers.exponential(), key, 20, 8)
        return engine.run(task, protocol, optimizer, durations, rng_key=key)

    compiled: list[str] = []
    jax.block_until_ready(once(0).params)

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs, kwargs
        compiled.extend([event] if "backend_compile" in event else [])

    jax.monitoring.register_event_duration_secs_listener(listen)
    jax.block_until_ready(once(1).params)
    count = len(compiled)
    return [Row(what="programs compiled by a second run", value=f"{count}", target="0", met=count == 0, note="")]


def demo() -> list[Row]:
    """Wall time, compile time and peak memory of the demo, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo"
        command = [sys.executable, "-m", "gcjax", "run", "configs/quickstart.gin", "--out", str(out)]
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)  # the memory of this process, not of others before
        wall = time.perf_counter() - start
        if status:
            raise RuntimeError(f"the demo failed: {' '.join(command)}")
        schemes = json.loads((out / "run.json").read_text())["schemes"]
    compile_seconds = sum(scheme["compile_seconds"] for scheme in schemes.values())
    run_seconds = sum(scheme["run_seconds"] for scheme in schemes.values())
    memory = usage.ru_maxrss / 2**20
    note = f"{compile_seconds:.1f} s compiling, {run_seconds:.1f} s running"
    return [
        Row(what="demo, wall time", value=f"{wall:.1f} s", target="< 60 s", met=wall < 60, note=note),
        Row(what="demo, peak memory", value=f"{memory:.2f} GiB", target="< 2 GiB", met=memory < 2, note=""),
    ]
