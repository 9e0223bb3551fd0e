"""The running mean over the server's table of gradients."""

import jax.numpy as jnp

from gcjax.engine.gradient_table import mean_after_commit


def test_rounding_is_cleared_every_w_commits():
    table, off = jnp.float32([[1, 2], [3, 4], [5, 9]]), jnp.float32([7, 7])  # the mean is (3, 5)
    means = [mean_after_commit(off, jnp.float32([1, -1]), table, jnp.int32(commit)).tolist() for commit in range(4)]
    assert means == [[3, 5], [8, 6], [8, 6], [3, 5]]
