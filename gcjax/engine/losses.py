"""The loss that a user gives to `coded_value_and_grad`, in the forms that coding needs.

Letters: B examples of a chunk.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Losses(NamedTuple):
    """A loss in the two forms that coding needs; with what else it gives, a pytree of floats, () for nothing.

    Attributes:
      of_chunk: `(params, chunk, *args) -> (float[], aux)`.
      weighted: `(params, chunks, weights, *args) -> (float[], aux)`, weighted sums over the leading axis of the chunks.
    """

    of_chunk: Callable[..., tuple[jax.Array, Any]]
    weighted: Callable[..., tuple[jax.Array, Any]]


def losses_of(loss: Callable[..., Any], has_aux: bool) -> Losses:
    """Both forms from what a user gives: the loss of a chunk, or those of its examples."""

    def of_chunk(params: Any, chunk: Any, *args: Any) -> tuple[jax.Array, Any]:
        value, aux = _checked_loss(loss(params, chunk, *args), has_aux)
        return jax.tree.map(lambda x: x.mean(axis=0), (value, aux)) if value.ndim else (value, aux)

    def weighted(params: Any, chunks: Any, weights: jax.Array, *args: Any) -> tuple[jax.Array, Any]:
        first = jax.tree.map(lambda x: x[0], chunks)
        shape = jax.eval_shape(lambda c: _checked_loss(loss(params, c, *args), has_aux)[0], first).shape
        if shape:
            merged = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), chunks)
            examples = _checked_loss(loss(params, merged, *args), has_aux)
            values = jax.tree.map(lambda x: x.reshape(-1, *shape, *x.shape[1:]).mean(axis=1), examples)
        else:
            values = jax.vmap(lambda c: _checked_loss(loss(params, c, *args), has_aux))(chunks)
        return weighted_sum(weights, values)

    return Losses(of_chunk, weighted)


def _checked_loss(output: Any, has_aux: bool) -> tuple[jax.Array, Any]:
    """What a loss returns, as the loss and aux."""
    if has_aux and not (isinstance(output, tuple) and len(output) == 2):
        raise ValueError(f"with has_aux=True the loss must return (loss, aux); got {_kind(output)}.")
    value, aux = output if has_aux else (output, ())
    if not isinstance(value, jax.Array):
        hint = "" if has_aux else " If it returns (loss, aux), pass has_aux=True."
        raise ValueError(f"the loss must be an array float[] or float[B]; got {_kind(value)}.{hint}")
    if value.ndim > 1:
        raise ValueError(
            f"the loss must be float[], or float[B] for the B examples of a chunk; got shape {value.shape}."
        )
    aux = jax.tree.map(jnp.asarray, aux)
    for path, leaf in jax.tree.leaves_with_path(aux):
        if not jnp.issubdtype(leaf.dtype, jnp.floating) or leaf.shape[: value.ndim] != value.shape:
            rule = f"float[{value.shape[0]}, ...], like the losses of the examples" if value.ndim else "floats"
            raise ValueError(
                f"aux is averaged over the chunks, so its leaves must be {rule}; got {leaf.dtype}{list(leaf.shape)} "
                f"for aux{jax.tree_util.keystr(path)}."
            )
    return value, aux


def _kind(value: Any) -> str:
    return "an array" if isinstance(value, jax.Array) else f"a {type(value).__name__}"


def weighted_sum(weights: jax.Array, values: Any) -> Any:
    """Sums over the axes of the weights, which every leaf begins with."""

    def leaf(x: jax.Array) -> jax.Array:
        factor = weights.astype(x.dtype).reshape(weights.shape + (1,) * (x.ndim - weights.ndim))
        return (factor * x).sum(axis=tuple(range(weights.ndim)))

    return jax.tree.map(leaf, values)
