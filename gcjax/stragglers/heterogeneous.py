"""Workers that differ for good. Letters: W workers."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.stragglers.base import StragglerModel, check_model, per_worker
from gcjax.stragglers.iid import Parameter, constant


class _State(NamedTuple):
    """The state of the wrapped model, and each worker's factor or delay, `worker_value float[W]`."""

    model_state: Any
    worker_value: jax.Array


@dataclasses.dataclass(frozen=True)
class _PerWorkerOperation:
    """The sample function of times changed by a value of each worker; equal for equal inner models: compiled once."""

    sample_model: Callable[[Any, jax.Array], tuple[jax.Array, Any]]
    operation: Callable[[jax.Array, jax.Array], jax.Array]

    def __call__(self, state: _State, rng_key: jax.Array) -> tuple[jax.Array, _State]:
        """Seconds float[W] of the inner model's next unit, multiplied by or added to each worker's value; the state."""
        seconds, model_state = self.sample_model(state.model_state, rng_key)
        return self.operation(state.worker_value, seconds), state._replace(model_state=model_state)


def _with_operation(
    model: StragglerModel, operation: Callable[[jax.Array, jax.Array], jax.Array], name: str, value: Parameter,
    neutral: float, workers: tuple[int, ...] | None,
) -> StragglerModel:  # fmt: skip
    """Units of the `workers` (None: all) take `operation(value, seconds)`, all others `operation(neutral, seconds)`.

    `neutral` is the value that changes nothing; `name` is that of the parameter `value`, for errors.
    """
    check_model(model)

    def init(rng_key: jax.Array, num_workers: int) -> _State:
        """The model's state, and each worker's value float[W]: `neutral` for those not among `workers` (None: all)."""
        values = per_worker(name, value, num_workers)
        if workers is not None:
            values = jnp.where(worker_mask(workers, num_workers), values, neutral)
        return _State(model.init(rng_key, num_workers), values)

    return StragglerModel(init, _PerWorkerOperation(model.sample, operation))


@comparable
def worker_speeds(model: StragglerModel, *, inverse: bool = False) -> StragglerModel:
    """Each worker draws its time a unit once and keeps it (Ramamoorthy et al. 2024: Exp(1)).

    Args:
      model: what the time is drawn from: its first unit.
      inverse: whether the draw is the speed, in units a second, rather than the seconds a unit.

    Raises:
      ValueError: if the model is none.
    """
    check_model(model)
    inverse = _validate.boolean("inverse", inverse)

    def init(rng_key: jax.Array, num_workers: int) -> dict[str, jax.Array]:
        """The seconds of a unit of each worker, float[W], as the state of `constant`; those of `model`'s first unit.

        If `inverse`, these are taken for units a second.
        """
        init_key, sample_key = jax.random.split(rng_key)
        first_unit_seconds, _ = model.sample(model.init(init_key, num_workers), sample_key)
        return {"seconds": 1 / first_unit_seconds if inverse else first_unit_seconds}

    return StragglerModel(init, constant().sample)


@comparable
def scaled(model: StragglerModel, *, factor: Parameter, workers: tuple[int, ...] | None = None) -> StragglerModel:
    """Makes some workers slower or faster than the model says.

    Args:
      model: the times to scale.
      factor: what to multiply them by, a number or one a worker.
      workers: whom it concerns, by number; everyone if None.

    Raises:
      ValueError: if `factor` is not above zero and finite, or there is no such worker.
    """
    _validate.number("factor", factor, above=True, finite=True)
    return _with_operation(model, jnp.multiply, name="factor", value=factor, neutral=1.0, workers=workers)


@comparable
def delayed(model: StragglerModel, *, seconds: Parameter, workers: tuple[int, ...] | None = None) -> StragglerModel:
    """Makes some workers sleep after every unit, on top of what the model says (Yang et al. 2024).

    Args:
      model: the times without the delay.
      seconds: of the delay, a number or one a worker.
      workers: whom it concerns, by number; everyone if None.

    Raises:
      ValueError: if the delay is negative or not finite, or there is no such worker.
    """
    _validate.number("seconds", seconds, minimum=0.0, finite=True)
    return _with_operation(model, jnp.add, name="seconds", value=seconds, neutral=0.0, workers=workers)


def worker_mask(workers: tuple[int, ...], num_workers: int) -> jax.Array:
    """bool[W]: who is among `workers`; raises `ValueError` for a worker that does not exist."""
    is_member = np.zeros(num_workers, bool)
    for worker in np.atleast_1d(np.asarray(workers)).tolist():
        is_member[_validate.integer("an entry of workers", worker, maximum=num_workers - 1)] = True
    return jnp.asarray(is_member)
