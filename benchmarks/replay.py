"""Benchmark of replays: a trace of 10^4 workers and 10^4 steps in blocks, against copying its rows with NumPy.

Part of `benchmarks`; `python -m benchmarks replay` runs it.
"""

import statistics

import jax
import numpy as np

from benchmarks.timing import KEY, Row, alternate
from gcjax import stragglers

_NUM_STEPS, _NUM_WORKERS = 10_000, 10_000
_MOST = 10.0
"""Times as long as NumPy that replaying may take: it draws blocks, and works step by step."""


def replays() -> list[Row]:
    """The time of all steps of all workers, over that of copying as many rows in a random order."""
    seconds = np.random.default_rng(0).exponential(size=(_NUM_STEPS, _NUM_WORKERS)).astype(np.float32)
    rows = np.random.default_rng(1).integers(_NUM_STEPS, size=_NUM_STEPS)
    model = stragglers.replay(trace=seconds, order="blocks")
    ours, copies = alternate(
        lambda: stragglers.sample_durations(model, KEY, _NUM_STEPS, _NUM_WORKERS), lambda: seconds[rows], repeats=5
    )
    share = statistics.median(o / c for o, c in zip(ours, copies, strict=True))
    size = seconds.nbytes / 2**20
    return [
        Row(
            what=f"replaying {_NUM_WORKERS:,} workers by {_NUM_STEPS:,} steps in blocks over copying the rows",
            value=f"{share:.1f}",
            target=f"<= {_MOST:g}",
            met=share <= _MOST,
            note=f"{statistics.median(ours):.3g} s; NumPy {statistics.median(copies):.3g} s; {size:.0f} MiB a trace",
            peer=f"numpy {np.__version__}, jax {jax.__version__}",
        )
    ]
