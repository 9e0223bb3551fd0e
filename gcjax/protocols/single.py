"""A check of hyperparameters that are one number for all workers."""

from typing import Any

import numpy as np

from gcjax import _checks


def single(name: str, value: Any, **bounds: Any) -> Any:
    """As `_checks.number`, for one number: sequences, arrays, text and booleans are refused."""
    if value is None or isinstance(value, (str, bytes, bool, tuple, list, dict)) or np.shape(value) != ():
        raise ValueError(f"{name} must be one number; got {value!r}.")
    return _checks.number(name, value, **bounds)
