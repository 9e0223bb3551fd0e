"""How many bits the messages of each worker get (Song and Choi 2026, arXiv 2605.15890).

Letters: W workers, B bits a number of a message.

From the paper's abstract and its released code: the sum of (1 - p_w) / (p_w + ω_w) over the workers is to be as large
as possible, where p_w is how likely worker w is late, ω_w the noise of its messages; with b bits and one for the sign
ω_w is D / (2^b - 1)^2, and a worker without bits contributes nothing; a dynamic programme finds the optimum. The sum is
N^2 over the variance of `gcjax.codes.unbiased` with `aligned=True`, where chunks connect the workers. Ours: noise by
any table, one for all or one for each worker. Left out: the paper's fast algorithm, which is nearly optimal.
"""

from collections.abc import Sequence

import numpy as np

from gcjax import _validate
from gcjax.codes.straggler_probabilities import valid_probabilities


def bit_allocation(
    num_bits: int, *, straggler_probabilities: Sequence[float], noise: Sequence[float] | np.ndarray
) -> np.ndarray:
    """The bits of each worker, of so many in all, with which `unbiased(..., aligned=True)` has the least variance.

    To give one bit after the other to whom it helps most is not enough: the first bit can help less than the second.
    This tries out all totals, in O(W num_bits B). Where allocations are equally good, later workers get fewer bits.

    Args:
      num_bits: of all workers, for a number each in their messages; without those for the signs.
      straggler_probabilities: float[W], p_w, above 0 and below 1.
      noise: float[B + 1], the noise ω of a message with 0, ..., B bits, which falls with the bits and is inf for a
        worker that sends nothing; or float[W, B + 1], one row a worker. See `quantisation_noise`.

    Returns:
      int[W], at most B each, `num_bits` together or fewer where more would not help. `unbiased(..., message_noise=)`
      takes their noise, `noise[bits]`, or `noise[np.arange(W), bits]` of one row a worker, and
      `gcjax.compression.qsgd` the levels `2**bits - 1`.

    Raises:
      ValueError: if a probability is not in (0, 1), or noise is negative, or rises with the bits.

    Example:
      >>> noise = gcjax.codes.quantisation_noise(3, scale=4.0)  # inf, 4, 0.44, 0.08
      >>> gcjax.codes.bit_allocation(4, straggler_probabilities=(0.1, 0.1, 0.6), noise=noise).tolist()
      [3, 1, 0]
    """
    num_bits = _validate.integer("num_bits", num_bits)
    probabilities = valid_probabilities(straggler_probabilities, above_zero=True)
    variances = probabilities[:, None] + _valid_noise(noise, probabilities.size)
    precisions = (1 - probabilities[:, None]) / variances  # [W, B + 1]: of messages of length 1, with 0 to B bits
    most_bits = precisions.shape[1] - 1
    num_totals = num_bits + 1
    best_sum = np.zeros(num_totals)  # of the precisions of the workers so far, with at most 0, 1, ... bits together
    # Of each worker, if it and those before have so many together.
    best_bits = np.zeros((probabilities.size, num_totals), np.int64)
    for worker, precision_by_bits in enumerate(precisions):
        sums = np.full((min(most_bits, num_bits) + 1, num_totals), -np.inf)  # [bits of this worker, bits together]
        for bits in range(len(sums)):
            sums[bits, bits:] = best_sum[: num_totals - bits] + precision_by_bits[bits]
        best_bits[worker] = sums.argmax(axis=0)  # the fewest bits of equally good ones
        best_sum = sums.max(axis=0)
    allocation, bits_left = np.zeros(probabilities.size, np.int64), num_bits
    for worker in reversed(range(probabilities.size)):
        allocation[worker] = best_bits[worker, bits_left]
        bits_left -= allocation[worker]
    return allocation


def quantisation_noise(max_bits: int, *, scale: float) -> np.ndarray:
    """float64[max_bits + 1]: the noise D / (2^b - 1)^2 of messages with b bits a number and one for the sign.

    That of `gcjax.compression.qsgd(levels=2**b - 1)` is at most this with D a quarter of the size of a bucket, since
    rounding x up or down at random has a variance of 1/4 at most. Without bits nothing is sent, and the noise is inf.

    Args:
      max_bits: B, 1 or more.
      scale: D, above 0: the noise with one bit.
    """
    max_bits = _validate.integer("max_bits", max_bits, minimum=1)
    _validate.single_number("scale", scale, above=True, finite=True)
    num_levels = 2.0 ** np.arange(1, max_bits + 1) - 1
    return np.append(np.inf, scale / num_levels**2)


def _valid_noise(noise: Sequence[float] | np.ndarray, num_workers: int) -> np.ndarray:
    """float64[W, B + 1]: the noise ω of each worker's messages with 0, ..., B bits; a single row is that of all.

    Raises:
      ValueError: for another shape, or noise that is negative or rises with the bits.
    """
    table = np.asarray(_validate.number("noise", noise), np.float64)
    if table.ndim not in (1, 2) or (table.ndim == 2 and table.shape[0] != num_workers) or not table.shape[-1]:
        raise ValueError(
            f"noise must be float[B + 1], for 0 to B bits, or float[{num_workers}, B + 1], one row a worker; got shape "
            f"{table.shape}."
        )
    with np.errstate(invalid="ignore"):  # inf - inf
        rises = (table[..., 1:] > table[..., :-1]).any()
    if rises:
        raise ValueError("noise must fall with the bits; got noise that rises. List it for 0, 1, ... bits in order.")
    return np.broadcast_to(table, (num_workers, table.shape[-1]))
