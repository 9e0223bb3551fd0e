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
    seconds = np.random.default_rng(0).gamma(20.0, 0.05, (NUM_STEPS, NUM_WORKERS))
    seconds[:, 5] *= 1.3
    rows = []
    for how in ("with compiling", "again, compiled"):
        wall, used = time.perf_counter(), _cpu_seconds()
        advised = advice.advise(seconds, num_bootstraps=NUM_BOOTSTRAPS)
        wall, used = time.perf_counter() - wall, _cpu_seconds() - used
        rows.append(
            Row(
                what=f"advice on {NUM_WORKERS} workers x {NUM_STEPS:,} steps x {NUM_BOOTSTRAPS} bootstraps, {how}",
                value=f"{wall:.0f} s",
                target=f"{AIM:.0f} s",
                met=wall <= AIM,
                note=f"{len(advised.schemes)} schemes, {used:.0f} s of processors; load {os.getloadavg()[0]:.1f}",
            )
        )
    return rows


def _cpu_seconds() -> float:
    """Seconds that all threads of this process have computed so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
