"""Messages between workers and the server: a header in JSON, and arrays as bytes one after the other.

Nothing is ever unpickled. Both sides know the arrays' shapes and dtypes from their own copy of the model, so a message
has their bytes only, and its size is known before it comes.
"""

import json
import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

FORMAT = 5
"""The version of the messages; both sides must have the same."""


class Message(NamedTuple):
    """Attributes: header: what can be said in JSON; body: uint8[n], the bytes of the arrays, or None."""

    header: Mapping[str, Any]
    body: np.ndarray | None = None

    @property
    def kind(self) -> str:
        """What the message is: "hello", "begin", "push", ..."""
        return str(self.header.get("kind", ""))


@dataclass(frozen=True)
class Layout:
    """How a tree of arrays lies in bytes.

    Attributes:
      names: of the leaves, as paths.
      shapes: of the leaves.
      dtypes: of the leaves, as text.
      structure: of the tree.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    structure: Any

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many bytes each leaf takes."""
        return tuple(
            int(np.prod(shape, dtype=np.int64)) * jnp.dtype(dtype).itemsize
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        )

    @cached_property
    def num_bytes(self) -> int:
        """The bytes of all leaves."""
        return sum(self.sizes)

    @cached_property
    def places(self) -> tuple[tuple[slice, Any, tuple[int, ...]], ...]:
        """Of each leaf, the slice of the message's bytes in which it is, its dtype and its shape."""
        ends = np.cumsum(self.sizes).tolist()
        slices = [slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]
        return tuple(zip(slices, map(jnp.dtype, self.dtypes), self.shapes, strict=True))

    def described(self) -> dict[str, str]:
        """By leaf, its dtype and shape in words, for comparing two models."""
        lines = zip(self.names, self.shapes, self.dtypes, strict=True)
        return {name: f"{dtype}{list(shape)}" for name, shape, dtype in lines}


def layout_of(tree: Any) -> Layout:
    """The layout of a tree of arrays, or of their shapes (`jax.ShapeDtypeStruct`)."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    return Layout(
        names=tuple(jax.tree_util.keystr(path) for path, _ in leaves),
        shapes=tuple(tuple(x.shape) for _, x in leaves),
        dtypes=tuple(str(x.dtype) for _, x in leaves),
        structure=structure,
    )


def to_bytes(tree: Any) -> np.ndarray:
    """uint8[n]: a copy of the bytes of all leaves, which are arrays on any device."""
    return np.concatenate(_bytes_of_leaves(tree) or [np.zeros(0, np.uint8)])


def as_bytes(tree: Any) -> np.ndarray:
    """uint8[n]: the bytes of all leaves, as `to_bytes`, but those of a single leaf, which must not change, uncopied."""
    leaves = _bytes_of_leaves(tree)
    return leaves[0] if len(leaves) == 1 else to_bytes(tree)


def _bytes_of_leaves(tree: Any) -> list[np.ndarray]:
    """uint8[n] of each leaf."""
    return [np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in jax.tree.leaves(tree)]


def from_bytes(body: np.ndarray | None, layout: Layout) -> Any:
    """The tree of NumPy arrays, which are views of the bytes `body uint8[n]`.

    Raises:
      ValueError: if there are more or fewer bytes than the layout takes.
    """
    num_bytes = 0 if body is None else body.size
    if body is None or num_bytes != layout.num_bytes:
        raise ValueError(f"arrays of the model must have {layout.num_bytes} bytes; the message has {num_bytes}.")
    leaves = [body[place].view(dtype).reshape(shape) for place, dtype, shape in layout.places]
    return jax.tree.unflatten(layout.structure, leaves)


def header_bytes(message: Message) -> bytes:
    """The header as JSON, with the number of bytes that follow."""
    return json.dumps({**message.header, "bytes": 0 if message.body is None else message.body.size}).encode()


def header_of(text: bytes, max_bytes: int) -> dict[str, Any]:
    """The header from JSON: a dict with "kind" (text) and "bytes" (of the body), besides what its kind needs.

    Raises:
      ValueError: if the text is no such header, or announces more than `max_bytes`, which a message of this run has at
        most.
    """
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("a message must have a header in JSON; this one has none.") from None
    if (
        not isinstance(header, dict)
        or not isinstance(header.get("bytes"), int)
        or not isinstance(header.get("kind"), str)
    ):
        raise ValueError("a message must have a header that says its kind and its bytes.")
    if not 0 <= header["bytes"] <= max_bytes:
        raise ValueError(f"a message of this run has at most {max_bytes} bytes; this one announces {header['bytes']}.")
    return header


def is_complete(message: Message, push_sizes: Container[int]) -> bool:
    """Whether a message of a worker says all that one of its kind must; a kind without a list of that may say anything.

    The number of bytes of a push must be one of `push_sizes`.
    """
    for name, is_valid in _FIELDS.get(message.kind, {}).items():
        if not is_valid(message.header.get(name)):
            return False
    return message.kind != "push" or (message.body is not None and message.body.size in push_sizes)


def is_time(value: Any) -> bool:
    """Whether it is a number of seconds."""
    return _is_number(value) and math.isfinite(value)


def _is_number(value: Any) -> bool:
    """Whether it is a number that a float can be; the loss may be one that is not finite."""
    return isinstance(value, float) or _is_integer(value)


def _is_integer(value: Any) -> bool:
    """Whether it is an integer of 32 bits: JSON has longer ones, and arrays have not."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31


def _is_optional_time(value: Any) -> bool:
    """Whether it is a number of seconds, or None."""
    return value is None or is_time(value)


def _is_optional_unit(value: Any) -> bool:
    """Whether it is the number of a unit, or None."""
    return value is None or _is_integer(value)


def _are_times(value: Any) -> bool:
    """Whether it is a list of seconds, one at least."""
    return isinstance(value, list) and bool(value) and all(map(is_time, value))


_FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "push": {
        "compute_start": is_time,
        "unit_ends": _are_times,
        "first_unit_on_version": _is_optional_unit,
        "is_finite": lambda value: isinstance(value, bool),
        "loss": _is_number,
        "num_lost": _is_number,
        "send_start": is_time,
        "stop_heard": _is_optional_time,
    },
    "alive": {"sent": _is_optional_time},
    "unit": {"compute_start": is_time, "unit_end": is_time, "loss": _is_number},
}
"""What a message of a worker must say, by its kind (None if it may be left out); one that does not is refused."""
