"""A digest of what a traced function computes: the same for the same operations, whatever they were written as.

With it a run knows whether loss, optimizer and protocol are those of its checkpoints, although none of them can be
compared with what another process had.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

_SHORT_DIGEST = 16
_ADDRESS = re.compile(r"0x[0-9a-f]+")
"""In the text of objects, such as functions: it differs between processes."""


def digest_of_program(program: ClosedJaxpr) -> str:
    """The first 16 digits of the SHA-256 of the operations of a program, of their parameters, and of its constants."""
    digest = hashlib.sha256()
    for text in _texts_of_program(program):
        digest.update(text.encode())
        digest.update(b"\n")
    return digest.hexdigest()[:_SHORT_DIGEST]


def _texts_of_program(program: Any) -> Iterator[str]:
    """A text for each constant and operation of a `Jaxpr`, or a `ClosedJaxpr`, and of the programs inside of it.

    Variables are numbered as they come, and what is used in several places is written down in each: how JAX names and
    shares them depends on what it traced before.
    """
    constants, program = (program.consts, program.jaxpr) if isinstance(program, ClosedJaxpr) else ((), program)
    numbers: dict[Any, int] = {}  # variable -> its number

    def text_of(variable: Any) -> str:
        """The number and type of a variable; the value of a literal."""
        if isinstance(variable, Literal):
            return f"{variable.aval} {_text_of_array(variable.val)}"
        return f"{numbers.setdefault(variable, len(numbers))}: {variable.aval}"

    for constant in constants:
        yield f"constant {_text_of_array(constant)}"
    yield " ".join(map(text_of, (*program.constvars, *program.invars)))
    for operation in program.eqns:
        yield operation.primitive.name
        yield " ".join(map(text_of, (*operation.invars, *operation.outvars)))
        for name, value in sorted(operation.params.items()):
            yield name
            yield from _texts_of_value(value)
    yield " ".join(map(text_of, program.outvars))


def _texts_of_value(value: Any) -> Iterator[str]:
    """Texts of a parameter of an operation: one of an array, several of a program or a sequence.

    Of a function, or another object that shows its address, only the type; what it computes is in the programs.
    """
    if isinstance(value, (Jaxpr, ClosedJaxpr)):
        yield from _texts_of_program(value)
    elif isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        yield f"{len(value)} values"
        for part in value:
            yield from _texts_of_value(part)
    elif isinstance(value, (np.ndarray, jax.Array)):
        yield _text_of_array(value)
    else:
        text = repr(value)
        yield type(value).__name__ if callable(value) or _ADDRESS.search(text) else text


def _text_of_array(array: Any) -> str:
    """Type, shape and digest of the bits of an array or number."""
    if isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    array = np.ascontiguousarray(array)
    return f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
