"""Benchmarks of the engine: runs over the bare computation, compilation, the demo as a whole."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
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
    plain_sgd = plain_sgd_run(task, optimizer, num_workers, num_commits)
    asp_seconds, sgd_seconds = alternate(partial(run_params, task, protocol, optimizer, durations), plain_sgd)
    relative_speed = ratio(asp_seconds, sgd_seconds)
    asp_rate = num_commits / statistics.median(asp_seconds)
    sgd_rate = num_commits / statistics.median(sgd_seconds)
    note = f"{asp_rate:,.0f} commits/s, schedule included; plain SGD {sgd_rate:,.0f} steps/s"
    return [
        Row(
            what="ASP commits per second over plain SGD steps",
            value=f"{relative_speed:.2f}",
            target=">= 0.9",
            met=relative_speed >= 0.9,
            note=note,
            peer="plain SGD in a scan, with optax",
        )
    ]


def run_params(
    task: tasks.Task, protocol: protocols.Protocol, optimizer: optax.GradientTransformation, durations: jax.Array
) -> Any:
    """The parameters at the end of a run, which is evaluated at its beginning and end."""
    return engine.run(task, protocol, optimizer, durations, rng_key=KEY, eval_every=10**6).params


def plain_sgd_run(
    task: tasks.Task, optimizer: optax.GradientTransformation, num_workers: int, num_steps: int
) -> Callable[[], Any]:
    """A function that takes so many SGD steps in one compiled scan, on the batches of all workers in turn."""
    task_without_data, params = task._replace(data=None), task.init(KEY)

    @jax.jit
    def plain_sgd(data: Any, params: Any) -> Any:
        def sgd_step(carry: tuple[Any, Any], i: jax.Array) -> tuple[tuple[Any, Any], jax.Array]:
            params, state = carry
            worker, unit = i % num_workers, i // num_workers
            batch = task_without_data.unit_batch(data, KEY, worker, unit)
            loss, gradient = jax.value_and_grad(task_without_data.loss)(params, batch, KEY)
            gradient = jax.tree.map(lambda g: g / num_workers, gradient)
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), loss

        return jax.lax.scan(sgd_step, (params, optimizer.init(params)), jnp.arange(num_steps))

    return lambda: plain_sgd(task.data, params)


def bsp_rounds() -> list[Row]:
    """BSP rounds, 64 workers, against the vmapped gradient of 64 batches and its mean in a scan."""
    num_workers, num_rounds = 64, 300
    task = tasks.digits(num_workers, batch_size=32)
    optimizer, protocol = optax.sgd(0.1), protocols.bsp()
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, num_rounds, num_workers)
    task_without_data, params = task._replace(data=None), task.init(KEY)

    @jax.jit
    def plain_rounds(data: Any, params: Any) -> Any:
        def sgd_round(params: Any, unit: jax.Array) -> tuple[Any, None]:
            workers = jnp.arange(num_workers)
            batches = jax.vmap(lambda worker: task_without_data.unit_batch(data, KEY, worker, unit))(workers)
            gradients = jax.vmap(lambda batch: jax.grad(task_without_data.loss)(params, batch, KEY))(batches)
            return jax.tree.map(lambda p, g: p - 0.1 * g.mean(axis=0), params, gradients), None

        return jax.lax.scan(sgd_round, params, jnp.arange(num_rounds))

    run_bsp = partial(run_params, task, protocol, optimizer, durations)
    bsp_seconds, plain_seconds = alternate(run_bsp, lambda: plain_rounds(task.data, params))
    cost = 1 / ratio(bsp_seconds, plain_seconds)
    bsp_rate = num_rounds / statistics.median(bsp_seconds)
    plain_rate = num_rounds / statistics.median(plain_seconds)
    note = f"{bsp_rate:,.0f} rounds/s; vmapped {plain_rate:,.0f}"
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

    def run_with_seed(seed: int) -> Any:
        key = jax.random.key(seed)
        durations = stragglers.sample_durations(stragglers.exponential(), key, 20, 8)
        return engine.run(task, protocol, optimizer, durations, rng_key=key)

    compile_events: list[str] = []
    jax.block_until_ready(run_with_seed(0).params)

    def note_compilation(event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs, kwargs
        if "backend_compile" in event:
            compile_events.append(event)

    jax.monitoring.register_event_duration_secs_listener(note_compilation)
    jax.block_until_ready(run_with_seed(1).params)
    num_compiled = len(compile_events)
    return [
        Row(
            what="programs compiled by a second run", value=f"{num_compiled}", target="0", met=num_compiled == 0,
            note="",
        )
    ]  # fmt: skip


# The command line, and then the peak of its memory in MiB. The process asks that of itself: its parent is told the
# parent's own peak where this is larger.
_DEMO = """
from benchmarks.timing import peak_mebibytes
from gcjax import cli

status = cli.main()
print(peak_mebibytes())
raise SystemExit(status)
"""


def demo() -> list[Row]:
    """Wall time, compile time and peak memory of the demo, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo"
        command = [sys.executable, "-c", _DEMO, "run", "configs/quickstart.gin", "--out", str(out)]
        start_time = time.perf_counter()
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        wall_seconds = time.perf_counter() - start_time
        schemes = json.loads((out / "run.json").read_text())["schemes"]
    compile_seconds = sum(scheme["compile_seconds"] for scheme in schemes.values())
    run_seconds = sum(scheme["run_seconds"] for scheme in schemes.values())
    peak_gib = float(printed.splitlines()[-1]) / 2**10
    note = f"{compile_seconds:.1f} s compiling, {run_seconds:.1f} s running"
    return [
        Row(what="demo, wall time", value=f"{wall_seconds:.1f} s", target="< 60 s", met=wall_seconds < 60, note=note),
        Row(what="demo, peak memory", value=f"{peak_gib:.2f} GiB", target="< 2 GiB", met=peak_gib < 2, note=""),
    ]
