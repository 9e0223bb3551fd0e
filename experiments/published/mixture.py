"""The toy example released with asynchronous local SGD (Liu and others 2024, arXiv 2401.09135), made smaller."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gcjax
from gcjax import _validate, protocols
from gcjax.tasks import Task, task_of

gcjax.register("optimizer", paper="Liu et al. 2024")(protocols.delayed_nesterov)


@gcjax.register("task", paper="Liu et al. 2024")
def gaussian_mixture(
    num_chunks: int,
    *,
    num_examples: int = 128000,
    num_features: int = 512,
    num_classes: int = 4,
    clusters_per_class: int = 8,
    deviation: float = 0.5,
    hidden: int = 512,
    batch_size: int = 32,
    seed: int = 0,
) -> Task:
    """Classes that are mixtures of Gaussians with centres on the unit sphere, and a network with one hidden layer.

    As released, but for the width of the hidden layer, which is 65,000 there, and the test examples: here as many as a
    tenth of the training ones, drawn anew. Metrics: `train_loss`, `test_loss`, `accuracy`.

    Args:
      num_chunks: N.
      num_examples: of training.
      num_features: of an example.
      num_classes: of examples.
      clusters_per_class: Gaussians of a class.
      deviation: of each feature around the centre of its cluster.
      hidden: the width of the hidden layer.
      batch_size: examples of a step.
      seed: of the data.

    Raises:
      ValueError: if a number is out of its range.
    """
    counts = {"num_features": num_features, "num_classes": num_classes, "clusters_per_class": clusters_per_class}
    for name, value in {**counts, "hidden": hidden, "num_examples": num_examples}.items():
        _validate.integer(name, value, minimum=1)
    _validate.single_number("deviation", deviation, minimum=0.0, finite=True)
    rng = np.random.default_rng(seed)
    num_clusters = num_classes * clusters_per_class
    centres = rng.normal(size=(num_clusters, num_features))  # those of a class beside each other
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)

    def examples(number: int) -> tuple[np.ndarray, np.ndarray]:
        """So many examples, float32[number, features], and their classes, int32[number]."""
        cluster = rng.integers(num_clusters, size=number)
        inputs = centres[cluster] + deviation * rng.normal(size=(number, num_features))
        return inputs.astype(np.float32), (cluster // clusters_per_class).astype(np.int32)

    return task_of(
        functools.partial(_init, num_features, hidden, num_classes), _losses, examples(num_examples),
        num_chunks=num_chunks, held_out=examples(max(1, num_examples // 10)), metrics=_accuracy, batch_size=batch_size,
    )  # fmt: skip


def _init(num_features: int, hidden: int, num_classes: int, rng_key: jax.Array) -> dict[str, jax.Array]:
    """Parameters of both layers by name, uniform between ± 1 / sqrt(inputs of the layer)."""
    shapes = {"w1": (num_features, hidden), "b1": (hidden,), "w2": (hidden, num_classes), "b2": (num_classes,)}
    params = {}
    for (name, shape), key in zip(shapes.items(), jax.random.split(rng_key, len(shapes)), strict=True):
        bound = (num_features if name.endswith("1") else hidden) ** -0.5
        params[name] = jax.random.uniform(key, shape, minval=-bound, maxval=bound)
    return params


def _logits(params: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
    """float[B, classes]: the outputs of the network for `inputs float[B, features]`."""
    hidden = jax.nn.relu(inputs @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def _losses(params: dict[str, jax.Array], examples: tuple[Any, Any]) -> jax.Array:
    """float[B]: the cross-entropies of examples `(inputs float[B, features], classes int[B])`."""
    inputs, targets = examples
    log_probabilities = jax.nn.log_softmax(_logits(params, inputs))
    return -jnp.take_along_axis(log_probabilities, targets[:, None], axis=1)[:, 0]


def _accuracy(params: dict[str, jax.Array], examples: tuple[Any, Any]) -> dict[str, jax.Array]:
    """The share of examples, (inputs, classes), whose class has the largest logit."""
    inputs, targets = examples
    return {"accuracy": jnp.mean(jnp.argmax(_logits(params, inputs), axis=1) == targets)}
