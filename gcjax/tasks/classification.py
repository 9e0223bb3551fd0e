"""Classification of images by Flax models: what all image data sets share.

Letters: N data chunks, n training examples, B examples of a batch.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax import _validate
from gcjax._generators import generator_of_seed
from gcjax.tasks.base import Batch, Task, TaskFunctions
from gcjax.tasks.batches import Augmentation, sampling
from gcjax.tasks.chunks import Data, first_examples, split
from gcjax.tasks.evaluation import in_slices
from gcjax.tasks.models import Network

NUM_CLASSES = 10

# Pixels of a slice of images in the evaluation, so that the patches of a convolution fit into memory.
_SLICE_PIXELS = 2**18


class Images(NamedTuple):
    """Training and test images [n, height, width, channels], floats or bytes, and their labels int32[n]."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


class Scale(NamedTuple):
    """How bytes become the input of a network, by channel: `(byte - mean) / deviation`."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def apply(self, images: jax.Array, dtype: Any) -> jax.Array:
        """Maps `uint8[B, height, width, channels]` to floats of `dtype`, by the mean and deviation of each channel."""
        mean, deviation = (jnp.asarray(x, dtype).reshape(1, 1, 1, -1) for x in self)
        return (images.astype(dtype) - mean) / deviation


def image_task(
    num_chunks: int,
    network: Network,
    images: Images,
    *,
    scale: Scale | None = None,
    augmentation: Augmentation | None = None,
    batch_size: int | None,
    local_data: bool,
    num_evaluated: int | None = None,
) -> Task:
    """A task of classification: mean cross entropy of the network's logits.

    Images of bytes stay bytes on the device, and are scaled inside the program. Metrics: `train_loss` over the
    training images, `test_loss` and `accuracy` over the test images.

    Args:
      num_chunks: N.
      network: of `gcjax.tasks.models.network`.
      images: shuffled.
      scale: of images of bytes; None for images of floats.
      augmentation: of the batches.
      batch_size: B, drawn with replacement; None takes the whole chunk, and needs `local_data`.
      local_data: whether worker w draws only from its own chunk, w % N, rather than from all data.
      num_evaluated: metrics use the first images only, so many of each kind; None uses all.

    Raises:
      ValueError: if there are more chunks than training images, or another value is out of its range.
    """
    if num_evaluated is not None:
        num_evaluated = _validate.integer("num_evaluated", num_evaluated, minimum=1)
    train = split(*images.train, num_chunks)
    test = (jnp.asarray(images.test[0], train.inputs.dtype), jnp.asarray(images.test[1], jnp.int32))
    image_shape = images.train[0].shape[1:]
    functions = _task_functions(network, image_shape, scale, train.relative_sizes.dtype, num_evaluated)
    batch_functions = sampling(len(images.train[0]), num_chunks, batch_size, local_data, augmentation)
    return Task(
        data=Data(train, test),
        **functions._asdict(),
        **batch_functions._asdict(),
        num_chunks=num_chunks,
        # Dropout uses the key, so that the loss of merged batches would not be that of each with its own key.
        mergeable="dropout" not in dict(network.options),
    )


@functools.lru_cache(maxsize=64)
def _task_functions(
    network: Network, image_shape: tuple[int, ...], scale: Scale | None, dtype: Any, num_evaluated: int | None
) -> TaskFunctions:
    """Initial parameters, loss and metrics of an image task; cached, so that equal settings give equal functions.

    Equal functions are compiled once. `image_shape` is (height, width, channels); `dtype` that of the parameters.
    """
    module = network.module(NUM_CLASSES, dtype)
    slice_size = max(1, _SLICE_PIXELS // (image_shape[0] * image_shape[1]))  # images, by their pixels

    def init(rng_key: jax.Array) -> Any:
        """The network's initial parameters."""
        return module.init(rng_key, jnp.zeros((1, *image_shape), dtype))["params"]

    def losses_and_logits(
        params: Any, inputs: jax.Array, targets: jax.Array, **kwargs: Any
    ) -> tuple[jax.Array, jax.Array]:
        """The cross entropy of each image, float[B], and its logits, float[B, NUM_CLASSES]; `kwargs` go to the network.

        Inputs are [B, height, width, channels], targets int32[B].
        """
        floats = inputs if scale is None else scale.apply(inputs, dtype)
        logits: Any = module.apply({"params": params}, floats, **kwargs)
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets), logits

    def loss(params: Any, batch: Batch, rng_key: jax.Array) -> jax.Array:
        """The mean cross entropy of a batch, with dropout."""
        losses, _ = losses_and_logits(params, batch.inputs, batch.targets, train=True, rngs={"dropout": rng_key})
        return batch.mean(losses)

    def losses_and_logits_in_slices(params: Any, inputs: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """`losses_and_logits` of many images, in slices that fit into memory."""
        return in_slices(lambda examples: losses_and_logits(params, *examples), (inputs, targets), slice_size)

    def metrics(params: Any, data: Data) -> dict[str, jax.Array]:
        """Losses of training and test images (the first `num_evaluated`; None: all), and the share classified right."""
        batch = first_examples(data.train, num_evaluated or data.train.targets.shape[0])
        train_losses, _ = losses_and_logits_in_slices(params, batch.inputs, batch.targets)
        inputs, targets = (x[:num_evaluated] for x in data.reference)
        test_losses, logits = losses_and_logits_in_slices(params, inputs, targets)
        is_correct = jnp.argmax(logits, axis=-1).astype(targets.dtype) == targets
        accuracy = jnp.mean(is_correct, dtype=test_losses.dtype)
        return {"train_loss": batch.mean(train_losses), "test_loss": jnp.mean(test_losses), "accuracy": accuracy}

    return TaskFunctions(init, loss, metrics)


def shuffled_images(images: Images, seed: int) -> Images:
    """The same images with the training images in another order, so that chunks are alike."""
    order = generator_of_seed(seed).permutation(len(images.train[0]))
    return Images((images.train[0][order], images.train[1][order]), images.test)
