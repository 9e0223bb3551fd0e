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
    """int[]: the bound of a loop, `count` itself; under vmap the largest count of all runs of the batch."""
    return count


@max_over_runs.def_vmap
def _max_over_batch(axis_size: int, in_batched: list[bool], count: jax.Array) -> tuple[jax.Array, bool]:
    """The rule of `max_over_runs` for vmap: (the count, whether it differs between runs), which it never does."""
    del axis_size
    return (max_over_runs(count.max()), False) if in_batched[0] else (max_over_runs(count), False)


@jax.custom_batching.custom_vmap
def select_active(active: jax.Array, new: Any, old: Any) -> Any:
    """The pytree `new`, and under vmap `old` for the runs whose `active` (bool[]) is false.

    Without vmap `active` is not looked at: a loop whose bound is `max_over_runs` runs only while it is true.
    """
    del active, old
    return new


@select_active.def_vmap
def _select_active_in_batch(
    axis_size: int, in_batched: list[Any], active: jax.Array, new: Any, old: Any
) -> tuple[Any, Any]:
    """The rule of `select_active` for vmap: (the selected pytree, True for each leaf, as all differ between runs).

    `in_batched` says of `active` and of each leaf of `new` and `old` whether it has a leading axis of runs.
    """

    def with_runs_axis(x: jax.Array, batched: bool) -> jax.Array:
        """[runs, ...]: the array, repeated for every run if all have the same one."""
        return x if batched else jnp.broadcast_to(x, (axis_size, *jnp.shape(x)))

    def select_leaf(new: jax.Array, new_batched: bool, old: jax.Array, old_batched: bool) -> jax.Array:
        """The new leaf for active runs, the old one for the others."""
        num_axes = max(new.ndim - new_batched, old.ndim - old_batched)  # besides that of the runs
        is_active = with_runs_axis(active, in_batched[0]).reshape(-1, *(1,) * num_axes)
        return jnp.where(is_active, with_runs_axis(new, new_batched), with_runs_axis(old, old_batched))

    selected = jax.tree.map(select_leaf, new, in_batched[1], old, in_batched[2])
    return selected, jax.tree.map(lambda _: True, selected)
