"""From sums over blocks to what each scheme costs on the trace and on each bootstrap.

Letters: T steps, W workers.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gcjax.advice import blocks
from gcjax.advice.base import APPROXIMATE, CODED, EXACT, LOCAL, STALE, Estimate, Scheme
from gcjax.advice.simulation import BlockSums

LEVEL = 0.9
"""Of all intervals."""


class Baseline(NamedTuple):
    """Seconds per step on the trace (first) and on each bootstrap, float64[1 + bootstraps].

    Attributes:
      bsp: of the slowest worker of each step.
      median: of the median worker of each step.
    """

    bsp: np.ndarray
    median: np.ndarray

    @property
    def cost(self) -> np.ndarray:
        """float64[1 + bootstraps]: the share of BSP's time that stragglers cost."""
        return 1 - self.median / self.bsp


class Ratios(NamedTuple):
    """A scheme on the trace (first) and on each bootstrap, float64[1 + bootstraps]; see `SchemeAdvice`."""

    seconds_per_step: np.ndarray
    waiting: np.ndarray
    mean_staleness: np.ndarray
    wasted: np.ndarray
    redundant: np.ndarray
    messages: np.ndarray


def baseline(
    seconds: np.ndarray, first_step_of_block: np.ndarray, block_steps: int, block_counts: np.ndarray
) -> Baseline:
    """BSP, and everybody at the step's median.

    Args:
      seconds: float64[T, W].
      first_step_of_block: int64[blocks], the first step of each block.
      block_steps: their length.
      block_counts: float64[1 + bootstraps, blocks], how often each block counts.
    """
    steps_of_block = blocks.steps_of_blocks(first_step_of_block, len(seconds), warmup_steps=0, block_steps=block_steps)
    num_steps = block_counts.sum(axis=1) * block_steps
    slowest_of_step, median_of_step = seconds.max(axis=1), np.median(seconds, axis=1)
    # `steps_of_block` is int64[blocks, block_steps]; [blocks] seconds each.
    bsp_of_block, median_of_block = (
        seconds_of_step[steps_of_block].sum(axis=1) for seconds_of_step in (slowest_of_step, median_of_step)
    )
    return Baseline(block_counts @ bsp_of_block / num_steps, block_counts @ median_of_block / num_steps)


def cost_of_halves(seconds: np.ndarray) -> tuple[float, float]:
    """The share of BSP's time that stragglers cost, of the first half of the steps float64[T, W], and of the second."""
    halves = np.split(seconds, [len(seconds) // 2])
    first_cost, second_cost = (1 - np.median(half, axis=1).sum() / half.max(axis=1).sum() for half in halves)
    return float(first_cost), float(second_cost)


def ratios(sums: BlockSums, block_counts: np.ndarray, num_workers: int) -> Ratios:
    """The ratios of a scheme: per effective step, per worker and so on, each float64[1 + bootstraps].

    From sums float[blocks], and how often each block counts, `block_counts float64[1 + bootstraps, blocks]`. An
    effective step is the use of as much work as BSP uses in a step. With nothing to divide by they are NaN or inf.
    """
    total = BlockSums(*(block_counts @ sum_of_block for sum_of_block in sums))
    with np.errstate(divide="ignore", invalid="ignore"):
        return Ratios(
            seconds_per_step=total.seconds / total.effective_steps,
            waiting=1 - total.computing_seconds / (total.seconds * num_workers),
            mean_staleness=total.staleness_sum / total.contributions,
            # Not below 0: what is under way where blocks are cut is not exact.
            wasted=np.maximum(1 - total.used_units / total.computed_units, 0),
            redundant=(total.contributed_units - total.used_units) / total.computed_units,
            messages=total.messages / num_workers / total.effective_steps,
        )


def exactness(scheme: Scheme, num_workers: int, *, has_uneven_commits: Callable[[], bool]) -> str:
    """What a scheme computes: "exact", "exact coded", "approximate", "stale" or "local steps" (explained in `CLASSES`).

    The first that it has otherwise than BSP decides: own parameters of workers, older parameters, other gradients.

    Args:
      scheme: which one.
      num_workers: W.
      has_uneven_commits: says whether a commit can have other than the same work of everybody; only called where
        nothing else says it.
    """
    protocol = scheme.protocol
    # `local`: what workers do with parameters of their own; None where they push gradients.
    if protocol.local is not None and not protocol.local.gradients_at_version:
        return LOCAL
    # A function of W; None where staleness has no bound.
    if protocol.max_staleness is None or protocol.max_staleness(num_workers) > 0:
        return STALE
    if protocol.code is not None:
        return CODED if protocol.waits_for_exact_sum else APPROXIMATE
    if protocol.local is not None:  # sums of gradients at the newest version
        return APPROXIMATE
    return APPROXIMATE if has_uneven_commits() else EXACT


def estimate(values: np.ndarray) -> Estimate:
    """The value on the trace, and the interval of those on the bootstraps, from float64[1 + bootstraps].

    Bootstraps that say nothing, with NaN, are left out; the interval is NaN if there is no other.
    """
    on_trace, on_bootstraps = values[0], values[1:][~np.isnan(values[1:])]
    if not on_bootstraps.size:
        return Estimate(float(on_trace), math.nan, math.nan)
    low, high = np.quantile(on_bootstraps, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(on_trace), float(low), float(high))


def won_back(seconds_per_step: np.ndarray, baseline: Baseline) -> np.ndarray:
    """The share of what stragglers cost BSP that a scheme wins back; NaN where they cost nothing.

    Seconds per step, of the baseline too, are float64[1 + bootstraps]: on the trace, and on each bootstrap.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (baseline.bsp - seconds_per_step) / (baseline.bsp - baseline.median)
    return np.where(baseline.bsp > baseline.median, share, np.nan)
