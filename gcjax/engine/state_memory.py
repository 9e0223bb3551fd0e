"""What the state of a run takes in memory, said before anything of it is allocated."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

import jax

from gcjax import memory
from gcjax.engine.base import Run, State
from gcjax.engine.version_ring import size_of_ring

_WORDS = {
    "params": "the parameters",
    "ring": "past versions of them",
    "opt_state": "the server's optimizer",
    "local": "what workers have of their own",
    "compression": "what senders of compressed messages keep",
}


def check_state_fits(run: Run) -> None:
    """Checks that the state of a run fits into memory; `run` may have shapes and dtypes instead of arrays.

    Under `vmap` it is one of several, and whether all of them fit is not known here.

    Raises:
      ValueError: if it does not, with what each part takes and how many past versions would fit.
    """
    bytes_of_part = {part: memory.bytes_of_arrays(getattr(run.state, part)) for part in _WORDS}
    num_bytes = sum(bytes_of_part.values())
    if num_bytes <= memory.available_bytes():
        return
    parts = ", ".join(
        f"{words} {memory.size_text(bytes_of_part[part])}" for part, words in _WORDS.items() if bytes_of_part[part]
    )
    memory.check_fits(f"the states of a run ({parts})", num_bytes, _advice(run.state, num_bytes))


def check_state_fits_at_begin(begin: Any, program: Hashable, *arrays: Any) -> None:
    """Checks that the state that `begin(program, *arrays)` would make fits into memory, without making it.

    Args:
      begin: a jitted function of a static argument and arrays, which returns a `Run`.
      program: its static argument.
      *arrays: the others, pytrees.

    Raises:
      ValueError: as `check_state_fits`.
    """
    leaves, structure = jax.tree.flatten(arrays)
    types = tuple(map(jax.typeof, leaves))
    float_type = jax.dtypes.canonicalize_dtype("float64").name
    check_state_fits(_shapes_at_begin(begin, program, structure, types, float_type))


@lru_cache(maxsize=32)
def _shapes_at_begin(begin: Any, program: Hashable, structure: Any, types: tuple[Any, ...], float_type: str) -> Run:
    """The run that `begin` makes of arrays of these types, with shapes and dtypes instead of its arrays.

    They are kept, since JAX takes half a millisecond to tell them, also for a function that it has traced before.
    The type of floats, of 32 or 64 bits, decides what `begin` makes.
    """
    del float_type
    shapes: Run = begin.eval_shape(program, *structure.unflatten(types))
    return shapes


def _advice(state: State, num_bytes: int) -> str:
    """What to do if these bytes do not fit, as sentences."""
    smaller = "Take fewer workers or a smaller model."
    if state.ring is None:
        return smaller
    version_bytes = memory.bytes_of_arrays(state.params)
    ring_size = size_of_ring(state.ring)
    other_bytes = num_bytes - ring_size * version_bytes  # with those of the slot for versions that nobody reads
    num_fitting = int((memory.available_bytes() - other_bytes) // max(version_bytes, 1))
    if num_fitting < 1:
        return smaller
    return (
        f"There are {ring_size} past versions, by default one for each worker and contribution; "
        f"{num_fitting} would fit: pass ring_size={num_fitting} if the schedule never needs more at once. "
        f"{smaller}"
    )
