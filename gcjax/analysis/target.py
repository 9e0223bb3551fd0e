"""What a comparison is to reach."""

import math
import numbers
from collections.abc import Iterable
from typing import NamedTuple

from gcjax import _validate


class Target(NamedTuple):
    """The value that a metric is to reach.

    Attributes:
      metric: its name in the task's metrics.
      value: the value.
      higher_is_better: whether the metric is to rise to the value (accuracy) or to fall to it (all others).
    """

    metric: str
    value: float
    higher_is_better: bool


def is_share(metric: str) -> bool:
    """Whether a metric of this name is between 0 and 1, as an accuracy is."""
    return "accuracy" in metric


def target(metric: str, value: float, known_metrics: Iterable[str], *, higher_is_better: bool | None = None) -> Target:
    """A target that can be reached.

    Args:
      metric: the name of a metric.
      value: what it is to reach.
      known_metrics: those of the task.
      higher_is_better: whether the metric is to rise to the value; None: it is if its name has "accuracy" in it.

    Raises:
      ValueError: if the task has no such metric, or the metric cannot have this value.
    """
    _validate.choice("metric", metric, known_metrics)
    if higher_is_better is not None:
        higher_is_better = _validate.boolean("higher_is_better", higher_is_better)
    between_0_and_1 = is_share(metric)
    lowest_possible = -math.inf if higher_is_better and not between_0_and_1 else 0.0  # a loss is >= 0
    highest_possible = 1.0 if between_0_and_1 else math.inf
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (is_number and abs(value) < math.inf and lowest_possible <= value <= highest_possible):
        lowest, highest = f"{lowest_possible:g}", f"{highest_possible:g}"
        bounds = f"between {lowest} and {highest}" if between_0_and_1 else f"a finite number, at least {lowest}"
        value_text = f"{value:g}" if is_number else repr(value)
        raise ValueError(f"The target for {metric} must be {bounds}; got {value_text}, which can never be reached.")
    return Target(metric, float(value), between_0_and_1 if higher_is_better is None else higher_is_better)
