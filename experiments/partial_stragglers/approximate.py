"""Error against deadline: how far from the sum of all gradients one is when the clock stops the round."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from experiments.partial_stragglers import figures, graphs, published, report, simulate
from gcjax import codes, register
from gcjax.progress import Progress
from gcjax.stragglers import StragglerModel

Errors = dict[simulate.Key, jax.Array]


@register("experiment")
def approximate(
    assignments: dict[str, codes.Assignment],
    *,
    stragglers: StragglerModel,
    deadlines: Sequence[float],
    blocks: Sequence[int] = (1, 2, 3),
    num_failed: int = 7,
    num_trials: int = 1000,
    num_draws: int = 100,
    redraw: graphs.Graphs | None = None,
    num_graphs: int = 1,
    compare_published: bool = False,
    seed: int = 0,
    out: Path,
    progress: Progress,
) -> list[report.Row]:
    """Simulates the three schemes at all deadlines, and writes a folder of results.

    All schemes and all L see the same trials. In float64. The folder: `results.parquet` (a line for every trial and
    deadline), `summary.md`, `error.png`, `run.json`, `operative.gin`.

    Args:
      assignments: name -> who holds what; the processing order is chosen here.
      stragglers: who is slow; one unit of work is one chunk, and a trial is one round.
      deadlines: seconds.
      blocks: the values of L.
      num_failed: random workers that fail in each trial.
      num_trials: S.
      num_draws: random orders of which the one with the least `q_max` is taken; 2 is what the released notebook does,
        100 what it means to do.
      redraw: setting -> a function that draws its assignment anew from `rng_key`.
      num_graphs: graphs of those settings, the assignment given among them; orders and rows are drawn anew, the trials
        are the same.
      compare_published: whether to put the published numbers beside; they are for the paper's setting only.
      seed: of all randomness; the same seed, the same bits.
      out: the folder to write.
      progress: tells a person how far it is.

    Raises:
      ValueError: if L exceeds the holders of a chunk, or a number is out of range.
    """
    report.check(assignments, blocks, num_failed, deadlines)
    graphs.check(assignments, redraw or {}, num_graphs=num_graphs, num_trials=num_trials, num_draws=num_draws)
    deadlines, start_time = tuple(map(float, deadlines)), time.perf_counter()
    samples: report.Samples = {}
    estimates: report.Samples = {}
    samples_of_further_graphs: report.Others = {}
    draws = partial(graphs.all_graphs, stragglers=stragglers, num_trials=num_trials, seed=seed, progress=progress)
    with jax.enable_x64(True):
        for graph in draws(assignments, redraw or {}, num_graphs):
            finish = simulate.with_failures(graph.trials, num_failed)
            solve, estimate = prepared(graph.assignment, deadlines, blocks, num_draws, graph.order_key, graph.row_key)
            report.add(samples, samples_of_further_graphs, graph.setting, solve(finish))
            if graph.number == 0:
                report.add(estimates, {}, graph.setting, estimate(finish))
    rows = report.rows(samples, deadlines, published.error if compare_published else None, samples_of_further_graphs)
    run_facts: dict[str, Any] = {
        "seed": seed,
        "num_graphs": num_graphs,
        "num_trials": num_trials,
        "num_failed": num_failed,
    }
    run_facts |= {"deadlines": list(deadlines), "seconds": round(time.perf_counter() - start_time, 3)}
    figures.error_against_deadline(samples, estimates, deadlines, out / "error.png")
    result_columns = report.columns(samples, deadlines, estimate=estimates)
    report.write(out, result_columns, rows, "Mean error at each deadline", run_facts, progress)
    return rows


def prepared(
    assignment: codes.Assignment,
    deadlines: Sequence[float],
    blocks: Sequence[int],
    num_draws: int,
    order_key: jax.Array,
    row_key: jax.Array,
) -> tuple[Callable[[jax.Array], Errors], Callable[[jax.Array], Errors]]:
    """Chooses orders and makes the codes of one assignment; `order_key` draws the orders, `row_key` the codes' rows.

    Returns:
      Two functions of `finish float[K, W, S]`: the errors `(L, scheme) -> float[S, deadlines]`, from the coefficients,
      and the estimates of those of the partial schemes, from the numbers of finished holders alone.
    """
    order_of_scheme = simulate.order_of_scheme(assignment, num_draws=num_draws, rng_key=order_key)
    original_scheme, best_order_scheme, random_order_scheme = simulate.SCHEMES
    partial_codes = {
        (num_blocks, scheme): codes.partial(order_of_scheme[scheme], num_blocks=num_blocks, rng_key=row_key)
        for num_blocks in sorted(blocks, reverse=True)
        for scheme in (best_order_scheme, random_order_scheme)
    }
    original_solvers = {
        (num_blocks, original_scheme): simulate.original_errors(partial_codes[num_blocks, best_order_scheme])
        for num_blocks in blocks
    }
    partial_solvers = {key: simulate.partial_errors(code, deadlines) for key, code in partial_codes.items()}
    partial_estimators = {key: simulate.estimate(code, deadlines) for key, code in partial_codes.items()}

    def solve(finish: jax.Array) -> Errors:
        """`(L, scheme) -> float[S, deadlines]`, the errors of all schemes, from `finish float[K, W, S]` seconds."""
        order_and_counts = simulate.arrivals(order_of_scheme[original_scheme], finish, deadlines)
        calls: dict[tuple[int, str], Callable[[], jax.Array]] = {
            key: partial(solver, *order_and_counts) for key, solver in original_solvers.items()
        }
        calls |= {key: partial(solver, finish) for key, solver in partial_solvers.items()}
        errors = simulate.side_by_side(calls)
        return {
            (num_blocks, scheme): errors[num_blocks, scheme] for num_blocks in blocks for scheme in simulate.SCHEMES
        }

    def estimate(finish: jax.Array) -> Errors:
        """`(L, scheme) -> float[S, deadlines]`, the estimated errors of the partial schemes."""
        return {key: estimator(finish) for key, estimator in partial_estimators.items()}

    return solve, estimate


def trials(
    assignment: codes.Assignment, stragglers: StragglerModel, num_trials: int, num_failed: int, rng_key: jax.Array
) -> jax.Array:
    """float[K, W, S] seconds, S trials: when workers finish the chunk in each slot; `num_failed` workers never do."""
    finish = simulate.draw(stragglers, rng_key, assignment.load, assignment.num_workers, num_trials)
    return simulate.with_failures(finish, num_failed)
