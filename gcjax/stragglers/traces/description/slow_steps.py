"""Single steps in which all workers are slow at once, such as those of a checkpoint or of a network that is down.

Letters: T steps.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.description.levels import Level
from gcjax.stragglers.traces.description.step_times import StepTimes

SLOW_STEP_RATIO = 3.0
"""All are slow in a step whose fastest worker takes so many times as long as a step of its stretch."""


class SlowStep(NamedTuple):
    """A step in which all workers are slow.

    Attributes:
      step: its number.
      ratio: the shortest time of the step, over the median of the steps' medians between two changes of all together.
    """

    step: int
    ratio: float


def slow_steps(times: StepTimes, levels_of_all: Sequence[Level]) -> tuple[SlowStep, ...]:
    """The steps in which all workers are slow at once, in their order.

    Args:
      times: of the trace.
      levels_of_all: of the steps' medians.
    """
    usual_seconds = np.full(len(times.steps), np.nan)  # [T], the median of the steps' medians within each level
    for level in levels_of_all:
        rows = slice(level.first_row, level.last_row + 1)
        usual_seconds[rows] = np.median(times.step_median[rows])
    fastest = np.fmin.reduce(times.seconds, axis=1)  # [T], without NaN
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(usual_seconds > 0, fastest / usual_seconds, np.nan)
    is_slow = ratio >= SLOW_STEP_RATIO
    return tuple(map(SlowStep, times.steps[is_slow].tolist(), ratio[is_slow].tolist()))
