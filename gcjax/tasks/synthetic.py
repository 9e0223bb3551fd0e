"""Synthetic regression data, and what its tasks share.

The inputs are standard normal; the true weights are normal with variance 1 / features, so that predictions have
variance 1.

Letters: N data chunks, n examples.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, memory
from gcjax.tasks.base import Task
from gcjax.tasks.batches import sampling
from gcjax.tasks.chunks import Data, split


class Optimum(NamedTuple):
    """The smallest objective `loss float[]`, and the `weights float[features]` that attain it."""

    weights: jax.Array
    loss: jax.Array


def synthetic_task(
    inputs: np.ndarray,
    targets: np.ndarray,
    optimum: tuple[np.ndarray, Any],
    loss: Callable[..., jax.Array],
    metrics: Callable[..., dict[str, jax.Array]],
    num_chunks: int,
    batch_size: int | None,
    local_data: bool,
) -> Task:
    """A task that begins with zero weights, of inputs float[n, features], targets float[n], an optimum (weights, loss).

    `loss` and `metrics` are those of a `Task`; the other arguments are as in `gcjax.tasks.linear_regression`.
    """
    train = split(inputs, targets, num_chunks)
    batch_functions = sampling(len(inputs), num_chunks, batch_size, local_data)
    data = Data(train, Optimum(*(jnp.asarray(x, train.inputs.dtype) for x in optimum)))
    init = _zero_init(inputs.shape[1])
    return Task(data, init, loss, metrics=metrics, **batch_functions._asdict(), num_chunks=num_chunks)


def linear_data(rng: np.random.Generator, num_examples: int, num_features: int) -> tuple[np.ndarray, np.ndarray]:
    """`inputs float[n, features]`, and their products with the true weights, `float[n]`."""
    num_examples = _validate.integer("num_examples", num_examples, minimum=1)
    hint = "More features than examples leave many optima: raise num_examples or lower num_features."
    num_features = _validate.integer("num_features", num_features, minimum=1, maximum=num_examples, hint=hint)
    examples_in_words = f"{num_examples} examples of {num_features} features"
    num_bytes = np.dtype(np.float64).itemsize * num_examples * num_features
    memory.check_fits(examples_in_words, num_bytes, advice="Lower num_examples or num_features.")
    inputs = rng.normal(size=(num_examples, num_features))
    return inputs, inputs @ rng.normal(size=num_features, scale=num_features**-0.5)


@functools.lru_cache(maxsize=64)
def _zero_init(num_features: int) -> Callable[[jax.Array], jax.Array]:
    """`rng_key -> float[features]` zeros; cached, so that equal settings give equal functions and jit compiles once."""
    return lambda rng_key: jnp.zeros(num_features)
