"""The quadratic of the papers on Rennala and Ringmaster ASGD, and their times.

Tyurin and Richtárik, NeurIPS 2023 (arXiv 2305.12387); Maranjyan, Tyurin, Richtárik, ICML 2025 (arXiv 2501.16168).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gcjax
from gcjax import _validate, comparable
from gcjax.stragglers import StragglerModel, independent
from gcjax.tasks import Task


@gcjax.register("task", paper="Tyurin, Richtárik 2023")
def tridiagonal_quadratic(num_chunks: int = 1, *, dimension: int = 1729, noise: float = 0.01) -> Task:
    """The quadratic that is worst for gradient descent, with noise in the gradients.

    `f(x) = x' A x / 2 - b' x` with `A = tridiag(-1, 2, -1) / 4` and `b = (-1, 0, ..., 0) / 4`, from
    `(sqrt(d), 0, ..., 0)`. A gradient is that of f plus noise, normal in each coordinate. In the paper d = 1729, the
    deviation of the noise 0.01.

    Metrics: `suboptimality`, f above its least value, and `gradient`, the squared norm of the gradient.

    Args:
      num_chunks: N; each has the same function, with noise of its own.
      dimension: d, 2 or more.
      noise: standard deviation of each coordinate.

    Raises:
      ValueError: if a number is out of its range.
    """
    num_chunks = _validate.integer("num_chunks", num_chunks, minimum=1)
    dimension = _validate.integer("dimension", dimension, minimum=2)
    _validate.single_number("noise", noise, minimum=0.0, finite=True)
    matrix = (2 * np.eye(dimension) - np.eye(dimension, k=1) - np.eye(dimension, k=-1)) / 4
    slope = np.zeros(dimension)  # b
    slope[0] = -0.25
    optimum = np.linalg.solve(matrix, slope)
    return Task(jnp.asarray(optimum, jnp.result_type(float)), num_chunks=num_chunks, **_functions(dimension, noise))


@comparable
def _functions(dimension: int, noise: float) -> dict[str, Any]:
    """The functions of the task; its data are the optimum, float[d]."""

    def init(rng_key: jax.Array) -> jax.Array:
        """The first point."""
        del rng_key
        return jnp.zeros(dimension).at[0].set(dimension**0.5)

    def batch(data: jax.Array, rng_key: jax.Array, owner: jax.Array, number: jax.Array) -> jax.Array:
        """float[d], the noise of a gradient: of unit `number` of worker `owner`, or of chunk `owner` in a round."""
        key = jax.random.fold_in(jax.random.fold_in(rng_key, owner), number)
        return noise * jax.random.normal(key, (dimension,), data.dtype)

    def loss(params: jax.Array, batch: jax.Array, rng_key: jax.Array) -> jax.Array:
        """A function whose gradient at `params float[d]` is that of f plus the noise, `batch float[d]`."""
        del rng_key
        return 0.5 * params @ product(params) + 0.25 * params[0] + batch @ params

    def metrics(params: jax.Array, data: jax.Array) -> dict[str, jax.Array]:
        """How far f is above its least value, and the squared norm of its gradient, both without cancellation.

        `data`: float[d], the optimum.
        """
        distance = params - data
        gradient = product(distance)
        return {"suboptimality": 0.5 * distance @ gradient, "gradient": gradient @ gradient}

    return {"init": init, "loss": loss, "unit_batch": batch, "chunk_batch": batch, "metrics": metrics}


def product(x: jax.Array) -> jax.Array:
    """float[d]: A x, for the tridiagonal matrix A of the task (-1, 2, -1, over 4) and `x float[d]`."""
    padded = jnp.pad(x, 1)
    return 0.25 * (2 * x - padded[:-2] - padded[2:])


@gcjax.register("straggler", paper="Maranjyan, Tyurin, Richtárik 2025")
def half_normal_delays(num_workers: int) -> StragglerModel:
    """Worker i, from 1, takes `i + |η|` seconds a unit, η normal with variance i, drawn anew for each unit.

    Args:
      num_workers: W.

    Raises:
      ValueError: if there is no worker.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    index = np.arange(1, num_workers + 1, dtype=np.float64)
    return independent(_half_normal_seconds, shift=index.tolist(), deviation=np.sqrt(index).tolist())


def _half_normal_seconds(rng_key: jax.Array, shift: jax.Array, deviation: jax.Array) -> jax.Array:
    """float[W]: a shift plus the absolute value of a normal time."""
    return shift + deviation * jnp.abs(jax.random.normal(rng_key, shift.shape, shift.dtype))
