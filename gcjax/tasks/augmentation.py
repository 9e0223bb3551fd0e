"""Random changes of training images, inside the compiled program. Letters: B images."""

import jax
import jax.numpy as jnp

from gcjax.tasks.batches import draw_indices

PADDING = 4


def crop_and_flip(images: jax.Array, rng_key: jax.Array) -> jax.Array:
    """Moves each image by up to four pixels to each side, filled up with zeros, and mirrors half of them.

    The augmentation of He et al. 2016, section 4.2 (and of many others for CIFAR-10).

    Args:
      images: [B, height, width, channels], of any type.
      rng_key: decides everything, together with the position of an image in the batch.
    """
    batch_size, height, width, _ = images.shape
    num_shifts = jnp.asarray(2 * PADDING + 1)  # 0 to 8 pixels from the corner of the padded image; 4 moves nothing
    shift_key = jax.random.fold_in(rng_key, 0)
    shifts = draw_indices(shift_key, 2 * batch_size, num_shifts).reshape(2, batch_size)  # down, right: [2, B]
    mirror_key = jax.random.fold_in(rng_key, 1)
    mirror_bits = draw_indices(mirror_key, batch_size, jnp.asarray(2))  # 0 or 1
    margin = (PADDING, PADDING)
    padded_images = jnp.pad(images, ((0, 0), margin, margin, (0, 0)))

    def crop(padded_image: jax.Array, down: jax.Array, right: jax.Array) -> jax.Array:
        """The [height, width, channels] of the padded image that begin `down` and `right` pixels from its corner."""
        return jax.lax.dynamic_slice(padded_image, (down, right, 0), (height, width, padded_image.shape[-1]))

    down_shifts, right_shifts = shifts[0], shifts[1]
    cropped_images = jax.vmap(crop)(padded_images, down_shifts, right_shifts)
    # [B, 1, 1, 1]; mirrored is the width.
    return jnp.where((mirror_bits == 1)[:, None, None, None], cropped_images[:, :, ::-1], cropped_images)
