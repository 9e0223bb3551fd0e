"""What to wait for, to know when a function is done: a few small arrays of what it returned."""

from collections.abc import Callable
from typing import Any

import jax

_KEYS: dict[type, Callable[[Any, Any], Any]] = {
    jax.tree_util.SequenceKey: lambda tree, key: tree[key.idx],
    jax.tree_util.DictKey: lambda tree, key: tree[key.key],
    jax.tree_util.GetAttrKey: lambda tree, key: getattr(tree, key.name),
}
"""Kind of key of a path -> what it leads to."""


class Outputs:
    """Chooses arrays of what a function returns, the same ones each time, without walking through all of it.

    What one compiled program returns is ready together, so its smallest array is enough. What a Python function returns
    may come from several programs, so the smallest array of each of its outer parts is taken. An array that the next
    step takes over (donated) cannot be waited for; another one is taken instead, or a copy of one number of it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Chooses for a function; what has a method `lower` is one compiled program."""
        self._is_program = hasattr(function, "lower") or isinstance(function, jax.stages.Compiled)
        self._paths: list[tuple[tuple[Any, ...], bool]] | None = None  # and whether to copy
        self._structure: Any = None
        self._donated: set[tuple[Any, ...]] = set()
        self._last: list[tuple[tuple[Any, ...], jax.Array]] = []

    def markers(self, output: Any) -> list[jax.Array]:
        """The arrays to wait for; none if there are no arrays of JAX in what was returned.

        Raises:
          ValueError: if the function is being compiled as part of another one.
        """
        new = {path for path, array in self._last if array.is_deleted()} - self._donated
        if new or self._paths is None:
            self._donated |= new
            self._paths = self._choose(output)
        try:
            return self._arrays(output)
        except (AttributeError, IndexError, KeyError, TypeError):  # it returned something of another form
            self._paths = self._choose(output)
            return self._arrays(output)

    def _arrays(self, output: Any) -> list[jax.Array]:
        """The arrays at the paths."""
        self._last, markers = [], []
        for path, is_copied in self._paths or ():
            array = _at(output, path)
            if is_copied:
                markers.append(_one_number(array.addressable_data(0)))
            else:
                self._last.append((path, array))
                markers.append(array)
        return markers

    def _choose(self, output: Any) -> list[tuple[tuple[Any, ...], bool]]:
        """The paths of the arrays to wait for, and whether each must be copied."""
        parts: dict[Any, list[tuple[bool, int, int, tuple[Any, ...]]]] = {}
        for position, (path, leaf) in enumerate(jax.tree_util.tree_leaves_with_path(output)):
            if isinstance(leaf, jax.core.Tracer):
                raise ValueError(
                    "What is timed must not be compiled as part of something else, since compiled programs do not look "
                    "at clocks; got values that JAX is tracing. Put it around the compiled function: "
                    "gcjax.watch(jax.jit(step))."
                )
            if _can_wait(leaf) and all(type(key) in _KEYS for key in path):
                part = None if self._is_program else path[:1]
                parts.setdefault(part, []).append((path in self._donated, leaf.nbytes, position, path))
        return [(path, is_donated) for is_donated, _, _, path in map(min, parts.values())]


def _can_wait(leaf: Any) -> bool:
    """Whether it is an array of numbers of which this process has a part."""
    if not isinstance(leaf, jax.Array) or jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
        return False
    return leaf.size > 0 and not leaf.is_deleted() and bool(leaf.sharding.addressable_devices)


def _at(output: Any, path: tuple[Any, ...]) -> Any:
    """The leaf at a path."""
    for key in path:
        output = _KEYS[type(key)](output, key)
    return output


@jax.jit
def _one_number(array: jax.Array) -> jax.Array:
    """The first entry."""
    return array[(0,) * array.ndim]
