"""Nesterov momentum that is updated every N gradients only (Liu and others 2024, arXiv 2401.09135)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gcjax import _validate
from gcjax.equality import comparable


class DelayedNesterovState(NamedTuple):
    """The state.

    Attributes:
      num_seen: int32[], the gradients so far.
      momentum: m, as the parameters.
      gradient_sum: Δ, as the parameters: the gradients since the last update of the momentum.
    """

    num_seen: jax.Array
    momentum: Any
    gradient_sum: Any


@comparable
def delayed_nesterov(
    learning_rate: float, *, momentum: float = 0.9, num_gradients: int, activation: float = 0.0
) -> optax.GradientTransformation:
    """Delayed Nesterov: each gradient moves the parameters at once, and the momentum is of N gradients at a time.

    With g the t-th gradient and Δ the sum of those since the momentum changed, g among them: if N divides t, counted
    from 1, then `m = β m + Δ / N` and `θ -= ε ((1 - c N + c) β m + g / N)`; otherwise `θ -= ε (c β m + g / N)` (Liu
    et al. 2024). N = 1 is SGD with Nesterov momentum.

    Args:
      learning_rate: ε, 0 or more.
      momentum: β, from 0 to 1.
      num_gradients: N, 1 or more; the number of workers, say.
      activation: c, from 0 to 1/N: the part of the momentum's step that is taken with each of the other gradients.

    Raises:
      ValueError: if a number is out of its range.
    """
    _validate.single_number("learning_rate", learning_rate, minimum=0.0, finite=True)
    _validate.single_number("momentum", momentum, minimum=0.0, maximum=1.0)
    num_gradients = _validate.integer("num_gradients", num_gradients, minimum=1)
    _validate.single_number("activation", activation, minimum=0.0, maximum=1.0 / num_gradients)

    def init(params: Any) -> DelayedNesterovState:
        """The state before the first gradient."""
        zeros = jax.tree.map(jnp.zeros_like, params)
        return DelayedNesterovState(jnp.zeros((), jnp.int32), zeros, zeros)

    def update(gradient: Any, state: DelayedNesterovState, params: Any = None) -> tuple[Any, DelayedNesterovState]:
        """The change of the parameters by a gradient, and the state after it; every N-th renews the momentum.

        That is with the mean of the last N = `num_gradients`; the others take `activation` of the momentum's step.
        """
        del params
        is_last = (state.num_seen + 1) % num_gradients == 0  # bool[]: of the N
        gradient_sum = jax.tree.map(jnp.add, state.gradient_sum, gradient)
        new_momentum = jax.tree.map(
            lambda m, total: jnp.where(is_last, momentum * m + total / num_gradients, m), state.momentum, gradient_sum
        )
        share = jnp.where(is_last, 1 - activation * num_gradients + activation, activation)  # of the momentum's step

        def change(m: jax.Array, g: jax.Array) -> jax.Array:
            """The change of one array of parameters."""
            return -learning_rate * (share.astype(m.dtype) * momentum * m + g / num_gradients)

        changes = jax.tree.map(change, new_momentum, gradient)
        gradient_sum = jax.tree.map(lambda total: jnp.where(is_last, jnp.zeros_like(total), total), gradient_sum)
        return changes, DelayedNesterovState(state.num_seen + 1, new_momentum, gradient_sum)

    return optax.GradientTransformation(init, update)
