"""What `gcjax.watch` costs a training loop."""

import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import gcjax
from benchmarks.timing import Row

STEP_SECONDS = 0.01
NUM_PAIRS = 300
NUM_REPEATS = 7


def watching() -> list[Row]:
    """A compiled step of about 10 ms with and without `gcjax.watch`, in turn; by its time, and by processor time.

    The step takes over its state and is waited for, as in a loop that prints its loss. It computes on one thread.
    """
    step = _step()
    with tempfile.TemporaryDirectory() as folder, gcjax.watch(step, folder=folder, report=None) as watched:
        pairs = [_medians(watched, step) for _ in range(NUM_REPEATS)]
    ratios = sorted(ours / plain for (ours, plain), _ in pairs)
    cost = statistics.median(ratios) - 1
    added = statistics.median(ours - plain for (ours, plain), _ in pairs)
    processor = statistics.median(ours - plain for _, (ours, plain) in pairs)
    return [
        Row(
            what="gcjax.watch on a step of 10 ms",
            value=f"{100 * cost:+.2f} %",
            target="<= 0.5 %",
            met=cost <= 0.005,
            note=f"{1e6 * added:+.0f} µs a step; {100 * (ratios[0] - 1):+.2f} to {100 * (ratios[-1] - 1):+.2f} % in "
            f"{NUM_REPEATS} repetitions; processor time of all threads {1e6 * processor:+.0f} µs; "
            f"load of the machine {os.getloadavg()[0]:.0f}",
            peer="the same step without it",
        ),
        _work_row(),
    ]


def _work_row() -> Row:
    """Processor time of all that a step causes, its rows included, where nothing else runs in between."""
    step = jax.jit(lambda x: (x + 1, x.sum()))
    num_steps, times = 3000, []
    state = jnp.zeros(4)
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            watched = gcjax.watch(step, folder=folder, report=None)
            jax.block_until_ready([watched(state), step(state)])
            starts = []
            for function in (step, watched):
                starts.append(time.process_time())
                for _ in range(num_steps):
                    function(state)
            watched.close()
            times.append((time.process_time() - 2 * starts[1] + starts[0]) / num_steps)
    share = statistics.median(times) / STEP_SECONDS
    return Row(
        what="all processor time of gcjax.watch for a step, over 10 ms",
        value=f"{100 * share:.2f} %",
        target="<= 0.5 %",
        met=share <= 0.005,
        note=f"{1e6 * statistics.median(times):.0f} µs on all threads; steps follow each other at once",
    )


def _step() -> Callable[..., Any]:
    """A compiled step of about 10 ms."""

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: jax.Array, num_loops: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = jax.lax.fori_loop(0, num_loops, lambda _, x: jnp.tanh(x * 1.01 + 0.1), state)
        return state, state.sum()

    def seconds(num_loops: int) -> float:
        times = []
        for _ in range(20):
            start = time.perf_counter()
            jax.block_until_ready(step(_state(), jnp.asarray(num_loops)))
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    num_loops = jnp.asarray(max(1, round(1000 * STEP_SECONDS / seconds(1000))))
    return lambda state: step(state, num_loops)


def _state() -> jax.Array:
    return jnp.zeros((64, 16))


def _medians(*steps: Callable[..., Any]) -> list[list[float]]:
    """Median seconds of each step, and of the processor time of all threads; the steps take turns."""
    seconds: list[list[list[float]]] = [[[] for _ in steps] for _ in range(2)]
    state = _state()
    for _ in range(NUM_PAIRS):
        for i, step in enumerate(steps):
            starts = time.perf_counter(), time.process_time()
            state, loss = step(state)
            loss.block_until_ready()
            for kind, clock in enumerate((time.perf_counter, time.process_time)):
                seconds[kind][i].append(clock() - starts[kind])
    return [[statistics.median(times) for times in kind] for kind in seconds]
