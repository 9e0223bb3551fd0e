"""Codes with fixed coefficients whose workers send one message once their whole load is done."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes.base import Assignment, Coding, GradientCode, check_progress, default_float, residual


def whole_worker_code(
    assignment: Assignment,
    coefficients: np.ndarray,
    decode: Callable[[jax.Array], jax.Array],
    completion: Callable[[jax.Array], jax.Array],
) -> GradientCode:
    """A code with L = M = 1 that uses only workers which have finished their whole load.

    Args:
      assignment: who holds what.
      coefficients: float[W, K], what each worker multiplies its chunk gradients with.
      decode: pure function `finished bool[W] -> float[W]`, the weights of the messages; those of workers that have
        not finished are ignored.
      completion: pure function `finish float[W] -> float[]`: from the time at which each worker finishes its load,
        the earliest time of an exact decode.
    """
    coefficients = np.where(assignment.chunks >= 0, coefficients, 0.0)

    def plan(progress: jax.Array) -> Coding:
        finished = check_progress(assignment, progress) >= assignment.loads
        encode = jnp.where(finished[:, None], jnp.asarray(coefficients, default_float()), 0)[:, None, :, None]
        weights = jnp.where(finished, decode(finished).astype(encode.dtype), 0)[:, None, None]
        return Coding(encode, weights, residual(assignment, encode, weights))

    def whole_completion(finish: jax.Array) -> jax.Array:
        return completion(last_finish(assignment, finish))

    return GradientCode(assignment, 1, 1, plan, whole_completion, whole_workers=True)


def last_finish(assignment: Assignment, finish: jax.Array) -> jax.Array:
    """float[W]: when each worker finishes its whole load, from `finish float[W, K]`."""
    return jnp.max(jnp.where(assignment.chunks >= 0, finish, 0), axis=1)
