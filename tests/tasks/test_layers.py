"""Layers against plain references."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax.tasks.layers import GroupNorm, local_response_norm, max_pool_2x2, max_pool_3x3, patches

KEY = jax.random.key(0)


@pytest.mark.parametrize(("size", "stride", "shape"), [(3, 1, (7, 5)), (3, 2, (8, 8)), (3, 2, (7, 5)), (5, 1, (8, 6))])
def test_a_dense_layer_on_patches_is_a_convolution(size, stride, shape):
    images = jax.random.normal(KEY, (2, *shape, 3))
    kernel = jax.random.normal(KEY, (size, size, 3, 4))
    around = (size // 2, size // 2)
    expected = jax.lax.conv_general_dilated(
        images, kernel, (stride, stride), (around, around), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    found = patches(images, size, stride) @ kernel.reshape(-1, 4)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_local_response_norm_follows_its_formula():
    images = np.asarray(10 * jax.random.normal(KEY, (2, 1, 2, 13)))
    expected = np.empty_like(images)
    for c in range(13):
        near = images[..., max(0, c - 4) : c + 5]
        expected[..., c] = images[..., c] / (1 + 0.001 / 9 * (near**2).sum(axis=-1)) ** 0.75
    np.testing.assert_allclose(local_response_norm(jnp.asarray(images)), expected, rtol=1e-5)


@pytest.mark.parametrize(("channels", "groups"), [(16, 8), (12, 4)])
def test_group_norm_standardises_each_group_of_channels(channels, groups):
    images = 3 * jax.random.normal(KEY, (2, 5, 5, channels)) + 1
    out, _ = jax.jit(GroupNorm(jnp.float32).init_with_output)(KEY, images)
    out = np.asarray(out).reshape(2, 25, groups, -1)
    np.testing.assert_allclose(out.mean(axis=(1, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(out.std(axis=(1, 3)), 1, atol=1e-5)


@pytest.mark.parametrize("shape", [(8, 6), (7, 5)])
def test_pools_are_maxima(shape):
    images = np.asarray(jax.random.normal(KEY, (2, *shape, 3)) - 9)
    padded = np.pad(images, ((0, 0), (0, 2), (0, 2), (0, 0)), constant_values=-np.inf)
    height, width = -(-shape[0] // 2), -(-shape[1] // 2)
    two = np.stack([[padded[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max(axis=(1, 2)) for j in range(width)]
                    for i in range(height)])  # fmt: skip
    np.testing.assert_array_equal(max_pool_2x2(jnp.asarray(images)), two.transpose(2, 0, 1, 3))
    if shape == (8, 6):
        three = np.stack([[padded[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].max(axis=(1, 2)) for j in range(width)]
                          for i in range(height)])  # fmt: skip
        np.testing.assert_array_equal(max_pool_3x3(jnp.asarray(images)), three.transpose(2, 0, 1, 3))
