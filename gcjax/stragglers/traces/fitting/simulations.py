"""Several simulations of a fitted model, to hold against a trace: one alone can be like it, or unlike it, by chance.

Letters: T steps, W workers.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from gcjax.stragglers.base import StragglerModel, sample_durations
from gcjax.stragglers.traces.fitting.statistics import StatisticsWithFailures, statistics_with_failures

_MOST_DRAWS, _LEAST_DRAWS = 20, 10
_MAX_TIMES = 2_000_000  # that are simulated for a model, in all draws together


class Simulated(NamedTuple):
    """The statistics of several simulations of a model: of each number one value.

    Attributes:
      median: over the draws.
      smallest: of all draws.
      largest: of all draws.
    """

    median: StatisticsWithFailures
    smallest: StatisticsWithFailures
    largest: StatisticsWithFailures


def num_draws(num_steps: int, num_workers: int) -> int:
    """How often a model is simulated for a trace of T steps of W workers: 20 times, of large traces 10 at least."""
    return min(_MOST_DRAWS, max(_LEAST_DRAWS, _MAX_TIMES // (num_steps * num_workers)))


def simulated(model: StragglerModel, rng_key: jax.Array, seconds: np.ndarray) -> Simulated:
    """Simulates a model as long as a trace, or less of it for more than 200,000 times.

    Args:
      model: of as many workers as the trace.
      rng_key: a JAX random key.
      seconds: float64[T, W], the trace; what it has not measured (NaN) does not count in the simulations either.
    """
    num_steps, num_workers = seconds.shape
    keys = jax.random.split(rng_key, num_draws(num_steps, num_workers))
    num_drawn_steps = max(1, min(num_steps, _MAX_TIMES // (len(keys) * num_workers)))
    steps = np.arange(num_drawn_steps) * num_steps // num_drawn_steps  # all, or evenly spaced ones
    is_missing = np.isnan(seconds[steps])
    statistics_of_draws = []
    for key in keys:
        drawn_seconds = np.asarray(sample_durations(model, key, num_drawn_steps, num_workers), np.float64)
        statistics_of_draws.append(statistics_with_failures(np.where(is_missing, np.nan, drawn_seconds)))
    values_of_numbers = [np.array(values) for values in zip(*statistics_of_draws, strict=True)]  # [draws] each
    return Simulated(
        *(
            StatisticsWithFailures(*(_without_nan(reduction, values) for values in values_of_numbers))
            for reduction in (np.median, np.min, np.max)
        )
    )


def _without_nan(reduction: Callable[[np.ndarray], np.ndarray], values: np.ndarray) -> float:
    """The reduction of those of the values that are numbers; NaN if none is."""
    numbers = values[~np.isnan(values)]
    return float(reduction(numbers)) if numbers.size else np.nan
