"""Commits that change one fragment of the parameters: what workers push of it, compressed or whole.

Letters: W workers, P fragments.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.compression.base import Compression
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol
from gcjax.protocols.fragments import Fragments


class FragmentMessages(NamedTuple):
    """The state of a worker whose messages are fragments.

    Attributes:
      number: int32[], of its messages so far.
      states: of the compression, one for each of P fragments.
    """

    number: jax.Array
    states: tuple[Any, ...]


def compression_of_fragments(compression: Any, protocol: Protocol) -> Any:
    """The compression of what is pushed: where that is a fragment, only this is compressed; None for none."""
    fragments = None if protocol.local is None else protocol.local.fragments
    if compression is None or fragments is None or fragments.num_fragments == 1:
        return compression
    return _by_fragments(compression, fragments)


@comparable
def _by_fragments(compression: Compression, fragments: Fragments) -> Compression:
    """The compression whose e-th message of a worker is fragment `e % P` of a tree, and nothing else of it.

    Each of the P fragments has a state of its own. Its bytes are those of P messages, of all fragments.
    """

    def init(rng_key: jax.Array, message: Any, *worker: Any) -> FragmentMessages:
        """The state before the first message (for its shapes): a state of the compression for each of P fragments.

        `worker`: int32[], if workers have compressions of their own.
        """
        arrays_by_fragment = [
            _arrays_of_fragment(fragments, fragment, message) for fragment in range(fragments.num_fragments)
        ]
        return FragmentMessages(
            jnp.zeros((), jnp.int32),
            tuple(compression.init(rng_key, arrays_of_fragment, *worker) for arrays_of_fragment in arrays_by_fragment),
        )

    def compress_fragment(
        fragment: int, message: Any, states: tuple[Any, ...], rng_key: jax.Array
    ) -> tuple[Any, tuple[Any, ...]]:
        """The estimate of this fragment of a message, with zeros elsewhere, and the states after it, one a fragment."""
        arrays_of_fragment = _arrays_of_fragment(fragments, fragment, message)
        estimate, state = compression.compress(arrays_of_fragment, states[fragment], rng_key)
        states = (*states[:fragment], state, *states[fragment + 1 :])
        return _with_zeros_elsewhere(fragments, fragment, estimate, message), states

    def compress(message: Any, state: FragmentMessages, rng_key: jax.Array) -> tuple[Any, FragmentMessages]:
        """The estimate of a message (of its fragment whose turn it is), and the worker's state after it."""
        branches = [partial(compress_fragment, fragment) for fragment in range(fragments.num_fragments)]
        fragment = state.number % fragments.num_fragments
        estimate, states = jax.lax.switch(fragment, branches, message, state.states, rng_key)
        return estimate, FragmentMessages(state.number + 1, states)

    def num_bytes(message: Any) -> Any:
        """The bytes of P messages, one of each fragment: of the whole tree, compressed."""
        arrays_by_fragment = [
            jax.eval_shape(partial(_arrays_of_fragment, fragments, fragment), message)
            for fragment in range(fragments.num_fragments)
        ]
        return sum(compression.num_bytes(arrays_of_fragment) for arrays_of_fragment in arrays_by_fragment)

    return compression._replace(init=init, compress=compress, num_bytes=num_bytes)


def _arrays_of_fragment(fragments: Fragments, fragment: int, tree: Any) -> list[jax.Array]:
    """The arrays of a tree that are in a fragment; of those that are in several, the numbers in this one, [n].

    `fragments.labels(tree)` says of each array, or of each of its numbers, in which fragment it is: int32[], or int32
    of the shape of the array.
    """
    parts = []
    for leaf, label in zip(jax.tree.leaves(tree), jax.tree.leaves(fragments.labels(tree)), strict=True):
        is_in = np.broadcast_to(label == fragment, leaf.shape)
        if is_in.any():
            parts.append(leaf if is_in.all() else leaf.reshape(-1)[np.flatnonzero(is_in)])
    return parts


def _with_zeros_elsewhere(fragments: Fragments, fragment: int, fragment_arrays: list[jax.Array], tree: Any) -> Any:
    """A tree like the one given that has these arrays in this fragment: the opposite of `_arrays_of_fragment`.

    `fragment_arrays` are the arrays of the fragment in the tree's order: whole, or [n], its numbers in this fragment.
    A label is the fragment of an array, int32[], or of each of its numbers.
    """
    leaves, structure = jax.tree.flatten(tree)
    remaining_arrays, result_leaves = iter(fragment_arrays), []
    for leaf, label in zip(leaves, jax.tree.leaves(fragments.labels(tree)), strict=True):
        is_in_fragment = np.broadcast_to(label == fragment, leaf.shape)
        if not is_in_fragment.any():
            result_leaves.append(jnp.zeros_like(leaf))
            continue
        array = next(remaining_arrays)
        if not is_in_fragment.all():
            array = jnp.zeros(leaf.size, leaf.dtype).at[np.flatnonzero(is_in_fragment)].set(array).reshape(leaf.shape)
        result_leaves.append(array)
    return jax.tree.unflatten(structure, result_leaves)


Compress = Callable[[Any, Any, jax.Array], tuple[Any, Any]]
"""`(message, state, worker int32[]) -> (estimate, state)`."""


def mean_change(compress: Compress | None, version_params: Any, params: Any, states: Any) -> tuple[Any, Any]:
    """What the workers' parameters differ from those of the server, theirs minus its own, as it comes to know it.

    Args:
      compress: `(change, state, worker int32[]) -> (estimate, state)`; None where changes are sent as they are.
      version_params: of the server.
      params: of all workers, every leaf [W, ...].
      states: of the compression, likewise; None without one.

    Returns:
      The mean over the workers, and the states of the compression after it.
    """
    changes = jax.tree.map(lambda x, server: x - server[None], params, version_params)
    if compress is not None:
        num_workers = jax.tree.leaves(params)[0].shape[0]
        workers = jnp.arange(num_workers, dtype=jnp.int32)
        changes, states = jax.lax.map(lambda inputs: compress(*inputs), (changes, states, workers))
    return jax.tree.map(lambda x: jnp.mean(x, axis=0), changes), states
