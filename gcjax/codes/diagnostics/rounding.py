"""How much rounding a code can bear: condition numbers and decoding errors over sets of stragglers.

The condition number here is Skeel's, of forming the estimate from the messages: `‖|D| |E|‖ / ‖D E‖` with the encoding
E and the decoding D of a plan, entries taken absolute, Frobenius norms. If every product and sum is off by a relative
ε, the estimate is off by about the condition number times ε. It does not change when a worker scales its message, and
is 1 for codes that only add up. (Skeel 1979; Higham, Accuracy and Stability of Numerical Algorithms, section 7.2.)
"""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax._generators import generator_of_key
from gcjax._products import einsum
from gcjax.codes.base import (
    Assignment,
    Coding,
    GradientCode,
    chunk_coefficients,
    norm_of_exact_sum,
)

BATCH = 64
"""Masks that are planned at once, of at most so many workers; else one after the other."""


class InexactWarning(UserWarning):
    """Rounding leaves an exact code too much: one that is made, or a round that waited for an exact decode."""


class Conditioning(NamedTuple):
    """What rounding does to a code, over sets of stragglers.

    Attributes:
      worst_condition_number: the largest condition number seen.
      median_condition_number: the median.
      errors: the largest relative error of the estimate of a sum of random gradients against the one that float64
        decodes, by the type of the numbers: "float64", "float32" (plan and messages in it) and "bfloat16" (plan in
        float32, messages sent as bfloat16).
      num_masks: the sets of stragglers that were tried.
      are_all_masks: whether these were all there are.
    """

    worst_condition_number: float
    median_condition_number: float
    errors: dict[str, float]
    num_masks: int
    are_all_masks: bool


def condition_number(assignment: Assignment, coding: Coding) -> jax.Array:
    """float[]: Skeel's condition number of forming the estimate, by how much rounding grows; 0 without a message.

    `‖|D| |E|‖ / ‖D E‖` with encode E and decode D of the coding, absolute entries, Frobenius norms.
    """
    sums_of_absolutes = chunk_coefficients(assignment, jnp.abs(coding.encode), jnp.abs(coding.decode))
    decoded = chunk_coefficients(assignment, coding.encode, coding.decode)
    norm = jnp.sqrt(jnp.sum(decoded**2))
    return jnp.where(norm > 0, jnp.sqrt(jnp.sum(sums_of_absolutes**2)) / jnp.where(norm > 0, norm, 1), 0)


def straggler_masks(
    num_workers: int, num_stragglers: int, *, max_masks: int, rng_key: jax.Array
) -> tuple[np.ndarray, bool]:
    """Sets of stragglers to try: all of them if they are few enough.

    Otherwise runs of neighbours, which are the hardest for codes that interpolate, and then random sets: all runs, or
    half of what is to be tried, spread evenly.

    Returns:
      bool[masks, W], True for a straggler, and whether these are all sets of this size.
    """
    are_all = math.comb(num_workers, num_stragglers) <= max_masks
    if are_all:
        straggler_sets = np.array(list(itertools.combinations(range(num_workers), num_stragglers)), np.int64)
    else:
        num_runs = min(num_workers, -(-max_masks // 2))  # half of the masks, rounded up
        first_of_run = np.arange(num_runs)[:, None] * num_workers // num_runs  # [runs, 1]
        runs_of_neighbours = (first_of_run + np.arange(num_stragglers)) % num_workers
        rng = generator_of_key(rng_key)
        num_random = max_masks - num_runs
        random_sets = [rng.choice(num_workers, num_stragglers, replace=False) for _ in range(num_random)]
        random_rows = np.array(random_sets, np.int64).reshape(num_random, num_stragglers)
        straggler_sets = np.concatenate([runs_of_neighbours, random_rows])[:max_masks]
    masks = np.zeros((len(straggler_sets), num_workers), bool)
    np.put_along_axis(masks, straggler_sets.reshape(len(straggler_sets), num_stragglers), True, axis=1)
    return masks, are_all


def conditioning(
    code: GradientCode, *, num_stragglers: int, rng_key: jax.Array, max_masks: int = 256, width: int = 16
) -> Conditioning:
    """Condition numbers and decoding errors over sets of s workers that have finished nothing.

    Args:
      code: the code to look at.
      num_stragglers: s.
      rng_key: draws the sets, where there are more than `max_masks`, and the gradients.
      max_masks: sets of stragglers at most.
      width: numbers in a block of the random gradients that are encoded and decoded.

    Raises:
      ValueError: if s exceeds the workers.
    """
    num_workers = code.assignment.num_workers
    num_stragglers = _validate.integer("num_stragglers", num_stragglers, minimum=0, maximum=num_workers)
    max_masks = _validate.integer("max_masks", max_masks, minimum=1)
    mask_key, gradient_key = jax.random.split(_validate.rng_key(rng_key))
    masks, are_all_masks = straggler_masks(num_workers, num_stragglers, max_masks=max_masks, rng_key=mask_key)
    progress = np.where(masks, 0, code.assignment.loads).astype(np.int32)
    gradients_shape = (code.assignment.num_chunks, code.num_blocks, width)
    gradients = generator_of_key(gradient_key).normal(size=gradients_shape)
    with jax.enable_x64(True):
        conditions, references = _map_rows(partial(_condition_and_reference, code, jnp.asarray(gradients)), progress)
    # Of each set, over [L, width]; made more than 0, which it is where nothing is decoded.
    reference_norms = np.linalg.norm(references, axis=(1, 2)).clip(np.finfo(np.float64).tiny)
    errors = {}
    for name, message_type in (("float64", jnp.float64), ("float32", jnp.float32), ("bfloat16", jnp.bfloat16)):
        with jax.enable_x64(name == "float64"):
            estimates = _map_rows(partial(_decoded_estimate, code, jnp.asarray(gradients), message_type), progress)
        errors[name] = float(np.max(np.linalg.norm(estimates - references, axis=(1, 2)) / reference_norms))
    worst_condition_number, median_condition_number = float(conditions.max()), float(np.median(conditions))
    return Conditioning(
        worst_condition_number=worst_condition_number,
        median_condition_number=median_condition_number,
        errors=errors,
        num_masks=len(masks),
        are_all_masks=are_all_masks,
    )


def max_exact_residual(num_chunks: int, num_blocks: int) -> float:
    """The residual, a thousandth of the norm of the exact sum, below which it is taken for the rounding of a code."""
    return 1e-3 * norm_of_exact_sum(num_chunks, num_blocks)


def _condition_and_reference(
    code: GradientCode, gradients: jax.Array, progress: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The condition number float[], and what the plan should decode float[L, width]: the plain sum if it is exact.

    The sum of `gradients float[N, L, width]`, with the plan for `progress int[W]`. If that is not exact, it is the sum
    with the coefficients that the plan has for them.
    """
    coding = code.plan(progress)
    plain_sum_coefficients = jnp.eye(code.num_blocks, dtype=gradients.dtype)[None]
    decoded_coefficients = chunk_coefficients(code.assignment, coding.encode, coding.decode)  # [N, L, L]
    is_exact = coding.residual < max_exact_residual(code.assignment.num_chunks, code.num_blocks)
    reference_coefficients = jnp.where(is_exact, plain_sum_coefficients, decoded_coefficients)
    return condition_number(code.assignment, coding), einsum("nab,nbi->ai", reference_coefficients, gradients)


def _decoded_estimate(code: GradientCode, gradients: jax.Array, message_type: Any, progress: jax.Array) -> jax.Array:
    """float[L, width]: the estimate of the sum of `gradients float[N, L, width]` if messages have `message_type`."""
    coding = code.plan(progress)
    held_gradients = gradients[code.assignment.chunks.clip(0)]  # [W, K, L, width]; chunk 0 stands for none
    messages = einsum("wmkb,wkbi->wmi", coding.encode, held_gradients)
    messages = messages.astype(message_type).astype(gradients.dtype)
    return einsum("wma,wmi->ai", coding.decode, messages)


def _map_rows(function: Callable[[jax.Array], Any], progress: np.ndarray) -> Any:
    """`function(progress[i])` for every row of progress int[masks, W], stacked, as float64 arrays."""
    batch = BATCH if progress.shape[1] <= BATCH else None
    values = jax.jit(lambda rows: jax.lax.map(function, rows, batch_size=batch))(jnp.asarray(progress))
    return jax.tree.map(lambda x: np.asarray(x, np.float64), values)
