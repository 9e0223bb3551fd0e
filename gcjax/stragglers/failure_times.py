"""How failures enter the times of units: the mechanism behind `gcjax.stragglers.failures`.

Letters: W workers.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.stragglers.base import StragglerModel, check_model, per_worker

Count = int | jax.Array

_LAST_UNIT = 2**31 - 2  # one more is an int32, too


class FailureState(NamedTuple):
    """What failures remember.

    Attributes:
      model_state: the state of the model that is wrapped.
      failure_parameters: the second argument of `who_fails`.
      rng_key: of the choices, the same in all units.
      unit: int32[], the next unit.
      onset: int32[W], the first unit that may fail.
      period: int32[], units a round.
      forever: bool[], whether failures last.
      failed_before: bool[W], who failed in the unit before.
    """

    model_state: Any
    failure_parameters: jax.Array
    rng_key: jax.Array
    unit: jax.Array
    onset: jax.Array
    period: jax.Array
    forever: jax.Array
    failed_before: jax.Array

    @property
    def round(self) -> jax.Array:
        """int32[], the round of the next unit."""
        return self.unit // self.period

    @property
    def rounds_since_onset(self) -> jax.Array:
        """int32[W], 0 in the round of the onset."""
        return self.round - self.onset // self.period


@dataclasses.dataclass(frozen=True)
class _Failing:
    """The sample function of all failures; equal for equal parts, so that it compiles once."""

    sample_model: Callable[[Any, jax.Array], tuple[jax.Array, Any]]
    who_fails: Callable[[FailureState, jax.Array], jax.Array]

    def __call__(self, state: FailureState, rng_key: jax.Array) -> tuple[jax.Array, FailureState]:
        """Seconds float[W] of the inner model's next unit, inf for workers that fail; the next state.

        Who is chosen by `who_fails` fails from its onset on; if failures last, also who failed in the unit before.
        """
        seconds, model_state = self.sample_model(state.model_state, rng_key)
        failed = (state.unit >= state.onset) & self.who_fails(state, state.failure_parameters)
        failed |= state.forever & state.failed_before
        return jnp.where(failed, jnp.inf, seconds), state._replace(
            model_state=model_state, unit=state.unit + 1, failed_before=failed
        )


def failing(
    model: StragglerModel,
    who_fails: Callable[[FailureState, jax.Array], jax.Array],
    failure_parameters_for: Callable[[int], jax.Array],
    forever: bool,
    onset: Count,
    latest_onset: Count | None,
    period: Count,
) -> StragglerModel:
    """`model` with failures: units of workers that fail take inf.

    Args:
      model: the times of units without failures.
      who_fails: `(state, failure_parameters) -> bool[W]`, who fails in the round of the next unit, from its onset on.
      failure_parameters_for: `(num_workers) -> array`, what `who_fails` goes by: a mask, a range of counts, or
        probabilities.
      forever: whether a worker that has failed stays so.
      onset: the first unit that may fail, or the earliest one that is drawn.
      latest_onset: each worker draws its onset between `onset` and this; None for no draw.
      period: units a round; who fails in a round does so in each of its units.
    """
    check_model(model)
    latest = onset if latest_onset is None else latest_onset
    check_range("onset", onset, "latest_onset", latest)
    _validate.whole("period", _validate.single_number("period", period), minimum=1, maximum=_LAST_UNIT)
    forever = forever if _validate.is_traced(forever) else _validate.boolean("forever", forever)

    def init(rng_key: jax.Array, num_workers: int) -> FailureState:
        """The state before the first unit: nobody has failed.

        Each worker's onset is drawn from `onset` up to and including `latest`, which is `onset` if none is to be drawn.
        """
        model_key, onset_key, rng_key = jax.random.split(rng_key, 3)
        earliest_of_worker, latest_of_worker = (
            per_worker("onset", _as_unit(value), num_workers, jnp.int32) for value in (onset, latest)
        )
        return FailureState(
            model_state=model.init(model_key, num_workers),
            failure_parameters=failure_parameters_for(num_workers),
            rng_key=rng_key,
            unit=jnp.zeros((), jnp.int32),
            onset=jax.random.randint(onset_key, (num_workers,), earliest_of_worker, latest_of_worker + 1, jnp.int32),
            period=jnp.asarray(period, jnp.int32),
            forever=jnp.asarray(forever),
            failed_before=jnp.zeros(num_workers, bool),
        )

    return StragglerModel(init, _Failing(model.sample, who_fails))


def _as_unit(value: Any) -> Any:
    """The numbers of units, one or an array, as int32 can have them: no run is longer, nor do any fail after that."""
    return value if _validate.is_traced(value) else np.minimum(value, _LAST_UNIT)


def check_range(name: str, low: Any, high_name: str, high: Any) -> None:
    """Checks that two numbers (or arrays) are whole and, unless they are traced, that `low` is not above `high`.

    Raises `ValueError` with their names.
    """
    _validate.whole(name, low, maximum=np.iinfo(np.int64).max)
    _validate.whole(high_name, high, maximum=np.iinfo(np.int64).max)
    if not _validate.is_traced(low) and not _validate.is_traced(high) and np.any(np.asarray(low) > np.asarray(high)):
        raise ValueError(f"{high_name} must be at least {name}; got {name}={low} and {high_name}={high}.")
