"""Small Flax networks for images. Letters: B examples of a batch."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp


class MLP(nn.Module):
    """Hidden layers with ReLU on the flattened image.

    Attributes:
      hidden: widths of the hidden layers.
      num_classes: width of the output.
      dropout: probability of dropping a hidden activation in training.
      dtype: of the parameters.
    """

    hidden: tuple[int, ...]
    num_classes: int
    dropout: float = 0.0
    dtype: Any = None

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Maps `float[B, height, width, channels]` to logits `float[B, num_classes]`."""
        x = images.reshape(images.shape[0], -1)
        for width in self.hidden:
            x = nn.relu(nn.Dense(width, param_dtype=self.dtype)(x))
            x = nn.Dropout(self.dropout, deterministic=not train)(x)
        return nn.Dense(self.num_classes, param_dtype=self.dtype)(x)


class CNN(nn.Module):
    """Two 3×3 convolutions with pooling, then an MLP; the same attributes.

    A convolution is a matrix product on patches: on a CPU, six times as fast in a loop as XLA's, and also
    under `vmap` over parameters, which would make it a grouped convolution.
    """

    hidden: tuple[int, ...]
    num_classes: int
    dropout: float = 0.0
    dtype: Any = None

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Maps `float[B, height, width, channels]` to logits `float[B, num_classes]`."""
        x = images
        for features in (8, 16):
            x = nn.relu(nn.Dense(features, param_dtype=self.dtype)(_patches(x)))
            x = _pooled(x)
        return MLP(self.hidden, self.num_classes, self.dropout, self.dtype)(x, train)


def _patches(images: jax.Array) -> jax.Array:
    """Maps `[B, height, width, channels]` to `[B, height, width, 9 * channels]`: 3×3 pixels around each."""
    height, width = images.shape[1:3]
    padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifted, axis=-1)


def _pooled(images: jax.Array) -> jax.Array:
    """Maps `[B, height, width, channels]` to half the height and width by the maxima of 2×2 pixels."""
    batch, height, width, channels = images.shape
    return images.reshape(batch, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))


MODELS: dict[str, Callable[..., nn.Module]] = {"cnn": CNN, "mlp": MLP}
