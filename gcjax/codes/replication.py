"""Gradient coding by repetition (Tandon, Lei, Dimakis, Karampatziakis, ICML 2017)."""

import itertools
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax._generators import generator_of_key
from gcjax.codes.assignments.regular import cyclic, repetition
from gcjax.codes.base import Assignment, GradientCode
from gcjax.codes.diagnostics.rounding import InexactWarning, straggler_masks
from gcjax.codes.fixed import Decode, completion_by_fastest, fixed_code
from gcjax.codes.null_matrices import MAX_PLAIN_WORKERS, cyclic_rows, null_matrices
from gcjax.codes.redundancy import (
    MAX_RESIDUAL,
    Redundancy,
    check_full_residual,
    full_residual,
    redundant_decode,
    sparse_redundancy,
    straggler_residuals,
)
from gcjax.equality import comparable

NUM_DRAWS = 4
"""Random matrices that a cyclic repetition code tries at most."""

NUM_PROBES = 400
"""Sets of stragglers that a code of many workers is tried with."""


@comparable
def fractional_repetition(num_workers: int, *, num_stragglers: int) -> GradientCode:
    """Fractional repetition code (FRC): one finished worker of each group of s+1 is enough (Tandon 2017, section 3.1).

    N = W, K = s+1, L = M = 1 (one message a worker, of one block). Any s stragglers are tolerated, and more as long as
    no group is lost.

    Args:
      num_workers: n = W.
      num_stragglers: s.

    Raises:
      ValueError: if s+1 does not divide the number of workers.

    Example:
      >>> code = gcjax.codes.fractional_repetition(4, num_stragglers=1)
      >>> code.assignment.chunks.tolist()
      [[0, 1], [0, 1], [2, 3], [2, 3]]
      >>> bool(code.plan([2, 0, 0, 2]).residual < 1e-6)  # workers 1 and 2 are missing, of different groups
      True
    """
    assignment = repetition(num_workers, load=_valid_load(num_workers, num_stragglers))
    group_size = num_stragglers + 1

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        """float[W, 1, 1], one message and one block: 1 for the first finished worker of each group, 0 for all others.

        A group are `group_size` = s + 1 workers, and as many chunks, the whole load of each.
        """
        is_finished = (progress >= group_size).reshape(-1, group_size)  # [groups, s + 1]
        return first_finished_of_groups(is_finished).reshape(num_workers, 1, 1)

    def completion(arrivals: jax.Array) -> jax.Array:
        """float[]: when the last group has its first finished worker, from `arrivals float[W, 1]` of the messages."""
        return arrivals.reshape(-1, group_size).min(axis=1).max()

    return fixed_code(assignment, np.ones((num_workers, group_size)), decode=decode, completion=completion)


def first_finished_of_groups(is_finished: jax.Array) -> jax.Array:
    """bool[groups, K]: the first worker of each group that has finished, of `is_finished bool[groups, K]`."""
    return (jnp.cumsum(is_finished, axis=1) == 1) & is_finished


@comparable
def cyclic_repetition(num_workers: int, *, num_stragglers: int, rng_key: jax.Array) -> GradientCode:
    """Cyclic repetition code (CRC): any n-s workers decode (Tandon 2017, algorithms 1 and 2).

    N = W, K = s+1, L = M = 1. The rows of the coding matrix lie in the null space of a random s×n matrix whose
    columns add up to zero, so that the all-ones vector lies in the span of any n-s of them. At least n-s workers are
    decoded through a system of the size of the stragglers; where fewer have finished, the weights are the
    least-squares ones.

    Plain random rows get ill-conditioned as n grows. For more than 32 workers the random matrix is a spread one
    (`gcjax.codes.null_matrices`), and a code that leaves more than 1e-3 by rounding, with any of 400 sets of s
    stragglers (neighbours, and random ones), is drawn again, up to 4 times. In float32, codes of 1000 workers with
    s <= 3 leave 1e-6 with everybody, up to 5e-6 with s neighbours missing, and 3e-6 with s random stragglers (median);
    of all pairs the worst leaves 2e-3 with s = 2. With s = 3, one random set in a thousand leaves more than 1e-3, since
    among so many sets there are some whose weights are large for any matrix. The plan's `residual` tells.

    Args:
      num_workers: n = W.
      num_stragglers: s.
      rng_key: draws the random matrix.

    Warns:
      gcjax.engine.InexactWarning: if all that are drawn for more than 32 workers leave more than 1e-3 with some of
        the sets of stragglers.

    Raises:
      ValueError: if s is not below n, or rounding leaves too much even with everybody.
    """
    assignment = cyclic(num_workers, load=_valid_load(num_workers, num_stragglers))
    coefficients, decode, worst_residual = _best_coefficients(assignment, num_stragglers, rng_key)
    if worst_residual > MAX_RESIDUAL:
        warnings.warn(
            f"this cyclic repetition code of {num_workers} workers leaves a residual of up to {worst_residual:.2g} "
            f"with the sets of {num_stragglers} stragglers that were tried, by rounding in {jnp.result_type(float)}; "
            "a plan tells what it leaves. Switch JAX to 64 bits (jax.config.update('jax_enable_x64', True)), or use "
            "fewer stragglers.",
            InexactWarning,
            stacklevel=3,
        )
    return fixed_code(
        assignment, coefficients, decode=decode, completion=completion_by_fastest(num_workers - num_stragglers)
    )


class _Candidate(NamedTuple):
    """A code, and its residuals by rounding: with everybody, and the worst of the sets of stragglers that are tried."""

    coefficients: np.ndarray
    redundancy: Redundancy
    full_residual: float
    worst_residual: float


def _best_coefficients(
    assignment: Assignment, num_stragglers: int, rng_key: jax.Array
) -> tuple[np.ndarray, Decode | None, float]:
    """Coefficients float64[W, K], drawn until rounding leaves little enough, or else the best of `NUM_DRAWS`.

    Returns:
      The coefficients; their decode, None for least squares; and the largest residual by rounding of the sets of
      stragglers that were tried, or with everybody, if that is all that was.
    """
    num_workers = assignment.num_workers
    matrices = null_matrices(generator_of_key(rng_key), num_workers, num_stragglers)
    if not num_stragglers:
        return cyclic_rows(next(matrices)), None, 0.0
    is_small = num_workers <= MAX_PLAIN_WORKERS  # then one check with everybody is enough
    # bool[sets, W], True for a straggler.
    masks = None if is_small else straggler_masks(num_workers, num_stragglers, max_masks=NUM_PROBES, rng_key=rng_key)[0]
    candidates: list[_Candidate] = []
    for matrix in itertools.islice(matrices, NUM_DRAWS):
        candidate = _candidate_code(assignment, matrix, masks)
        candidates.append(candidate)
        is_good_with_stragglers = is_small or candidate.worst_residual <= MAX_RESIDUAL
        if candidate.full_residual <= MAX_RESIDUAL / 2 and is_good_with_stragglers:  # half of what is refused below
            break
    # Those that are not refused first, then by what they leave with stragglers.
    best = min(candidates, key=lambda code: (code.full_residual > MAX_RESIDUAL, code.worst_residual))
    check_full_residual("a cyclic repetition code", best.full_residual)
    return best.coefficients, redundant_decode(assignment, best.redundancy), best.worst_residual


def _candidate_code(assignment: Assignment, matrix: np.ndarray, masks: np.ndarray | None) -> _Candidate:
    """The code of `matrix` H float64[s, n], s stragglers and n = W workers and chunks, with its residuals by rounding.

    The coefficients of each worker, as a row of n with 0 for chunks that it does not hold, are in the null space of H.
    The worst residual is over the sets of stragglers `masks bool[sets, W]`, and with nobody missing; without masks, it
    is that with everybody.
    """
    coefficients = cyclic_rows(matrix)  # [W, K], of the K = s + 1 chunks of each worker
    redundancy = sparse_redundancy(assignment, coefficients, len(matrix))  # all weights that decode from everybody
    with_message_axes = coefficients[:, None, :, None]  # [W, M, K, L] with one message a worker and one block
    residual_of_all = full_residual(with_message_axes, assignment, redundancy)
    if masks is None:
        return _Candidate(coefficients, redundancy, full_residual=residual_of_all, worst_residual=residual_of_all)
    worst_of_masks = float(straggler_residuals(with_message_axes, assignment, redundancy, masks).max())
    worst_residual = max(residual_of_all, worst_of_masks)
    return _Candidate(coefficients, redundancy, full_residual=residual_of_all, worst_residual=worst_residual)


def _valid_load(num_workers: int, num_stragglers: int) -> int:
    """K = s + 1; raises `ValueError` unless 0 <= s < n."""
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    return 1 + _validate.integer("num_stragglers", num_stragglers, minimum=0, maximum=num_workers - 1)


def cyclic_coefficients(num_workers: int, num_stragglers: int, rng_key: jax.Array) -> np.ndarray:
    """float64[W, K]: the coefficients of a cyclic repetition code of a random matrix; see `cyclic_rows`."""
    return cyclic_rows(next(null_matrices(generator_of_key(rng_key), num_workers, num_stragglers)))
