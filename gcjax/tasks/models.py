"""Small Flax networks for images and texts. Letters: B examples of a batch."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.tasks.layers import GroupNorm, local_response_norm, max_pool_2x2, max_pool_3x3, patches

MAX_CUDNN_HEAD_SIZE = 128
"""Numbers of a head that cuDNN's attention takes on all GPUs that have it."""


class MLP(nn.Module):
    """Hidden layers with ReLU on the flattened image.

    Attributes:
      num_classes: width of the output.
      hidden: widths of the hidden layers.
      dropout: probability of dropping a hidden activation in training.
      dtype: of the parameters.
    """

    num_classes: int
    hidden: tuple[int, ...] = (128,)
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
    """Two 3×3 convolutions with pooling, then an MLP; attributes as in `MLP`."""

    num_classes: int
    hidden: tuple[int, ...] = (128,)
    dropout: float = 0.0
    dtype: Any = None

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Maps `float[B, height, width, channels]` to logits `float[B, num_classes]`."""
        x = images
        for features in (8, 16):  # channels of each convolution
            x = max_pool_2x2(nn.relu(nn.Dense(features, param_dtype=self.dtype)(patches(x))))
        return MLP(self.num_classes, self.hidden, self.dropout, self.dtype)(x, train)


class LRNCNN(nn.Module):
    """The network of the experiments with WBSP (Yang et al. 2024): 148,298 parameters for 32×32×3 pixels.

    Convolution 5×5-64, ReLU, pool, normalisation, convolution 5×5-64, ReLU, normalisation, pool, dense. Pools
    and normalisation are those of the CIFAR-10 tutorial of TensorFlow, whose order of layers it has: maxima of
    3×3 pixels at every second one, and local response normalisation over nine channels.

    Attributes:
      num_classes: width of the output.
      width: channels of both convolutions.
      dtype: of the parameters.
    """

    num_classes: int
    width: int = 64
    dtype: Any = None

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Maps `float[B, height, width, channels]` to logits `float[B, num_classes]`."""
        del train
        x = nn.relu(nn.Dense(self.width, param_dtype=self.dtype)(patches(images, size=5)))
        x = local_response_norm(max_pool_3x3(x))
        x = nn.relu(nn.Dense(self.width, param_dtype=self.dtype)(patches(x, size=5)))
        x = max_pool_3x3(local_response_norm(x))
        return nn.Dense(self.num_classes, param_dtype=self.dtype)(x.reshape(x.shape[0], -1))


class ResNet20(nn.Module):
    """ResNet-20 for small images (He et al. 2016, section 4.2), with group instead of batch normalisation.

    A pure loss has no running statistics, and the gradient of a chunk must not depend on which chunks it is
    batched with, so that batch normalisation is out of the question. Shortcuts have no parameters (option A):
    every second pixel, and zeros for the new channels. 269,722 parameters for 32×32×3 pixels.

    Attributes:
      num_classes: width of the output.
      width: channels of the first of the three stages; the others have two and four times as many.
      dtype: of the parameters.
    """

    num_classes: int
    width: int = 16
    dtype: Any = None

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Maps `float[B, height, width, channels]` to logits `float[B, num_classes]`."""
        del train
        x = nn.relu(self._conv_norm(images, self.width))
        for stage in range(3):
            for block in range(3):
                stride = 2 if stage > 0 and block == 0 else 1
                x = self._residual_block(x, self.width * 2**stage, stride)
        return nn.Dense(self.num_classes, param_dtype=self.dtype)(x.mean(axis=(1, 2)))  # over height and width

    def _conv_norm(self, x: jax.Array, features: int, stride: int = 1) -> jax.Array:
        """A 3×3 convolution to so many channels, and group normalisation."""
        x = nn.Dense(features, use_bias=False, param_dtype=self.dtype)(patches(x, stride=stride))
        return GroupNorm(self.dtype)(x)

    def _residual_block(self, x: jax.Array, features: int, stride: int) -> jax.Array:
        """Two convolutions of `x [B, height, width, channels]` to `features` channels, and a shortcut around them.

        The first takes every `stride`-th pixel. New channels of the shortcut are zeros.
        """
        residual = self._conv_norm(nn.relu(self._conv_norm(x, features, stride)), features)
        num_new_channels = features - x.shape[-1]
        new_channels_on_each_side = (num_new_channels // 2, num_new_channels - num_new_channels // 2)
        shortcut = jnp.pad(x[:, ::stride, ::stride], ((0, 0), (0, 0), (0, 0), new_channels_on_each_side))
        return nn.relu(shortcut + residual)


class Transformer(nn.Module):
    """A causal transformer (Vaswani et al. 2017), with normalisation before each block.

    Attributes:
      num_tokens: width of input and output.
      width: of the residual stream.
      depth: blocks of attention and MLP.
      dtype: of the activations; by default that of the parameters.
      param_dtype: of the parameters and the logits.
      head_size: numbers of a head of attention; there is one head where the width is less.
    """

    num_tokens: int
    width: int
    depth: int
    dtype: Any = None
    param_dtype: Any = jnp.float32
    head_size: int = 32

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Maps `int[B, tokens]` to the logits `float[B, tokens, num_tokens]` of each next token."""
        dtypes = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        # Means and variances in float32 at least; Flax would otherwise mix float32 into float64.
        layer_norm = functools.partial(nn.LayerNorm, force_float32_reductions=self.param_dtype != jnp.float64)
        mask = nn.make_causal_mask(tokens)
        position_shape = (tokens.shape[1], self.width)
        positions = self.param("position", nn.initializers.normal(0.02), position_shape, self.param_dtype)
        x = nn.Embed(self.num_tokens, self.width, **dtypes)(tokens)
        x = x + positions.astype(x.dtype)[None]  # [B, tokens, width], and the same [1, tokens, width] for all
        for _ in range(self.depth):
            num_heads = max(1, self.width // self.head_size)
            attention = nn.MultiHeadDotProductAttention(num_heads, **dtypes, attention_fn=causal_attention)
            x = x + attention(layer_norm(**dtypes)(x), mask=mask)
            hidden = nn.Dense(4 * self.width, **dtypes)(layer_norm(**dtypes)(x))
            x = x + nn.Dense(self.width, **dtypes)(nn.gelu(hidden))
        output_layer = nn.Dense(self.num_tokens, param_dtype=self.param_dtype)
        return output_layer(layer_norm(param_dtype=self.param_dtype)(x))


def causal_attention(query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array) -> jax.Array:
    """Attention of `query`, `key` and `value` float[B, tokens, heads, head_size], by a `mask` that is causal.

    With 16 bits on a GPU it is that of cuDNN, which goes over the tokens in blocks (Dao et al. 2022), so that no array
    [tokens, tokens] is ever in memory; elsewhere it is that of Flax.
    """
    head_size = query.shape[-1]
    fits_cudnn = query.dtype in (jnp.bfloat16, jnp.float16) and head_size % 8 == 0 and head_size <= MAX_CUDNN_HEAD_SIZE
    if jax.default_backend() == "gpu" and fits_cudnn:
        return jax.nn.dot_product_attention(query, key, value, is_causal=True, implementation="cudnn")
    return nn.dot_product_attention(query, key, value, mask=mask)


class Network(NamedTuple):
    """A network for images, by name, and its options.

    Attributes:
      name: a key of `MODELS`.
      options: the options that were given, sorted by name.
    """

    name: str
    options: tuple[tuple[str, Any], ...]

    def module(self, num_classes: int, dtype: Any) -> nn.Module:
        """The Flax module, with parameters of this type."""
        return MODELS[self.name](num_classes=num_classes, dtype=dtype, **dict(self.options))


def network(
    model: str, *, hidden: tuple[int, ...] | None = None, dropout: float = 0.0, width: int | None = None
) -> Network:
    """A network by name; what is not given (None, or no dropout) is as the network has it.

    Args:
      model: a key of `MODELS`.
      hidden: the widths of hidden layers.
      dropout: probability of dropping a hidden activation in training.
      width: channels of the (first) convolution.

    Raises:
      ValueError: if there is no such network, it has no such option, or a value is out of its range.
    """
    accepted_options = inspect.signature(MODELS[_validate.choice("model", model, MODELS)]).parameters
    options: dict[str, Any] = {}
    if hidden is not None:
        options["hidden"] = tuple(
            _validate.integer("an entry of hidden", layer_width, minimum=1)
            for layer_width in _validate.sequence("hidden", hidden)
        )
    if _validate.single_number("dropout", dropout, maximum=1.0) > 0:
        options["dropout"] = float(dropout)
    if width is not None:
        options["width"] = _validate.integer("width", width, minimum=1)
    for name, value in options.items():
        if name not in accepted_options:
            own_options = [option for option in ("hidden", "dropout", "width") if option in accepted_options]
            raise ValueError(
                f"The model {model!r} has no option {name}; got {value!r}. It has {' and '.join(own_options)}."
            )
    return Network(model, tuple(sorted(options.items())))


MODELS: dict[str, Callable[..., nn.Module]] = {"cnn": CNN, "lrn_cnn": LRNCNN, "mlp": MLP, "resnet20": ResNet20}
