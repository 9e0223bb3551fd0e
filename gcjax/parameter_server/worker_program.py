"""What a worker computes in a turn: the same as the engine computes for its contribution."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax.engine.gradients import unit_inputs
from gcjax.parameter_server.setup import Setup
from gcjax.protocols.base import LocalWork


class Unit(NamedTuple):
    """Attributes: loss: float[]; is_finite: bool[], whether all its numbers are. They may still be computed."""

    loss: jax.Array
    is_finite: jax.Array


class GradientProgram:
    """A worker that pushes the gradient on one unit, at the parameters that it has read."""

    def __init__(self, setup: Setup, worker: int) -> None:
        """`worker`: its number."""
        self._task, self._worker = setup.task, jnp.int32(worker)
        self._batch_key = setup.batch_key
        self._gradient = jax.jit(self._loss_and_gradient)
        self._params: Any = None
        self._message: Any = None

    def begin(self, version_params: Any) -> None:
        """Begins a turn, at new parameters if there are any."""
        if version_params is not None:
            self._params = version_params

    def compute(self, unit: int) -> Unit:
        """Computes a unit, or begins to."""
        result, self._message = self._gradient(self._params, self._task.data, self._batch_key, jnp.int32(unit))
        return result

    def message(self, version_params: Any, weight: float) -> Any:
        """What is pushed."""
        del version_params, weight
        return self._message

    def cancel(self) -> None:
        """Gives up the turn: nothing is kept of a gradient."""

    def _loss_and_gradient(self, params: Any, data: Any, batch_key: jax.Array, unit: jax.Array) -> tuple[Unit, Any]:
        """The loss and the gradient on a unit."""
        loss, gradient = jax.value_and_grad(self._task.loss)(
            params, *unit_inputs(self._task, data, batch_key, self._worker, unit)
        )
        return Unit(loss, _is_finite((loss, gradient))), gradient


class LocalProgram:
    """A worker that takes optimizer steps of its own and pushes what these have changed (`LocalWork`)."""

    def __init__(self, setup: Setup, local: LocalWork, worker: int) -> None:
        """`worker`: its number."""
        self._task, self._local, self._worker = setup.task, local, jnp.int32(worker)
        self._optimizer: optax.GradientTransformation = local.optimizer or setup.optimizer
        self._batch_key = setup.batch_key
        self._step, self._pull, self._push = jax.jit(self._stepped), jax.jit(local.pull), jax.jit(local.push)
        self._params = self._base = self._version_params = setup.initial_params()
        self._opt_state = jax.jit(self._optimizer.init)(self._params)
        self._state_before = self._params, self._opt_state

    def begin(self, version_params: Any) -> None:
        """Begins a turn, with reading these parameters if there are any."""
        self._state_before = self._params, self._opt_state
        if version_params is not None:
            self._params = self._pull(self._params, version_params)
            self._version_params = version_params
        self._base = self._params

    def compute(self, unit: int) -> Unit:
        """Takes the step on a unit, or begins to."""
        at = self._version_params if self._local.gradients_at_version else self._params
        result, self._params, self._opt_state = self._step(
            self._params, self._opt_state, at, self._task.data, self._batch_key, jnp.int32(unit)
        )
        return result

    def message(self, version_params: Any, weight: float) -> Any:
        """What is pushed: the change since the turn began; `version_params` are those of an exchange, or None."""
        version_params = self._version_params if version_params is None else version_params
        dtype = jnp.result_type(float)
        change, self._params = self._push(self._params, self._base, version_params, np.asarray(weight, dtype))
        return change

    def cancel(self) -> None:
        """Gives up the turn: the local parameters are those from before it."""
        self._params, self._opt_state = self._state_before

    def _stepped(
        self, params: Any, opt_state: Any, at: Any, data: Any, batch_key: jax.Array, unit: jax.Array
    ) -> tuple[Unit, Any, Any]:
        """The unit, and the local parameters and optimizer state after the step with its gradient at `at`."""
        loss, gradient = jax.value_and_grad(self._task.loss)(
            at, *unit_inputs(self._task, data, batch_key, self._worker, unit)
        )
        updates, opt_state = self._optimizer.update(gradient, opt_state, params)
        return Unit(loss, _is_finite((loss, gradient))), optax.apply_updates(params, updates), opt_state


Program = GradientProgram | LocalProgram


def worker_program(setup: Setup, worker: int) -> Program:
    """The program of a worker of this setup."""
    local = setup.protocol.local
    return GradientProgram(setup, worker) if local is None else LocalProgram(setup, local, worker)


def _is_finite(tree: Any) -> jax.Array:
    """bool[]: whether all numbers of a tree are finite."""
    return jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]).all()
