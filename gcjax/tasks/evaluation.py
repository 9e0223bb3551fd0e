"""Functions of many examples, in slices that fit into memory."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def in_slices(function: Callable[[Any], Any], examples: Any, size: int) -> Any:
    """`function(examples)`, computed for at most `size` examples at once.

    Args:
      function: maps a pytree of arrays `[b, ...]` to one of arrays `[b, ...]`, each example by itself.
      examples: a pytree of arrays `[n, ...]`.
      size: the most examples of a slice.
    """
    num_examples = jax.tree.leaves(examples)[0].shape[0]
    if num_examples <= size:
        return function(examples)
    num_in_full_slices = num_examples - num_examples % size
    slices = jax.tree.map(lambda x: x[:num_in_full_slices].reshape(-1, size, *x.shape[1:]), examples)
    values = jax.tree.map(lambda x: x.reshape(num_in_full_slices, *x.shape[2:]), jax.lax.map(function, slices))
    if num_in_full_slices == num_examples:
        return values
    last_values = function(jax.tree.map(lambda x: x[num_in_full_slices:], examples))
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y]), values, last_values)
