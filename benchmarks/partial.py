"""Benchmarks of the partial-straggler reproduction: the whole simulations, from the draw of the trials to the errors.

Cold is the first call in the process, with all preparation (orders, tables, codes) and compilation; warm the median of
later calls with the same seed, with the preparation done.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax

from benchmarks.timing import Row
from experiments.partial_stragglers import approximate, exact, published, report, simulate
from gcjax import codes, stragglers
from gcjax.codes import assignments

_BLOCKS = (1, 2, 3)
_TRIALS = 1000
_LOAD = 8
_ORDER_DRAWS = 100  # random orders of which the best is taken
_NOTEBOOK = "the authors' released notebook, on a machine with 2 cores: 1090 s (not run here)"


def reproduction() -> list[Row]:
    """Both simulations of the paper, 6 settings, 3 schemes, 1000 trials, in float64."""
    with jax.enable_x64(True):
        return [
            _timed_row("partial stragglers, approximate: warm", _prepare_approximate, 1.1, peer=_NOTEBOOK),
            _timed_row("partial stragglers, exact: warm", _prepare_exact, 0.5),
        ]


def _timed_row(title: str, prepare: Callable[[], Callable[[], Any]], max_seconds: float, *, peer: str = "") -> Row:
    """The row of a whole simulation: seconds of a warm run, the median of seven, and of the first one in the note."""
    start_time = time.perf_counter()
    run_simulation = prepare()
    jax.block_until_ready(run_simulation())
    cold_seconds = time.perf_counter() - start_time
    warm_seconds = []
    for _ in range(7):
        start_time = time.perf_counter()
        jax.block_until_ready(run_simulation())
        warm_seconds.append(time.perf_counter() - start_time)
    median_seconds = statistics.median(warm_seconds)
    return Row(
        what=title, value=f"{median_seconds:.2f} s", target=f"<= {max_seconds:g} s", met=median_seconds <= max_seconds,
        note=f"cold {cold_seconds:.1f} s; least {min(warm_seconds):.2f} s", peer=peer,
    )  # fmt: skip


def _random_graph(num_workers: int) -> codes.Assignment:
    return assignments.random_regular(num_workers, load=_LOAD, rng_key=jax.random.key(0))


def _prepare_approximate() -> Callable[[], Any]:
    """Prepares the approximate simulations of both sizes; what it returns runs them from draw to errors."""
    speeds, settings = stragglers.worker_speeds(stragglers.exponential()), []
    for i, num_workers in enumerate((200, 300)):
        order_key, row_key, trial_key, _ = report.keys(0, i)
        graph = _random_graph(num_workers)
        solve, _ = approximate.prepared(graph, published.DEADLINES, _BLOCKS, _ORDER_DRAWS, order_key, row_key)
        settings.append((graph, solve, trial_key))

    def run_simulations() -> Any:
        return [
            solve(approximate.trials(graph, speeds, _TRIALS, num_failed=7, rng_key=trial_key))
            for graph, solve, trial_key in settings
        ]

    return run_simulations


def _prepare_exact() -> Callable[[], Any]:
    """Prepares the exact simulations of both assignments; what it returns runs them from draw to times."""
    num_workers = 200
    speeds, settings = stragglers.worker_speeds(stragglers.exponential()), []
    for i, assignment in enumerate((assignments.cyclic(num_workers, load=_LOAD), _random_graph(num_workers))):
        order_key, _, trial_key, _ = report.keys(0, i)
        solve = exact.prepared(assignment, _BLOCKS, num_failed=None, num_draws=_ORDER_DRAWS, order_key=order_key)
        settings.append((solve, trial_key))

    def run_simulations() -> Any:
        return [solve(simulate.draw(speeds, key, _LOAD, num_workers, _TRIALS)) for solve, key in settings]

    return run_simulations
