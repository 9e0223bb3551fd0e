"""Checks the arguments that a config file gives to a factory against the factory's annotations."""

import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Union, get_args, get_origin

import jax
import numpy as np
import optax

# Types that errors do not name, since config files cannot write their values.
_NOT_IN_CONFIGS = (jax.Array, np.ndarray, np.bool_, np.number, complex)

_MAX_VALUE_TEXT = 200  # characters of a value in an error

GIVEN_BY_COMMAND = ("out", "progress")
"""Parameters of experiments that the command gives, and no config."""


class _Literal(NamedTuple):
    """A type that config files write as it is.

    Attributes:
      words: what errors call it.
      how_to_write: what to do about a value of one of the types `mistaken_for`, which is only written wrongly.
      mistaken_for: as said.
      example: what to do about any other value; may be empty.
    """

    words: str
    how_to_write: str
    mistaken_for: tuple[type, ...]
    example: str


_LITERAL_OF_TYPE: dict[Any, _Literal] = {
    float: _Literal(
        "a number", "Write it without quotes, as in 0.5; 1e999 is infinity.", (str,), "Write one, as in 0.5."
    ),
    int: _Literal(
        "a whole number", "Write it without quotes and without a point, as in 3.", (str, float), "Write one, as in 3."
    ),
    bool: _Literal("True or False", "Write it without quotes.", (str,), ""),
    str: _Literal("a text", "Write it in quotes, as in 'text'.", (int, float), "Write one, as in 'text'."),
}


def with_checked_arguments(factory: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wraps a factory so that a missing or wrongly typed argument is a `ValueError` that says what to write.

    The wrapper has the parameters of the factory, except that `*items` becomes an ordinary parameter `items`
    that takes a list: config files know only named parameters.

    Args:
      factory: the function to call.
      name: what the user calls it.
    """
    signature = signature_of(factory)
    starred_parameters = [p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL]

    def call(*args: Any, **kwargs: Any) -> Any:
        """What `factory` returns for these arguments, once they fit its `signature`; `name` is for errors."""
        for parameter in starred_parameters:  # at most one, whose list becomes positional arguments again
            args += _starred_arguments(f"{name}.{parameter}", kwargs.pop(parameter, ()))
        _check_arguments(name, signature, args, kwargs)
        return factory(*args, **kwargs)

    call.__name__, call.__doc__, call.__module__ = name, factory.__doc__, factory.__module__
    call.__signature__ = _keyword_signature(signature)  # type: ignore[attr-defined]
    return call


def _starred_arguments(parameter: str, value: Any) -> tuple[Any, ...]:
    """The list that a config gives for a parameter `*items`, as a tuple; a `ValueError` if it is no list."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{parameter} must be a list; got {value!r:.200}. Write [ ] around it.")
    return tuple(value)


def accepts(annotation: Any, value: Any) -> bool:
    """Whether a value fits an annotation; an annotation that says nothing of the type fits all."""
    accepted_types = types_of_union(annotation)
    if len(accepted_types) > 1:
        return any(accepts(accepted_type, value) for accepted_type in accepted_types)
    if annotation is None or annotation is type(None):
        return value is None
    if annotation is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return _is_instance_or_unknown(value, annotation)
    return _accepts_generic(get_origin(annotation), get_args(annotation), value)


def _accepts_generic(origin: Any, type_arguments: tuple[Any, ...], value: Any) -> bool:
    """Whether a value fits the annotation `origin[type_arguments]`, such as `dict[str, int]`; any fits an unknown one.

    Of a list or a tuple all items are to be of the first of the types; a text is a sequence of texts only.
    """
    if origin is Callable:
        return callable(value)
    if not isinstance(origin, type):
        return True
    if isinstance(value, dict) and issubclass(origin, Mapping) and len(type_arguments) == 2:
        key_type, item_type = type_arguments
        return all(accepts(key_type, key) and accepts(item_type, item) for key, item in value.items())
    if isinstance(value, (list, tuple)) and issubclass(origin, Sequence) and type_arguments:
        return all(accepts(type_arguments[0], item) for item in value)
    if isinstance(value, str) and type_arguments and not accepts(type_arguments[0], value):
        return False
    return _is_instance_or_unknown(value, origin)


def _is_instance_or_unknown(value: Any, annotation: type) -> bool:
    """Whether a value is of a type; true where that cannot be checked at run time (Any, a TypedDict, a Protocol)."""
    try:
        return isinstance(value, annotation)
    except TypeError:
        return True


def types_of_union(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, `X | Y` or `Optional[X]`, or the one type."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _names_of_types(annotation: Any) -> str:
    """An annotation in words, without the types that a config file cannot write; with them if there is no other."""
    accepted_types = types_of_union(annotation)
    writable_types = [accepted_type for accepted_type in accepted_types if accepted_type not in _NOT_IN_CONFIGS]
    if not set(writable_types) - {types.NoneType}:
        writable_types = list(accepted_types)
    type_names = [
        getattr(writable_type, "__name__", str(writable_type))
        if get_origin(writable_type) is None
        else str(writable_type)
        for writable_type in writable_types
    ]
    return " or ".join("None" if type_name == "NoneType" else type_name for type_name in type_names)


def short_type_text(annotation: Any) -> str:
    """An annotation in words, where types are named without their modules, and Callables without their types."""
    names = re.sub(r"(?:\w+\.)+(\w+)", r"\1", _names_of_types(annotation)).replace(" or ", " | ")  # without modules
    return re.sub(r"Callable\[.*\]", "Callable", names)


def signature_of(factory: Callable[..., Any]) -> inspect.Signature:
    """The signature of a factory, with annotations that are text evaluated; what a class returns is the class.

    A class has no `__globals__`: of its annotations that are text only built-in names are found, others become empty.
    """
    signature = inspect.signature(factory)
    module_globals = getattr(inspect.unwrap(factory), "__globals__", {})

    def evaluated(annotation: Any) -> Any:
        """The type that an annotation stands for, as text by `module_globals`; empty if its name is not there."""
        try:
            return eval(annotation, module_globals) if isinstance(annotation, str) else annotation
        except Exception:  # a name that is there for type checkers only
            return inspect.Parameter.empty

    parameters = [p.replace(annotation=evaluated(p.annotation)) for p in signature.parameters.values()]
    return_type = factory if inspect.isclass(factory) else evaluated(signature.return_annotation)
    return signature.replace(parameters=parameters, return_annotation=return_type)


def _keyword_signature(signature: inspect.Signature) -> inspect.Signature:
    """The signature with `*items` turned into a keyword parameter `items` (default: nothing)."""
    parameters = [
        parameter.replace(kind=parameter.KEYWORD_ONLY, default=())
        if parameter.kind is parameter.VAR_POSITIONAL
        else parameter
        for parameter in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def _check_arguments(name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Checks the arguments of the factory that a user calls `name`.

    Raises:
      ValueError: if an argument is missing, unknown, of another type than annotated, or too large a number.
    """
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise ValueError(f"{name}: {error}. {_required_parameters_sentence(signature)}") from None
    for parameter, value in ((signature.parameters[key], value) for key, value in arguments.items()):
        for item in value if parameter.kind is parameter.VAR_POSITIONAL else (value,):  # of `*items` each by itself
            is_annotated = parameter.annotation is not parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
            if is_annotated and not accepts(parameter.annotation, item):
                _raise_wrong_type(f"{name}.{parameter.name}", parameter.annotation, item)
            _check_fits_64_bits(f"{name}.{parameter.name}", item)


def _check_fits_64_bits(parameter: str, value: Any) -> None:
    """Raises `ValueError` if a whole number, also in a list, has more bits than NumPy and JAX can compute with."""
    if type(value) is int and not -(2**63) <= value < 2**63:
        value_text = str(value) if abs(value) < 10**30 else f"a number of {value.bit_length()} bits"
        raise ValueError(
            f"{parameter} must fit into 64 bits, so be below 2**63; got {value_text}. Take a smaller number."
        )
    for item in value if type(value) in (list, tuple) else ():
        _check_fits_64_bits(parameter, item)


def _raise_wrong_type(parameter: str, annotation: Any, value: Any) -> None:
    """Raises `ValueError` with what does not fit: the first such entry of a dict, an uncalled function, or the value.

    `parameter` is its full name, "name.parameter"; `annotation` what it should have been.
    """
    if isinstance(value, dict) and get_origin(annotation) is dict:
        item_type = get_args(annotation)[1]
        for key, item in value.items():
            if not accepts(item_type, item):
                _raise_wrong_type(f"{parameter}[{key!r}]", item_type, item)
    is_uncalled_function = inspect.isroutine(value) or inspect.isclass(value)
    if is_uncalled_function:
        value_text = f"the function {getattr(value, '__name__', value)} itself"
        hint = " Write () behind the name, so that it is called."
    elif callable(value) and hasattr(value, "__wrapped__"):
        value_text, hint = f"a function, {getattr(value, '__name__', value)}", ""
    elif type(value).__module__.startswith("gcjax."):
        value_text, hint = f"a {type(value).__name__}", ""
    else:
        is_long = len(repr(value)) > _MAX_VALUE_TEXT
        type_name = type(value).__name__
        value_text = f"a {type_name}" if is_long else f"{value!r} ({type_name})"
        hint = _how_to_write(annotation, value)
    raise ValueError(f"{parameter} must be {_type_in_words(annotation)}; got {value_text}.{hint}")


def _type_in_words(annotation: Any) -> str:
    """As `short_type_text`, with "a number" for float and the like."""
    words_of_name = {literal_type.__name__: literal.words for literal_type, literal in _LITERAL_OF_TYPE.items()}
    if optax.Schedule in types_of_union(annotation):
        words_of_name["Callable"] = "a schedule, as @cosine_decay_schedule()"
    return " or ".join(words_of_name.get(name, name) for name in short_type_text(annotation).split(" | "))


def _how_to_write(annotation: Any, value: Any) -> str:
    """The end of an error: how a config file writes a value of this type, for the first of its types that it knows.

    Numbers, texts and truth values are written as they are; what a factory makes is named, as `@name()`. A
    `value` is written wrongly, or it is something else altogether.
    """
    for accepted_type in types_of_union(annotation):
        if accepted_type in _LITERAL_OF_TYPE:
            literal = _LITERAL_OF_TYPE[accepted_type]
            is_mistaken = isinstance(value, literal.mistaken_for) and not isinstance(value, bool)
            return f" {literal.how_to_write if is_mistaken else literal.example}".rstrip()
        if get_origin(accepted_type) is dict:
            return " Write names in front, in { }, as in {'name': value}."
        package = getattr(accepted_type, "__module__", "").partition(".")[0]
        if package in ("gcjax", "optax"):
            return " Name one, as @name(); gcjax list shows them."
    return ""


def required_parameters(signature: inspect.Signature) -> list[str]:
    """The parameters that a config must bind: those without a default but `*args`, `**kwargs`, `GIVEN_BY_COMMAND`."""
    return [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and parameter.name not in GIVEN_BY_COMMAND
    ]


def _required_parameters_sentence(signature: inspect.Signature) -> str:
    """The end of an error: the parameters that must be given."""
    required = required_parameters(signature)
    return f"It needs {', '.join(required)}." if required else "It needs nothing."
