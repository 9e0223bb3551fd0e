"""Loops of runs that go through vmap together.

Under vmap, a loop bound of its own for each run would make JAX copy the whole carry, ring included, at every step.
Runs in a batch share their loops instead, as long as the longest needs, and those that are done idle: their state is
kept. A single run has its exact bounds and never idles, so it pays nothing for this.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

_READ_IN_SEQUENCE = 6
"""So many arrays one conditional reads on a CPU.

XLA does up to eight operations of a branch one after the other. More it shares among threads, and handing them over
takes longer than reading a few rows.
"""


@jax.custom_batching.custom_vmap
def max_over_runs(count: jax.Array) -> jax.Array:
    """int[]: the bound of a loop, `count` itself; under vmap the largest count of all runs of the batch."""
    return count


@max_over_runs.def_vmap
def _max_over_batch(axis_size: int, in_batched: list[bool], count: jax.Array) -> tuple[jax.Array, bool]:
    """The rule of `max_over_runs` for vmap: (the count, whether it differs between runs), which it never does.

    The largest count goes through `max_over_runs` again, for a vmap around this one.
    """
    del axis_size
    (is_count_batched,) = in_batched
    differs_between_runs = False
    return max_over_runs(count.max() if is_count_batched else count), differs_between_runs


@jax.custom_batching.custom_vmap
def select_active(is_active: jax.Array, new: Any, old: Any) -> Any:
    """The pytree `new`, and under vmap `old` for the runs whose `is_active` (bool[]) is false.

    Without vmap `is_active` is not looked at: a loop whose bound is `max_over_runs` runs only while it is true.
    """
    del is_active, old
    new_of_single_run_that_is_always_active = new
    return new_of_single_run_that_is_always_active


@select_active.def_vmap
def _select_active_in_batch(
    axis_size: int, in_batched: list[Any], is_active: jax.Array, new: Any, old: Any
) -> tuple[Any, Any]:
    """The rule of `select_active` for vmap: (the selected pytree, True for each leaf, as all differ between runs).

    `in_batched` says of `is_active` and of each leaf of `new` and `old` whether it has a leading axis of runs.
    """
    num_runs = axis_size
    is_active_batched, is_new_batched, is_old_batched = in_batched

    def with_runs_axis(x: jax.Array, is_batched: bool) -> jax.Array:
        """[runs, ...]: the array, repeated for every run if all have the same one."""
        return x if is_batched else jnp.broadcast_to(x, (num_runs, *jnp.shape(x)))

    def select_leaf(new: jax.Array, is_new_batched: bool, old: jax.Array, is_old_batched: bool) -> jax.Array:
        """[runs, ...]: the new leaf for active runs, the old one for the others."""
        num_axes_of_one_run = max(new.ndim - is_new_batched, old.ndim - is_old_batched)
        # [runs, 1, ...]
        is_run_active = with_runs_axis(is_active, is_active_batched).reshape(-1, *(1,) * num_axes_of_one_run)
        return jnp.where(is_run_active, with_runs_axis(new, is_new_batched), with_runs_axis(old, is_old_batched))

    selected = jax.tree.map(select_leaf, new, is_new_batched, old, is_old_batched)
    differs_between_runs = jax.tree.map(lambda _: True, selected)
    return selected, differs_between_runs


def run_if(flag: jax.Array, step: Callable[[Any], Any], state: Any) -> Any:
    """`step(state)` if `flag bool[]`, otherwise the state, the arrays of which are not copied for it.

    XLA copies what goes through a conditional; so this is a loop of one turn or none. Under vmap the step is done to
    all runs if the flag of any is true: it must leave the state of the others as it is, or do no harm to them.
    """

    def turn(carry: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        """The only turn, on (flag, 0 or 1; state): the flag is 0 afterwards, and so there is no other."""
        return jnp.zeros_like(carry[0]), step(carry[1])

    initial = max_over_runs(flag.astype(jnp.int32)), state
    return jax.lax.while_loop(lambda carry: carry[0] > 0, turn, initial)[1]


def read_first(count: jax.Array, read: Callable[[Any], Any], state: Any) -> Any:
    """`read(state)`, a pytree of small arrays, read before anything is written to the arrays of the state.

    XLA keeps a copy of an array that is read by what does not come before the writing. It fuses plain reads with what
    is computed of them; so these are conditionals, out of which nothing is moved. What is written afterwards must be
    computed of what was read, so that it comes after it.

    Args:
      count: int32[], any number that is never negative, which the compiler does not know: the condition always holds.
      read: pure function of the state.
      state: a pytree of arrays.
    """
    shapes, structure = jax.tree.flatten(jax.eval_shape(read, state))
    has_count = max_over_runs(count) >= 0

    def read_part(part: slice) -> list[jax.Array]:
        """The arrays with these numbers among the leaves of the result."""
        return jax.lax.cond(
            has_count,
            lambda state: jax.tree.leaves(read(state))[part],
            lambda state: [jnp.zeros(x.shape, x.dtype) for x in shapes[part]],
            state,
        )

    size = _READ_IN_SEQUENCE if jax.default_backend() == "cpu" else max(1, len(shapes))
    return jax.tree.unflatten(
        structure, [x for first in range(0, len(shapes), size) for x in read_part(slice(first, first + size))]
    )
