"""Ranks of the values of series, as normal scores.

Letters: n values of a series.
"""

import numpy as np


def normal_scores(values: np.ndarray) -> np.ndarray:
    """float64[n, ...]: the normal quantiles of the ranks of the values; equal values have equal scores.

    Args:
      values: float64[n, ...], a series along the first axis.
    """
    from scipy.special import ndtri  # here, since `import gcjax` is to be quick

    return ndtri((ranks(values) + 0.5) / len(values))


def ranks(values: np.ndarray) -> np.ndarray:
    """float64[n, ...]: how many values of its series are smaller, and half of how many others are equal."""
    position = np.arange(len(values)).reshape(-1, *(1,) * (values.ndim - 1))
    order = np.argsort(values, axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    differs = ordered[1:] != ordered[:-1]  # from the value before
    edge = np.ones_like(differs[:1], shape=(1, *values.shape[1:]))
    first = np.maximum.accumulate(np.where(np.concatenate([edge, differs]), position, 0), axis=0)
    is_last = np.concatenate([differs, edge])[::-1]
    last = np.minimum.accumulate(np.where(is_last, position[::-1], len(values)), axis=0)[::-1]
    result = np.empty(values.shape)
    np.put_along_axis(result, order, (first + last) / 2, axis=0)
    return result
