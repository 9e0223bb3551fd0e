"""What a kind of model says of a trace: its parameters, and how likely it finds each time given all before.

Letters: T steps, W workers.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.fitting.calls import Call

Likelihood = Callable[[np.ndarray], np.ndarray]
"""`(seconds float64[T, W]) -> float64[T, W]`: the logarithm of the density of each time, given all earlier steps."""


class Candidate(NamedTuple):
    """A fitted model.

    Attributes:
      call: the factory with its parameters.
      num_parameters: numbers that were fitted.
      log_likelihood: of a whole trace, of which the first part was fitted; None for a model that has no density.
      note: what a reader must know.
      suffix: of the name, where two models have the same factories.
    """

    call: Call
    num_parameters: int
    log_likelihood: Likelihood | None
    note: str = ""
    suffix: str = ""

    @property
    def name(self) -> str:
        """The factories and the suffix."""
        return self.call.nested_names + self.suffix


def log_probability_of_indicators(indicators: np.ndarray, probability: np.ndarray | float) -> np.ndarray:
    """float64[T, W]: the logarithm of the probability of each indicator: 1 has this one, 0 the rest; NaN for NaN.

    `probability` is one for all, or float64[T, W].
    """
    with np.errstate(divide="ignore"):
        return np.log(np.where(indicators == 1, probability, np.where(indicators == 0, 1 - probability, np.nan)))
