"""Units of work whose times are drawn independently: transient stragglers.

Every parameter is a number, an array f32[W] or a sequence with one entry a worker, or a traced value.
Letters: W workers.
"""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.stragglers.base import StragglerModel, per_worker

Parameter = float | jax.Array | Sequence[float]
"""A number, or one for each worker; config files know these as tuples."""


@dataclasses.dataclass(frozen=True)
class _Independent:
    """The sample function of `independent`; equal for equal `draw`, so that it compiles once."""

    draw: Callable[..., jax.Array]

    def __call__(self, state: dict[str, jax.Array], rng_key: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Seconds float[W] by the parameters float[W] in the state, which stays as it is."""
        return self.draw(rng_key, **state), state


def independent(draw: Callable[..., jax.Array], **parameters: Parameter) -> StragglerModel:
    """Every unit of work is drawn anew from one distribution.

    Args:
      draw: pure function `(rng_key, **parameters float[W]) -> seconds float[W]`.
      **parameters: what to call `draw` with, each a number or one a worker.

    Raises:
      ValueError: if `draw` takes other arguments.
    """
    try:
        inspect.signature(draw).bind(None, **parameters)
    except TypeError as error:
        call = ", ".join(("rng_key", *parameters))
        raise ValueError(f"draw must be a function that can be called as draw({call}); got {draw}: {error}.") from None

    def init(rng_key: jax.Array, num_workers: int) -> dict[str, jax.Array]:
        """The parameters, each float[W], as the state."""
        del rng_key
        return {name: per_worker(name, value, num_workers) for name, value in parameters.items()}

    return StragglerModel(init, _Independent(draw))


@comparable
def constant(*, seconds: Parameter = 1.0) -> StragglerModel:
    """Every unit takes the same time, which may differ from worker to worker.

    Args:
      seconds: of one unit of work; inf is a failed worker.

    Raises:
      ValueError: if `seconds` is negative or NaN.
    """
    return independent(_constant_seconds, seconds=_validate.number("seconds", seconds))


@comparable
def exponential(*, mean: Parameter = 1.0) -> StragglerModel:
    """Exponential times.

    Args:
      mean: seconds.

    Raises:
      ValueError: if `mean` is not above zero and finite.
    """
    return independent(_exponential_seconds, mean=_above_zero("mean", mean))


@comparable
def shifted_exponential(*, shift: Parameter, mean: Parameter) -> StragglerModel:
    """A fixed time plus an exponential one (Lee et al. 2018).

    Args:
      shift: seconds that every unit takes at least.
      mean: mean of the exponential part in seconds; that of the whole is `shift + mean`.

    Raises:
      ValueError: if `shift` is negative, or `mean` not above zero and finite.
    """
    shift = _validate.number("shift", shift, finite=True)
    return independent(_shifted_exponential_seconds, shift=shift, mean=_above_zero("mean", mean))


@comparable
def lognormal(*, median: Parameter, sigma: Parameter) -> StragglerModel:
    """Log-normal times: the logarithm of a time over the median is normal.

    Args:
      median: seconds; the mean is `median * exp(sigma^2 / 2)`.
      sigma: the standard deviation of the logarithm.

    Raises:
      ValueError: if a parameter is not above zero and finite.
    """
    return independent(_lognormal_seconds, median=_above_zero("median", median), sigma=_above_zero("sigma", sigma))


@comparable
def pareto(*, minimum: Parameter, shape: Parameter) -> StragglerModel:
    """Pareto times, with a power-law tail: P(time > t) = (minimum / t)^shape.

    Args:
      minimum: seconds, the shortest time.
      shape: the tail index; the mean `shape * minimum / (shape - 1)` is finite for shapes above 1.

    Raises:
      ValueError: if a parameter is not above zero and finite.
    """
    return independent(_pareto_seconds, minimum=_above_zero("minimum", minimum), shape=_above_zero("shape", shape))


@comparable
def weibull(*, scale: Parameter, shape: Parameter) -> StragglerModel:
    """Weibull times: P(time > t) = exp(-(t / scale)^shape); heavier than exponential for shapes below 1.

    Args:
      scale: seconds.
      shape: 1 is exponential.

    Raises:
      ValueError: if a parameter is not above zero and finite.
    """
    return independent(_weibull_seconds, scale=_above_zero("scale", scale), shape=_above_zero("shape", shape))


@comparable
def bimodal(*, fast: Parameter, slow: Parameter, probability: Parameter) -> StragglerModel:
    """Each unit is slow with a probability, whatever happened before.

    Args:
      fast: seconds of a usual unit.
      slow: seconds of a slow unit; inf is a unit that never ends.
      probability: P(slow).

    Raises:
      ValueError: if a time is negative, or the probability is outside [0, 1].
    """
    fast, slow = _validate.number("fast", fast), _validate.number("slow", slow)
    probability = _validate.probability("probability", probability)
    return independent(_bimodal_seconds, fast=fast, slow=slow, probability=probability)


def _above_zero(name: str, value: Parameter) -> Any:
    """The value; a `ValueError` unless it is above zero and finite."""
    return _validate.number(name, value, above=True, finite=True)


def _standard_exponential_draws(rng_key: jax.Array, like: jax.Array) -> jax.Array:
    """Exponential draws of mean 1, of the shape and type of `like`."""
    return jax.random.exponential(rng_key, like.shape, like.dtype)


def _constant_seconds(rng_key: jax.Array, seconds: jax.Array) -> jax.Array:
    """The same time in every unit, float[W]."""
    del rng_key
    return seconds


def _exponential_seconds(rng_key: jax.Array, mean: jax.Array) -> jax.Array:
    """Exponential draws of the given mean, float[W]."""
    return mean * _standard_exponential_draws(rng_key, mean)


def _shifted_exponential_seconds(rng_key: jax.Array, shift: jax.Array, mean: jax.Array) -> jax.Array:
    """The shift plus exponential draws of the given mean, float[W]."""
    return shift + mean * _standard_exponential_draws(rng_key, mean)


def _lognormal_seconds(rng_key: jax.Array, median: jax.Array, sigma: jax.Array) -> jax.Array:
    """Log-normal draws of the given median, float[W]; `sigma` is the standard deviation of the logarithm."""
    return median * jnp.exp(sigma * jax.random.normal(rng_key, median.shape, median.dtype))


def _pareto_seconds(rng_key: jax.Array, minimum: jax.Array, shape: jax.Array) -> jax.Array:
    """Pareto draws float[W]: the logarithm of draw / minimum is exponential, with mean 1 / shape."""
    return minimum * jnp.exp(_standard_exponential_draws(rng_key, shape) / shape)


def _weibull_seconds(rng_key: jax.Array, scale: jax.Array, shape: jax.Array) -> jax.Array:
    """Weibull draws float[W]: a standard exponential draw to the power 1 / shape, times the scale."""
    return scale * _standard_exponential_draws(rng_key, shape) ** (1 / shape)


def _bimodal_seconds(rng_key: jax.Array, fast: jax.Array, slow: jax.Array, probability: jax.Array) -> jax.Array:
    """`slow` with the given probability, otherwise `fast`, float[W]."""
    is_slow = jax.random.uniform(rng_key, fast.shape, fast.dtype) < probability
    return jnp.where(is_slow, slow, fast)
