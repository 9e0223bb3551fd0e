"""How fast it is, on this machine: ratios of two things in one process, and times of schedules and checks.

All in processor time, of all threads, since other programs may share the machine.

Letters: T units, W workers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from benchmarks import __main__ as benchmarks
from benchmarks.protocols import python_loop
from benchmarks.timing import KEY, alternate, by_processor_time
from gcjax import protocols, stragglers
from gcjax.protocols import Protocol
from gcjax.stragglers import Network

_K_ASYNC_UNITS = 4  # of each worker


def ratios() -> dict[str, Any]:
    """The benchmarks of the same names: a run of ASP, of BSP, against a Python loop, and what a second run compiles."""
    with by_processor_time():
        rows = [*benchmarks.asp_commits(), *benchmarks.bsp_rounds(), *python_loop(), *benchmarks.second_run()]
    return {"rows": [row._asdict() | {"met": bool(row.met)} for row in rows]}  # which JSON can hold


def schedules(*, large: tuple[int, int], sizes: tuple[int, ...]) -> dict[str, Any]:
    """Processor seconds of the schedule of SSP(3), a max-plus law, and microseconds a unit of K-async, an event queue.

    Args:
      large: W and T of the schedule of SSP(3).
      sizes: the numbers of workers for K-async of half of them, four units each.

    Returns:
      `workers`, `units` and `seconds` of SSP(3); `growth`: [workers, microseconds a unit] for each of the sizes.
    """
    num_workers, num_units = large
    seconds = _least_seconds(_schedule_function(protocols.ssp(staleness=3), num_units, num_workers))
    k_async_functions = {
        size: _schedule_function(protocols.k_async(num_contributions=size // 2), _K_ASYNC_UNITS, size) for size in sizes
    }
    microseconds_per_unit = [
        [size, 1e6 * _least_seconds(function) / (_K_ASYNC_UNITS * size)] for size, function in k_async_functions.items()
    ]
    return {"workers": num_workers, "units": num_units, "seconds": seconds, "growth": microseconds_per_unit}


def _least_seconds(function: Callable[[], Any]) -> float:
    """Processor seconds of the cheapest of five calls."""
    with by_processor_time():
        (seconds,) = alternate(function, repeats=5)
    return min(seconds)


def _schedule_function(protocol: Protocol, num_units: int, num_workers: int) -> Any:
    """A function without arguments that computes a schedule on exponential durations float[T, W]."""
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, num_units, num_workers)
    return partial(jax.jit(protocol.schedule), durations, Network())


def validation(*, num_units: int) -> dict[str, Any]:
    """Processor seconds to hold a schedule of SSP(3) of 16 workers against its promise, and how long that is.

    Args:
      num_units: of all workers together.
    """
    protocol = protocols.ssp(staleness=3)
    num_workers = 16
    units_per_worker = num_units // num_workers
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, units_per_worker, num_workers)
    schedule = jax.block_until_ready(protocol(durations))
    assert protocol.specification is not None
    promise = protocol.specification(num_workers)
    seconds = _least_seconds(lambda: protocols.check(schedule, promise))
    num_events = protocols.check(schedule, promise).num_events
    num_commits = int(np.isfinite(schedule.time).sum())
    return {
        "workers": num_workers, "units": num_units, "commits": num_commits, "events": num_events, "seconds": seconds,
    }  # fmt: skip
