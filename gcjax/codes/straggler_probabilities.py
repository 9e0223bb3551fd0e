"""How likely each worker is late: the check of what a user says of it.

Letters: W workers.
"""

from collections.abc import Sequence

import numpy as np

from gcjax import _validate


def valid_probabilities(
    straggler_probabilities: Sequence[float] | float, num_workers: int | None = None, *, above_zero: bool = False
) -> np.ndarray:
    """float64[W]: one for each worker.

    Args:
      straggler_probabilities: float[W], at least 0 and below 1; or one number for all workers, if W is given.
      num_workers: W; as many as there are probabilities if None.
      above_zero: whether 0 is refused, too.

    Raises:
      ValueError: for another shape, or a probability outside of these bounds.
    """
    probabilities = np.asarray(_validate.number("straggler_probabilities", straggler_probabilities), np.float64)
    if num_workers is None and (probabilities.ndim != 1 or not probabilities.size):
        raise ValueError(
            f"straggler_probabilities must be float[W], one a worker; got shape {probabilities.shape}. Repeat one "
            "number for all workers, (0.1,) * W."
        )
    if num_workers is not None and probabilities.shape not in ((), (num_workers,)):
        raise ValueError(
            f"straggler_probabilities must be one number or float[{num_workers}], one a worker; "
            f"got shape {probabilities.shape}."
        )
    if (probabilities >= 1).any():
        raise ValueError(
            f"straggler_probabilities must be below 1, or a worker never sends; got {probabilities.max():g}. "
            "Leave such workers out."
        )
    if above_zero and (probabilities == 0).any():
        raise ValueError(
            f"straggler_probabilities must be above 0; got 0 for worker {np.argmin(probabilities)}. Pass a small "
            "probability for workers that are never late."
        )
    return np.broadcast_to(probabilities, num_workers or probabilities.size)
