"""A unit of work: the loss and the gradient on one batch, as the engine computes them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax.engine.gradients import unit_inputs
from gcjax.tasks.base import Task


class UnitResult(NamedTuple):
    """What is kept of a unit once it is computed; its arrays may still be on their way.

    Attributes:
      loss: float[].
      is_finite: bool[], whether loss and gradient are.
    """

    loss: jax.Array
    is_finite: jax.Array


def unit_gradient(task: Task, worker: int) -> Callable[..., tuple[UnitResult, Any]]:
    """`(params, data, batch_key, unit int32[]) -> (result, gradient)` of worker number `worker`, compiled.

    The result has the unit's loss, and whether loss and gradient are finite.
    """

    def loss_and_gradient(params: Any, data: Any, batch_key: jax.Array, unit: jax.Array) -> tuple[UnitResult, Any]:
        """What is kept of a unit, and the gradient on it."""
        loss, gradient = jax.value_and_grad(task.loss)(
            params, *unit_inputs(task, data, batch_key, jnp.int32(worker), unit)
        )
        return UnitResult(loss, is_finite((loss, gradient))), gradient

    return jax.jit(loss_and_gradient)


def is_finite(tree: Any) -> jax.Array:
    """bool[]: whether all numbers of a tree are finite."""
    return jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]).all()
