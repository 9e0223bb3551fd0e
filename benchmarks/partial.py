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
_NOTEBOOK = "the authors' released notebook, on a machine with 2 cores: 1090 s (not run here)"


def reproduction() -> list[Row]:
    """Both simulations of the paper, 6 settings, 3 schemes, 1000 trials, in float64."""
    with jax.enable_x64(True):
        return [
            _row("partial stragglers, approximate: warm", _approximate, 1.1, peer=_NOTEBOOK),
            _row("partial stragglers, exact: warm", _exact, 0.5),
        ]


def _row(what: str, prepare: Callable[[], Callable[[], Any]], target: float, *, peer: str = "") -> Row:
    """The row of a whole simulation: seconds of a warm run, the median of seven, and of the first one in the note."""
    start = time.perf_counter()
    simulation = prepare()
    jax.block_until_ready(simulation())
    cold = time.perf_counter() - start
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        jax.block_until_ready(simulation())
        seconds.append(time.perf_counter() - start)
    warm = statistics.median(seconds)
    text = f"cold {cold:.1f} s; least {min(seconds):.2f} s"
    return Row(what=what, value=f"{warm:.2f} s", target=f"<= {target:g} s", met=warm <= target, note=text, peer=peer)


def _graph(num_workers: int) -> codes.Assignment:
    return assignments.random_regular(num_workers, load=_LOAD, rng_key=jax.random.key(0))


def _approximate() -> Callable[[], Any]:
    """Prepares the approximate simulations of both sizes; what it returns runs them from draw to errors."""
    speeds, settings = stragglers.worker_speeds(stragglers.exponential()), []
    for i, num_workers in enumerate((200, 300)):
        order_key, row_key, trial_key, _ = report.keys(0, i)
        graph = _graph(num_workers)
        solve, _ = approximate.prepared(graph, published.DEADLINES, _BLOCKS, 100, order_key, row_key)
        settings.append((graph, solve, trial_key))

    def run() -> Any:
        return [solve(approximate.trials(graph, speeds, _TRIALS, 7, key)) for graph, solve, key in settings]

    return run


def _exact() -> Callable[[], Any]:
    """Prepares the exact simulations of both assignments; what it returns runs them from draw to times."""
    speeds, settings = stragglers.worker_speeds(stragglers.exponential()), []
    for i, assignment in enumerate((assignments.cyclic(200, load=_LOAD), _graph(200))):
        order_key, _, trial_key, _ = report.keys(0, i)
        settings.append((exact.prepared(assignment, _BLOCKS, None, 100, order_key), trial_key))

    def run() -> Any:
        return [solve(simulate.draw(speeds, key, _LOAD, 200, _TRIALS)) for solve, key in settings]

    return run
