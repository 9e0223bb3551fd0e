"""Dynamic local updates: slower workers take fewer steps, so that all turns take about as long (Liu et al. 2024)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.simulation.rules import Rule, View
from gcjax.protocols.simulation.worker_selection import with_entry


def with_dynamic_steps(rule: Rule, num_local_steps: int) -> Rule:
    """The rule in which worker w takes `floor(H s / s[w])` units in a turn, one at least; H in its first turn.

    s[w] are its seconds a unit in its last turn, from the begin of the first unit to the end of the last, and s the
    fewest of the last turns so far of all who take part; where workers wait for a commit, until the last message before
    it has come.

    Args:
      rule: one that keeps nothing in mind; its units do not count.
      num_local_steps: H.
    """

    def first_memory(num_workers: int, dtype: jnp.dtype) -> _Speeds:
        """The memory at first: nobody has done a turn yet (inf seconds a unit); all begin with `num_local_steps`."""
        num_units = jnp.full(num_workers, num_local_steps, jnp.int32)
        return _Speeds(num_units, jnp.full(num_workers, jnp.inf, dtype))

    def with_speed_of_last_turn(view: View, worker: jax.Array) -> _Speeds:
        """The memory with the seconds a unit of the turn that the worker has ended, and the units of its next one.

        These are `num_local_steps` times the fewest seconds a unit of those who take part over its own, rounded down,
        one at least and `num_local_steps` at most: somebody who has left may have been faster, and comes back. Others
        who wait with it for a commit may take fewer, or more, now that its seconds are known.
        """
        num_units, seconds = view.memory  # int32[W], float[W]
        own_seconds = view.compute_seconds / num_units[worker].astype(view.now.dtype)
        seconds = with_entry(seconds, worker, own_seconds)
        has_length = seconds > 0  # units of no length are as fast as can be
        fewest_seconds = jnp.where(view.alive, seconds, jnp.inf).min()
        steps = num_local_steps * fewest_seconds / jnp.where(has_length, seconds, 1)
        whole_steps = jnp.floor(steps + _ROUNDING).clip(1, num_local_steps)
        next_units = jnp.where(has_length, whole_steps, num_local_steps).astype(jnp.int32)
        waits = view.num_uncommitted > 0  # bool[W]: the sender, and who waits with it
        return _Speeds(jnp.where(waits, next_units, num_units), seconds)

    return rule._replace(
        num_units=lambda view: view.memory.num_units, memory=first_memory, remember=with_speed_of_last_turn
    )


class _Speeds(NamedTuple):
    """Attributes: num_units: int32[W], of each one's turn; seconds: float[W], a unit of its last turn; inf at first."""

    num_units: jax.Array
    seconds: jax.Array


_ROUNDING = 1e-3
"""Of a step: workers that are equally fast but for rounding take equally many."""
