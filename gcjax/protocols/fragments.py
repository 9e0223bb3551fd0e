"""Fragments of the parameters, of which one is synchronised after the other (Douillard et al. 2025).

Letters: P fragments.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax import _validate
from gcjax.equality import comparable

PATTERNS = ("sequential", "strided")

Pattern = str | Callable[[Any], Any] | Any
"""How parameters are dealt out: a name in `PATTERNS`, labels, or a pure function `shapes -> labels`.

The function is given `jax.ShapeDtypeStruct`s in the tree of the parameters: no label may depend on their values.
Labels are a pytree like the parameters, of the number of the fragment of each array, or of an integer array that
broadcasts to it.
"""


class Fragments(NamedTuple):
    """Which part of the parameters a commit changes: commit e changes fragment `e % P`, and nothing else.

    Attributes:
      num_fragments: P.
      labels: pure function `params -> labels`, which fragment each array, or each number of it, is in; it looks at
        shapes and dtypes only.
      local_share: α, what remains of a worker's own parameters where it merges a fragment of a new version.
    """

    num_fragments: int
    labels: Callable[[Any], Any]
    local_share: float

    def shares(self, params: Any) -> np.ndarray:
        """float64[P]: the share of each of the P fragments in the bytes of the parameters.

        These are arrays, or their shapes and dtypes.
        """
        num_bytes = np.zeros(self.num_fragments)
        for leaf, label in zip(jax.tree.leaves(params), jax.tree.leaves(self.labels(params)), strict=True):
            numbers = np.bincount(np.broadcast_to(label, np.shape(leaf)).ravel(), minlength=self.num_fragments)
            num_bytes += numbers * np.dtype(leaf.dtype).itemsize
        return num_bytes / num_bytes.sum()

    def masked(self, fragment: jax.Array, tree: Any) -> Any:
        """A tree like the parameters with zeros in all other fragments; `fragment` is int32[]."""
        return jax.tree.map(lambda x, label: jnp.where(label == fragment, x, 0), tree, self.labels(tree))

    def merged(self, params: Any, version_params: Any, version_before: jax.Array, version: jax.Array) -> Any:
        """A worker's parameters after it has read a version.

        Fragments that the commits in between have changed become `α local + (1 - α) global`; the others stay.

        Args:
          params: its own.
          version_params: those of the version.
          version_before: int32[], the version that it had read before; -1 for none.
          version: int32[].
        """
        fragments = jnp.arange(self.num_fragments, dtype=jnp.int32)

        def last_change(version: jax.Array) -> jax.Array:
            """int32[P]: how many times each of P fragments was changed before the version, less 1.

            Commit e changes fragment e % P. So -1 for never; of version -1, which is none, it is as of version 0.
            """
            return (version.clip(0) - 1 - fragments) // self.num_fragments

        is_new = last_change(version) > last_change(version_before)

        def merge_leaf(own_leaf: jax.Array, version_leaf: jax.Array, label: Any) -> jax.Array:
            """One array after it; `label` is the fragment of the whole array, int32[], or of each number, like it."""
            mixture = (
                self.local_share * own_leaf + (1 - self.local_share) * version_leaf
                if self.local_share
                else version_leaf
            )
            return jnp.where(is_new[label], mixture, own_leaf)

        return jax.tree.map(merge_leaf, params, version_params, self.labels(params))


def fragments_of(num_fragments: int, pattern: Pattern, local_share: float) -> Fragments:
    """P fragments by a pattern; see `Pattern`.

    A pattern deals out the layers, in the order of the pytree: arrays whose paths differ in the last entry only. If
    there are fewer of them than fragments it deals out the arrays, and if these are fewer too, their numbers.
    Sequential are as many in a row as P parts of equal length have; strided is every P-th.

    Raises:
      ValueError: if there is no such pattern, or labels do not belong to the parameters, or are none of 0 to P - 1, or
        a fragment is empty; labels are checked with the first parameters.
    """
    if isinstance(pattern, str):
        _validate.choice("fragments", pattern, PATTERNS)

    def labels(params: Any) -> Any:
        """The labels of these parameters: for each array its fragment, 0 to P - 1, or one for each of its numbers."""
        if isinstance(pattern, str):
            given_labels = _pattern_labels(params, num_fragments, is_strided=pattern == "strided")
        elif callable(pattern):
            with jax.ensure_compile_time_eval():
                given_labels = pattern(jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), x.dtype), params))
        else:
            given_labels = pattern
        return _checked_labels(given_labels, params, num_fragments)

    return Fragments(num_fragments, labels, local_share)


def _pattern_labels(params: Any, num_fragments: int, *, is_strided: bool) -> Any:
    """The fragment of each array or number: layers, arrays whose paths differ in the last entry, are dealt out whole.

    Arrays, or their numbers, are dealt out where there are fewer layers, or arrays, than fragments.
    """
    leaves_with_paths, structure = jax.tree.flatten_with_path(params)
    sizes = [int(np.prod(np.shape(leaf))) for _, leaf in leaves_with_paths]

    def labels_of(index: Any, count: int) -> Any:
        """int32, like `index`: the fragment, 0 to P - 1, of the layer, array or number `index` of `count`."""
        return np.int32(index % num_fragments if is_strided else np.int64(index) * num_fragments // max(count, 1))

    layers = list(dict.fromkeys(path[:-1] for path, _ in leaves_with_paths))
    if len(layers) >= num_fragments:
        labels = [labels_of(layers.index(path[:-1]), len(layers)) for path, _ in leaves_with_paths]
    elif len(sizes) >= num_fragments:
        labels = [labels_of(index, len(sizes)) for index in range(len(sizes))]
    else:
        ends = np.cumsum(sizes)  # of the arrays, if all their numbers are counted through
        numbers = [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        labels = [
            labels_of(index.reshape(np.shape(leaf)), sum(sizes))
            for index, (_, leaf) in zip(numbers, leaves_with_paths, strict=True)
        ]
    return jax.tree.unflatten(structure, labels)


def _checked_labels(labels: Any, params: Any, num_fragments: int) -> Any:
    """The labels as int32 of NumPy, of no axis or of all of the array's.

    Raises a `ValueError` if they do not belong to the parameters, or a fragment is empty.
    """
    structures: list[Any] = [jax.tree.structure(tree) for tree in (labels, params)]
    if structures[0] != structures[1]:
        raise ValueError(
            "fragments must have a label for each array of the parameters; their trees are "
            f"{structures[0]} and {structures[1]}."
        )
    has_parameters = np.zeros(num_fragments, bool)
    for label, leaf in zip(jax.tree.leaves(labels), jax.tree.leaves(params), strict=True):
        values, shape = np.asarray(label), np.shape(leaf)
        if values.dtype.kind not in "iu" or (values < 0).any() or (values >= num_fragments).any():
            raise ValueError(f"labels of fragments must be integers from 0 to {num_fragments - 1}; got {values!r}.")
        own_axes = shape[len(shape) - values.ndim :]  # the last ones, which the label's axes stand for
        if values.ndim > len(shape) or any(a not in (1, b) for a, b in zip(values.shape, own_axes, strict=True)):
            raise ValueError(f"labels of an array of shape {shape} must broadcast to it; got shape {values.shape}.")
        if np.prod(shape, dtype=int):
            has_parameters[np.unique(values)] = True
    if not has_parameters.all():
        raise ValueError(
            f"each of {num_fragments} fragments must have some of the parameters; "
            f"{np.flatnonzero(~has_parameters).tolist()} have none. "
            "Use fewer fragments, or other labels."
        )

    def label_array(label: Any, leaf: Any) -> np.ndarray:
        """int32[], or int32 of the shape of the leaf where this is in several fragments."""
        values = np.asarray(label, np.int32)
        return values if values.ndim == 0 else np.broadcast_to(values, np.shape(leaf))

    return jax.tree.map(label_array, labels, params)


class FragmentStates(NamedTuple):
    """The state of an optimizer that steps on one fragment after the other.

    Attributes:
      num_steps: int32[], those of all fragments.
      state: of the optimizer; what belongs to no parameter has a leading axis [P], an entry a fragment.
    """

    num_steps: jax.Array
    state: Any


_STACKED = object()
"""Stands for an array of a state that belongs to no parameter: it has an entry for each fragment."""


@comparable
def by_fragments(optimizer: optax.GradientTransformation, fragments: Fragments) -> optax.GradientTransformation:
    """The optimizer whose e-th step is on fragment `e % P` of P; each fragment has a state of its own.

    Args:
      optimizer: its state may depend on shapes and dtypes of the parameters, array by array.
      fragments: of the parameters.
    """

    def init(params: Any) -> FragmentStates:
        """The state before the first step: once what is like the parameters, all else (counters) [P, ...].

        P is the number of fragments.
        """
        state = optax.tree_map_params(
            optimizer,
            lambda x: x,
            optimizer.init(params),
            transform_non_params=lambda x: jnp.broadcast_to(x, (fragments.num_fragments, *jnp.shape(x))),
        )
        return FragmentStates(jnp.zeros((), jnp.int32), state)

    def update(gradient: Any, state: FragmentStates, params: Any = None) -> tuple[Any, FragmentStates]:
        """The change of this step's fragment by its part of a gradient, zeros elsewhere, and the state after it.

        States like the parameters are kept once, others, as counters, stacked: [P, ...].
        """
        fragment = state.num_steps % fragments.num_fragments
        labels = fragments.labels(gradient)
        own_state = optax.tree_map_params(
            optimizer, lambda x: x, state.state, transform_non_params=lambda x: x[fragment]
        )
        updates, new_state = optimizer.update(fragments.masked(fragment, gradient), own_state, params)
        is_in_fragment_or_stacked = optax.tree_map_params(
            optimizer,
            lambda x, label: label == fragment,
            state.state,
            labels,
            transform_non_params=lambda x: _STACKED,
        )

        def changed_in_fragment(is_in_fragment: Any, new: jax.Array, old: jax.Array) -> jax.Array:
            """An array of the state, changed in the fragment only; `is_in_fragment` is a mask like it, or `_STACKED`.

            The second says that `old` is [P, ...], an entry a fragment, and `new` the entry of this one.
            """
            return old.at[fragment].set(new) if is_in_fragment is _STACKED else jnp.where(is_in_fragment, new, old)

        new_states = jax.tree.map(changed_in_fragment, is_in_fragment_or_stacked, new_state, state.state)
        return fragments.masked(fragment, updates), FragmentStates(state.num_steps + 1, new_states)

    return optax.GradientTransformation(init, update)
