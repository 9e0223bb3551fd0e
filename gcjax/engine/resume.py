"""Runs in pieces: between two of them there is a checkpoint, or a word of how far the run is.

A program that reports from within could not be kept on disk, and has to come back to the host for it; pieces can.
"""

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jaxlib
import numpy as np

from gcjax.engine import hardware
from gcjax.engine.checkpoint import Checkpoints

_T = TypeVar("_T")
_REPORTS = 100


def in_pieces(
    advance: Callable[[_T, int], _T],
    training: _T,
    num_evals: int,
    *,
    checkpoints: Checkpoints | None = None,
    identity: str = "",
    report: Callable[[_T], None] | None = None,
) -> _T:
    """Goes on from the newest checkpoint, or from the given beginning, to the end.

    Killed at any moment, it has lost what came after the last checkpoint, and called again it ends with the same bits.

    Args:
      advance: `(training, num_evals) -> training`, goes on until so many evaluations have been made; may donate.
      training: the beginning, a pytree of arrays; restored arrays go where these are.
      num_evals: the evaluations of the whole run, the first one not counted.
      checkpoints: where they are, and after how many evaluations there is one; none if None.
      identity: see `identity`; of the checkpoints.
      report: called with what has been trained so far after each piece, some hundred times in all.

    Raises:
      ValueError: if the checkpoints are of another run, or all are damaged.
    """
    restored = None if checkpoints is None else checkpoints.restore(training, identity)
    done, training = (0, training) if restored is None else restored
    for end in _ends(done, num_evals, checkpoints, report is not None):
        training = advance(training, end)
        if report is not None:
            report(jax.block_until_ready(training))
        if checkpoints is not None and (end == num_evals or end % checkpoints.every == 0):
            checkpoints.save(end, training, identity)
    if checkpoints is not None:
        checkpoints.wait()
    return training


def _ends(done: int, num_evals: int, checkpoints: Checkpoints | None, reports: bool) -> list[int]:
    """The evaluations at which a piece ends."""
    ends = {num_evals}
    if checkpoints is not None:
        ends.update(range(checkpoints.every, num_evals, checkpoints.every))
    if reports:
        ends.update(range(0, num_evals, max(1, num_evals // _REPORTS)))
    return sorted(end for end in ends if end > done)


def identity(text: str, **values: Any) -> str:
    """What the bits of a run depend on, a line for each thing: also the hardware, and what JAX and XLA are set to.

    The number of devices is not among them: a run may go on with another one, and then agrees up to rounding.

    Args:
      text: what the caller says, for example a config.
      **values: numbers and text are shown, pytrees of arrays by a digest of their bits.
    """
    versions = f"jax {jax.__version__}, jaxlib {jaxlib.__version__}, {jax.dtypes.canonicalize_dtype(np.float64)}"
    lines = [f"{name} = {_shown(value)}" for name, value in sorted(values.items())]
    return "\n".join([*text.splitlines(), versions, *hardware.lines(), *lines])


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
