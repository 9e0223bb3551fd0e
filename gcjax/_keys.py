"""JAX's random keys among other arrays: those of the new kind, which have a type of their own."""

from typing import Any

import jax


def is_key(value: Any) -> bool:
    """Whether it is an array of random keys, or the shape and dtype of one (`jax.ShapeDtypeStruct`)."""
    return hasattr(value, "dtype") and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def without_key_type(array: Any) -> Any:
    """The array; of random keys, the integers behind them."""
    return jax.random.key_data(array) if is_key(array) else array
