"""A digest of what a traced function computes: the same for the same operations, whatever they were written as.

With it a run knows whether loss, optimizer and protocol are those of its checkpoints, although none of them can be
compared with what another process had.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from gcjax.engine.base import Run
from gcjax.engine.identity import SHORT_DIGEST, digest_of, run_identity
from gcjax.engine.layout import layout
from gcjax.engine.program import Program
from gcjax.engine.resume import Resume

ADDRESS = re.compile(r"0x[0-9a-f]+")
"""In the text of objects, such as functions: it differs between processes."""


def identity_of_run(advance: Any, program: Program, arrays: Any, run: Run, resume: Resume) -> str:
    """Text of what the bits of a run depend on, see `run_identity`; the mesh is not among it.

    Args:
      advance: the jitted `training_loop.advance`.
      program: what it computes, with all numbers of loss, optimizer and protocol; its digest counts.
      arrays: `gcjax.engine.run.Arrays`, their digests count.
      run: from which it goes on, without its schedule.
      resume: where that is from. If from another run, what happened in that counts.
    """
    schedule, data, rng_key, params, durations_and_network = arrays
    on_one_device = program._replace(options=program.options._replace(layout=layout(None), wavefront_width=1))
    arguments = schedule, data, rng_key, run, jnp.int32(0), durations_and_network
    shapes = jax.eval_shape(lambda *arguments: arguments, *arguments)
    run_so_far = {} if resume.run is None else {"resumed_run": (run.info, run.trajectory)}
    return run_identity(
        resume.identity, num_commits=program.options.num_commits, eval_every=program.options.eval_every,
        computation=f"<{digest_of_program(advance.trace(on_one_device, *shapes).jaxpr)}>",
        schedule=schedule, data=data, rng_key=rng_key, params=params, **run_so_far,
    )  # fmt: skip


def digest_of_program(program: ClosedJaxpr) -> str:
    """The first 16 digits of the SHA-256 of the operations of a program, of their parameters, and of its constants."""
    digest = hashlib.sha256()
    for text in _texts_of_program(program):
        digest.update(text.encode())
        digest.update(b"\n")
    return digest.hexdigest()[:SHORT_DIGEST]


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
            return f"{variable.aval} {digest_of(variable.val)}"
        return f"{numbers.setdefault(variable, len(numbers))}: {variable.aval}"

    for constant in constants:
        yield f"constant {digest_of(constant)}"
    yield " ".join(map(text_of, (*program.constvars, *program.invars)))
    for operation in program.eqns:
        yield operation.primitive.name
        yield " ".join(map(text_of, (*operation.invars, *operation.outvars)))
        for name, value in sorted(operation.params.items()):
            if name != "name":  # of a function
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
    elif isinstance(value, (set, frozenset)):
        yield from sorted(map(repr, value))
    elif isinstance(value, (np.ndarray, jax.Array)):
        yield digest_of(value)
    else:
        text = repr(value)
        yield type(value).__name__ if callable(value) or ADDRESS.search(text) else text
