"""Learning rates that are numbers in the state of an optimizer, so that one program trains with many of them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax.equality import comparable


class RateState(NamedTuple):
    """The state of an optimizer with a rate.

    Attributes:
      inner: of the optimizer itself.
      rate: float[], what its updates are multiplied by.
    """

    inner: Any
    rate: jax.Array


@comparable
def with_rate(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimizer with its updates times a rate that is in its state, 1 until `set_rates` says another one.

    For an optimizer whose updates are proportional to its learning rate, as those of optax are (`sgd`, `adamw` with its
    decay): with the learning rate 1 the rate is the learning rate.

    Args:
      optimizer: of optax.
    """
    transformation = optax.with_extra_args_support(optimizer)

    def init(params: Any) -> RateState:
        """The state with the rate 1."""
        return RateState(transformation.init(params), jnp.ones(()))

    def update(updates: Any, state: RateState, params: Any = None, **extra: Any) -> tuple[Any, RateState]:
        """The updates of the optimizer times the rate."""
        updates, inner = transformation.update(updates, state.inner, params, **extra)
        scaled_updates = jax.tree.map(lambda x: x * state.rate.astype(x.dtype), updates)
        return scaled_updates, RateState(inner, state.rate)

    return optax.GradientTransformationExtraArgs(init, update)


def set_rates(states: Any, rates: np.ndarray) -> Any:
    """The states of runs, any tree with a leading axis of runs in its leaves, with these rates.

    Args:
      states: with a `RateState` for each optimizer that `with_rate` made: one a run, or one a run and worker.
      rates: float[runs].

    Raises:
      ValueError: if no optimizer in the states has a rate, or there are more or fewer rates than runs.
    """
    num_replaced = 0

    def replaced(state: Any) -> Any:
        """A `RateState` with the rates of the runs; anything else as it is."""
        nonlocal num_replaced
        if not isinstance(state, RateState):
            return state
        num_replaced += 1
        if state.rate.shape[:1] != np.shape(rates):
            raise ValueError(f"there must be a rate for each of {len(state.rate)} runs; got shape {np.shape(rates)}.")
        # [runs], or [runs, 1] where there is one rate a run and worker.
        of_runs = jnp.asarray(rates, state.rate.dtype).reshape(-1, *[1] * (state.rate.ndim - 1))
        return state._replace(rate=jnp.broadcast_to(of_runs, state.rate.shape) + jnp.zeros_like(state.rate))

    states = jax.tree.map(replaced, states, is_leaf=lambda state: isinstance(state, RateState))
    if not num_replaced:
        raise ValueError(
            "the rates of this scheme cannot be set: it uses no optimizer of the study, but its own. Leave `inner` and "
            "`outer` out of the protocol, and give it one in study.optimizers."
        )
    return states
