"""The parameters that a run can train."""

from typing import Any

import jax
import jax.numpy as jnp


def arrays_of_params(params: Any) -> Any:
    """The parameters as arrays, of which some may be numbers of Python or NumPy.

    Raises:
      ValueError: if there are none, or some are no floating point numbers.
    """
    params = jax.tree.map(jnp.asarray, params)
    if not jax.tree.leaves(params):
        raise ValueError(f"a task must have parameters, arrays in a pytree; got {params!r}.")
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise ValueError(
                f"parameters must be floating point numbers; got {leaf.dtype} in params{jax.tree_util.keystr(path)}."
            )
    return params
