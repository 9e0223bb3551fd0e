"""Small Flax networks for images and texts. Letters: B examples of a batch, S tokens of a text."""

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


class Transformer(nn.Module):
    """A causal transformer (Vaswani et al. 2017), with normalisation before each block.

    Attributes:
      num_tokens: width of input and output.
      width: of the residual stream; a head has 32 numbers, or all where there are fewer.
      depth: blocks of attention and MLP.
      dtype: of the activations; parameters and logits are float32.
    """

    num_tokens: int
    width: int
    depth: int
    dtype: Any = None

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Maps `int[B, S]` to the logits `float[B, S, num_tokens]` of each next token."""
        mask = nn.make_causal_mask(tokens)
        position = self.param("position", nn.initializers.normal(0.02), (tokens.shape[1], self.width))
        x = nn.Embed(self.num_tokens, self.width, dtype=self.dtype)(tokens)
        x = x + position.astype(x.dtype)[None]
        for _ in range(self.depth):
            heads = max(1, self.width // 32)
            x = x + nn.SelfAttention(heads, dtype=self.dtype)(nn.LayerNorm(dtype=self.dtype)(x), mask=mask)
            wide = nn.Dense(4 * self.width, dtype=self.dtype)(nn.LayerNorm(dtype=self.dtype)(x))
            x = x + nn.Dense(self.width, dtype=self.dtype)(nn.gelu(wide))
        return nn.Dense(self.num_tokens)(nn.LayerNorm()(x))


MODELS: dict[str, Callable[..., nn.Module]] = {"cnn": CNN, "mlp": MLP}
