"""The type of straggler models: how long one unit of work takes on each worker.

Letters: T units of work sampled per worker, W workers.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, memory


class StragglerModel(NamedTuple):
    """Who is slow.

    The models of this package keep their parameters in the state, and the `sample` functions of models of one
    kind are equal: other parameter values need no new compilation, and `vmap` over parameters works.

    Attributes:
      init: pure function `(rng_key, num_workers) -> state`, a pytree of arrays.
      sample: pure function `(state, rng_key) -> (seconds float[W], state)`, the time that the next unit of
        work takes on each worker; inf is a failed worker.
    """

    init: Callable[[jax.Array, int], Any]
    sample: Callable[[Any, jax.Array], tuple[jax.Array, Any]]


def sample_durations(model: StragglerModel, rng_key: jax.Array, num_units: int, num_workers: int) -> jax.Array:
    """Samples how long each unit of work takes on each worker.

    The same key gives the same bits, and more units begin with the same bits as fewer.

    Args:
      model: who is slow.
      rng_key: a JAX random key.
      num_units: T.
      num_workers: W.

    Returns:
      float[T, W] seconds in the default float type (float64 under `jax_enable_x64`); inf is a failed worker.

    Raises:
      ValueError: if a count is below one, or what is sampled is larger than the memory, or a per-worker parameter of
        the model has not W entries.

    Example:
      >>> model = gcjax.stragglers.exponential(mean=1.0)
      >>> durations = gcjax.stragglers.sample_durations(model, jax.random.key(0), num_units=100, num_workers=8)
      >>> durations.shape
      (100, 8)
    """
    num_units = _validate.integer("num_units", num_units, minimum=1)
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    min_bytes_per_number = 4  # 8 with 64-bit types
    description = f"durations of {num_units} units of {num_workers} workers"
    memory.check_fits(description, min_bytes_per_number * num_units * num_workers, "Lower num_units or num_workers.")
    check_model(model)
    init_key, unit_key = jax.random.split(_validate.rng_key(rng_key))
    return _sample_units(model.sample, num_units, model.init(init_key, num_workers), unit_key)


def check_model(value: Any) -> None:
    """Raises `ValueError` for anything but a straggler model."""
    _validate.instance("model", value, StragglerModel, "gcjax.stragglers.exponential()")


def per_worker(name: str, value: Any, num_workers: int, dtype: Any = None) -> jax.Array:
    """A parameter as float[W], or of another type; raises `ValueError` if it is neither one number nor one a worker."""
    if np.shape(value) not in ((), (num_workers,)):
        raise ValueError(
            f"{name} must be one number or one a worker, so of shape () or ({num_workers},); "
            f"got shape {np.shape(value)}."
        )
    dtype = dtype or jnp.result_type(float)
    if not _validate.is_traced(value):
        _check_range_of_dtype(name, np.asarray(value, np.float64), dtype)
    return jnp.broadcast_to(jnp.asarray(value, dtype), (num_workers,))


def _check_range_of_dtype(name: str, value: np.ndarray, dtype: Any) -> None:
    """Raises a `ValueError` if a finite number would become inf, as of a failed worker, in a type of floats."""
    if not jnp.issubdtype(dtype, jnp.floating):
        return
    with np.errstate(over="ignore"):
        is_lost = np.isinf(value.astype(dtype)) & np.isfinite(value)
    if is_lost.any():
        raise ValueError(f"{name} must be below {jnp.finfo(dtype).max:g}, or inf; got {value[is_lost].ravel()[0]:g}.")


@functools.partial(jax.jit, static_argnums=(0, 1))
def _sample_units(
    sample: Callable[[Any, jax.Array], tuple[jax.Array, Any]], num_units: int, initial_state: Any, rng_key: jax.Array
) -> jax.Array:
    """float[T, W]: the times of T units in their order, each with a key of its own."""

    def sample_unit(state: Any, unit: jax.Array) -> tuple[Any, jax.Array]:
        """The next state of the model, and the seconds float[W] of a unit, the number of which is in its key."""
        seconds, state = sample(state, jax.random.fold_in(rng_key, unit))
        return state, seconds

    return jax.lax.scan(sample_unit, initial_state, jnp.arange(num_units, dtype=jnp.int32))[1]
