"""What Python prints of a tuple of arrays: their types and shapes, not their numbers."""

from typing import Any

import jax
import numpy as np


def named_tuple_text(value: Any, *notes: str) -> str:
    """A NamedTuple with a line for each field.

    Args:
      value: the tuple.
      *notes: lines to put before the fields.
    """
    lines = [*notes, *(f"{name}={_field_text(field)}" for name, field in value._asdict().items())]
    return f"{type(value).__name__}(\n" + "".join(f"  {line},\n" for line in lines) + ")"


def _field_text(value: Any) -> str:
    """An array as "float32[3, 4]"; named tuples, and dicts of arrays, by their fields or keys.

    Of other trees how many arrays and numbers they have; what has no arrays as Python prints it.
    """
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        fields = ", ".join(f"{name}={_field_text(field)}" for name, field in value._asdict().items())
        return f"{type(value).__name__}({fields})"
    arrays = [leaf for leaf in jax.tree.leaves(value) if hasattr(leaf, "shape")]
    if not arrays:
        return repr(value)
    if isinstance(value, dict) and all(hasattr(item, "shape") for item in value.values()):
        return "{" + ", ".join(f"{name!r}: {_field_text(leaf)}" for name, leaf in value.items()) + "}"
    num_numbers = sum(int(np.prod(array.shape)) for array in arrays)
    return f"<{type(value).__name__} of {len(arrays)} arrays, {num_numbers:,} numbers>"
