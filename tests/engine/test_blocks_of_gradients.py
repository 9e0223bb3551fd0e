"""Gradients cut into blocks, array by array, and put together again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax.engine import messages

ARRAYS = {"matrix": np.arange(12.0).reshape(3, 4), "number": np.float64(50.0), "vector": np.arange(90.0, 95.0)}


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 7])
def test_a_block_has_its_part_of_each_array(num_blocks):
    with jax.enable_x64(True):
        blocks = messages.gradient_blocks(jax.tree.map(jnp.asarray, ARRAYS), num_blocks)
    expected = []
    for array in ARRAYS.values():
        width = -(-array.size // num_blocks)
        padded = [*array.reshape(-1), *[0.0] * (width * num_blocks - array.size)]
        expected.append(np.reshape(padded, (num_blocks, width)))
    np.testing.assert_array_equal(blocks, np.concatenate(expected, axis=1))
    assert messages.block_shape(ARRAYS, num_blocks).shape == blocks.shape[1:]


@pytest.mark.parametrize("num_blocks", [1, 2, 5])
def test_blocks_put_together_are_the_gradient_in_its_own_types(num_blocks):
    gradient = {"wide": jnp.ones((2, 3), jnp.float32), "narrow": jnp.full(5, 0.1, jnp.bfloat16), "one": jnp.float32(3)}
    with jax.numpy_dtype_promotion("standard"):  # a block has one type
        blocks = messages.gradient_blocks(gradient, num_blocks)
        assert blocks.dtype == messages.block_shape(gradient, num_blocks).dtype == jnp.float32
    restored = messages.gradient_from_blocks(blocks, gradient)
    jax.tree.map(np.testing.assert_array_equal, restored, gradient)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), restored) == jax.tree.map(lambda x: (x.shape, x.dtype), gradient)


def test_a_gradient_of_no_arrays_has_blocks_of_no_numbers():
    """A step has one where nothing is trained."""
    assert messages.gradient_blocks({}, num_blocks=2).shape == (2, 0)
    assert messages.gradient_from_blocks(jnp.zeros((2, 0)), {}) == {}
    messages_of_workers, losses = messages.worker_messages(
        lambda _, chunk: chunk.sum(), {}, jnp.ones((3, 2, 5)), jnp.ones((3, 1, 2, 2))
    )
    assert messages_of_workers.shape == (3, 1, 0)
    np.testing.assert_array_equal(losses, np.full((3, 2), 5.0))
