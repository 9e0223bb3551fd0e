"""How well models foretell the steps that they were not fitted to.

Letters: T steps, W workers.
"""

from typing import NamedTuple

import jax
import numpy as np

NUM_BOOTSTRAPS = 1000
COVERAGE = 0.9


class Score(NamedTuple):
    """A mean over held-out steps and workers, in nats, and an interval for it.

    Attributes:
      mean: a step and worker.
      low: the lower end of the 90 % interval.
      high: its upper end.
    """

    mean: float
    low: float
    high: float


def with_background(log_likelihood: np.ndarray, background_density: np.ndarray, background_share: float) -> np.ndarray:
    """The logarithms float64[T, W] of `(1 - background_share) * density + background_share * background_density`.

    The density is e to `log_likelihood float64[T, W]`; NaN stays NaN. The background is of this shape, or a number.
    Without it a single time that a model holds to be impossible, as one below the shortest before, would decide.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.logaddexp(
            np.log1p(-background_share) + log_likelihood, np.log(background_share) + np.log(background_density)
        )


def background_density(seconds: np.ndarray, median_seconds: float) -> np.ndarray:
    """The density of times t, any shape: heavy-tailed, `m / (m + t)^2 / 2` with `median_seconds` m; 1/2 for inf.

    One half is the probability that a unit fails (inf), and the other that of all times. NaN for NaN.
    """
    with np.errstate(invalid="ignore"):
        return np.where(
            np.isinf(seconds), 0.5, 0.5 / median_seconds * (median_seconds / (median_seconds + seconds)) ** 2
        )


def block_means(values: np.ndarray, rng_key: jax.Array) -> np.ndarray:
    """float64[bootstraps]: means of float64[T, W], NaN for none, over resampled blocks of consecutive steps.

    Circular blocks (Politis and Romano 1992) of the square root of T steps, T steps in all; 0 if these have no value.
    """
    num_steps = len(values)
    block_size = int(np.ceil(np.sqrt(num_steps)))
    num_blocks = -(-num_steps // block_size)
    first_step_of_block = np.asarray(jax.random.randint(rng_key, (NUM_BOOTSTRAPS, num_blocks, 1), 0, num_steps))
    steps_of_block = (first_step_of_block + np.arange(block_size)) % num_steps  # [bootstraps, blocks, steps of a block]
    resampled_steps = steps_of_block.reshape(NUM_BOOTSTRAPS, -1)[:, :num_steps]  # [bootstraps, T]
    step_sums, step_counts = np.nansum(values, axis=1), (~np.isnan(values)).sum(axis=1)  # [T]
    return step_sums[resampled_steps].sum(axis=1) / np.maximum(step_counts[resampled_steps].sum(axis=1), 1)


def score(values: np.ndarray, rng_key: jax.Array) -> Score:
    """The mean of float64[T, W], NaN for none, and its interval."""
    tail = (1 - COVERAGE) / 2
    low, high = np.quantile(block_means(values, rng_key), [tail, 1 - tail])
    return Score(float(np.nanmean(values)), float(low), float(high))
