"""Benchmarks of advice: all schemes on a long trace of many workers."""

import os
import resource
import time

import numpy as np

from benchmarks.timing import Row
from gcjax import advice

NUM_WORKERS, NUM_STEPS, NUM_BOOTSTRAPS, AIM = 64, 10_000, 100, 60.0


def what_if() -> list[Row]:
    """All protocols and codes on a trace with jitter and one slow worker: with compiling, and again without."""
    step_seconds = np.random.default_rng(0).gamma(20.0, 0.05, (NUM_STEPS, NUM_WORKERS))
    slow_worker = 5
    step_seconds[:, slow_worker] *= 1.3
    rows = []
    for compiling_text in ("with compiling", "again, compiled"):
        start_time, start_processor_seconds = time.perf_counter(), _processor_seconds()
        advised = advice.advise(step_seconds, num_bootstraps=NUM_BOOTSTRAPS)
        wall_seconds = time.perf_counter() - start_time
        processor_seconds = _processor_seconds() - start_processor_seconds
        sizes_text = f"{NUM_WORKERS} workers x {NUM_STEPS:,} steps x {NUM_BOOTSTRAPS} bootstraps"
        load = os.getloadavg()[0]
        rows.append(
            Row(
                what=f"advice on {sizes_text}, {compiling_text}",
                value=f"{wall_seconds:.0f} s",
                target=f"{AIM:.0f} s",
                met=wall_seconds <= AIM,
                note=f"{len(advised.schemes)} schemes, {processor_seconds:.0f} s of processors; load {load:.1f}",
            )
        )
    return rows


def _processor_seconds() -> float:
    """Seconds that all threads of this process have computed so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
