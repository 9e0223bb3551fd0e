"""Checks of what a user passes in: one place, so that all errors read alike.

Every message says the rule, the value received and, where it helps, what to do. Values that are being traced
by JAX have no value yet and pass.
"""

import difflib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_INT32_MAX = 2**31 - 1  # of JAX's integers without 64 bits
_MAX_VALUE_TEXT = 200  # characters of a value in an error; a task's text is as long as its arrays


def is_traced(value: Any) -> bool:
    """Whether JAX is tracing a value, so that it has no concrete number yet."""
    return isinstance(value, jax.core.Tracer)


def integer(name: str, value: Any, *, minimum: int = 0, maximum: int | None = _INT32_MAX, hint: str = "") -> int:
    """Returns `value` as an int within the bounds (a maximum of None: any), or raises `ValueError`."""
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    is_too_large = is_integer and maximum is not None and value > maximum
    has_maximum_of_its_own = maximum not in (None, _INT32_MAX)
    bounds_text = f"at least {minimum}"
    if has_maximum_of_its_own or is_too_large:
        bounds_text = f"between {minimum} and {maximum}"
    if not is_integer or value < minimum or is_too_large:
        raise ValueError(f"{name} must be a whole number {bounds_text}; got {value!r}." + (f" {hint}" if hint else ""))
    return int(value)


def number(
    name: str,
    value: Any,
    *,
    minimum: float = 0.0,
    above: bool = False,
    maximum: float = math.inf,
    finite: bool = False,
) -> Any:
    """Checks every entry of a number or array against its bounds and returns `value` unchanged.

    Args:
      name: what the user calls it.
      value: a number, an array, or a traced value (which passes).
      minimum: the least value allowed.
      above: whether the minimum itself is excluded.
      maximum: the largest value allowed; `inf` allows infinity.
      finite: whether infinity is refused.
    """
    if is_traced(value):
        return value
    try:
        array = np.asarray(value, dtype=np.float64)
        entries = np.asarray(value, dtype=object).flat if isinstance(value, (tuple, list)) else (value,)
        is_read_as_number = any(entry is None or isinstance(entry, bool) for entry in entries)  # NaN, 0 or 1
        if is_read_as_number or np.asarray(value).dtype == bool:
            raise TypeError
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or an array of numbers; got {value!r}.") from None
    except OverflowError:
        raise ValueError(f"{name} must be a number that a float can be, or an array of such.") from None
    is_large_enough = array > minimum if above else array >= minimum
    is_finite_enough = np.isfinite(array) | (not finite)
    if not np.all(is_large_enough & (array <= maximum) & is_finite_enough):
        relation = "above" if above else "at least"
        upper_limit = (" and finite" if finite else "") if math.isinf(maximum) else f" and at most {maximum:g}"
        raise ValueError(f"{name} must be {relation} {minimum:g}{upper_limit}; got {shorten(array)}.")
    return value


def single_number(name: str, value: Any, **bounds: Any) -> Any:
    """As `number` (see there for the bounds), for a single number: sequences, arrays, text and booleans are refused."""
    if value is None or isinstance(value, (str, bytes, bool, tuple, list, dict)) or np.shape(value) != ():
        raise ValueError(f"{name} must be one number; got {value!r}.")
    return number(name, value, **bounds)


def sequence(name: str, value: Any) -> tuple[Any, ...]:
    """Returns the entries of a sequence or of an array with an axis, or raises `ValueError`, also for text."""
    if isinstance(value, (str, bytes)) or not (isinstance(value, Sequence) or np.ndim(value) > 0):
        raise ValueError(f"{name} must be a sequence, as in (1, 2); got {value!r}.")
    return tuple(value)


def whole(name: str, value: Any, *, minimum: int = 0, maximum: int | None = _INT32_MAX, hint: str = "") -> Any:
    """Checks that every entry of a number or array is a whole number within the bounds; returns `value` unchanged.

    A value that JAX is tracing passes; the error is as that of `integer`.
    """
    if not is_traced(value):
        for entry in np.ravel(np.asarray(value)).tolist():
            integer(name, entry, minimum=minimum, maximum=maximum, hint=hint)
    return value


def probability(name: str, value: Any) -> Any:
    """Checks that every entry of a number or array lies in [0, 1], and returns it unchanged."""
    return number(name, value, minimum=0.0, maximum=1.0)


def choice(name: str, value: Any, options: Iterable[str]) -> str:
    """Returns `value` if it is one of the options, or raises `ValueError` with all of them, and a similar one."""
    options = sorted(options)
    if value in options:
        return value
    most_similar = difflib.get_close_matches(str(value), options, n=1)
    hint = f" Did you mean {most_similar[0]!r}?" if most_similar else ""
    raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}.{hint}")


def boolean(name: str, value: Any) -> bool:
    """Returns `value` as a bool, or raises `ValueError` if it is anything else."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False; got {value!r}.")
    return bool(value)


def rng_key(value: Any) -> Any:
    """Checks that a value is one JAX random key, of the new kind or the old (uint32[n]), and returns it unchanged."""
    dtype, shape = getattr(value, "dtype", None), np.shape(value) if hasattr(value, "dtype") else None
    is_typed_key = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key) and shape == ()
    is_raw_key = dtype == np.uint32 and shape is not None and len(shape) == 1
    if is_typed_key or is_raw_key:
        return value
    value_text = repr(value) if dtype is None else f"an array of shape {shape} and dtype {dtype}"
    raise ValueError(f"rng_key must be one JAX random key, for example jax.random.key(0); got {value_text}.")


def instance(name: str, value: Any, kind: type, example: str) -> None:
    """Raises a `ValueError` unless `value` is an instance of a type, for which the example is the text of a call."""
    if not isinstance(value, kind):
        raise _kind_error(name, value, f"a {kind.__name__}", example)


def optimizer(name: str, value: Any) -> Any:
    """Returns `value` if it is an optax optimizer, which is seen by its two functions, or raises `ValueError`."""
    has_functions = callable(getattr(value, "init", None)) and callable(getattr(value, "update", None))
    if not has_functions:
        raise _kind_error(name, value, "an optax.GradientTransformation", "optax.sgd(0.1)")
    return value


def _kind_error(name: str, value: Any, kind_text: str, example: str) -> ValueError:
    """The error for a value of another kind; of one with a long text its type only."""
    value_text, hint = repr(value), " Was the factory called?" if callable(value) else ""
    if len(value_text) > _MAX_VALUE_TEXT:
        value_text = f"a value of type {type(value).__name__}"
    return ValueError(f"{name} must be {kind_text}, for example {example}; got {value_text}.{hint}")


def optional_optimizers(**values: Any) -> None:
    """Checks those values that are not None with `optimizer`, each by its name."""
    for name, value in values.items():
        if value is not None:
            optimizer(name, value)


def durations(value: Any) -> Any:
    """Checks an array `[T, W]` of seconds, no NaN, nothing negative, and returns it as a JAX array.

    Types of 16 bits or less, in which times soon stop to grow, become float32. Of a traced array only the shape and the
    type are checked. Raises `ValueError`.
    """
    if not is_traced(value):
        try:
            value = value if isinstance(value, jax.Array) else np.asarray(value)
        except ValueError:
            raise ValueError(
                "durations must have as many units for each worker; got rows of several lengths."
            ) from None
    shape, dtype = np.shape(value), value.dtype
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"durations must have shape [T, W] with T, W >= 1; got shape {shape}. "
            "Make them with gcjax.stragglers.sample_durations."
        )
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"durations must be floating point seconds; got dtype {dtype}.")
    is_too_coarse_for_times = dtype.itemsize < np.dtype(np.float32).itemsize
    if is_too_coarse_for_times:
        value = value.astype(jnp.float32)
    if is_traced(value):
        return value
    host_array = np.asarray(value)
    is_bad = np.isnan(host_array) | (host_array < 0)
    if is_bad.any():
        first_bad_unit, first_bad_worker = np.argwhere(is_bad)[0]
        raise ValueError(
            "durations must be seconds >= 0, and inf for a failed worker; got "
            f"{host_array[first_bad_unit, first_bad_worker]} for unit {first_bad_unit} of worker {first_bad_worker} "
            f"({int(is_bad.sum())} bad values in all)."
        )
    dtype_of_jax = jax.dtypes.canonicalize_dtype(host_array.dtype)
    most_seconds = np.finfo(dtype_of_jax).max
    if (np.isfinite(host_array) & (host_array > most_seconds)).any():
        raise ValueError(
            f"durations of {dtype_of_jax} must be at most {most_seconds:.3g} s, or inf for a failed worker; got "
            f"{host_array[np.isfinite(host_array)].max():g}. Set jax_enable_x64 for longer ones."
        )
    return jnp.asarray(value, dtype_of_jax)


def hint_if_transposed(shape: tuple[int, ...], num_workers: int | None = None) -> str:
    """A sentence for an error about durations [T, W] that look like [W, T]; empty if they do not.

    Args:
      shape: of the durations.
      num_workers: how many rows they would then have; if None, they look so if they have fewer units than workers.
    """
    num_rows, num_columns = shape
    has_fewer_units_than_workers = num_rows < num_columns
    has_a_row_for_each_worker = num_rows == num_workers != num_columns
    looks_transposed = has_fewer_units_than_workers if num_workers is None else has_a_row_for_each_worker
    if not looks_transposed:
        return ""
    return (
        f" Durations are [T, W]: these are {num_rows} units of {num_columns} workers. If they should be {num_columns} "
        f"units of {num_rows} workers, pass them transposed, durations.T."
    )


def shorten(array: np.ndarray) -> str:
    """The numbers of an array for an error, without the middle of a long one."""
    return f"{array.item():g}" if array.ndim == 0 else np.array2string(array, threshold=8, precision=6)
