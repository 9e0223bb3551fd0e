"""Gradient coding by repetition (Tandon, Lei, Dimakis, Karampatziakis, ICML 2017)."""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _checks
from gcjax.codes.assignments import cyclic, repetition
from gcjax.codes.base import GradientCode, host_generator
from gcjax.codes.fixed import fastest_decode, fixed_code
from gcjax.comparable import comparable


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
    columns add up to zero, so that the all-ones vector lies in the span of any n-s of them. The decoding weights are
    the least-squares ones of the workers that have finished, which also serve when too few have.

    The random rows get ill-conditioned as n and s grow. In float32 the largest residual of ten random masks of s
    stragglers was 2e-5 for (n, s) = (24, 2), 2e-4 for (24, 12) and 2e-2 for (100, 20); the plan's `residual` tells.

    Args:
      num_workers: n = W.
      num_stragglers: s.
      rng_key: draws the random matrix.
    """
    assignment = cyclic(num_workers, load=_load(num_workers, num_stragglers))
    coefficients = cyclic_coefficients(num_workers, num_stragglers, rng_key)
    return fixed_code(assignment, coefficients, completion=fastest_decode(num_workers - num_stragglers))


def _load(num_workers: int, num_stragglers: int) -> int:
    _checks.integer("num_workers", num_workers, minimum=1)
    return 1 + _checks.integer("num_stragglers", num_stragglers, minimum=0, maximum=num_workers - 1)


def cyclic_coefficients(num_workers: int, num_stragglers: int, rng_key: jax.Array) -> np.ndarray:
    """float64[W, K]: row i has 1 and then -H_rest^{-1} H_i on the chunks i, ..., i+s."""
    random = host_generator(rng_key).normal(size=(num_stragglers, num_workers))
    random[:, -1] = -random[:, :-1].sum(axis=1)
    support = (np.arange(num_workers)[:, None] + np.arange(num_stragglers + 1)) % num_workers
    columns = np.moveaxis(random[:, support], 1, 0)
    rest = -np.linalg.solve(columns[:, :, 1:], columns[:, :, :1])[:, :, 0]
    return np.concatenate([np.ones((num_workers, 1)), rest], axis=1)
