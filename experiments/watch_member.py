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


def step(kind: str, pace: float, loops: int) -> tuple[Callable[[Any], Any], Any]:
    """A training step without the training, and its first state: arrays of all processes.

    Args:
      kind: one of `KINDS`.
      pace: seconds that the local part of a marked step sleeps; stands for a device.
      loops: products of matrices in a step.
    """
    mesh = jax.make_mesh((jax.device_count(),), ("workers",))
    own, common = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("workers",), ()))
    shape = (jax.device_count(), SIZE, SIZE)
    state = jax.make_array_from_callback(shape, own, lambda index: np.ones((1, SIZE, SIZE), np.float32))

    def product(state: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, loops, lambda _, x: jnp.tanh(x @ x / SIZE), state)

    def mean(state: jax.Array) -> tuple[jax.Array, jax.Array]:
        return state, state.mean()

    if kind == "whole":
        return jax.jit(lambda state: mean(product(state)), out_shardings=(own, common)), state
    compiled = jax.jit(product, out_shardings=own)

    @watching.local
    def local(state: jax.Array) -> jax.Array:
        time.sleep(pace)
        return compiled(state)

    reduce = jax.jit(mean, out_shardings=(own, common))
    return lambda state: reduce(local(state)), state


def waited() -> float:
    """Seconds that all threads of this process have waited for a processor; NaN where Linux does not say."""
    try:
        return sum(int(file.read_text().split()[1]) for file in Path("/proc/self/task").glob("*/schedstat")) / 1e9
    except (OSError, ValueError, IndexError):  # a thread has just ended
        return float("nan")


def train(kind: str, num_steps: int, pace: float, loops: int, folder: Path) -> None:
    """Runs the loop, and writes when each step was called, and what process 0 was told meanwhile."""
    reports: list[watching.Report] = []
    function, state = step(kind, pace, loops)
    calls, waits = np.zeros(num_steps), np.full(num_steps, np.nan)
    with gcjax.watch(function, folder=folder, every=1.0, report=reports.append) as watched:
        for i in range(num_steps):
            time.sleep(pace if kind == "whole" else 0.0)  # as an input pipeline that all have alike
            calls[i] = time.time()  # of one machine, so that the launcher's clock is the same
            waits[i] = waited() if i % WAITED_EVERY == 0 else np.nan
            state, loss = watched(state)
            float(loss)
    np.save(folder / f"calls.{jax.process_index()}.npy", calls)
    is_known = ~np.isnan(waits)
    waits = np.interp(np.arange(num_steps), np.flatnonzero(is_known), waits[is_known]) if is_known.any() else waits
    np.save(folder / f"waits.{jax.process_index()}.npy", waits)
    if processes.is_first():
        told = [[report.step, [verdict.worker for verdict in report.slow]] for report in reports]
        (folder / "told.json").write_text(json.dumps(told))


def main() -> None:
    """One process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--coordinator", required=True)
    for name in ("process-id", "num-processes", "steps", "loops"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--pace", type=float, default=0.008)
    options = parser.parse_args()
    place = {name: getattr(options, name) for name in ("coordinator", "num_processes", "process_id")}
    with processes.group(**place):
        train(options.kind, options.steps, options.pace, options.loops, options.folder)


if __name__ == "__main__":
    main()
