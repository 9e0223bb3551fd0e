"""Equal arguments make equal objects: the functions that a factory returns compare by what they were made from.

JAX compiles anew for functions that are not equal, and two closures never are. So a factory is marked,

    @comparable
    def ssp(*, staleness): ...

and `ssp(staleness=3) == ssp(staleness=3)`: written inline, in a loop or in a config, it compiles nothing twice. For a
factory of another library: `sgd = gcjax.comparable(optax.sgd)`.
"""

import copy
import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable, Hashable, Iterator
from pathlib import PurePath
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from gcjax import _validate
from gcjax._keys import is_key

_P = ParamSpec("_P")
_T = TypeVar("_T")


# Types that compare by value, or never change. An argument of another type may, and then nothing is comparable.
_IMMUTABLE_TYPES = (type(None), bool, int, str, bytes, range, type, enum.Enum, np.dtype, PurePath, functools.partial)


class PureFunction:
    """A function that equals those of other calls of its factory with equal arguments.

    Attributes:
      compared_by: the factory, its arguments and the type of floats; and the path to the function in what it returned.
      arguments_compare_by_value: of the factory, all of them; a closure equals only itself. If not, a factory that
        returns this function wraps it anew.
    """

    def __init__(self, function: Callable[..., Any], compared_by: Hashable, arguments_compare_by_value: bool) -> None:
        """Wraps a function; it compares by `compared_by`: its factory, the factory's arguments, and its path.

        The path leads from what the factory returned to the function. `arguments_compare_by_value`: whether all of the
        factory's do.
        """
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", "function")
        self.__doc__ = function.__doc__
        self.compared_by, self._hash = compared_by, hash(compared_by)
        self.arguments_compare_by_value = arguments_compare_by_value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns."""
        return self.__wrapped__(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        """Whether the other is the same function of the same factory, with equal arguments."""
        return isinstance(other, PureFunction) and self._hash == other._hash and self.compared_by == other.compared_by

    def __hash__(self) -> int:
        """Of the factory, its arguments and the path to the function in what it returned."""
        return self._hash

    def __repr__(self) -> str:
        """The function's own."""
        return repr(self.__wrapped__)


def comparable(factory: Callable[_P, _T]) -> Callable[_P, _T]:
    """Marks a factory: what it makes from equal arguments is equal.

    Its functions, also those inside of named tuples, frozen dataclasses, lists and dicts that it returns, compare by
    the factory, its arguments and the path to them. Arrays among the arguments compare by their type, shape and bits,
    functions as they do anyway. Arguments that JAX is tracing, or objects that may change, leave everything as it is.
    Objects made with 64-bit types switched on equal none that were made without. The factory gets copies of NumPy
    arrays, lists and dicts, so that what happens to them later changes nothing.

    Args:
      factory: a function whose result depends on nothing but its arguments.

    Example:
      >>> gcjax.protocols.ssp(staleness=3) == gcjax.protocols.ssp(staleness=3)
      True
      >>> sgd = gcjax.comparable(optax.sgd)
      >>> sgd(0.1) == sgd(0.1), optax.sgd(0.1) == optax.sgd(0.1)
      (True, False)
    """
    signature = inspect.signature(factory)

    @functools.wraps(factory)
    def comparing(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        """What the factory makes, with functions that compare by the call of the factory if the arguments allow it.

        They do not if one may change or is being traced. The type of floats tells calls with 64-bit types from others.
        """
        result = factory(*map(_copy, args), **{name: _copy(value) for name, value in kwargs.items()})
        bound_arguments = signature.bind(*args, **kwargs)
        bound_arguments.apply_defaults()
        arguments = bound_arguments.arguments
        float_type = jax.dtypes.canonicalize_dtype("float64").name
        try:
            factory_call = (factory, as_hashable(arguments), float_type)
            hash(factory_call)
        except TypeError:
            return result
        arguments_compare_by_value = not any(map(_equals_only_itself, _iterate_leaves(arguments)))
        return _with_comparable_functions(result, factory_call, arguments_compare_by_value, path_in_result=())

    return comparing


def _with_comparable_functions(
    value: Any, factory_call: Hashable, arguments_compare_by_value: bool, path_in_result: tuple[Hashable, ...]
) -> Any:
    """The value, where every closure in tuples, frozen dataclasses, lists and dicts is now a `PureFunction`.

    Args:
      value: what a factory returned, or a part of it.
      factory_call: the factory and its arguments.
      arguments_compare_by_value: whether the arguments of the factory all compare by value.
      path_in_result: the fields, indices and keys from what the factory returned to this part.
    """

    def part_with_comparable_functions(part: Any, field_index_or_key: Hashable) -> Any:
        """The same for a part of the value."""
        path_of_part = (*path_in_result, field_index_or_key)
        return _with_comparable_functions(part, factory_call, arguments_compare_by_value, path_of_part)

    fields = _fields_of(value)
    if fields is not None:
        return _with_fields(value, {name: part_with_comparable_functions(part, name) for name, part in fields.items()})
    if type(value) in (list, tuple):
        return type(value)(part_with_comparable_functions(item, index) for index, item in enumerate(value))
    if type(value) is dict:
        return {key: part_with_comparable_functions(item, key) for key, item in value.items()}
    return (
        PureFunction(value, (factory_call, path_in_result), arguments_compare_by_value)
        if _equals_only_itself(value)
        else value
    )


def _copy(value: Any) -> Any:
    """A copy of NumPy arrays, lists and dicts, which could be changed later, at any depth; anything else as it is."""
    if type(value) is np.ndarray:
        return value.copy()
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    if type(value) is list:
        return list(map(_copy, value))
    fields = _fields_of(value)
    if fields is not None:
        return _with_fields(value, {name: _copy(part) for name, part in fields.items()})
    if isinstance(value, tuple):
        copies = tuple(map(_copy, value))
        is_unchanged = all(copy is item for copy, item in zip(copies, value, strict=True))
        return value if is_unchanged else copies
    return value


def _fields_of(value: Any) -> dict[str, Any] | None:
    """Name -> value of the fields of a named tuple or a frozen dataclass; None of any other value."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: getattr(value, name) for name in value._fields}
    if _is_of_dataclass(value) and value.__dataclass_params__.frozen:
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _with_fields(value: Any, fields: dict[str, Any]) -> Any:
    """The value with these fields, all that `_fields_of` gives, made without its `__init__`; itself if none changes."""
    if all(part is getattr(value, name) for name, part in fields.items()):
        return value
    if isinstance(value, tuple):
        return value._make(fields.values())  # type: ignore[attr-defined]
    new_value = copy.copy(value)
    for name, part in fields.items():
        object.__setattr__(new_value, name, part)
    return new_value


def _is_of_dataclass(value: Any) -> bool:
    """Whether a value is an object of a dataclass, and no dataclass itself."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _equals_only_itself(value: Any) -> bool:
    """Whether a value is a function that equals no other: defined in another one, of an object, or a partial.

    A `PureFunction` counts as one if its factory was given one.
    """
    if isinstance(value, PureFunction):
        return not value.arguments_compare_by_value
    if inspect.ismethod(value):
        return not inspect.isclass(value.__self__)
    is_defined_in_function = inspect.isfunction(value) and "<locals>" in value.__qualname__
    return is_defined_in_function or isinstance(value, functools.partial)


def _iterate_leaves(value: Any) -> Iterator[Any]:
    """The values in lists, tuples, dicts and frozen dataclasses, at any depth; of another value, that alone."""
    fields = _fields_of(value)
    if fields is not None:
        value = fields
    if isinstance(value, dict):
        value = tuple(value.values())
    if not isinstance(value, (list, tuple)):
        yield value
        return
    for item in value:
        yield from _iterate_leaves(item)


def as_hashable(value: Any) -> Hashable:
    """Something with a hash, immutable, that is equal for equal values of the same types.

    Raises:
      TypeError: if there is no such thing, since the value may change, or is being traced by JAX.
    """
    if _validate.is_traced(value):
        raise TypeError("a traced value has no bits")
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        return _array_as_hashable(value)
    if isinstance(value, dict):
        return type(value), tuple((key, as_hashable(item)) for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(as_hashable, value))
    if isinstance(value, (float, complex)):
        text_in_which_nan_equals_itself = repr(value)  # and 0.0 differs from -0.0
        return type(value), text_in_which_nan_equals_itself
    if _is_of_dataclass(value):
        fields = _fields_of(value)
        if fields is not None:
            return type(value), tuple(map(as_hashable, fields.values()))
    elif isinstance(value, (*_IMMUTABLE_TYPES, PureFunction)) or inspect.isroutine(value):
        return type(value), value
    raise TypeError(f"a {type(value).__name__} may change")


def _array_as_hashable(value: Any) -> Hashable:
    """The type, dtype, shape and bits of an array of JAX or NumPy, or of an array of JAX keys.

    Raises:
      TypeError: for arrays of Python objects, structured arrays and masked ones.
    """
    if is_key(value):
        return str(value.dtype), _array_as_hashable(jax.random.key_data(value))
    array = np.asarray(value)
    if array.dtype.hasobject or array.dtype.names or type(value) is np.ma.MaskedArray:
        raise TypeError(f"an array of {array.dtype} does not compare by its bits")
    is_weak = isinstance(value, jax.Array) and value.weak_type  # its type gives way to that of another operand
    dtype_and_byte_order = array.dtype.name, array.dtype.str
    return type(value).__name__, *dtype_and_byte_order, is_weak, array.shape, array.tobytes()
