"""How benchmarks are timed: two things in one process, in turn."""

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax

KEY = jax.random.key(0)

_clock = time.perf_counter


class Row(NamedTuple):
    """One measured figure.

    Attributes:
      what: what is compared.
      value: the figure.
      target: what it should be, as text.
      met: whether it is.
      note: absolute times and the like.
      peer: the other library, or the usual way without this one, that the figure compares with; empty for none.
    """

    what: str
    value: str
    target: str
    met: bool
    note: str
    peer: str = ""


@contextmanager
def by_processor_time() -> Iterator[None]:
    """Within this block `alternate` counts processor time, of all threads, which other programs disturb less."""
    global _clock
    _clock = time.process_time
    try:
        yield
    finally:
        _clock = time.perf_counter


def alternate(*functions: Callable[[], Any], repeats: int = 9) -> list[list[float]]:
    """Seconds `[function][repeat]`, after one call of each to compile; the functions take turns."""
    for function in functions:
        jax.block_until_ready(function())
    seconds_of_functions: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for function, seconds in zip(functions, seconds_of_functions, strict=True):
            start_time = _clock()
            jax.block_until_ready(function())
            seconds.append(_clock() - start_time)
    return seconds_of_functions


def peak_mebibytes() -> float:
    """The most memory that this process has had; Linux counts that of its parent before it was started elsewhere."""
    status = Path("/proc/self/status")
    if status.exists():
        (peak_kibibytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())
        return int(peak_kibibytes) / 2**10
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # on macOS in bytes
    return peak_bytes / 2**20


def json_of_child(module: str, *arguments: str, **variables: str) -> Any:
    """What a module prints as JSON in a process of its own, with these environment variables besides its parent's."""
    command, environment = [sys.executable, "-m", module, *arguments], {**os.environ, **variables}
    child_process = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(child_process.stdout)


def rows_of_child(module: str, **variables: str) -> list[Row]:
    """The rows that a module prints as JSON, as `json_of_child`."""
    return [Row(**row) for row in json_of_child(module, **variables)]


def ratio(ours: list[float], reference: list[float]) -> float:
    """Median over the repetitions of reference time over our time: how many times faster we are."""
    return statistics.median(r / o for o, r in zip(ours, reference, strict=True))
