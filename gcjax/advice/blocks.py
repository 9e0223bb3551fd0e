"""Blocks of a trace, and which of them each bootstrap draws, as another stretch of the same job.

The blocks of a moving block bootstrap (Künsch, Annals of Statistics 1989): so many steps in a row, all workers
together, so that slow spells and what happens at one time stay together. The trace is taken as a ring.

Letters: T steps, W workers.
"""

import math

import numpy as np

from gcjax.stragglers.traces.base import Trace, check_single_precision
from gcjax.stragglers.traces.replay import with_gaps_filled
from gcjax.wording import counted

MIN_BLOCKS = 64
"""So many blocks, unless there are fewer steps; in a short trace they overlap."""

STEPS_MULTIPLE = 8  # a block has a whole number of rounds of 2, 4 or 8 steps
MIN_BLOCKS_OF_TRACE = 4
"""So many blocks, one after the other, are in a trace: with fewer the intervals hold too few other stretches."""
MIN_STEPS = MIN_BLOCKS_OF_TRACE * STEPS_MULTIPLE
"""Of a trace."""

_WANTED_STEPS = 16
_CUTOFF_FACTOR = 5  # times the correlation time; a sum up to there has most of it, and little noise


def step_seconds(trace: Trace) -> tuple[np.ndarray, int]:
    """float64[T, W] seconds of computing, and how many of them were not measured.

    A step that was not measured takes as long as the worker's last one before it, or its first one.

    Raises:
      ValueError: if there are too few steps or workers, or a worker fails or has no time, or times are
        too long or short for single precision.
    """
    num_steps, num_workers = trace.compute.shape
    if num_workers < 2 or num_steps < MIN_STEPS:
        raise ValueError(
            f"advice needs a trace of 2 workers and {MIN_STEPS} steps at least; got "
            f"{counted(num_workers, 'worker')} and {counted(num_steps, 'step')}."
        )
    if np.isinf(trace.compute).any():
        step, worker = np.argwhere(np.isinf(trace.compute))[0]
        raise ValueError(
            f"advice needs workers that end every step; worker {trace.workers[worker]} fails at step "
            f"{trace.steps[step]}. Leave its column out, or take the steps before."
        )
    is_never_measured = np.isnan(trace.compute).all(axis=0)
    if is_never_measured.any():
        worker = trace.workers[is_never_measured.argmax()]
        raise ValueError(
            f"advice needs a time of every worker; worker {worker} has none. Leave it out, or take other steps."
        )
    seconds = with_gaps_filled(trace.compute)
    if not (np.median(seconds, axis=1) > 0).any():
        raise ValueError("advice needs steps that take time; in this trace the median of every step is 0 s.")
    is_idle = (seconds == 0).all(axis=0)
    if is_idle.any():
        idle_worker = trace.workers[is_idle.argmax()]
        raise ValueError(
            f"advice needs workers whose steps take time; those of worker {idle_worker} all take 0 s. Leave "
            "its column out."
        )
    check_single_precision(seconds)
    return seconds, int(np.isnan(trace.compute).sum())


def default_block_steps(seconds: np.ndarray) -> int:
    """The length of a block of times float64[T, W], a multiple of 8.

    The square root of T, 16 at least, or six times as many steps as the time that stragglers cost is correlated for,
    so that slow spells are not cut into pieces; but not more than an eighth of T for that. All is rounded up to a
    multiple of 8; a trace has four blocks at least.
    """
    num_steps = len(seconds)
    steps_for_slow_spells = min(6 * correlated_steps(seconds.max(axis=1) - np.median(seconds, axis=1)), num_steps / 8)
    wanted_steps = max(_WANTED_STEPS, math.sqrt(num_steps), steps_for_slow_spells)
    multiples_in_longest = longest_block_steps(num_steps) // STEPS_MULTIPLE
    return min(rounded_up(wanted_steps), max(1, multiples_in_longest) * STEPS_MULTIPLE)


def longest_block_steps(num_steps: int) -> int:
    """The longest block of a trace of so many steps."""
    return num_steps // MIN_BLOCKS_OF_TRACE


def rounded_up(num_steps: float) -> int:
    """The least multiple of 8 that is not below the number."""
    return STEPS_MULTIPLE * math.ceil(num_steps / STEPS_MULTIPLE)


def correlated_steps(values: np.ndarray) -> float:
    """The integrated autocorrelation time of a series float64[T], in steps: 1 if they are independent.

    The sum is cut off at five times itself (Sokal, "Monte Carlo methods in statistical mechanics", 1997).
    """
    deviations = values - values.mean()
    # Covariances at all lags, by the Fourier transform; T times too large, which the ratio below takes out.
    spectrum = np.fft.rfft(deviations, 2 * len(deviations))  # as many zeros again, so that it is not taken as a ring
    covariances = np.fft.irfft(spectrum * spectrum.conj())[: len(deviations)]
    if covariances[0] <= 1e-12 * (values**2).sum():  # a constant, but for rounding
        return 1.0
    correlated_steps_by_cutoff = 2 * np.cumsum(covariances / covariances[0]) - 1  # [T]: by the last lag in the sum
    is_past_cutoff = np.arange(len(correlated_steps_by_cutoff)) >= _CUTOFF_FACTOR * correlated_steps_by_cutoff
    return max(1.0, float(correlated_steps_by_cutoff[is_past_cutoff.argmax() if is_past_cutoff.any() else -1]))


def first_steps(num_steps: int, block_steps: int) -> np.ndarray:
    """int64[blocks]: the first step of each block: one after the other, overlapping where there would be too few.

    From one to the next it is the length of a block, or so much of it as divides it, so that each step is in as many
    blocks as any other; but where T is no multiple of that, some are in one block more. A length without a divisor for
    some `MIN_BLOCKS` blocks, such as a prime number, is not divided: then some steps are in fewer blocks than others.
    """
    longest_strides = max(1, num_steps // MIN_BLOCKS), -(-num_steps // MIN_BLOCKS)
    for longest_stride in longest_strides:
        stride = next(divisor for divisor in range(longest_stride, 0, -1) if block_steps % divisor == 0)
        if block_steps <= longest_stride or 2 * stride > longest_stride:
            break
    else:
        stride = longest_strides[0]
    return np.arange(0, num_steps, stride)


def steps_of_blocks(
    first_step_of_block: np.ndarray, num_steps: int, *, warmup_steps: int, block_steps: int, cooldown_steps: int = 0
) -> np.ndarray:
    """int64[blocks, warmup_steps + block_steps + cooldown_steps]: the steps of each block, between those around it.

    T steps are a ring.
    """
    return (first_step_of_block[:, None] + np.arange(-warmup_steps, block_steps + cooldown_steps)) % num_steps


def drawn_block_counts(
    rng: np.random.Generator, num_bootstraps: int, num_blocks: int, num_steps: int, block_steps: int
) -> np.ndarray:
    """float64[bootstraps, blocks]: how often each block counts in other stretches, as long as the trace.

    Two things are random: what the job is like is only known from n = T / block_steps blocks, and another stretch is
    not as the job is in the mean. So blocks are drawn with replacement, and of these, again, blocks. There are n - 3
    and n - 4 of them, so that a mean over blocks with the variance s^2 (divisor n - 1) varies by
    2 (n - 1) / (n - 3) s^2 / n. That is the variance of Student's t with n - 1 degrees of freedom, since s^2 is
    estimated, too, and twice as much for two stretches.
    """
    num_blocks_of_job = max(2, -(-num_steps // block_steps) - 3)  # n is rounded up
    num_blocks_of_stretch = num_blocks_of_job - 1
    blocks_of_job = rng.integers(num_blocks, size=(num_bootstraps, num_blocks_of_job))
    position_in_job = rng.integers(num_blocks_of_job, size=(num_bootstraps, num_blocks_of_stretch))
    blocks_of_stretch = np.take_along_axis(blocks_of_job, position_in_job, axis=1)
    block_counts = [np.bincount(drawn_blocks, minlength=num_blocks) for drawn_blocks in blocks_of_stretch]
    return np.stack(block_counts).astype(np.float64)
