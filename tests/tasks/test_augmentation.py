"""Random crops and mirror images."""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.tasks.augmentation import crop_and_flip

KEY = jax.random.key(4)


def crops(image):
    """All 162 images that may come out: bytes -> (down, right, mirrored)."""
    height, width, _ = image.shape
    padded = np.pad(image, ((4, 4), (4, 4), (0, 0)))
    found = {}
    for i in range(9):
        for j in range(9):
            crop = padded[i : i + height, j : j + width]
            found[crop.tobytes()] = (i, j, 0)
            found[crop[:, ::-1].tobytes()] = (i, j, 1)
    return found


def test_every_crop_and_mirror_image_comes_out_equally_often():
    image = np.arange(1, 1 + 10 * 12 * 2, dtype=np.uint8).reshape(10, 12, 2)
    number = 8100
    out = np.asarray(jax.jit(crop_and_flip)(jnp.asarray(np.stack([image] * number)), KEY))
    expected = crops(image)
    assert out.dtype == np.uint8 and len(expected) == 162
    counts = dict.fromkeys(expected.values(), 0)
    for changed in out:
        counts[expected[changed.tobytes()]] += 1
    counts = np.array(list(counts.values()))
    assert counts.min() > 0 and np.sum((counts - number / 162) ** 2 / (number / 162)) < 250  # chi-square, 161 dof


def test_the_key_decides():
    images = jax.random.normal(KEY, (16, 6, 6, 1))
    one, other = crop_and_flip(images, KEY), crop_and_flip(images, jax.random.key(5))
    np.testing.assert_array_equal(one, crop_and_flip(images, KEY))
    assert (one != other).any() and (one != images).any()
