"""Runs that survive being killed: they go forward in pieces, with a checkpoint after each."""

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jaxlib
import numpy as np

from gcjax.engine.checkpoint import Checkpoints

_T = TypeVar("_T")


def in_pieces(
    advance: Callable[[_T, int], _T], training: _T, num_evals: int, checkpoints: Checkpoints, identity: str
) -> _T:
    """Goes on from the newest checkpoint, or from the given beginning, to the end.

    Killed at any moment, it has lost what came after the last checkpoint, and called again it ends with the same bits.

    Args:
      advance: `(training, num_evals) -> training`, goes on until so many evaluations have been made; may donate.
      training: the beginning, a pytree of arrays; restored arrays go where these are.
      num_evals: the evaluations of the whole run, the first one not counted.
      checkpoints: where they are, and after how many evaluations there is one.
      identity: see `identity`.

    Raises:
      ValueError: if the checkpoints are of another run, or all are damaged.
    """
    restored = checkpoints.restore(training, identity)
    done = 0
    if restored is not None:
        done, training = restored
    while done < num_evals:
        done = min(done + checkpoints.every, num_evals)
        training = advance(training, done)
        checkpoints.save(done, training, identity)
    checkpoints.wait()
    return training


def identity(text: str, **values: Any) -> str:
    """What the bits of a run depend on, a line for each thing.

    Args:
      text: what the caller says, for example a config.
      **values: numbers and text are shown, pytrees of arrays by a digest of their bits.
    """
    versions = f"jax {jax.__version__}, jaxlib {jaxlib.__version__}, {jax.dtypes.canonicalize_dtype(np.float64)}"
    lines = [f"{name} = {_shown(value)}" for name, value in sorted(values.items())]
    return "\n".join([*text.splitlines(), versions, *lines])


def _shown(value: Any) -> str:
    if value is None or isinstance(value, (str, int, float)):
        return str(value)
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        array = np.ascontiguousarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return f"<{digest.hexdigest()[:16]}>"
