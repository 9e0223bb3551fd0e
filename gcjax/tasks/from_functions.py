"""Tasks from an init function, a loss and arrays: models of any library whose parameters are a pytree.

Letters: N data chunks, n training examples, B examples of a batch.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax._generators import generator_of_seed
from gcjax.tasks.base import Batch, Task
from gcjax.tasks.batches import sampling
from gcjax.tasks.chunks import Data, split, with_dtype
from gcjax.tasks.evaluation import in_slices

_SLICE_EXAMPLES = 1024  # examples that are evaluated at once

Examples = tuple[Any, Any]
"""`(inputs [n, ...], targets [n, ...])`."""


def task_of(
    init: Callable[[jax.Array], Any],
    loss: Callable[..., jax.Array],
    data: Examples,
    *,
    num_chunks: int,
    held_out: Examples | None = None,
    metrics: Callable[[Any, Examples], dict[str, jax.Array]] | None = None,
    batch_size: int | None = 32,
    local_data: bool = False,
    seed: int | None = 0,
) -> Task:
    """A task from a model of your own: its initial parameters, its loss, and arrays of examples.

    Metrics: `train_loss` on all training examples, `test_loss` on the held-out ones if there are any, and what
    `metrics` says of them, or of the training examples if there are none.

    Tasks whose functions are the same objects compile once: define `loss` and `metrics` at the top of a module, or
    cache what makes them.

    Args:
      init: pure function `(rng_key) -> params`, a pytree of arrays.
      loss: pure function `(params, (inputs, targets)) -> float[B]`, the loss of each example, which must not depend on
        the others (batches of several workers are taken at once), or float[], their mean.
        If it has a third parameter it gets a key, for dropout, and None where metrics are computed.
      data: `(inputs [n, ...], targets [n, ...])`. Floats become the default float type; bytes stay bytes, which saves
        memory; other integers become int32.
      num_chunks: N.
      held_out: more examples, never trained on.
      metrics: pure function `(params, (inputs, targets)) -> {name: float[]}`, with other names than the losses.
      batch_size: B, drawn with replacement; None takes the whole chunk, and needs `local_data`.
      local_data: whether worker w draws only from its own chunk, w % N, rather than from all data.
      seed: of the order in which the examples are dealt to the chunks; None leaves them as they are.

    Raises:
      ValueError: if the loss is neither a number for each example nor one for all, or whole chunks of unequal length
        have a mean loss, or a value is out of its range.
    """
    inputs, targets = _example_pair("data", data)
    train = split(*_shuffled_examples(inputs, targets, seed), num_chunks)
    reference = None
    if held_out is not None:
        reference = _held_out_examples(_example_pair("held_out", held_out), train.inputs, train.targets)
    keyed_loss = _keyed_loss(loss)
    is_per_example = _is_per_example(init, keyed_loss, (train.inputs, train.targets))
    if not is_per_example and batch_size is None and len(inputs) % num_chunks:
        raise ValueError(
            f"whole chunks must be equally long for a mean loss; {len(inputs)} examples make {num_chunks} chunks of "
            "unequal length. Return the loss of each example, float[B]."
        )
    batch_functions = sampling(len(inputs), num_chunks, batch_size, local_data)
    return Task(
        data=Data(train, reference),
        init=init,
        **_task_functions(keyed_loss, metrics, is_per_example, len(inputs), held_out is not None),
        **batch_functions._asdict(),
        num_chunks=num_chunks,
        mergeable=is_per_example and not keyed_loss.passes_key,
    )


class _KeyedLoss(NamedTuple):
    """A loss that is called with a key, whether it takes one or not; equal for equal functions."""

    function: Callable[..., jax.Array]
    passes_key: bool
    key_is_keyword: bool

    def __call__(self, params: Any, examples: Examples, rng_key: jax.Array | None) -> jax.Array:
        """The loss of the examples."""
        if self.key_is_keyword:
            return self.function(params, examples, rng_key=rng_key)
        return self.function(params, examples, rng_key) if self.passes_key else self.function(params, examples)


def _keyed_loss(loss: Callable[..., jax.Array]) -> _KeyedLoss:
    """The loss, and whether it takes a key: a third parameter that must be given, or one that is called `rng_key`."""
    parameters = inspect.signature(loss).parameters
    positional_parameters = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    num_required = sum(p.default is p.empty for p in positional_parameters)
    key_parameter = parameters.get("rng_key")
    key_is_keyword = key_parameter is not None and key_parameter.kind is inspect.Parameter.KEYWORD_ONLY
    third_parameter_name = list(parameters)[2:3]  # in a list; none where there are fewer
    passes_key = key_is_keyword or num_required > 2 or third_parameter_name == ["rng_key"]
    return _KeyedLoss(loss, passes_key, key_is_keyword)


@functools.lru_cache(maxsize=64)
def _task_functions(
    keyed_loss: _KeyedLoss,
    user_metrics: Callable[..., dict[str, jax.Array]] | None,
    is_per_example: bool,
    num_examples: int,
    has_held_out: bool,
) -> dict[str, Any]:
    """The loss and metrics of `task_of`; cached, so that equal settings give equal functions: compiled once.

    `is_per_example`: whether the loss is float[B] and not float[].
    """

    def loss(params: Any, batch: Batch, rng_key: jax.Array) -> jax.Array:
        """The mean loss of a batch by the weights of its examples."""
        loss_value = keyed_loss(params, (batch.inputs, batch.targets), rng_key).astype(batch.weights.dtype)
        # A mean over examples that all weigh the same: a chunk that is smaller than others still counts for less.
        return batch.mean(loss_value) if is_per_example else batch.weights.sum() * loss_value

    def mean_loss(params: Any, examples: Examples) -> jax.Array:
        """float[]: the mean loss of many examples; where each has a loss of its own, in slices that fit into memory."""
        if not is_per_example:
            return keyed_loss(params, examples, rng_key=None)
        losses = in_slices(lambda part: keyed_loss(params, part, rng_key=None), examples, _SLICE_EXAMPLES)
        return jnp.mean(losses)

    def metrics(params: Any, data: Data) -> dict[str, jax.Array]:
        """The mean losses, and what the user's metrics say of held-out (or else training) examples."""
        # Without the padding that is behind them.
        train_examples = data.train.inputs[:num_examples], data.train.targets[:num_examples]
        value_of_metric = {"train_loss": mean_loss(params, train_examples)}
        if has_held_out:
            value_of_metric["test_loss"] = mean_loss(params, data.reference)
        if user_metrics is not None:
            own_values = user_metrics(params, data.reference if has_held_out else train_examples)
            _check_metrics(own_values, losses=value_of_metric)
            value_of_metric |= own_values
        return {name: jnp.asarray(value, data.train.relative_sizes.dtype) for name, value in value_of_metric.items()}

    return {"loss": loss, "metrics": metrics}


def _check_metrics(own_values: Any, losses: dict[str, jax.Array]) -> None:
    """Raises a `ValueError` unless metrics are `{name: float[]}`, with other names than the losses."""
    if not isinstance(own_values, Mapping) or any(jnp.ndim(value) for value in own_values.values()):
        shapes = jax.tree.map(lambda value: list(jnp.shape(value)), own_values)
        raise ValueError(f"metrics must return a number for each name, as in {{'accuracy': 0.9}}; got shapes {shapes}.")
    if same_names := own_values.keys() & losses.keys():
        raise ValueError(f"metrics must have other names than {', '.join(losses)}; got '{same_names.pop()}' again.")


def _is_per_example(init: Callable[[jax.Array], Any], loss: _KeyedLoss, examples: Examples) -> bool:
    """Whether a loss is float[2] of two examples; raises `ValueError` if it is not one number for them either."""
    params = jax.eval_shape(init, jax.random.key(0))
    two_examples = jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape[1:]), x.dtype), examples)
    loss_shape = jax.eval_shape(lambda params, examples: loss(params, examples, rng_key=None), params, two_examples)
    if not isinstance(loss_shape, jax.ShapeDtypeStruct) or loss_shape.shape not in ((), (2,)):
        shape = getattr(loss_shape, "shape", loss_shape)
        raise ValueError(
            "loss must return a number for each example, float[B], or their mean, float[]; got shape "
            f"{shape} for 2 examples. Take the mean over the other axes."
        )
    return loss_shape.shape == (2,)


def _example_pair(name: str, examples: Any) -> tuple[np.ndarray, np.ndarray]:
    """(inputs [n, ...], targets [n, ...]) as arrays; raises `ValueError` for anything else."""
    if not isinstance(examples, (tuple, list)) or len(examples) != 2:
        raise ValueError(f"{name} must be a pair (inputs, targets); got {type(examples).__name__}.")
    inputs, targets = map(np.asarray, examples)
    if inputs.shape[:1] != targets.shape[:1] or not inputs.shape or not len(inputs):
        raise ValueError(
            f"{name} must be as many inputs as targets, one at least; got shapes {inputs.shape} and {targets.shape}."
        )
    return inputs, targets


def _shuffled_examples(inputs: np.ndarray, targets: np.ndarray, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The examples in a random order; as they are without a seed."""
    if seed is None:
        return inputs, targets
    shuffled_order = generator_of_seed(seed).permutation(len(inputs))
    return inputs[shuffled_order], targets[shuffled_order]


def _held_out_examples(examples: tuple[np.ndarray, np.ndarray], inputs: jax.Array, targets: jax.Array) -> Examples:
    """Held-out examples on the device, in the types of the training `inputs` and `targets`; checks their shapes."""
    for held_out, training in zip(examples, (inputs, targets), strict=True):
        if held_out.shape[1:] != training.shape[1:]:
            raise ValueError(
                f"held_out must have the shapes of data, but for the number; got {held_out.shape[1:]} where data has "
                f"{training.shape[1:]}."
            )
    held_out_inputs, held_out_targets = examples
    return (
        with_dtype("inputs of held_out, as those of data,", held_out_inputs, inputs.dtype),
        with_dtype("targets of held_out, as those of data,", held_out_targets, targets.dtype),
    )
