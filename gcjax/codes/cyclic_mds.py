"""Gradient coding from cyclic MDS codes (Raviv, Tamo, Tandon, Dimakis, ICML 2018, arXiv 1707.03858)."""

import numpy as np

from gcjax.codes.assignments import cyclic
from gcjax.codes.base import GradientCode
from gcjax.codes.fixed import fastest_decode, fixed_code
from gcjax.codes.mds import as_blocks, check_tolerance
from gcjax.comparable import comparable


@comparable
def cyclic_mds(num_workers: int, *, num_stragglers: int) -> GradientCode:
    """Cyclic MDS code: the coefficients of all workers are shifts of one polynomial, and nothing is random.

    N = W, K = s+1; any n-s workers decode, and some smaller sets. The polynomial generates a cyclic [n, n-s] MDS code
    that contains the all-ones word: it vanishes at s consecutive n-th roots of unity, 1 not among them. Where n and s
    have opposite parity these can be chosen closed under conjugation (around -1), and the code is real, L = M = 1
    (Raviv et al. 2018, section III). Otherwise it is complex, and half of the gradient serves as the imaginary part:
    L = M = 2, so that a worker still sends d numbers.

    Args:
      num_workers: n = W = N.
      num_stragglers: s.

    Raises:
      ValueError: if s is not below n.
    """
    check_tolerance(num_workers, num_stragglers)
    real = (num_workers + num_stragglers) % 2 == 1
    first = (num_workers - num_stragglers + 1) // 2 if real else 1
    roots = np.exp(2j * np.pi * (first + np.arange(num_stragglers)) / num_workers)
    polynomial = np.poly(roots) if num_stragglers else np.ones(1)
    rows = np.tile(polynomial / np.linalg.norm(polynomial), (num_workers, 1))
    coefficients = rows.real if real else as_blocks(rows)
    guaranteed = fastest_decode(num_workers - num_stragglers)
    return fixed_code(cyclic(num_workers, load=num_stragglers + 1), coefficients, guaranteed=guaranteed)
