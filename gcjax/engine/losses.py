"""The loss that a user gives to `coded_value_and_grad`, in the forms that coding needs.

Letters: B examples of a chunk.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Losses(NamedTuple):
    """A loss in the two forms that coding needs. `aux` is what else it returns, a pytree of floats; () for nothing.

    Attributes:
      chunk_loss_and_aux: `(params, chunk, *args) -> (float[], aux)`.
      weighted_loss_and_aux: `(params, chunks, weights, *args) -> (float[], aux)`, weighted sums over the leading
        axis of the chunks.
    """

    chunk_loss_and_aux: Callable[..., tuple[jax.Array, Any]]
    weighted_loss_and_aux: Callable[..., tuple[jax.Array, Any]]


def check_loss(loss: Any) -> None:
    """Raises a `ValueError` unless it can be called."""
    if not callable(loss):
        raise ValueError(f"the loss must be a function (params, chunk, *args) -> float[] or float[B]; got {loss!r}.")


def loss_forms(loss: Callable[..., Any], has_aux: bool) -> Losses:
    """Both forms of a user's loss, which returns float[], the mean of a chunk, or float[B], one for each example.

    With `has_aux` it returns this and aux.
    """

    def loss_and_aux(params: Any, chunk: Any, *args: Any) -> tuple[jax.Array, Any]:
        """What the user's `loss` returns, as (loss, aux)."""
        return _loss_and_aux(loss(params, chunk, *args), has_aux)

    def chunk_loss_and_aux(params: Any, chunk: Any, *args: Any) -> tuple[jax.Array, Any]:
        """The mean loss of one chunk, and the mean of aux over its examples."""
        value, aux = loss_and_aux(params, chunk, *args)
        return jax.tree.map(lambda x: x.mean(axis=0), (value, aux)) if value.ndim else (value, aux)

    def weighted_loss_and_aux(params: Any, chunks: Any, weights: jax.Array, *args: Any) -> tuple[jax.Array, Any]:
        """The sum of `weights[c]` times loss and aux of chunk c; leaves of `chunks` are [chunks, B, ...]."""
        first_chunk = jax.tree.map(lambda x: x[0], chunks)
        loss_shape = jax.eval_shape(lambda chunk: loss_and_aux(params, chunk, *args)[0], first_chunk).shape
        if _is_of_examples(first_chunk, loss_shape):  # all chunks go through the loss as one batch
            example_losses = loss_and_aux(params, jax.tree.map(merged_axes, chunks), *args)  # leaves [chunks·B, ...]
            _check_one_loss_an_example(example_losses[0], num_chunks=weights.size, loss_shape=loss_shape)
            # The mean over the B examples: [chunks, ...] from [chunks, B, ...], as `loss_shape` is (B,).
            chunk_losses = jax.tree.map(
                lambda x: x.reshape(weights.size, *loss_shape, *x.shape[1:]).mean(axis=1), example_losses
            )
        else:
            chunk_losses = jax.vmap(lambda chunk: chunk_loss_and_aux(params, chunk, *args))(chunks)
        return weighted_sum(weights, chunk_losses)

    return Losses(chunk_loss_and_aux=chunk_loss_and_aux, weighted_loss_and_aux=weighted_loss_and_aux)


def merged_axes(x: jax.Array) -> jax.Array:
    """[m·n, ...], from [m, n, ...]: the first two axes as one, also where there are no numbers in the array."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def _is_of_examples(chunk: Any, loss_shape: tuple[int, ...]) -> bool:
    """Whether the loss of a chunk is float[B], by `loss_shape`, and all its arrays are [B, ...], an entry an example.

    Otherwise chunks cannot be one batch: what belongs to a whole chunk would be lost among the examples of all.
    """
    return loss_shape != () and all(leaf.shape[:1] == loss_shape for leaf in jax.tree.leaves(chunk))


def _loss_and_aux(output: Any, has_aux: bool) -> tuple[jax.Array, Any]:
    """(loss, aux) from what a user's loss returned; aux is () without `has_aux`.

    Raises:
      ValueError: if the output is not what `coded_value_and_grad` asks for.
    """
    if has_aux and not (isinstance(output, tuple) and len(output) == 2):
        raise ValueError(f"with has_aux=True the loss must return (loss, aux); got {_kind_of(output)}.")
    value, aux = output if has_aux else (output, ())
    if not isinstance(value, jax.Array):
        hint = "" if has_aux else " If it returns (loss, aux), pass has_aux=True."
        raise ValueError(f"the loss must be an array float[] or float[B]; got {_kind_of(value)}.{hint}")
    if value.ndim > 1:
        raise ValueError(
            f"the loss must be float[], or float[B] for the B examples of a chunk; got shape {value.shape}."
        )
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(
            f"the loss must be float[] or float[B]; got {value.dtype}{list(value.shape)}, which has no gradient."
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


def _check_one_loss_an_example(losses: jax.Array, *, num_chunks: int, loss_shape: tuple[int, ...]) -> None:
    """Raises a `ValueError` unless `losses` of all chunks as one batch are as many as those of each, `loss_shape`."""
    num_losses = num_chunks * loss_shape[0]
    if losses.shape != (num_losses,):
        raise ValueError(
            f"the loss must be float[], or float[B] for the B examples of a chunk; of one chunk it is "
            f"float[{loss_shape[0]}], and of {num_chunks} chunks as one batch float{list(losses.shape)} instead of "
            f"float[{num_losses}]. Take its mean, for float[], or leave the axis of examples as it is."
        )


def _kind_of(value: Any) -> str:
    """What sort of value this is, for an error message."""
    return "an array" if isinstance(value, jax.Array) else f"a {type(value).__name__}"


def weighted_sum(weights: jax.Array, values: Any) -> Any:
    """The pytree of weighted sums over the axes of the weights, which are the first axes of every leaf of `values`."""

    def sum_leaf(x: jax.Array) -> jax.Array:
        """The weighted sum of one leaf, in its own dtype."""
        factors = weights.astype(x.dtype).reshape(weights.shape + (1,) * (x.ndim - weights.ndim))
        return (factors * x).sum(axis=tuple(range(weights.ndim)))

    return jax.tree.map(sum_leaf, values)
