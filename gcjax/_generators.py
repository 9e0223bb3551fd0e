"""NumPy's random generators, for what is drawn once, on the host and in float64."""

from typing import Any

import jax
import numpy as np

from gcjax import _validate


def generator_of_seed(seed: int) -> np.random.Generator:
    """The generator that a seed decides; a `ValueError` unless that is a whole number from 0 on."""
    return np.random.default_rng(_validate.integer("seed", seed, maximum=None))


def generator_of_key(rng_key: Any) -> np.random.Generator:
    """The generator that a JAX key decides, also while JAX is tracing; a `ValueError` if it is none."""
    _validate.rng_key(rng_key)
    with jax.ensure_compile_time_eval():
        return np.random.default_rng(np.asarray(jax.random.key_data(rng_key)).ravel().tolist())
