"""Completion time: how long it takes until the sum of all gradients can be decoded exactly."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.partial_stragglers import figures, published, report, simulate
from gcjax import _checks, codes, config
from gcjax.progress import Progress
from gcjax.stragglers import StragglerModel

Times = dict[tuple[int, str], jax.Array]


@config.experiment
def exact(
    assignments: dict[str, codes.Assignment],
    *,
    stragglers: StragglerModel,
    blocks: Sequence[int] = (1, 2, 3),
    num_failed: int | None = None,
    num_trials: int = 1000,
    num_draws: int = 100,
    compare_published: bool = False,
    seed: int = 0,
    out: Path,
    progress: Progress,
) -> list[report.Row]:
    """Simulates until every chunk has been finished by L workers, and writes a folder of results.

    In the original scheme only workers count that have finished everything. All schemes and all L see the same trials.
    The folder: `results.parquet` (a line for every trial), `summary.md`, `completion.png`, `run.json`, `operative.gin`.

    Args:
      assignments: name -> who holds what; the processing order is chosen here.
      stragglers: who is slow; one unit of work is one chunk, and a trial is one round.
      blocks: the values of L.
      num_failed: random workers that fail in each trial; by default the fewest holders of a chunk less L.
      num_trials: S.
      num_draws: random orders of which the one with the least `q_max` is taken.
      compare_published: whether to put the published numbers beside; they are for the paper's setting only.
      seed: of all randomness; the same seed, the same bits.
      out: the folder to write.
      progress: tells a person how far it is.

    Raises:
      ValueError: if L exceeds the holders of a chunk, or a number is out of range.
    """
    _checks.integer("num_trials", num_trials, minimum=2)
    _checks.integer("num_draws", num_draws, minimum=1)
    report.check(assignments, blocks, num_failed, (1.0,))
    found: report.Found = {}
    began = time.perf_counter()
    with jax.enable_x64(True):
        for i, (name, assignment) in enumerate(assignments.items()):
            progress.update(name, i / len(assignments))
            order_key, _, trial_key, _ = report.keys(seed, i)
            solve = prepared(assignment, blocks, num_failed, num_draws, order_key)
            drawn = simulate.draw(stragglers, trial_key, assignment.load, assignment.num_workers, num_trials)
            found.update({(name, *key): np.asarray(value) for key, value in solve(drawn).items()})
    made = report.rows(found, (), published.completion if compare_published else None)
    facts: dict[str, Any] = {"seed": seed, "num_trials": num_trials, "num_failed": num_failed}
    facts["seconds"] = round(time.perf_counter() - began, 3)
    figures.completion_times(found, out / "completion.png")
    title = "Mean completion time in whole units"
    report.write(out, report.columns(found, ()), made, title, facts, progress)
    return made


def prepared(
    assignment: codes.Assignment,
    blocks: Sequence[int],
    num_failed: int | None,
    num_draws: int,
    order_key: jax.Array,
) -> Callable[[simulate.Trials], Times]:
    """Chooses orders; returns a function of the trials: `(L, scheme) -> float[S]` completion times."""
    best = codes.order_chunks(assignment)
    random = simulate.random_order(assignment, num_draws=num_draws, rng_key=order_key)
    fewest = int(codes.holders(assignment).counts.min())
    failed = {num_blocks: fewest - num_blocks if num_failed is None else num_failed for num_blocks in blocks}
    orders = zip(simulate.SCHEMES, (best, best, random), (True, False, False), strict=True)
    solvers = {
        (num_blocks, scheme): simulate.completion(order, num_blocks, whole_workers=whole)
        for scheme, order, whole in orders
        for num_blocks in blocks
    }

    def solve(trials: simulate.Trials) -> Times:
        finish = {num_blocks: simulate.with_failures(trials, failed[num_blocks]) for num_blocks in blocks}
        return {key: solver(finish[key[0]]) for key, solver in solvers.items()}

    return solve
