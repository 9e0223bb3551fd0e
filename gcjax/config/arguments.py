"""Checks the arguments that a config file gives to a factory against the factory's annotations."""

import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union, get_args, get_origin

import jax
import numpy as np

_HIDDEN = (jax.Array, np.ndarray, np.bool_, np.number, complex)


def with_checked_arguments(factory: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wraps a factory so that a missing or wrongly typed argument is a `ValueError` that says what to write.

    The wrapper has the parameters of the factory, except that `*items` becomes an ordinary parameter `items`
    that takes a list: config files know only named parameters.

    Args:
      factory: the function to call.
      name: what the user calls it.
    """
    signature = signature_of(factory)
    starred = [p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL]

    def call(*args: Any, **kwargs: Any) -> Any:
        for parameter in starred:
            args += _items(f"{name}.{parameter}", kwargs.pop(parameter, ()))
        _check_arguments(name, signature, args, kwargs)
        return factory(*args, **kwargs)

    call.__name__, call.__doc__, call.__module__ = name, factory.__doc__, factory.__module__
    call.__signature__ = _keyword_signature(signature)  # type: ignore[attr-defined]
    return call


def _items(parameter: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{parameter} must be a list; got {value!r:.200}. Write [ ] around it.")
    return tuple(value)


def accepts(wanted: Any, value: Any) -> bool:
    """Whether a value fits an annotation; what an annotation leaves open, fits."""
    members = alternatives(wanted)
    if len(members) > 1:
        return any(accepts(member, value) for member in members)
    if wanted is None or wanted is type(None):
        return value is None
    if wanted is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(wanted, type) and get_origin(wanted) is None:
        return _is(value, wanted)
    return _accepts_generic(get_origin(wanted), get_args(wanted), value)


def _accepts_generic(origin: Any, args: tuple[Any, ...], value: Any) -> bool:
    """Whether a value fits `origin[args]`, such as `dict[str, int]`."""
    if origin is Callable:
        return callable(value)
    if not isinstance(origin, type):
        return True
    if isinstance(value, dict) and issubclass(origin, Mapping) and len(args) == 2:
        return all(accepts(args[0], k) and accepts(args[1], v) for k, v in value.items())
    if isinstance(value, (list, tuple)) and issubclass(origin, Sequence) and args:
        return all(accepts(args[0], item) for item in value)
    return _is(value, origin)


def _is(value: Any, wanted: type) -> bool:
    try:
        return isinstance(value, wanted)
    except TypeError:  # not for checks at run time: Any, a TypedDict, a typing.Protocol
        return True


def alternatives(wanted: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    return get_args(wanted) if get_origin(wanted) in (Union, types.UnionType) else (wanted,)


def describe(wanted: Any) -> str:
    """An annotation in words, without the types that a config file cannot write."""
    shown = [m for m in alternatives(wanted) if m not in _HIDDEN] or [wanted]
    names = [getattr(m, "__name__", str(m)) if get_origin(m) is None else str(m) for m in shown]
    return " or ".join("None" if name == "NoneType" else name for name in names)


def in_short(annotation: Any) -> str:
    """An annotation without the modules that its types are in."""
    names = re.sub(r"(?:\w+\.)+(\w+)", r"\1", describe(annotation)).replace(" or ", " | ")
    return re.sub(r"Callable\[.*\]", "Callable", names)


def signature_of(factory: Callable[..., Any]) -> inspect.Signature:
    """The signature with the annotations evaluated, where that is possible outside a type checker."""
    signature = inspect.signature(factory)
    names = getattr(inspect.unwrap(factory), "__globals__", {})

    def evaluated(annotation: Any) -> Any:
        try:
            return eval(annotation, names) if isinstance(annotation, str) else annotation
        except Exception:  # a name that is there for type checkers only
            return inspect.Parameter.empty

    parameters = [p.replace(annotation=evaluated(p.annotation)) for p in signature.parameters.values()]
    returned = factory if inspect.isclass(factory) else evaluated(signature.return_annotation)
    return signature.replace(parameters=parameters, return_annotation=returned)


def _keyword_signature(signature: inspect.Signature) -> inspect.Signature:
    """The signature with `*items` turned into a keyword parameter `items` (default: nothing)."""
    kinds = inspect.Parameter
    changed = [
        p.replace(kind=kinds.KEYWORD_ONLY, default=()) if p.kind is kinds.VAR_POSITIONAL else p
        for p in signature.parameters.values()
    ]
    return signature.replace(parameters=changed)


def _check_arguments(name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises `ValueError` if an argument is missing, unknown, of another type, or too large a number."""
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise ValueError(f"{name}: {error}. {_usage(name, signature)}") from None
    for parameter, value in ((signature.parameters[key], value) for key, value in arguments.items()):
        for item in value if parameter.kind is parameter.VAR_POSITIONAL else (value,):
            if parameter.kind is not parameter.VAR_KEYWORD and not _fits(parameter.annotation, item):
                _raise_wrong_type(f"{name}.{parameter.name}", parameter.annotation, item)
            _check_bits(f"{name}.{parameter.name}", item)


def _check_bits(parameter: str, value: Any) -> None:
    """Whole numbers, also in lists, must be such as NumPy and JAX can compute with."""
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise ValueError(
            f"{parameter} must fit into 64 bits, so be below 2**63; got {_digits(value)}. Take a smaller number."
        )
    for item in value if type(value) in (list, tuple) else ():
        _check_bits(parameter, item)


def _digits(value: int) -> str:
    return str(value) if abs(value) < 10**30 else f"a number of {value.bit_length()} bits"


def _fits(wanted: Any, value: Any) -> bool:
    return wanted is inspect.Parameter.empty or accepts(wanted, value)


def _raise_wrong_type(parameter: str, wanted: Any, value: Any) -> None:
    """Raises `ValueError` with what does not fit: an entry of a dict, a function that was not called, a value."""
    if isinstance(value, dict) and get_origin(wanted) is dict:
        for key, item in value.items():
            if not accepts(get_args(wanted)[1], item):
                _raise_wrong_type(f"{parameter}[{key!r}]", get_args(wanted)[1], item)
    if callable(value) and not isinstance(value, tuple):
        shown = f"the function {getattr(value, '__name__', value)} itself"
        hint = " Write () behind the name, so that it is called."
    elif type(value).__module__.startswith("gcjax."):
        shown, hint = f"a {type(value).__name__}", ""
    else:
        shown, hint = f"{value!r:.200} ({type(value).__name__})", ""
    raise ValueError(f"{parameter} must be {describe(wanted)}; got {shown}.{hint}")


def _usage(name: str, signature: inspect.Signature) -> str:
    single = [p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    required = [p.name for p in single if p.default is p.empty]
    return f"It needs {', '.join(required)}." if required else "It needs nothing."
