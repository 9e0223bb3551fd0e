"""Completion time: how long it takes until the sum of all gradients can be decoded exactly."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from experiments.partial_stragglers import figures, graphs, published, report, simulate
from gcjax import _validate, codes, register
from gcjax.progress import Progress
from gcjax.stragglers import StragglerModel

Times = dict[tuple[int, str], jax.Array]


@register("experiment")
def exact(
    assignments: dict[str, codes.Assignment],
    *,
    stragglers: StragglerModel,
    blocks: Sequence[int] = (1, 2, 3),
    num_failed: int | dict[str, int] | None = None,
    num_trials: int = 1000,
    num_draws: int = 100,
    redraw: graphs.Graphs | None = None,
    num_graphs: int = 1,
    num_orders: int = 0,
    order_draws: Sequence[int] = (1, 2, 100),
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
      num_failed: random workers that fail in each trial, or setting -> so many; by default the fewest holders of a
        chunk less L.
      num_trials: S.
      num_draws: random orders of which the one with the least `q_max` is taken; 2 is what the released notebook does,
        100 what it means to do.
      redraw: setting -> a function that draws its assignment anew from `rng_key`.
      num_graphs: graphs of those settings, the assignment given among them; orders are drawn anew, the trials are the
        same.
      num_orders: random orders of the first graph of those settings, for a table of how much depends on the order; none
        if 0.
      order_draws: of how many draws each of these is the best: a row for each.
      compare_published: whether to put the published numbers beside; they are for the paper's setting only.
      seed: of all randomness; the same seed, the same bits.
      out: the folder to write.
      progress: tells a person how far it is.

    Raises:
      ValueError: if L exceeds the holders of a chunk, or a number is out of range.
    """
    num_orders = _validate.integer("num_orders", num_orders, minimum=0)
    report.check(assignments, blocks, num_failed, (1.0,))  # there are no deadlines here; this one is in order
    graphs.check(assignments, redraw or {}, num_graphs=num_graphs, num_trials=num_trials, num_draws=num_draws)
    samples: report.Samples = {}
    samples_of_further_graphs: report.Others = {}
    orders: list[graphs.Orders] = []
    start_time = time.perf_counter()
    draws = partial(graphs.all_graphs, stragglers=stragglers, num_trials=num_trials, seed=seed, progress=progress)
    with jax.enable_x64(True):
        for graph in draws(assignments, redraw or {}, num_graphs):
            num_failed_of_setting = report.failures(num_failed, graph.setting)
            solve = prepared(graph.assignment, blocks, num_failed_of_setting, num_draws, graph.order_key)
            report.add(samples, samples_of_further_graphs, graph.setting, solve(graph.trials))
            if num_orders and not graph.number and graph.setting in (redraw or {}):
                finish = failing(graph.assignment, graph.trials, blocks, num_failed_of_setting)
                orders += graphs.orders(
                    graph.setting, graph.assignment, finish, num_orders=num_orders, draws=order_draws,
                    rng_key=graph.row_key,  # free, since no code has rows here
                )  # fmt: skip
    rows = report.rows(samples, (), published.completion if compare_published else None, samples_of_further_graphs)
    run_facts: dict[str, Any] = {
        "seed": seed,
        "num_trials": num_trials,
        "num_failed": num_failed,
        "num_graphs": num_graphs,
    }
    run_facts["orders"] = [order._replace(means=order.means.tolist())._asdict() for order in orders]
    run_facts["seconds"] = round(time.perf_counter() - start_time, 3)
    figures.completion_times(samples, out / "completion.png")
    title = "Mean completion time in whole units"
    report.write(out, report.columns(samples, ()), rows, title, run_facts, progress, graphs.orders_page(orders))
    return rows


def prepared(
    assignment: codes.Assignment,
    blocks: Sequence[int],
    num_failed: int | None,
    num_draws: int,
    order_key: jax.Array,
) -> Callable[[simulate.Trials], Times]:
    """Chooses orders; returns a function of the trials, to `(L, scheme) -> float[S]` completion times in whole units.

    `num_failed` workers fail; None: the fewest holders of a chunk, less L.
    """
    order_of_scheme = simulate.order_of_scheme(assignment, num_draws=num_draws, rng_key=order_key)
    original_scheme = simulate.SCHEMES[0]
    solvers = {
        (num_blocks, scheme): simulate.completion(order, num_blocks, whole_workers=scheme == original_scheme)
        for scheme, order in order_of_scheme.items()
        for num_blocks in blocks
    }

    def solve(trials: simulate.Trials) -> Times:
        """The completion times of all schemes."""
        finish = failing(assignment, trials, blocks, num_failed)
        return {(num_blocks, scheme): solver(finish[num_blocks]) for (num_blocks, scheme), solver in solvers.items()}

    return solve


def failing(
    assignment: codes.Assignment, trials: simulate.Trials, blocks: Sequence[int], num_failed: int | None
) -> dict[int, jax.Array]:
    """L -> float[K, W, S], when chunks are finished (inf: never); `num_failed` None: fewest holders - L fail."""
    fewest_holders = int(codes.holders(assignment).counts.min())
    failures_of_blocks = {
        num_blocks: fewest_holders - num_blocks if num_failed is None else num_failed for num_blocks in blocks
    }
    return {num_blocks: simulate.with_failures(trials, count) for num_blocks, count in failures_of_blocks.items()}
