"""Linear regression with its closed-form optimum.

Letters: N data chunks, n examples, B examples of a batch.
"""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax._generators import generator_of_seed
from gcjax._products import matmul
from gcjax.tasks.base import Batch, Task
from gcjax.tasks.chunks import Data, all_examples
from gcjax.tasks.synthetic import linear_data, synthetic_task


def linear_regression(
    num_chunks: int,
    *,
    num_examples: int = 1024,
    num_features: int = 16,
    noise: float = 0.1,
    batch_size: int | None = 32,
    local_data: bool = False,
    seed: int = 0,
) -> Task:
    """Linear regression on synthetic data: half the mean squared error, with its closed-form optimum.

    Args:
      num_chunks: N.
      num_examples: n, at least the number of features, so that there is one optimum.
      num_features: numbers of an example.
      noise: standard deviation of what is added to the targets.
      batch_size: B, drawn with replacement; None takes the whole chunk, and needs `local_data`.
      local_data: whether worker w draws only from its own chunk, w % N, rather than from all data.
      seed: of the data.

    Raises:
      ValueError: if there are more chunks or features than examples, or another value is out of its range.
    """
    _validate.single_number("noise", noise, finite=True)
    rng = generator_of_seed(seed)
    inputs, true_predictions = linear_data(rng, num_examples, num_features)
    targets = true_predictions + noise * rng.normal(size=num_examples)
    best_weights = np.linalg.lstsq(inputs, targets, rcond=None)[0]
    least_loss = 0.5 * np.mean((inputs @ best_weights - targets) ** 2)
    optimum = best_weights, least_loss
    functions = _squared_error, _linear_metrics
    return synthetic_task(inputs, targets, optimum, *functions, num_chunks, batch_size, local_data)


def _squared_error(weights: jax.Array, batch: Batch, rng_key: jax.Array | None = None) -> jax.Array:
    """Half the mean squared error of the predictions `inputs @ weights`."""
    return batch.mean(0.5 * (matmul(batch.inputs, weights) - batch.targets) ** 2)


def _linear_metrics(weights: jax.Array, data: Data) -> dict[str, jax.Array]:
    """Loss of `weights float[features]` over the training data, suboptimality (of the loss), distance to the optimum.

    The suboptimality is half the mean square of what the predictions differ from the optimal ones by, which is the
    difference of the losses and does not cancel near the optimum.
    """
    batch = all_examples(data.train)
    weight_error = weights - data.reference.weights
    train_loss = _squared_error(weights, batch)
    prediction_errors = matmul(batch.inputs, weight_error)
    return {
        "train_loss": train_loss,
        "suboptimality": batch.mean(0.5 * prediction_errors**2),
        "distance": jnp.linalg.norm(weight_error),
    }
