"""What the job would take if some workers were at the median of each step.

The job waits for the slowest worker in each step, so it takes T = sum over steps of the longest time of computing; with
everybody at the median of the step it would take T_ideal.

Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis" (2025), define S, S_w with all but
worker w ideal (here `ratio_of_worker_alone`), and M_W, the share of the slowdown that the slowest 3 % of the workers
explain (here `share_of_slowest`). They simulate the operations of pipeline stages; here a worker is a data-parallel
rank.

Letters: T steps, W workers.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.description.step_times import StepTimes

SLOWEST_PERCENT = 3


class Slowdown(NamedTuple):
    """What the job takes, and what it would take if some workers were at the median of each step.

    Attributes:
      total_seconds: T, the sum over steps of the longest time.
      ideal_seconds: T_ideal, the sum of the medians.
      total_ratio: S = T / T_ideal.
      ratio_without_worker: float64[W]: the same if worker w were at the median. Of two workers that are equally slow,
        neither makes a difference by itself.
      ratio_of_worker_alone: float64[W], the same if all but worker w were at the median.
      slowest: the 3 % of the workers with the largest `ratio_of_worker_alone`, rounded up, the slowest first.
      share_of_slowest: (T - T with the slowest 3 % at the median) / (T - T_ideal); NaN if T is T_ideal.
    """

    total_seconds: float
    ideal_seconds: float
    total_ratio: float
    ratio_without_worker: np.ndarray
    ratio_of_worker_alone: np.ndarray
    slowest: tuple[int, ...]
    share_of_slowest: float


def slowdown(times: StepTimes) -> Slowdown:
    """What the job takes, and would take if some workers took the median of each step, in seconds and as ratios.

    Ratios are to the seconds with all at the median; NaN if these are 0.
    """
    total_seconds, ideal_seconds = float(times.step_longest.sum()), float(times.step_median.sum())
    excess = np.fmax(times.seconds - times.step_median[:, None], 0)  # [T, W], over the median
    excess_of_worker = excess.sum(axis=0)  # [W]
    num_slowest = math.ceil(SLOWEST_PERCENT * len(excess_of_worker) / 100)
    slowest = tuple(np.argsort(-excess_of_worker, kind="stable")[:num_slowest].tolist())
    lost_seconds = total_seconds - ideal_seconds
    ideal_or_nan = ideal_seconds if ideal_seconds > 0 else np.nan
    saved_seconds = total_seconds - seconds_without_delays_of(times, slowest)
    return Slowdown(
        total_seconds=total_seconds,
        ideal_seconds=ideal_seconds,
        total_ratio=total_seconds / ideal_or_nan,
        ratio_without_worker=(total_seconds - _seconds_saved_by_worker(excess)) / ideal_or_nan,
        ratio_of_worker_alone=(ideal_seconds + excess_of_worker) / ideal_or_nan,
        slowest=slowest,
        share_of_slowest=saved_seconds / lost_seconds if lost_seconds > 1e-12 * total_seconds else np.nan,
    )


def seconds_without_delays_of(times: StepTimes, workers: Sequence[int]) -> float:
    """The seconds that the job would take if these workers were at the median of each step, which stays as it is."""
    seconds_of_others = np.delete(times.seconds, list(workers), axis=1)
    return float(np.fmax(times.step_median, np.fmax.reduce(seconds_of_others, axis=1, initial=0.0)).sum())


def _seconds_saved_by_worker(excess: np.ndarray) -> np.ndarray:
    """float64[W]: the seconds that the job would take less if a worker were at the median.

    In a step only the slowest worker can save something: down to the second longest time or the median.

    Args:
      excess: float64[T, W], what each time is above the median of its step; 0 for one below, and where there is none.
    """
    num_workers = excess.shape[1]
    if num_workers == 1:  # which is the median itself
        return np.zeros(1)
    second_largest, largest = np.partition(excess, -2, axis=1)[:, -2:].T  # [T] each
    slowest_worker = excess.argmax(axis=1)
    return np.bincount(slowest_worker, weights=largest - second_largest, minlength=num_workers)
