"""Slices give what all examples at once give."""

import jax.numpy as jnp
import numpy as np
import pytest

from gcjax.tasks.evaluation import in_slices


@pytest.mark.parametrize(("size", "largest"), [(1, 1), (3, 3), (4, 4), (11, 11), (12, 12), (100, 12)])
def test_slices_change_nothing_but_the_size(size, largest):
    seen = []

    def function(examples):
        x, y = examples
        seen.append(len(x))
        return x.sum(axis=1) + y, x[:, :1]

    x, y = jnp.arange(24.0).reshape(12, 2), jnp.arange(12.0)
    sums, firsts = in_slices(function, (x, y), size)
    np.testing.assert_array_equal(sums, x.sum(axis=1) + y)
    np.testing.assert_array_equal(firsts, x[:, :1])
    assert max(seen) == largest
