"""What of the time that is lost is in slow spells of workers, what is shared, and what passes.

The job takes the longest time x of each step. With m the median of the step, M that of all steps' m, and r the largest
level of any worker in the step (how slow it is between two changes; see `levels`), if it is slow, the time lost in a
step has three parts:

- shared by all: m - M, if that is above 0;
- slow spells: (r - 1) m, at most x - m, also of a worker that is slow from the first step to the last;
- passing: all else, x - m less what is in slow spells.

Letters: T steps.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.description.levels import Level
from gcjax.stragglers.traces.description.step_times import StepTimes


class Decomposition(NamedTuple):
    """The parts of the seconds lost, and their shares, which sum to one (NaN if nothing is lost).

    Attributes:
      spell_share: because a worker is slow for a stretch of steps, whether that ends or not.
      shared_share: because all workers are slow at once.
      passing_share: because a worker is slow for a moment.
      lost_seconds: lost in all.
    """

    spell_share: float
    shared_share: float
    passing_share: float
    lost_seconds: float


def decomposition(times: StepTimes, levels: Sequence[Level]) -> Decomposition:
    """The shares of the time lost: that of slow levels of workers, that of slow steps of all, and what else passed.

    Lost is what the longest time of a step is above the median, and the median above the usual one of all steps.

    Args:
      times: of the trace.
      levels: of all workers.
    """
    excess = times.step_longest - times.step_median  # float64[T] seconds, as the next
    excess_of_slow_levels = (_largest_ratio(levels, len(excess)) - 1) * times.step_median
    spell_seconds = np.minimum(excess_of_slow_levels, excess).sum()
    shared_seconds = np.maximum(times.step_median - np.median(times.step_median), 0).sum()
    lost_seconds = excess.sum() + shared_seconds
    is_nothing_lost = lost_seconds <= 1e-12 * times.step_longest.sum()
    if is_nothing_lost:
        return Decomposition(
            spell_share=np.nan, shared_share=np.nan, passing_share=np.nan, lost_seconds=float(lost_seconds)
        )
    return Decomposition(
        spell_share=float(spell_seconds / lost_seconds),
        shared_share=float(shared_seconds / lost_seconds),
        passing_share=float((excess.sum() - spell_seconds) / lost_seconds),
        lost_seconds=float(lost_seconds),
    )


def _largest_ratio(levels: Sequence[Level], num_steps: int) -> np.ndarray:
    """float64[T]: the largest ratio to the median of any worker's slow level in each step, 1 where there is none."""
    largest = np.ones(num_steps)
    for level in levels:
        if level.is_slow:
            steps = slice(level.first_row, level.last_row + 1)
            largest[steps] = np.maximum(largest[steps], level.median_ratio)
    return largest
