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
    """float64[n, ...]: how many values of its series are smaller, and half of how many others are equal.

    That is the middle of the positions, from 0, that equal values have in the sorted series: along the first axis.
    """
    position = np.arange(len(values)).reshape(-1, *(1,) * (values.ndim - 1))  # [n, 1, ...]
    sorting = np.argsort(values, axis=0)
    sorted_values = np.take_along_axis(values, sorting, axis=0)
    differs = sorted_values[1:] != sorted_values[:-1]  # [n - 1, ...], from the value before
    always = np.ones_like(differs[:1], shape=(1, *values.shape[1:]))
    is_first_of_ties = np.concatenate([always, differs])
    # Of each sorted value the first and the last position of those that equal it.
    first_of_ties = np.maximum.accumulate(np.where(is_first_of_ties, position, 0), axis=0)
    is_last_reversed = np.concatenate([differs, always])[::-1]
    last_of_ties = np.minimum.accumulate(np.where(is_last_reversed, position[::-1], len(values)), axis=0)[::-1]
    rank_of_value = np.empty(values.shape)
    np.put_along_axis(rank_of_value, sorting, (first_of_ties + last_of_ties) / 2, axis=0)
    return rank_of_value
