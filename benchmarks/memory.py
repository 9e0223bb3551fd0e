"""The memory of a large run: a hundred thousand workers under ASP, ten million units, in a process of its own.

It runs on CPUs, also where there is an accelerator: what is measured is the memory of the process.
"""

import json

import jax
import optax

from benchmarks.timing import KEY, Row, peak_mebibytes, rows_of_child
from gcjax import engine, protocols, stragglers, tasks

NUM_WORKERS, NUM_UNITS, NUM_COMMITS = 100_000, 100, 100_000
MAX_GIBIBYTES = 3


def memory() -> list[Row]:
    """Peaks after the schedule and after a run on it."""
    return rows_of_child("benchmarks.memory", JAX_PLATFORMS="cpu")


def _rows_of_this_process() -> list[Row]:
    """The rows, for a small model, with a ring of a version for each worker."""
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, NUM_UNITS, NUM_WORKERS)
    protocol = protocols.asp()
    jax.block_until_ready(protocol(durations))
    rows = [_row(f"schedule of {NUM_WORKERS * NUM_UNITS:,} units of {NUM_WORKERS:,} workers, ASP")]
    task = tasks.linear_regression(num_chunks=4, num_features=16)
    run = engine.run(
        task, protocol, optax.sgd(1e-3), durations, rng_key=KEY, num_commits=NUM_COMMITS, eval_every=NUM_COMMITS
    )
    jax.block_until_ready(run.params)
    return [*rows, _row(f"the same, and a run of its first {NUM_COMMITS:,} commits")]


def _row(workload: str) -> Row:
    """The peak of this process so far."""
    gibibytes = peak_mebibytes() / 2**10
    return Row(
        what=f"peak memory: {workload}", value=f"{gibibytes:.2f} GiB", target=f"<= {MAX_GIBIBYTES} GiB",
        met=gibibytes <= MAX_GIBIBYTES, note="",
    )  # fmt: skip


if __name__ == "__main__":
    print(json.dumps([row._asdict() for row in _rows_of_this_process()]))
