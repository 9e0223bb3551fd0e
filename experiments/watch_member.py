"""One of the processes of `experiments.watch`: a loop with a collective a step, watched.

Two kinds of steps: `marked`, a local part of some milliseconds and then a compiled mean over all; `whole`, one compiled
program for all of it, after some milliseconds outside of the step.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import gcjax
from gcjax import processes, watching

KINDS = ("marked", "whole")
SIZE = 128
WAITED_EVERY = 10
"""Steps from one question to Linux to the next."""
_WAITED_FIELD = 1  # of a thread's schedstat: nanoseconds that it has waited for a processor


def step(kind: str, sleep_seconds: float, num_products: int) -> tuple[Callable[[Any], Any], Any]:
    """A training step without the training, and its first state: arrays of all processes.

    Args:
      kind: one of `KINDS`.
      sleep_seconds: for which the local part of a marked step sleeps; stands for a device.
      num_products: products of matrices in a step.
    """
    mesh = jax.make_mesh((jax.device_count(),), ("workers",))
    split_over_workers, replicated = NamedSharding(mesh, PartitionSpec("workers")), NamedSharding(mesh, PartitionSpec())
    shape = (jax.device_count(), SIZE, SIZE)  # a matrix on each device
    state = jax.make_array_from_callback(shape, split_over_workers, lambda index: np.ones((1, SIZE, SIZE), np.float32))

    def multiply_repeatedly(state: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, num_products, lambda _, x: jnp.tanh(x @ x / SIZE), state)

    def state_and_mean(state: jax.Array) -> tuple[jax.Array, jax.Array]:
        return state, state.mean()

    out_shardings = (split_over_workers, replicated)
    if kind == "whole":
        return jax.jit(lambda state: state_and_mean(multiply_repeatedly(state)), out_shardings=out_shardings), state
    local_program = jax.jit(multiply_repeatedly, out_shardings=split_over_workers)

    @watching.local
    def local_part(state: jax.Array) -> jax.Array:
        time.sleep(sleep_seconds)
        return local_program(state)

    collective_program = jax.jit(state_and_mean, out_shardings=out_shardings)
    return lambda state: collective_program(local_part(state)), state


def waited_seconds() -> float:
    """Seconds that all threads of this process have waited for a processor; NaN where Linux does not say."""
    files_of_threads = Path("/proc/self/task").glob("*/schedstat")
    try:
        nanoseconds = [int(file.read_text().split()[_WAITED_FIELD]) for file in files_of_threads]
    except (OSError, ValueError, IndexError):  # a thread has just ended
        return float("nan")
    return sum(nanoseconds) / 1e9


def train(kind: str, num_steps: int, sleep_seconds: float, num_products: int, folder: Path) -> None:
    """Runs the loop, and writes to a folder when each step was called, and what process 0 was told meanwhile.

    `calls.RANK.npy`: float64[steps], seconds since the epoch; `waits.RANK.npy`: float64[steps], seconds for which the
    threads had waited for a processor by then (NaN where Linux does not say); `told.json`: [step, who is slow] each.
    """
    reports: list[watching.Report] = []
    step_function, state = step(kind, sleep_seconds, num_products)
    call_times, waited_until = np.zeros(num_steps), np.full(num_steps, np.nan)
    with gcjax.watch(step_function, folder=folder, every=1.0, report=reports.append) as watched:
        for i in range(num_steps):
            time.sleep(sleep_seconds if kind == "whole" else 0.0)  # as an input pipeline that all have alike
            call_times[i] = time.time()  # of one machine, so that the launcher's clock is the same
            waited_until[i] = waited_seconds() if i % WAITED_EVERY == 0 else np.nan
            state, loss = watched(state)
            float(loss)
    np.save(folder / f"calls.{jax.process_index()}.npy", call_times)
    np.save(folder / f"waits.{jax.process_index()}.npy", _interpolated(waited_until))
    if processes.is_first():
        slow_workers_of_steps = [[report.step, [verdict.worker for verdict in report.slow]] for report in reports]
        (folder / "told.json").write_text(json.dumps(slow_workers_of_steps))


def _interpolated(values: np.ndarray) -> np.ndarray:
    """The `values float[n]`, linear between those that are known instead of NaN; as they are if none is known."""
    is_known = ~np.isnan(values)
    if not is_known.any():
        return values
    return np.interp(np.arange(len(values)), np.flatnonzero(is_known), values[is_known])


def main() -> None:
    """Joins the group as one process, and trains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--coordinator", required=True)
    for name in ("process-id", "num-processes", "steps", "products"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--sleep-seconds", type=float, default=0.008)
    options = parser.parse_args()
    with processes.group(
        coordinator=options.coordinator, num_processes=options.num_processes, process_id=options.process_id
    ):
        train(options.kind, options.steps, options.sleep_seconds, options.products, options.folder)


if __name__ == "__main__":
    main()
