"""The entries of some workers in arrays of all: one law for everybody and for one worker alone.

Letters: W workers, m those that are looked at, W or 1.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class WorkerSelection(NamedTuple):
    """Everybody's entries, or those of one worker, which take no time that grows with the others.

    Attributes:
      worker: int32[], the one; None for everybody.
    """

    worker: jax.Array | None = None

    def entries_of(self, values: Any) -> Any:
        """The pytree of arrays `[m, ...]`, from one of `[W, ...]`; m is 1, or W where `worker` is None.

        Numbers are left as they are.
        """
        worker = self.worker
        if worker is None:
            return values
        return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, worker, 1) if jnp.ndim(x) else x, values)

    def with_entries(self, values: Any, entries: Any) -> Any:
        """The pytree of arrays `[W, ...]`, with the new entries `[m, ...]`: m is 1, or W where `worker` is None."""
        if self.worker is None:
            return entries
        worker = self.worker
        return jax.tree.map(lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, worker, 0), values, entries)


EVERYBODY = WorkerSelection()


def with_entry(values: jax.Array, worker: jax.Array, value: jax.Array) -> jax.Array:
    """The array `[W]` with another entry of this worker, `value []`; unlike `.at[worker].set` it is no scatter."""
    return jax.lax.dynamic_update_index_in_dim(values, value.astype(values.dtype), worker, axis=0)
