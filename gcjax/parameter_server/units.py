"""A unit of work: the loss and the gradient on one batch, as the engine computes them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax.engine.gradients import unit_inputs
from gcjax.tasks.base import Task


class Unit(NamedTuple):
    """Attributes: loss: float[]; is_finite: bool[], whether all its numbers are. They may still be computed."""

    loss: jax.Array
    is_finite: jax.Array


def unit_gradient(task: Task, worker: int) -> Callable[..., tuple[Unit, Any]]:
    """`(params, data, batch_key, unit) -> (unit, gradient)` of a worker, compiled."""

    def loss_and_gradient(params: Any, data: Any, batch_key: jax.Array, unit: jax.Array) -> tuple[Unit, Any]:
        """The loss and the gradient on a unit."""
        loss, gradient = jax.value_and_grad(task.loss)(
            params, *unit_inputs(task, data, batch_key, jnp.int32(worker), unit)
        )
        return Unit(loss, is_finite((loss, gradient))), gradient

    return jax.jit(loss_and_gradient)


def is_finite(tree: Any) -> jax.Array:
    """bool[]: whether all numbers of a tree are finite."""
    return jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]).all()
