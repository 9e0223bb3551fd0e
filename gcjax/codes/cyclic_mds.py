"""Gradient coding from cyclic MDS codes (Raviv, Tandon, Dimakis, Tamo, ICML 2018, arXiv 1707.03858)."""

import numpy as np

from gcjax.codes.assignments.regular import cyclic
from gcjax.codes.base import GradientCode
from gcjax.codes.fixed import completion_by_fastest, fixed_code
from gcjax.codes.mds import complex_as_real_blocks, valid_tolerance
from gcjax.codes.redundancy import Redundancy, check_full_residual, full_residual, redundancy_of, redundant_decode
from gcjax.equality import comparable


@comparable
def cyclic_mds(num_workers: int, *, num_stragglers: int) -> GradientCode:
    """Cyclic MDS code: the coefficients of all workers are shifts of one polynomial, and nothing is random.

    N = W, K = s+1; any n-s workers decode, and some smaller sets. The polynomial generates a cyclic [n, n-s] MDS code
    that contains the all-ones word: it vanishes at s consecutive n-th roots of unity, 1 not among them. They are
    taken around -1, as far from 1 as they can be, so that everybody's messages add up to the sum without cancellation.
    Where n and s have opposite parity they are closed under conjugation, and the code is real, L = M = 1 (Raviv et al.
    2018). Otherwise it is complex, and half of the gradient serves as the imaginary part: L = M = 2, so
    that a worker still sends d numbers.

    The messages of everybody are decoded by their plain sum, and those of at least n-s workers through a system of the
    size of the stragglers. How exact that is depends on who they are: s stragglers spread over the circle cost few
    digits, but s neighbours need weights of up to about n^s / s!, which no type of numbers holds for large s (in
    float32, the residual of ten neighbours among fifty is above 1). With more stragglers the weights are the
    least-squares ones.

    Args:
      num_workers: n = W = N.
      num_stragglers: s.

    Raises:
      ValueError: if s is not below n, or rounding leaves too much even with everybody.
    """
    num_workers, num_stragglers, _ = valid_tolerance(num_workers, num_stragglers)
    is_real = (num_workers + num_stragglers) % 2 == 1
    zero_exponents = (num_workers - num_stragglers + 1) // 2 + np.arange(num_stragglers)
    polynomial = np.poly(np.exp(2j * np.pi * zero_exponents / num_workers)) if num_stragglers else np.ones(1)
    polynomial = polynomial / np.linalg.norm(polynomial)
    same_rows = np.tile(polynomial, (num_workers, 1))  # [W, K]: worker w has it on the chunks w, ..., w + s
    coefficients = same_rows.real[:, None, :, None] if is_real else complex_as_real_blocks(same_rows)
    assignment = cyclic(num_workers, load=num_stragglers + 1)
    redundancy = _cyclic_redundancy(coefficients, polynomial, zero_exponents, is_real)
    check_full_residual("a cyclic MDS code", full_residual(coefficients, assignment, redundancy))
    return fixed_code(
        assignment,
        coefficients,
        decode=redundant_decode(assignment, redundancy),
        guaranteed_time=completion_by_fastest(num_workers - num_stragglers),
        stays_exact=True,
    )


def _cyclic_redundancy(
    coefficients: np.ndarray, polynomial: np.ndarray, zero_exponents: np.ndarray, is_real: bool
) -> Redundancy:
    """Equal weights decode from everybody; the powers of the s zeros are the weights with which the messages vanish.

    Args:
      coefficients: float[W, M, K, L], of the messages.
      polynomial: complex[s+1], the generator.
      zero_exponents: int[s], its zeros as exponents of the n-th root of unity.
      is_real: whether the code is real, L = M = 1.
    """
    num_workers = len(coefficients)
    angles = 2 * np.pi * (np.arange(num_workers)[:, None] * zero_exponents % num_workers) / num_workers  # [W, s]
    equal_weights = np.full((num_workers, 1), 1 / polynomial.sum())
    if is_real:  # cos + sin: for zeros closed under conjugation, as independent as the powers themselves (Hartley)
        null_basis = (np.cos(angles) + np.sin(angles))[:, None]  # [W, 1, s], of the one message
        return redundancy_of(coefficients, equal_weights.real[:, None], null_basis)
    # Complex numbers as 2×2 real blocks, since both halves of the gradient are sent. A weight maps messages to blocks
    # of the estimate: the last axis of its 2×2 block is the message, which comes second here: [W, 2, 2 s], [W, 2, 2].
    null_blocks = np.moveaxis(complex_as_real_blocks(np.exp(1j * angles)), 3, 1).reshape(num_workers, 2, -1)
    weight_blocks = np.swapaxes(complex_as_real_blocks(equal_weights)[:, :, 0], 1, 2)
    return redundancy_of(coefficients, weight_blocks, null_blocks)
