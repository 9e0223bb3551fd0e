"""What is in a rule, and what its functions return: checked once, before a schedule is made by it; nothing is compiled.

Letters: W workers, E commits, C contributions to a commit.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, cast

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.protocols.simulation.rules import Rule, counts_of, first_view
from gcjax.wording import RAISED_IN

_MISSING_VALUE_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)

_RETURNED_FOR_MESSAGE = {
    "commits": "bool[]", "accepts": "bool[]", "postpones": "int32[]", "takes": "bool[W]", "cuts_off": "bool[W]",
}  # fmt: skip
"""What the functions `(view, worker)` return; where it is `[W]`, one value for all workers will do."""

_RETURNED_FOR_VIEW = {
    "ready": "bool[W]", "pulls": "bool[W]", "num_units": "int32[W]", "alarm": "float[]", "turn_seconds": "float[W]",
    "code_row": "int32[W]", "stop": "float[]",
}  # fmt: skip
"""What the functions `(view)` return."""

_KINDS = {"bool": (np.bool_,), "int32": (np.integer,), "float": (np.floating, np.integer)}
"""The types of arrays that will do for each of these."""


def check_rule(rule: Rule, num_workers: int, num_commits: int, dtype: Any) -> None:
    """Checks the numbers of a rule, and the shapes and types of what its functions return.

    `remember_unit` is looked at where the server stops turns, since nobody asks it elsewhere.

    Args:
      rule: of anybody.
      num_workers: W.
      num_commits: E.
      dtype: of times.

    Raises:
      ValueError: that names the field.
    """
    _validate.whole("num_contributions of a Rule", rule.num_contributions, minimum=1)
    if not callable(rule.num_units):
        _validate.whole("num_units of a Rule", rule.num_units, minimum=1)
    _check_weight(rule.weight, (num_commits, int(rule.num_contributions)))
    memory_of = partial(_function(rule, "memory", "(num_workers, dtype) -> memory"), num_workers, dtype)
    _returned("memory", memory_of)
    view = jax.eval_shape(lambda: first_view(rule, jnp.ones(num_workers, bool), dtype))
    view = view._replace(counts=jax.eval_shape(counts_of, view))
    if rule.stop is not None:
        view = view._replace(progress=view.clock, stopped=view.idle)
    worker = jax.ShapeDtypeStruct((), jnp.int32)
    for name, expected in _RETURNED_FOR_MESSAGE.items():
        _check_function(rule, name, f"(view, worker) -> {expected}", view, worker)
    for name, expected in _RETURNED_FOR_VIEW.items():
        if name != "num_units" or callable(rule.num_units):
            _check_function(rule, name, f"(view) -> {expected}", view)
    for name in ("remember", "remember_unit") if rule.stop is not None else ("remember",):
        remember = _function(rule, name, "(view, worker) -> memory")
        _check_memory(name, view.memory, _returned(name, remember, view, worker))


def _function(rule: Rule, name: str, signature: str) -> Callable[..., Any]:
    """The function of a rule in the field `name`; a `ValueError` if it is none."""
    function = getattr(rule, name)
    if not callable(function):
        raise ValueError(f"{name} of a Rule must be a function {signature}; got {function!r:.200}.")
    return cast(Callable[..., Any], function)


def _check_function(rule: Rule, name: str, signature: str, view: Any, *worker: Any) -> None:
    """Checks what the function in the field `name` returns for a view, and a worker, if the rule has one of its own."""
    if getattr(rule, name) is Rule._field_defaults[name]:  # also None
        return
    value = _returned(name, _function(rule, name, signature), view, *worker)
    expected, num_workers = signature.rpartition(" ")[2], view.idle.size
    kind, _, axis = expected.rstrip("]").partition("[")
    if not _has_kind(value, kind) or value.shape not in ((), (num_workers,) if axis else ()):
        _raise_wrong_value(name, f"{expected} with W={num_workers}" if axis else expected, value)


def _check_weight(weight: Any, shape: tuple[int, int]) -> None:
    """Checks a weight: a number, or what a function returns for contributions of the shape (E, C)."""
    if not callable(weight):
        if isinstance(weight, (str, bytes)):
            raise ValueError(
                "weight of a Rule must be a number, or a function (staleness, work) -> float[..., C]; got "
                f"{weight!r:.200}."
            )
        _validate.single_number("weight of a Rule", weight, finite=True)
        return
    counts = jax.ShapeDtypeStruct(shape, jnp.int32)
    value = _returned("weight", weight, counts, counts)
    fits = _has_kind(value, "float") and len(value.shape) <= len(shape)
    sizes = value.shape[::-1] if fits else ()  # the last axis first, as shapes are broadcast
    if not fits or any(size not in (1, of_all) for size, of_all in zip(sizes, shape[::-1], strict=False)):
        _raise_wrong_value("weight", f"float[..., C] or float[..., 1] for arrays [..., C], here {list(shape)}", value)


def _check_memory(name: str, memory: Any, remembered: Any) -> None:
    """Raises a `ValueError` unless what the function `name` returns can take the place of the memory, leaf by leaf."""
    memory = jax.tree.map(jax.typeof, memory)
    structure: Any = jax.tree.structure(memory)
    has_structure = structure == jax.tree.structure(remembered)
    if not has_structure or not all(map(_can_replace, jax.tree.leaves(memory), jax.tree.leaves(remembered))):
        _raise_wrong_value(name, f"what it gets as `view.memory`, {_text(memory)}", remembered)


def _can_replace(old: Any, new: Any) -> bool:
    """Whether an array of the memory can become `new`: shape and type stay; a number of Python has no type yet."""
    if not _is_array(new) or new.shape not in ((), old.shape):
        return False
    with jax.numpy_dtype_promotion("standard"):  # what another setting refuses, JAX says itself
        result = jax.eval_shape(lambda new, old: jnp.where(jnp.zeros((), bool), new, old), new, old)
    return bool(result.dtype == old.dtype or old.weak_type)


def _has_kind(value: Any, kind: str) -> bool:
    """Whether a value is an array, or a number, of one of the types for bool, int32 or float."""
    return _is_array(value) and any(jnp.issubdtype(value.dtype, dtype) for dtype in _KINDS[kind])


def _is_array(value: Any) -> bool:
    """Whether it is the shape and type of an array or a number, as `_type_of` gives them."""
    return hasattr(value, "dtype") and not isinstance(value, type)


def _returned(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function in the field `name` returns, of each array its shape and type only; nothing is computed.

    Raises:
      ValueError: if it asks for the values of arrays. What the function raises has a note with its name.
    """
    types = []

    def noting_types(*arguments: Any) -> None:
        """Calls the function, and notes the types in `types`."""
        types.append(jax.tree.map(_type_of, function(*arguments)))

    try:
        jax.eval_shape(noting_types, *arguments)
    except Exception as error:
        is_of_several_values = str(error).startswith("The truth value of an array")  # a ValueError
        if not isinstance(error, _MISSING_VALUE_ERRORS) and not is_of_several_values:
            error.add_note(f"{RAISED_IN}{name} of a Rule, for {_text(jax.tree.map(_type_of, arguments)):.300}.")
            raise
        raise ValueError(
            f"{name} of a Rule must not ask what the value of an array is, as Python's if, and, or, not, int() and "
            "functions of NumPy do: it is not known yet when JAX traces the rule. Write jnp.where(condition, a, b), "
            "and &, |, ~ or jnp.logical_and, logical_or, logical_not."
        ) from error
    return types[0]


def _type_of(value: Any) -> Any:
    """The shape and type of an array or a number; of anything else its class."""
    try:
        return jax.typeof(value)
    except TypeError:
        return type(value)


def _text(types: Any) -> str:
    """Types for an error, as in float32[4] or (int32[], bool[4])."""
    names = jax.tree.map(
        lambda leaf: leaf.__name__ if isinstance(leaf, type) else f"{leaf.dtype}{list(leaf.shape)}", types
    )
    return str(names).replace("'", "")


def _raise_wrong_value(name: str, expected: str, value: Any) -> NoReturn:
    """Raises the error for what the function in the field `name` returned, types in place of arrays."""
    raise ValueError(f"{name} of a Rule must return {expected}; it returned {_text(value):.300}.")
