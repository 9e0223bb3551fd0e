"""Benchmark of replays: a trace of 10^4 workers and 10^4 steps in blocks, against copying its rows with NumPy.

Part of `benchmarks`; `python -m benchmarks replay` runs it.
"""

import statistics

import jax
import numpy as np

from benchmarks.timing import KEY, Row, alternate, ratio
from gcjax import stragglers

_NUM_STEPS, _NUM_WORKERS = 10_000, 10_000
_MOST = 10.0
"""Times as long as NumPy that replaying may take: it draws blocks, and works step by step."""


def replays() -> list[Row]:
    """The time of all steps of all workers, over that of copying as many rows in a random order."""
    trace = np.random.default_rng(0).exponential(size=(_NUM_STEPS, _NUM_WORKERS)).astype(np.float32)
    random_steps = np.random.default_rng(1).integers(_NUM_STEPS, size=_NUM_STEPS)
    model = stragglers.replay(trace=trace, order="blocks")
    replaying_seconds, copying_seconds = alternate(
        lambda: stragglers.sample_durations(model, KEY, _NUM_STEPS, _NUM_WORKERS),
        lambda: trace[random_steps],
        repeats=5,
    )
    share = ratio(copying_seconds, replaying_seconds)
    replaying_median, copying_median = statistics.median(replaying_seconds), statistics.median(copying_seconds)
    trace_mebibytes = trace.nbytes / 2**20
    return [
        Row(
            what=f"replaying {_NUM_WORKERS:,} workers by {_NUM_STEPS:,} steps in blocks over copying the rows",
            value=f"{share:.1f}",
            target=f"<= {_MOST:g}",
            met=share <= _MOST,
            note=f"{replaying_median:.3g} s; NumPy {copying_median:.3g} s; {trace_mebibytes:.0f} MiB a trace",
            peer=f"numpy {np.__version__}, jax {jax.__version__}",
        )
    ]
