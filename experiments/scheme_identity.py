"""What the rows of a tuned scheme depend on, by value, so that other schemes of the same config do not count."""

import dataclasses
import enum
import functools
import hashlib
import inspect
import types
from pathlib import PurePath
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gcjax
from gcjax import config
from gcjax.engine.identity import run_identity
from gcjax.equality import PureFunction

_VALUES_OF_PYTHON = (type(None), bool, int, float, complex, str, range, enum.Enum, np.dtype, PurePath)


def scheme_identity(scheme: str, settings: Any) -> str:
    """What the rows of a scheme depend on: its settings by value, the versions, the hardware and settings of JAX.

    If something in the settings cannot be told by its value (an object that may change), the whole config stands for
    all of them.

    Args:
      scheme: its name.
      settings: all that the rows are made from: protocols, studies, models, arrays, in tuples, lists and dicts.
    """
    try:
        settings_text = f"settings = {hashlib.sha256(value_text(settings).encode()).hexdigest()}"
    except TypeError:
        settings_text = config.text()
    return run_identity(f"scheme = {scheme}\ngcjax {gcjax.__version__}\n{settings_text}")


def value_text(value: Any) -> str:
    """Text that is the same for equal values, in every process, and another one for others.

    Raises:
      TypeError: if there is no such text: the value compares by being the same object.
    """
    if isinstance(value, _VALUES_OF_PYTHON):
        return repr(value)
    if isinstance(value, (bytes, np.ndarray, np.generic, jax.Array)):
        return _array_text(value)
    if isinstance(value, PureFunction):
        return f"made by {value_text(value.compared_by)}"
    if any(vars(module).get(getattr(value, "__name__", ""), None) is value for module in (np, jnp)):
        return f"numpy.{value.__name__}"  # ufuncs have no name of their own
    if isinstance(value, functools.partial):
        return f"partial{value_text((value.func, value.args, value.keywords))}"
    if isinstance(value, dict):
        return f"dict{value_text(list(value.items()))}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__qualname__}({', '.join(map(value_text, value))})"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.repr}
        return f"{type(value).__qualname__}{value_text(fields)}"
    return _definition_text(value)


def _array_text(value: Any) -> str:
    """The type, the shape and a digest of the bits of an array, of a JAX key, or of bytes."""
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        return f"key {value.dtype} {_array_text(jax.random.key_data(value))}"
    array = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError("an array of Python objects does not compare by its bits")
    return f"{array.dtype}{list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()}"


def _definition_text(value: Any) -> str:
    """Where a function or a class is defined; of a function inside of another one also its code and what it refers to.

    Raises:
      TypeError: if it is neither, or a method of an object.
    """
    name = getattr(value, "__qualname__", None)
    if name is None or (inspect.ismethod(value) and not inspect.isclass(value.__self__)):
        raise TypeError(f"a {type(value).__name__} does not compare by its value")
    text = f"{getattr(value, '__module__', '')}.{name}"
    if "<" not in name:
        return text
    function = inspect.unwrap(value)
    if not inspect.isfunction(function):
        raise TypeError(f"{name} does not compare by its value")
    referred_to = inspect.getclosurevars(function).nonlocals
    return f"{text} {_code_digest(function.__code__)} {value_text((referred_to, function.__defaults__))}"


def _code_digest(code: types.CodeType) -> str:
    """A digest of what a function does, without the lines that it stands in."""
    constants = [_code_digest(x) if isinstance(x, types.CodeType) else repr(x) for x in code.co_consts]
    return hashlib.sha256(repr((code.co_code, code.co_names, constants)).encode()).hexdigest()
