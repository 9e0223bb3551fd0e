"""The contract of training tasks.

Letters: N data chunks.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.tasks import Task
from gcjax.tasks.base import Batch, merge
from gcjax.testing.contract import call_or_fail, close, require, same

ROUNDING = {2: 0.1, 4: 1e-3, 8: 1e-9}  # of losses and gradients, by the bytes of a number


def check_task(
    task: Task, *, whole_chunks: bool = False, quick: bool = False, rng_key: jax.Array | None = None
) -> None:
    """Checks the contract of a task (`gcjax.tasks.Task`).

    The loss is one number; loss, gradients and metrics are finite at the initial parameters, and at others near them,
    and have the parameters' float type. The batch of a unit depends on nothing but worker and unit (and the key), that
    of a chunk on nothing but chunk and round: they are the same alone and among others, with and without `jit`, and
    when they are drawn again. Batches of a task that says `mergeable` go through one pass as one batch.

    Args:
      task: what is checked.
      whole_chunks: whether the batch of a chunk is the whole chunk, so that the mean of the chunks' losses is exactly
        `metrics(...)["train_loss"]`, and the same in every round.
      quick: leaves out what needs further programs: that all is the same when it is compiled again, or not at all.
      rng_key: decides the initial parameters and the batches.

    Raises:
      ContractError: an `AssertionError` with the sentence that is broken, and the smallest case.
    """
    require(isinstance(task, Task), f"a task must be a gcjax.tasks.Task; got {type(task).__name__}")
    key = jax.random.key(0) if rng_key is None else rng_key
    init = jax.jit(task.init)
    params = call_or_fail("init", init, key)
    if not quick:
        recompiled_params = jax.jit(lambda k: task.init(k))(key)
        rule = "the same key must give the same parameters; compiled again they differ"
        require(same(params, recompiled_params), rule)
    chunk_batch, unit_batch = (jax.jit(draw) for draw in (task.chunk_batch, task.unit_batch))
    batch = call_or_fail("unit_batch", unit_batch, task.data, key, 0, 0)
    _check_types(task, params, batch, key)
    _check_finite(task, params, batch, key, quick)
    # (worker, unit) and (chunk, round), also such that 16 bits do not hold.
    _check_batches("unit_batch", task.unit_batch, unit_batch, task.data, key, ((0, 0), (1, 2), (70_000, 7)), quick)
    chunks = ((0, 0), (task.num_chunks - 1, 2), (0, 70_000))
    _check_batches("chunk_batch", task.chunk_batch, chunk_batch, task.data, key, chunks, quick)
    if task.mergeable:
        _check_merge(task, params, key)
    if whole_chunks:
        _check_whole_chunks(task, params, key)


def _check_types(task: Task, params: Any, batch: Any, key: jax.Array) -> None:
    """Checks that loss, gradient and metrics have the right shapes and types; nothing is computed."""
    float_types = {
        parameter.dtype for parameter in jax.tree.leaves(params) if jnp.issubdtype(parameter.dtype, jnp.floating)
    }
    require(float_types, "parameters must have floating point numbers")
    loss, gradient = call_or_fail("loss", jax.eval_shape, jax.value_and_grad(task.loss), params, batch, key)
    require(loss.shape == (), f"the loss must be one number; it has the shape {list(loss.shape)}")
    require(loss.dtype in float_types, f"the loss must have a float type of the parameters; it is {loss.dtype}")
    for (path, parameter), derivative in zip(jax.tree.leaves_with_path(params), jax.tree.leaves(gradient), strict=True):
        rule = f"gradients must keep the types of the parameters; params{jax.tree_util.keystr(path)}"
        require(parameter.dtype == derivative.dtype, f"{rule} is {parameter.dtype}, not {derivative.dtype}")
    metrics = call_or_fail("metrics", jax.eval_shape, task.metrics, params, task.data)
    require(isinstance(metrics, dict) and metrics, "metrics must be a dictionary of numbers, name -> float[]")
    for name, metric in metrics.items():
        rule = f"the metric {name!r} must be one floating point number"
        is_number = metric.shape == () and jnp.issubdtype(metric.dtype, jnp.floating)
        require(is_number, f"{rule}; it is {metric.dtype}{list(metric.shape)}")


def _check_finite(task: Task, params: Any, batch: Any, key: jax.Array, quick: bool) -> None:
    """Checks that loss, gradient, metrics are finite at 2 points; unless quick, a loss compiled again is the same."""
    loss_and_gradient = jax.jit(jax.value_and_grad(task.loss))
    metrics_program = jax.jit(task.metrics)
    for parameters_in_words, tried_params in (
        ("the initial parameters", params),
        ("parameters near them", perturbed(params, key)),
    ):
        loss, gradient = call_or_fail("loss", loss_and_gradient, tried_params, batch, key)
        require(np.isfinite(loss), f"the loss must be finite; it is {float(loss):g}", parameters_in_words)
        for path, derivative in jax.tree.leaves_with_path(gradient):
            name = f"params{jax.tree_util.keystr(path)}"
            require(
                np.isfinite(derivative).all(), f"gradients must be finite; that of {name} is not", parameters_in_words
            )
        for name, value in call_or_fail("metrics", metrics_program, tried_params, task.data).items():
            require(np.isfinite(value), f"metrics must be finite; {name!r} is {float(value):g}", parameters_in_words)
    if not quick:
        recompiled_loss = jax.jit(lambda p, b, k: task.loss(p, b, k))(tried_params, batch, key)
        rule = "the loss must depend on parameters, batch and key only; compiled again it differs"
        require(close(loss, recompiled_loss, _loss_tolerance(recompiled_loss)), rule)


def _loss_tolerance(loss: jax.Array) -> float:
    """The tolerance for losses of this float type."""
    return ROUNDING[loss.dtype.itemsize]


@jax.jit
def perturbed(params: Any, rng_key: jax.Array) -> Any:
    """The parameters plus noise, so that no gradient is zero by accident, as at zero weights."""
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(rng_key, len(leaves))
    noises = [0.3 * jax.random.normal(key, leaf.shape, leaf.dtype) for key, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(tree, [leaf + noise for leaf, noise in zip(leaves, noises, strict=True)])


def _check_batches(
    name: str,
    draw: Any,
    draw_program: Any,
    data: Any,
    key: jax.Array,
    index_pairs: tuple[tuple[int, int], ...],
    quick: bool,
) -> None:
    """Checks that batches are the same when drawn alone, again, under `vmap` with others, and without `jit`.

    Args:
      name: of the function, for errors.
      draw: `(data, rng_key, *index_pair) -> batch`.
      draw_program: the same as a program.
      data: of the task.
      key: of the batches.
      index_pairs: whose batches are drawn: (worker, unit) or (chunk, round).
      quick: leaves out what needs operations to be compiled one by one.
    """

    def case(index_pair: tuple[int, int]) -> str:
        """The call that draws the batch of a pair, in words."""
        return f"{name}(data, rng_key, {index_pair[0]}, {index_pair[1]})"

    mapped_indices = [jnp.asarray(indices, jnp.int32) for indices in zip(*index_pairs, strict=True)]
    batches_under_vmap = call_or_fail(name, jax.jit(jax.vmap(draw, (None, None, 0, 0))), data, key, *mapped_indices)
    previous_shapes = None
    for row, pair in enumerate(index_pairs):
        single_batch = call_or_fail(name, draw_program, data, key, *pair)
        is_same = same(single_batch, draw_program(data, key, *pair))
        require(is_same, "a batch must be the same when it is drawn again", case(pair))
        vmapped_batch = jax.tree.map(lambda field, row=row: field[row], batches_under_vmap)
        require(same(single_batch, vmapped_batch), "a batch must be the same alone and among others", case(pair))
        shapes = jax.tree.map(lambda field: (field.shape, field.dtype), single_batch)
        require(previous_shapes in (None, shapes), "all batches must have the same shapes and types", case(pair))
        previous_shapes = shapes
    if not quick:
        pair = index_pairs[0]
        pair_of_arrays = tuple(jnp.asarray(index, jnp.int32) for index in pair)
        batch_without_jit = call_or_fail(name, draw, data, key, *pair_of_arrays)
        is_close = close(batch_without_jit, draw_program(data, key, *pair), 1e-6)
        require(is_close, "a batch must be the same with and without jit", case(pair))


def _check_merge(task: Task, params: Any, key: jax.Array) -> None:
    """Checks that the loss of two merged batches is the weighted sum of their losses, also with a negative weight."""
    weights = jnp.asarray([0.5, -2.0], jnp.float32)
    workers = jnp.arange(2, dtype=jnp.int32)
    batches = jax.vmap(task.unit_batch, (None, None, 0, None))(task.data, key, workers, jnp.int32(0))
    require(isinstance(batches, Batch), "batches must be of type gcjax.tasks.Batch if a task says mergeable")
    merged_loss = call_or_fail("loss", jax.jit(task.loss), params, merge(batches, weights), key)
    losses = jax.jit(jax.vmap(task.loss, (None, 0, None)))(params, batches, key)
    weighted_sum = jnp.sum(weights.astype(losses.dtype) * losses)
    rule = "the loss of merged batches must be the weighted sum of their losses if a task says mergeable"
    losses_text = f"it is {float(merged_loss):g} instead of {float(weighted_sum):g}"
    require(close(merged_loss, weighted_sum, _loss_tolerance(weighted_sum)), f"{rule}; {losses_text}")


def _check_whole_chunks(task: Task, params: Any, key: jax.Array) -> None:
    """Checks that mean loss and mean gradient of the chunks are those of all data, in every round."""
    nearby_params, chunks = perturbed(params, key), jnp.arange(task.num_chunks, dtype=jnp.int32)

    def mean_loss(params: Any, round: jax.Array) -> jax.Array:
        """The mean loss of all chunks in one round."""

        def chunk_loss(chunk: jax.Array) -> jax.Array:
            """The loss of one chunk."""
            return task.loss(params, task.chunk_batch(task.data, key, chunk, round), key)

        return jax.lax.map(chunk_loss, chunks).mean()

    loss_and_gradient = jax.jit(jax.value_and_grad(mean_loss))
    loss, gradient = call_or_fail("loss", loss_and_gradient, nearby_params, jnp.asarray(0, jnp.int32))
    later_loss, later_gradient = call_or_fail("loss", loss_and_gradient, nearby_params, jnp.asarray(3, jnp.int32))
    tolerance = _loss_tolerance(loss)
    rule = "batches that are whole chunks must be the same in every round"
    is_same_later = close((loss, gradient), (later_loss, later_gradient), tolerance)
    require(is_same_later, f"{rule}; the mean loss is {loss:g}, and then {later_loss:g}")

    def train_loss(params: Any) -> jax.Array:
        """The loss of all data, as the metrics say."""
        metrics = task.metrics(params, task.data)
        require("train_loss" in metrics, "whole_chunks needs the metric 'train_loss', the loss of all data")
        return metrics["train_loss"]

    full_loss, full_gradient = call_or_fail("metrics", jax.jit(jax.value_and_grad(train_loss)), nearby_params)
    rule = "the mean loss of the chunks must be the loss of all data"
    require(close(loss, full_loss, tolerance), f"{rule}; it is {loss:g} instead of {full_loss:g}")
    rule = "the mean gradient of the chunks must be the gradient on all data"
    require(close(gradient, full_gradient, tolerance), rule)
