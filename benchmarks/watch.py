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
NUM_TURNS, STEPS_OF_TURN = 15, 20
NUM_REPEATS = 7


def watching() -> list[Row]:
    """A compiled step of about 10 ms with and without `gcjax.watch`, by its time and by processor time.

    Loops of some steps take turns. The step takes over its state and is waited for, as in a loop that prints its loss.
    It computes on one thread.
    """
    step = _step_of_10_ms()
    with tempfile.TemporaryDirectory() as folder, gcjax.watch(step, folder=folder, report=None) as watched_step:
        repetitions = [_median_seconds(watched_step, step) for _ in range(NUM_REPEATS)]
    watched_and_plain_wall = [wall_seconds for wall_seconds, _ in repetitions]
    watched_and_plain_processor = [processor_seconds for _, processor_seconds in repetitions]
    ratios = sorted(watched / plain for watched, plain in watched_and_plain_wall)
    cost = statistics.median(ratios) - 1
    added_wall = statistics.median(watched - plain for watched, plain in watched_and_plain_wall)
    added_processor = statistics.median(watched - plain for watched, plain in watched_and_plain_processor)
    return [
        Row(
            what="gcjax.watch on a step of 10 ms",
            value=f"{100 * cost:+.2f} %",
            target="<= 0.5 %",
            met=cost <= 0.005,
            note=f"{1e6 * added_wall:+.0f} µs a step; {100 * (ratios[0] - 1):+.2f} to {100 * (ratios[-1] - 1):+.2f} % "
            f"in {NUM_REPEATS} repetitions; processor time of all threads {1e6 * added_processor:+.0f} µs; "
            f"load of the machine {os.getloadavg()[0]:.0f}",
            peer="the same step without it",
        ),
        _processor_time_row(),
    ]


def _processor_time_row() -> Row:
    """Processor time of all that a step causes, its rows included, where nothing else runs in between."""
    step = jax.jit(lambda x: (x + 1, x.sum()))
    num_steps, added_seconds = 3000, []
    state = jnp.zeros(4)
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            watched_step = gcjax.watch(step, folder=folder, report=None)
            jax.block_until_ready([watched_step(state), step(state)])
            plain_begin = time.process_time()
            for _ in range(num_steps):
                step(state)
            watched_begin = time.process_time()
            for _ in range(num_steps):
                watched_step(state)
            watched_step.close()
            plain_seconds, watched_seconds = watched_begin - plain_begin, time.process_time() - watched_begin
            added_seconds.append((watched_seconds - plain_seconds) / num_steps)
    share = statistics.median(added_seconds) / STEP_SECONDS
    return Row(
        what="all processor time of gcjax.watch for a step, over 10 ms",
        value=f"{100 * share:.2f} %",
        target="<= 0.5 %",
        met=share <= 0.005,
        note=f"{1e6 * statistics.median(added_seconds):.0f} µs on all threads; steps follow each other at once",
    )


def _step_of_10_ms() -> Callable[..., Any]:
    """A compiled step of about 10 ms."""

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: jax.Array, num_loops: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = jax.lax.fori_loop(0, num_loops, lambda _, x: jnp.tanh(x * 1.01 + 0.1), state)
        return state, state.sum()

    def median_step_seconds(num_loops: int) -> float:
        seconds = []
        for _ in range(20):
            begin = time.perf_counter()
            jax.block_until_ready(step(_initial_state(), jnp.asarray(num_loops)))
            seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds)

    tried_loops = 1000
    loops_of_step = round(tried_loops * STEP_SECONDS / median_step_seconds(tried_loops))
    num_loops = jnp.asarray(max(1, loops_of_step))
    return lambda state: step(state, num_loops)


def _initial_state() -> jax.Array:
    return jnp.zeros((64, 16))


def _median_seconds(*steps: Callable[..., Any]) -> tuple[list[float], list[float]]:
    """Median seconds of each step, and of the processor time of all threads; loops of each take turns."""
    wall_seconds: list[list[float]] = [[] for _ in steps]
    processor_seconds: list[list[float]] = [[] for _ in steps]
    state = _initial_state()
    for _ in range(NUM_TURNS):
        for step, own_wall_seconds, own_processor_seconds in zip(steps, wall_seconds, processor_seconds, strict=True):
            for index in range(STEPS_OF_TURN):
                wall_begin, processor_begin = time.perf_counter(), time.process_time()
                state, loss = step(state)
                loss.block_until_ready()
                wall_end, processor_end = time.perf_counter(), time.process_time()
                if index > 1:  # the first ones still have what the last loop has left to do
                    own_wall_seconds.append(wall_end - wall_begin)
                    own_processor_seconds.append(processor_end - processor_begin)
    return list(map(statistics.median, wall_seconds)), list(map(statistics.median, processor_seconds))
