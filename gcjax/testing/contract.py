"""How a contract is said to be broken, and what all the checks ask of functions."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from gcjax._generators import generator_of_key
from gcjax._keys import without_key_type

_T = TypeVar("_T")


class ContractError(AssertionError):
    """A scheme breaks its contract; the message is one sentence, and the smallest case that was seen."""


def require(holds: Any, sentence: str, case: str = "") -> None:
    """Raises a `ContractError` with the sentence and the case unless the condition holds."""
    if not holds:
        raise ContractError(f"{sentence}." + (f" Smallest case: {case}." if case else ""))


def call_or_fail(name: str, function: Callable[..., _T], *arguments: Any, case: str = "") -> _T:
    """The result of `function(*arguments)`; a `ContractError` if it raises an error or cannot be traced.

    Args:
      name: what to call the function in the error.
      function: of a scheme.
      *arguments: of the function.
      case: the case, in words.
    """
    try:
        return function(*arguments)
    except ContractError:
        raise
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError, jax.errors.UnexpectedTracerError) as error:
        first_line = str(error).strip().splitlines()[0]
        require(False, f"{name} must be a pure function of JAX arrays that can be traced; it raised {first_line}", case)
    except Exception as error:
        first_line = (str(error).strip() or repr(error)).splitlines()[0].rstrip(".")
        require(False, f"{name} must take what its contract says; it raised {type(error).__name__}: {first_line}", case)
    raise AssertionError("unreachable")


def check_refusal(name: str, function: Callable[..., Any], *arguments: Any, case: str) -> None:
    """Raises a `ContractError` unless the function refuses its arguments, the `case` in words, with a `ValueError`."""
    try:
        function(*arguments)
    except ValueError:
        return
    except Exception as error:
        require(False, f"{name} must refuse {case} with a ValueError; it raised {type(error).__name__}")
    require(False, f"{name} must refuse {case} with a ValueError; it took it")


class TracedProgram:
    """A function as one program, and how often it was traced."""

    def __init__(self, function: Callable[..., Any]):
        """Compiles nothing yet; `num_traces` counts up with each trace."""
        self.num_traces = 0
        self._function = function
        self._program = jax.jit(self._count_and_call)

    def _count_and_call(self, *arguments: Any) -> Any:
        """The function itself; runs once for each time that it is traced."""
        self.num_traces += 1
        return self._function(*arguments)

    def __call__(self, *arguments: Any) -> Any:
        """The result of the program."""
        return self._program(*arguments)


def random_generator(rng_key: jax.Array | None) -> np.random.Generator:
    """A numpy generator for the random cases; the same for the same key, and without one."""
    return np.random.default_rng(0) if rng_key is None else generator_of_key(rng_key)


def same(left: Any, right: Any) -> bool:
    """Whether two pytrees are the same, bit by bit."""
    left_leaves, right_leaves = jax.tree.leaves(left), jax.tree.leaves(right)
    return len(left_leaves) == len(right_leaves) and all(map(_same_bits, left_leaves, right_leaves))


def _same_bits(left: Any, right: Any) -> bool:
    """Whether two arrays, or two JAX keys, have the same type, shape and bits."""
    left, right = (np.asarray(without_key_type(x)) for x in (left, right))
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def close(left: Any, right: Any, tolerance: float) -> bool:
    """Whether the arrays of two pytrees are the same up to rounding; infinities and NaN must be equal."""
    for left_array, right_array in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        left_array, right_array = np.asarray(left_array, np.float64), np.asarray(right_array, np.float64)
        if left_array.shape != right_array.shape or not np.allclose(
            left_array, right_array, rtol=tolerance, atol=tolerance, equal_nan=True
        ):
            return False
    return True


def on_one_line(array: Any) -> str:
    """An array in a message, on one line."""
    array_text = np.array2string(np.asarray(array), separator=", ", threshold=200, precision=6)
    return " ".join(array_text.split())
