"""Communication-computation efficient gradient coding (Ye and Abbe, ICML 2018, arXiv 1802.03475)."""

import jax
import numpy as np

from gcjax import _validate
from gcjax._generators import generator_of_key
from gcjax.codes.assignments.regular import cyclic
from gcjax.codes.base import GradientCode
from gcjax.codes.fixed import completion_by_fastest, fixed_code
from gcjax.codes.mds import (
    chebyshev_generator,
    full_weights_and_null_basis,
    interpolating_coefficients,
    messages_of_length_one,
    valid_tolerance,
)
from gcjax.codes.redundancy import check_full_residual, full_residual, redundancy_of, redundant_decode
from gcjax.equality import comparable


@comparable
def communication_efficient(
    num_workers: int,
    *,
    num_stragglers: int,
    num_blocks: int,
    generator: str = "random",
    rng_key: jax.Array | None = None,
) -> GradientCode:
    """Ye and Abbe's code: messages of d/L numbers, and any n-s workers decode.

    N = W, M = 1, and the least load that allows it, K = s + L (Ye and Abbe 2018, theorem 1). Messages are scaled to
    coefficients of length one. The polynomial construction is ill-conditioned for more than some 30 workers.

    Args:
      num_workers: n = W = N.
      num_stragglers: s.
      num_blocks: L, the reduction m of communication in the paper.
      generator: "vandermonde", the polynomial construction of the paper, here at Chebyshev points and in the Chebyshev
        basis, which does not change what it can do; or "random", a Gaussian matrix in its place, which is its
        stable variant.
      rng_key: draws the Gaussian matrix; only for "random".

    Raises:
      ValueError: if s + L exceeds n; if there is no key where one is needed; if rounding leaves too much even with
        everybody.
    """
    num_workers, num_stragglers, num_blocks = valid_tolerance(num_workers, num_stragglers, num_blocks)
    _validate.choice("generator", generator, ("random", "vandermonde"))
    num_needed = num_workers - num_stragglers  # workers that decode
    if generator == "vandermonde":
        generator_matrix = chebyshev_generator(num_needed, num_workers)
    elif rng_key is None:
        raise ValueError("communication_efficient with generator='random' needs rng_key; got None.")
    else:
        generator_matrix = generator_of_key(rng_key).normal(size=(num_needed, num_workers))
    assignment = cyclic(num_workers, load=num_stragglers + num_blocks)
    full_weights, null_basis = full_weights_and_null_basis(generator_matrix, num_blocks)
    unscaled_coefficients = interpolating_coefficients(assignment, full_weights, null_basis)
    lengths = np.sqrt((unscaled_coefficients**2).sum(axis=(2, 3)))[..., None]  # [W, 1, 1]; weights grow by them
    coefficients = messages_of_length_one(unscaled_coefficients)
    redundancy = redundancy_of(coefficients, full_weights[:, None] * lengths, null_basis[:, None] * lengths)
    name = f"Ye and Abbe's code with generator={generator!r}"
    check_full_residual(name, full_residual(coefficients, assignment, redundancy))
    return fixed_code(
        assignment,
        coefficients,
        decode=redundant_decode(assignment, redundancy),
        completion=completion_by_fastest(num_needed),
    )
