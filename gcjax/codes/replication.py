"""Gradient coding by repetition (Tandon, Lei, Dimakis, Karampatziakis, ICML 2017)."""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _checks
from gcjax.codes.assignments import cyclic, repetition
from gcjax.codes.base import Assignment, GradientCode, host_generator
from gcjax.codes.fixed import Decode, fastest_decode, fixed_code
from gcjax.codes.redundancy import (
    MAX_RESIDUAL,
    check_full_residual,
    full_residual,
    redundant_decode,
    sparse_redundancy,
)
from gcjax.equality import comparable

NUM_DRAWS = 16
"""Random matrices that a cyclic repetition code tries at most."""


@comparable
def fractional_repetition(num_workers: int, *, num_stragglers: int) -> GradientCode:
    """Fractional repetition code (FRC): one finished worker of each group of s+1 is enough (Tandon 2017, section 3.1).

    N = W, K = s+1, L = M = 1. Any s stragglers are tolerated, and more as long as no group is lost.

    Args:
      num_workers: n = W.
      num_stragglers: s.

    Raises:
      ValueError: if s+1 does not divide the number of workers.
    """
    assignment = repetition(num_workers, load=_load(num_workers, num_stragglers))
    size = num_stragglers + 1

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        groups = (progress >= size).reshape(-1, size)
        first = (jnp.cumsum(groups, axis=1) == 1) & groups
        return first.reshape(num_workers, 1, 1)

    def completion(arrivals: jax.Array) -> jax.Array:
        return arrivals.reshape(-1, size).min(axis=1).max()

    return fixed_code(assignment, np.ones((num_workers, size)), decode=decode, completion=completion)


@comparable
def cyclic_repetition(num_workers: int, *, num_stragglers: int, rng_key: jax.Array) -> GradientCode:
    """Cyclic repetition code (CRC): any n-s workers decode (Tandon 2017, algorithms 1 and 2).

    N = W, K = s+1, L = M = 1. The rows of the coding matrix lie in the null space of a random s×n matrix whose
    columns add up to zero, so that the all-ones vector lies in the span of any n-s of them. At least n-s workers are
    decoded through a system of the size of the stragglers; where fewer have finished, the weights are the
    least-squares ones.

    The random rows get ill-conditioned as n and s grow. A matrix that leaves more than 5e-4 by rounding even with
    everybody is drawn again, up to 16 times, from then on with uniform entries and the mean taken from all columns. In
    float32 codes of 1000 workers with s <= 3 then leave 7e-5 to 6e-4 with everybody; with s random stragglers mostly
    1e-4 to 6e-3, and in the worst case 0.1. The plan's `residual` tells.

    Args:
      num_workers: n = W.
      num_stragglers: s.
      rng_key: draws the random matrix.

    Raises:
      ValueError: if s is not below n, or rounding leaves too much even with everybody.
    """
    assignment = cyclic(num_workers, load=_load(num_workers, num_stragglers))
    coefficients, decode = _well_conditioned(assignment, num_stragglers, rng_key)
    return fixed_code(assignment, coefficients, decode=decode, completion=fastest_decode(num_workers - num_stragglers))


def _well_conditioned(
    assignment: Assignment, num_stragglers: int, rng_key: jax.Array
) -> tuple[np.ndarray, Decode | None]:
    """The first coefficients that leave less than half of what rounding may, or the best; and how to decode them."""
    num_workers, rng = assignment.num_workers, host_generator(rng_key)
    matrix = _null_matrix(rng, num_workers, num_stragglers)
    if not num_stragglers:
        return _coefficients(matrix), None
    draws = []
    for _ in range(NUM_DRAWS):
        coefficients = _coefficients(matrix)
        redundancy = sparse_redundancy(assignment, coefficients, num_stragglers)
        left = full_residual(coefficients[:, None, :, None], assignment, redundancy)
        draws.append((left, coefficients, redundancy))
        if left <= MAX_RESIDUAL / 2:
            break
        matrix = rng.uniform(-1, 1, size=matrix.shape)
        matrix -= matrix.mean(axis=1, keepdims=True)
    left, coefficients, redundancy = min(draws, key=lambda draw: draw[0])
    check_full_residual("a cyclic repetition code", left)
    return coefficients, redundant_decode(assignment, redundancy)


def _load(num_workers: int, num_stragglers: int) -> int:
    _checks.integer("num_workers", num_workers, minimum=1)
    return 1 + _checks.integer("num_stragglers", num_stragglers, minimum=0, maximum=num_workers - 1)


def cyclic_coefficients(num_workers: int, num_stragglers: int, rng_key: jax.Array) -> np.ndarray:
    """float64[W, K]: row i has 1 and then -H_rest^{-1} H_i on the chunks i, ..., i+s."""
    return _coefficients(_null_matrix(host_generator(rng_key), num_workers, num_stragglers))


def _null_matrix(rng: np.random.Generator, num_workers: int, num_stragglers: int) -> np.ndarray:
    """float64[s, n]: H, normal, its last column such that the columns add up to zero (Tandon 2017, algorithm 2)."""
    matrix = rng.normal(size=(num_stragglers, num_workers))
    matrix[:, -1] = -matrix[:, :-1].sum(axis=1)
    return matrix


def _coefficients(matrix: np.ndarray) -> np.ndarray:
    num_stragglers, num_workers = matrix.shape
    support = (np.arange(num_workers)[:, None] + np.arange(num_stragglers + 1)) % num_workers
    columns = np.moveaxis(matrix[:, support], 1, 0)
    rest = -np.linalg.solve(columns[:, :, 1:], columns[:, :, :1])[:, :, 0]
    return np.concatenate([np.ones((num_workers, 1)), rest], axis=1)
