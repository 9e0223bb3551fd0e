"""Classification of real images by Flax models.

Letters: N data chunks, n training examples, B examples of a batch.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

from gcjax import _checks
from gcjax.tasks.base import Batch, Task
from gcjax.tasks.batches import sampling
from gcjax.tasks.chunks import Data, all_examples, split
from gcjax.tasks.models import MODELS


class _Images(NamedTuple):
    """Training and test images float[n, ...] and labels int[n]."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


class _Functions(NamedTuple):
    init: Any
    loss: Any
    metrics: Any


def digits(
    num_chunks: int,
    *,
    model: str = "mlp",
    hidden: tuple[int, ...] = (128,),
    dropout: float = 0.0,
    batch_size: int | None = 32,
    local_data: bool = False,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Task:
    """Handwritten digits, 1797 images of 8×8 pixels that come with scikit-learn (Alpaydin and Kaynak 1998).

    The pixels are standardised by their mean and deviation over the training images. Metrics:
    `train_loss` over all training images, `test_loss` and `accuracy` over the test images.

    Args:
      num_chunks: N.
      model: "mlp", or "cnn" (two convolutions, then the hidden layers).
      hidden: the widths of the hidden layers.
      dropout: probability of dropping a hidden activation in training.
      batch_size: B, drawn with replacement; None takes the whole chunk, and needs `local_data`.
      local_data: whether a worker draws only from its own chunk rather than from all data.
      test_fraction: the share of images that is held out.
      seed: of the split into training and test images, and into chunks.

    Raises:
      ValueError: if the model is unknown, there are more chunks than training images, or another value is
        out of its range.
    """
    network = MODELS[_checks.choice("model", model, MODELS)]
    _checks.number("dropout", dropout, maximum=1.0)
    hidden = tuple(_checks.integer("an entry of hidden", width, minimum=1) for width in hidden)
    images = _digits(_checks.number("test_fraction", test_fraction, above=True, maximum=0.9), seed)
    train = split(*images.train, num_chunks)
    test = (jnp.asarray(images.test[0], train.inputs.dtype), jnp.asarray(images.test[1], jnp.int32))
    functions = _functions(network, hidden, float(dropout), train.inputs.dtype)
    draws = sampling(len(images.train[0]), num_chunks, batch_size, local_data)
    return Task(
        Data(train, test),
        **functions._asdict(),
        **draws._asdict(),
        num_chunks=num_chunks,
        mergeable=dropout == 0,
    )


@functools.lru_cache(maxsize=64)
def _functions(network: Callable[..., nn.Module], hidden: tuple[int, ...], dropout: float, dtype: Any) -> _Functions:
    """Cached, so that equal settings give equal functions and jit compiles once."""
    module = network(hidden=hidden, num_classes=10, dropout=dropout, dtype=dtype)

    def init(rng_key: jax.Array) -> Any:
        return module.init(rng_key, jnp.zeros((1, 8, 8, 1), dtype))["params"]

    def losses(params: Any, inputs: jax.Array, targets: jax.Array, **kwargs: Any) -> tuple[jax.Array, jax.Array]:
        logits: Any = module.apply({"params": params}, inputs, **kwargs)
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets), logits

    def loss(params: Any, batch: Batch, rng_key: jax.Array) -> jax.Array:
        each, _ = losses(params, batch.inputs, batch.targets, train=True, rngs={"dropout": rng_key})
        return batch.mean(each)

    def metrics(params: Any, data: Data) -> dict[str, jax.Array]:
        batch = all_examples(data.train)
        train, _ = losses(params, batch.inputs, batch.targets)
        inputs, targets = data.reference
        test, logits = losses(params, inputs, targets)
        correct = jnp.argmax(logits, axis=-1).astype(targets.dtype) == targets
        accuracy = jnp.mean(correct, dtype=test.dtype)
        return {"train_loss": batch.mean(train), "test_loss": jnp.mean(test), "accuracy": accuracy}

    return _Functions(init, loss, metrics)


def _digits(test_fraction: float, seed: int) -> _Images:
    raw = load_digits()
    order = np.random.default_rng(seed).permutation(len(raw.target))
    inputs, targets = raw.images[order][..., None], raw.target[order].astype(np.int32)
    num_test = round(test_fraction * len(targets))
    train = inputs[num_test:]
    inputs = (inputs - train.mean()) / train.std()
    return _Images((inputs[num_test:], targets[num_test:]), (inputs[:num_test], targets[:num_test]))
