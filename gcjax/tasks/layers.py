"""What networks for images are made of. Letters: B examples.

A convolution is a dense layer on patches, here and in `gcjax.tasks.models`. On a CPU, XLA's own convolution is
six to eight times as slow in a loop, and slower still under `vmap` over parameters, which makes it a grouped
convolution; a product of matrices stays one.
"""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from gcjax._products import matmul


def patches(images: jax.Array, size: int = 3, stride: int = 1) -> jax.Array:
    """Maps `[B, height, width, channels]` to `[B, ceil(height / stride), ceil(width / stride), size² * channels]`.

    Each position holds the `size` × `size` pixels around a pixel, row by row, with zeros outside of the image.
    """
    height, width = images.shape[1:3]
    margin = size // 2
    padded_images = jnp.pad(images, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    images_by_right_shift = [padded_images[:, :, right : right + width : stride] for right in range(size)]
    # [B, height + 2 margin, ceil(width / stride), size * channels]: the height is not cut yet.
    row_patches = jnp.concatenate(images_by_right_shift, axis=-1)
    patches_by_down_shift = [row_patches[:, down : down + height : stride] for down in range(size)]
    return jnp.concatenate(patches_by_down_shift, axis=-1)


def max_pool_2x2(images: jax.Array) -> jax.Array:
    """Maps `[B, height, width, channels]` to half the height and width by the maxima of 2×2 pixels.

    Of an odd height or width, the last pixel counts alone.
    """
    height, width = images.shape[1:3]
    lowest = jnp.finfo(images.dtype).min  # no pixel is below it
    even_images = jnp.pad(images, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), constant_values=lowest)
    batch, height, width, channels = even_images.shape
    return even_images.reshape(batch, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))  # over the 2×2


def max_pool_3x3(images: jax.Array) -> jax.Array:
    """Maps `[B, height, width, channels]` to half the height and width (rounded up) by the maxima of 3×3 pixels."""
    return nn.max_pool(images, (3, 3), strides=(2, 2), padding="SAME")


def local_response_norm(images: jax.Array) -> jax.Array:
    """Divides each channel, the last axis, by `(1 + 0.001 / 9 * sum of squares of channels at most 4 away) ** 0.75`.

    Local response normalisation (Krizhevsky, Sutskever, Hinton 2012, section 3.3) with the numbers of the CIFAR-10
    tutorial of TensorFlow.
    """
    channel = jnp.arange(images.shape[-1])
    is_near = (jnp.abs(channel[:, None] - channel[None]) <= 4).astype(images.dtype)  # [channels, channels]
    near_sums_of_squares = matmul(images**2, is_near)
    return images * (1.0 + 0.001 / 9 * near_sums_of_squares) ** -0.75


class GroupNorm(nn.Module):
    """Group normalisation (Wu and He 2018) in eight groups, or fewer where eight do not divide the channels.

    Attributes:
      dtype: of the parameters.
    """

    dtype: Any = None

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Maps `float[B, height, width, channels]` to the same shape."""
        num_groups = math.gcd(8, images.shape[-1])
        reduce_in_float32 = self.dtype != jnp.float64  # Flax would otherwise mix float32 into float64
        return nn.GroupNorm(num_groups, param_dtype=self.dtype, force_float32_reductions=reduce_in_float32)(images)
