"""Logistic regression with an L2 penalty, and its optimum by Newton's method.

Letters: N data chunks, n examples, B examples of a batch.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax import _validate
from gcjax._generators import generator_of_seed
from gcjax._products import matmul
from gcjax.tasks.base import Batch, Task
from gcjax.tasks.chunks import Data, all_examples
from gcjax.tasks.synthetic import linear_data, synthetic_task


def logistic_regression(
    num_chunks: int,
    *,
    num_examples: int = 1024,
    num_features: int = 16,
    l2: float = 1e-2,
    batch_size: int | None = 32,
    local_data: bool = False,
    seed: int = 0,
) -> Task:
    """Logistic regression on synthetic data, with an L2 penalty and an optimum computed by Newton's method.

    The objective is the mean cross entropy plus `l2 / 2` times the squared norm of the weights; the
    labels are 0 or 1, with the probabilities of the true model.

    Args:
      num_chunks: N.
      num_examples: n, at least the number of features.
      num_features: numbers of an example.
      l2: the factor of the penalty; above zero, so that there is one optimum.
      batch_size: B, drawn with replacement; None takes the whole chunk, and needs `local_data`.
      local_data: whether worker w draws only from its own chunk, w % N, rather than from all data.
      seed: of the data.

    Raises:
      ValueError: if there are more chunks or features than examples, or another value is out of its range.
    """
    _validate.single_number("l2", l2, above=True, finite=True)
    rng = generator_of_seed(seed)
    inputs, true_logits = linear_data(rng, num_examples, num_features)
    targets = (rng.uniform(size=num_examples) < _sigmoid(true_logits)).astype(np.float64)
    best_weights = _newton_optimum(inputs, targets, l2)
    best_logits = inputs @ best_weights
    best_cross_entropy = np.mean(np.logaddexp(0, best_logits) - targets * best_logits)
    least_loss = best_cross_entropy + 0.5 * l2 * best_weights @ best_weights
    optimum = best_weights, least_loss
    return synthetic_task(inputs, targets, optimum, *_functions_of(float(l2)), num_chunks, batch_size, local_data)


@functools.lru_cache(maxsize=64)
def _functions_of(l2: float) -> tuple[Callable[..., jax.Array], Callable[..., dict[str, jax.Array]]]:
    """Loss and metrics; cached, so that equal settings give equal functions and jit compiles once."""

    def loss(weights: jax.Array, batch: Batch, rng_key: jax.Array | None = None) -> jax.Array:
        """Mean cross entropy plus the penalty."""
        losses = optax.sigmoid_binary_cross_entropy(matmul(batch.inputs, weights), batch.targets)
        return batch.mean(losses) + 0.5 * l2 * jnp.sum(weights**2)

    def metrics(weights: jax.Array, data: Data) -> dict[str, jax.Array]:
        """The training loss, what it is above the least one (`suboptimality`), and the `distance` of the weights."""
        train_loss = loss(weights, all_examples(data.train))
        distance = jnp.linalg.norm(weights - data.reference.weights)
        suboptimality = train_loss - data.reference.loss
        return {"train_loss": train_loss, "suboptimality": suboptimality, "distance": distance}

    return loss, metrics


def _newton_optimum(inputs: np.ndarray, targets: np.ndarray, l2: float) -> np.ndarray:
    """float[features]: the optimum, by Newton steps that are halved until the gradient shrinks.

    `inputs` are float[n, features], `targets` float[n], 0 or 1, `l2` is the factor of the penalty. Ends with a gradient
    of norm at most 1e-13, or where rounding lets no step, halved up to 29 times, shrink it any more.
    """

    def gradient(weights: np.ndarray) -> np.ndarray:
        """Of the mean cross entropy plus the penalty, float[features]."""
        return inputs.T @ (_sigmoid(inputs @ weights) - targets) / len(targets) + l2 * weights

    weights = np.zeros(inputs.shape[1])
    while (gradient_norm := np.linalg.norm(gradient(weights))) > 1e-13:
        label_variance = _sigmoid(inputs @ weights) * _sigmoid(-inputs @ weights)  # p (1 - p) of each, [n]
        hessian = (inputs.T * label_variance) @ inputs / len(targets) + l2 * np.eye(len(weights))
        step = np.linalg.solve(hessian, gradient(weights))
        shortened_weights = (weights - step / 2**halvings for halvings in range(30))
        better_weights = next((w for w in shortened_weights if np.linalg.norm(gradient(w)) < gradient_norm), None)
        if better_weights is None:
            break
        weights = better_weights
    return weights


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-logits)), which never overflows in this form."""
    return 0.5 * (1 + np.tanh(0.5 * logits))
