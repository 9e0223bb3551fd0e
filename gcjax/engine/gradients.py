"""The gradient that a commit applies, whoever contributed to it.

Letters: W workers, N chunks, K chunks a worker holds, L blocks, M messages, C contributions, d parameters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from gcjax.codes.base import Coding, GradientCode, chunk_coefficients
from gcjax.protocols.base import Schedule
from gcjax.tasks.base import Task, merge


class Contribution(NamedTuple):
    """What a commit applies.

    Attributes:
      gradient: the weighted sum of the gradients, a pytree like the parameters.
      loss: float[], the mean training loss of the batches behind it.
      residual: float[], the distance of the decoded coefficients from the exact sum; 0 without a code.
    """

    gradient: Any
    loss: jax.Array
    residual: jax.Array


CommitGradient = Callable[[Callable[[jax.Array], Any], Schedule, jax.Array], Contribution]
"""`(read, schedule, commit) -> Contribution`, where `read(version)` gives the parameters of a version."""


def weighted_gradient(
    task: Task, params: Any, weights: jax.Array, batches: Any, keys: jax.Array
) -> tuple[Any, jax.Array]:
    """Gradient of `sum_c weights[c] loss(params, batch[c], key[c])` in one backward pass, and the mean loss.

    For L = M = 1 this is all of gradient coding: encoding and decoding are the weights.
    """

    def total(params: Any) -> jax.Array:
        if task.mergeable:
            return task.loss(params, merge(batches, weights), keys[0])
        losses = jax.vmap(task.loss, (None, 0, 0))(params, batches, keys)
        return jnp.sum(weights.astype(losses.dtype) * losses)

    value, gradient = jax.value_and_grad(total)(params)
    return gradient, _mean(value, weights.astype(value.dtype))


def unit_gradients(task: Task, data: Any, rng_key: jax.Array, one_version: bool) -> CommitGradient:
    """Plain gradients: each contribution is the gradient on its unit's batch, at the version it read."""

    def gradient(read: Callable, schedule: Schedule, commit: jax.Array) -> Contribution:
        real = schedule.worker[commit] >= 0
        worker, unit = schedule.worker[commit].clip(0), schedule.unit[commit].clip(0)
        version, weight = schedule.version[commit].clip(0), jnp.where(real, schedule.weight[commit], 0)
        batch = jax.vmap(lambda w, n: task.unit_batch(data, rng_key, w, n))(worker, unit)
        keys = jax.vmap(lambda w, n: jax.random.fold_in(jax.random.fold_in(rng_key, w), n))(worker, unit)
        zero = jnp.zeros((), weight.dtype)
        if one_version:
            params = read(version.max())
            return Contribution(*weighted_gradient(task, params, weight, batch, keys), zero)
        params = jax.vmap(read)(version)
        losses, gradients = jax.vmap(jax.value_and_grad(task.loss))(params, batch, keys)
        total = jax.tree.map(lambda g: jnp.tensordot(weight.astype(g.dtype), g, axes=1), gradients)
        weight = weight.astype(losses.dtype)
        return Contribution(total, _mean((losses * weight).sum(), weight), zero)

    return gradient


def coded_gradients(task: Task, data: Any, rng_key: jax.Array, code: GradientCode) -> CommitGradient:
    """Coded rounds: what the plan decodes from the progress, by the weighted loss or by streamed messages."""
    estimate = weighted_estimate if code.num_blocks == code.num_messages == 1 else streamed_estimate

    def gradient(read: Callable, schedule: Schedule, commit: jax.Array) -> Contribution:
        params = read(commit)
        coding = code.plan(schedule.work[commit].clip(0))
        weight = schedule.weight[commit][:, None, None].astype(coding.decode.dtype)
        coding = coding._replace(decode=coding.decode * weight)

        def chunk(c: jax.Array) -> tuple[Any, jax.Array]:
            key = jax.random.fold_in(jax.random.fold_in(rng_key, c), commit)
            return task.chunk_batch(data, rng_key, c, commit), key

        return estimate(task, params, chunk, code, coding)

    return gradient


def weighted_estimate(task: Task, params: Any, chunk: Callable, code: GradientCode, coding: Coding) -> Contribution:
    """The estimate for L = M = 1: the gradient of the loss in which every chunk has its decoded coefficient.

    All holders of a chunk compute the same gradient, so on one device it is computed once.
    """
    weights = chunk_coefficients(code.assignment, coding.encode, coding.decode)[:, 0, 0]
    batches, keys = jax.vmap(chunk)(jnp.arange(code.assignment.num_chunks))
    return Contribution(*weighted_gradient(task, params, weights, batches, keys), coding.residual)


def streamed_estimate(task: Task, params: Any, chunk: Callable, code: GradientCode, coding: Coding) -> Contribution:
    """The estimate for any L and M: every worker adds its chunks, one after the other, to its messages."""
    flat, unravel = ravel_pytree(params)
    num_blocks = code.num_blocks
    width = -(-flat.size // num_blocks)

    def add(messages: jax.Array, slot: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        chunks, encode = slot  # [W], [W, M, L]

        def work(c: jax.Array, coefficients: jax.Array) -> tuple[jax.Array, jax.Array]:
            value, gradient = jax.value_and_grad(task.loss)(params, *chunk(c.clip(0)))
            blocks = jnp.pad(ravel_pytree(gradient)[0], (0, num_blocks * width - flat.size)).reshape(num_blocks, width)
            return coefficients.astype(blocks.dtype) @ blocks, value

        added, values = jax.vmap(work)(chunks, encode)
        return messages + added, values

    chunks = jnp.asarray(code.assignment.chunks)
    empty = jnp.zeros((chunks.shape[0], code.num_messages, width), flat.dtype)
    messages, values = jax.lax.scan(add, empty, (chunks.T, jnp.moveaxis(coding.encode, 2, 0)))
    estimate = jnp.einsum("wma,wmi->ai", coding.decode.astype(messages.dtype), messages).reshape(-1)[: flat.size]
    shares = jnp.einsum("wmb,wmkb->kw", coding.decode, coding.encode).astype(values.dtype)
    return Contribution(unravel(estimate), _mean((values * shares).sum(), shares), coding.residual)


def _mean(total: jax.Array, weights: jax.Array) -> jax.Array:
    """The mean from a weighted sum; 0 if the weights add up to nothing."""
    whole = weights.sum()
    return jnp.where(whole == 0, 0, total / jnp.where(whole == 0, 1, whole))
