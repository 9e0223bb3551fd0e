"""Loops of runs that go through vmap together.

Under vmap, a loop bound of its own for each run would make JAX copy the whole carry, ring included, at every step.
Runs in a batch share their loops instead, as long as the longest needs, and those that are done idle: their state is
kept. A single run has its exact bounds and never idles, so it pays nothing for this.
"""

from typing import Any

import jax
import jax.numpy as jnp


@jax.custom_batching.custom_vmap
def max_over_runs(count: jax.Array) -> jax.Array:
    """The count itself; under vmap the largest of all runs."""
    return count


@max_over_runs.def_vmap
def _max_over_batch(axis_size: int, in_batched: list[bool], count: jax.Array) -> tuple[jax.Array, bool]:
    del axis_size
    return (max_over_runs(count.max()), False) if in_batched[0] else (max_over_runs(count), False)


@jax.custom_batching.custom_vmap
def select_active(active: jax.Array, new: Any, old: Any) -> Any:
    """`new`, which must only be asked for when `active`; under vmap `old` for the runs that are not."""
    del active, old
    return new


@select_active.def_vmap
def _select_active_in_batch(
    axis_size: int, in_batched: list[Any], active: jax.Array, new: Any, old: Any
) -> tuple[Any, Any]:
    def spread(x: jax.Array, batched: bool) -> jax.Array:
        return x if batched else jnp.broadcast_to(x, (axis_size, *jnp.shape(x)))

    def leaf(new: jax.Array, new_batched: bool, old: jax.Array, old_batched: bool) -> jax.Array:
        chosen = spread(active, in_batched[0]).reshape(
            -1, *(1,) * (max(new.ndim - new_batched, old.ndim - old_batched))
        )
        return jnp.where(chosen, spread(new, new_batched), spread(old, old_batched))

    kept = jax.tree.map(leaf, new, in_batched[1], old, in_batched[2])
    return kept, jax.tree.map(lambda _: True, kept)
