"""What to wait for, to know when a function is done: a few small arrays of what it returned."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from gcjax import _validate


class _Leaf(NamedTuple):
    """The key of a leaf by its position among all, where other keys do not lead to it."""

    position: int


_KEYS: dict[type, Callable[[Any, Any], Any]] = {
    _Leaf: lambda tree, key: jax.tree.leaves(tree)[key.position],
    jax.tree_util.SequenceKey: lambda tree, key: tree[key.idx],
    jax.tree_util.DictKey: lambda tree, key: tree[key.key],
    jax.tree_util.GetAttrKey: lambda tree, key: getattr(tree, key.name),
}
"""Kind of key of a path -> what it leads to."""

Path = tuple[Any, ...]

RARELY = 100
"""Steps; an array that is donated twice within so many is copied from then on."""


class Outputs:
    """Waits for what a function returns, by the same arrays each time, without walking through all of it.

    What one compiled program returns is ready together, so its smallest array is enough. What a Python function returns
    may come from several programs, so the smallest array of each of its outer parts is taken. An array that is
    donated to the next step before its turn came cannot be waited for; from then on another one is taken. Where
    there is none and that happens again, as in a loop that goes on without waiting, the loop's thread copies one number
    of it when the function returns. Where it happens now and then only, as when this thread comes late on a busy
    machine, the end of such a step is not known, which is cheaper than a copy in each.

    Attributes:
      needs_copies: whether `copied_numbers` must be called.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """`function`: whose outputs are waited for; what has a method `lower` is one compiled program."""
        self._is_one_program = hasattr(function, "lower") or isinstance(function, jax.stages.Compiled)
        self._awaited_paths: list[Path] | None = None  # of the arrays to wait for; None if they are to be chosen
        self._copied_paths: list[Path] = []  # of the arrays of which one number is copied and waited for
        self._num_waits = 0
        self._last_donation: dict[Path, int] = {}  # path -> `_num_waits` when its array was last donated
        self._often_donated: set[Path] = set()
        self.needs_copies = True  # at first, so that it is checked

    def copied_numbers(self, output: Any) -> list[jax.Array]:
        """Copies of one number of each array that is often donated, for `wait`; to be called on the loop's thread.

        Raises:
          ValueError: if the function is being compiled as part of another one.
        """
        _check_no_tracers(output)
        self.needs_copies = bool(self._copied_paths)
        return [_first_number(_leaf_at(output, path).addressable_data(0)) for path in self._copied_paths]

    def wait(self, output: Any, copies: Sequence[jax.Array]) -> bool:
        """Waits until the output is computed; returns whether there was anything to wait for.

        Args:
          output: what the step has returned.
          copies: one number of each of its arrays that are often donated, as `copied_numbers` gives them.

        Raises:
          Exception: if that cannot be known this time: something was donated, or what computes it has failed.
        """
        self._num_waits += 1
        if self._awaited_paths is None:
            self._choose(output)
        try:
            arrays = [(path, _leaf_at(output, path)) for path in self._awaited_paths or ()]
        except (AttributeError, IndexError, KeyError, TypeError):  # it returned something of another form
            self._choose(output)
            arrays = [(path, _leaf_at(output, path)) for path in self._awaited_paths or ()]
        for path, array in arrays:
            try:
                array.block_until_ready()
            except Exception:
                if array.is_deleted():
                    self._note_donation(path)
                raise
        for array in copies:
            array.block_until_ready()
        return bool(arrays or copies)

    def _note_donation(self, path: Path) -> None:
        """Notes that an array was donated before it was waited for: others are chosen the next time.

        Twice within `RARELY` waits is often: a number of such an array is copied.
        """
        last_donation = self._last_donation.get(path, -RARELY)  # if never, long enough ago
        if self._num_waits - last_donation < RARELY:
            self._often_donated.add(path)
        self._last_donation[path] = self._num_waits
        self._awaited_paths = None

    def _choose(self, output: Any) -> None:
        """Chooses the arrays to wait for, and which of them must be copied.

        What one compiled program returns is one part, what a Python function returns has a part for each key of its
        outermost container. Of a part it is the smallest array, of those that were never donated if there are any.
        """
        leaves_by_part: dict[Any, list[tuple[bool, int, int, Path]]] = {}  # the smaller, the better to wait for
        for position, (path, leaf) in enumerate(jax.tree_util.tree_leaves_with_path(output)):
            if _can_wait(leaf):
                part = None if self._is_one_program else path[:1]
                # By its position among all leaves, where it cannot be reached by the keys.
                path = path if all(type(key) in _KEYS for key in path) else (_Leaf(position),)
                was_donated = path in self._last_donation
                leaves_by_part.setdefault(part, []).append((was_donated, leaf.nbytes, position, path))
        chosen_paths = [min(leaves)[-1] for leaves in leaves_by_part.values()]
        self._awaited_paths = [path for path in chosen_paths if path not in self._often_donated]
        self._copied_paths = [path for path in chosen_paths if path in self._often_donated]
        self.needs_copies = bool(self._copied_paths)


def _can_wait(leaf: Any) -> bool:
    """Whether it is an array of numbers of which this process has a part."""
    if not isinstance(leaf, jax.Array) or jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
        return False
    return leaf.size > 0 and bool(leaf.sharding.addressable_devices)


def _check_no_tracers(output: Any) -> None:
    """Raises `ValueError` if JAX is tracing what has returned this output."""
    if any(map(_validate.is_traced, jax.tree.leaves(output))):
        raise ValueError(
            "What is timed must not be compiled as part of something else, since compiled programs do not look at "
            "clocks; got values that JAX is tracing. Put it around the compiled function: gcjax.watch(jax.jit(step))."
        )


def _leaf_at(output: Any, path: Path) -> Any:
    """The leaf at a path."""
    for key in path:
        output = _KEYS[type(key)](output, key)
    return output


@jax.jit
def _first_number(array: jax.Array) -> jax.Array:
    """The first entry."""
    return array[(0,) * array.ndim]
