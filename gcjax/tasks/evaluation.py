"""Functions of many examples, in slices that fit into memory."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def in_slices(function: Callable[[Any], Any], examples: Any, slice_size: int) -> Any:
    """`function(examples)`, computed for at most `slice_size` examples at once.

    Args:
      function: maps a pytree of arrays `[examples, ...]` to one of arrays `[examples, ...]`, each example by itself.
      examples: a pytree of arrays `[n, ...]`.
      slice_size: the most examples of a slice.
    """
    num_examples = jax.tree.leaves(examples)[0].shape[0]
    if num_examples <= slice_size:
        return function(examples)
    num_in_slices = num_examples - num_examples % slice_size  # in whole ones; the rest comes last, by itself
    # [slices, slice_size, ...]
    slices = jax.tree.map(lambda array: array[:num_in_slices].reshape(-1, slice_size, *array.shape[1:]), examples)
    values_by_slice = jax.lax.map(function, slices)
    values = jax.tree.map(lambda array: array.reshape(num_in_slices, *array.shape[2:]), values_by_slice)
    if num_in_slices == num_examples:
        return values
    values_of_rest = function(jax.tree.map(lambda array: array[num_in_slices:], examples))
    return jax.tree.map(lambda array, rest: jnp.concatenate([array, rest]), values, values_of_rest)
