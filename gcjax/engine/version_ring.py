"""The past versions of the parameters that somebody will still read.

A version is alive from the commit that makes it to the last commit that reads it: its live range. The schedule says
which versions are alive when, so each is given one of `size` slots, and a slot is used again as soon as its version is
dead: the first to die is the first to be replaced. A run needs as many slots as versions are ever alive at once: at
most one a worker where each computes on one version at a time, however stale it gets.

Letters: E commits, C contributions to a commit.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.base import Schedule


class Versions(NamedTuple):
    """The parameters that a commit may read.

    Attributes:
      params: those of the latest commit.
      ring: the past ones; None where every commit reads the latest.
      slots: int32[E + 1], the slot of each version in the ring; None where there is none.
    """

    params: Any
    ring: Any
    slots: jax.Array | None

    def read(self, version: jax.Array) -> Any:
        """The parameters of a version, int32[]; of the latest one if no commit reads another."""
        return self.params if self.slots is None else read_slot(self.ring, self.slots[version])


def last_reader(schedule: Schedule) -> jax.Array:
    """int32[E + 1]: the last commit that reads each version; -1 if none does."""
    num_commits = schedule.time.shape[0]
    num_versions = num_commits + 1
    is_contribution = schedule.worker >= 0  # [E, C]; -1 pads
    readers = jnp.broadcast_to(jnp.arange(num_commits, dtype=jnp.int32)[:, None], is_contribution.shape)
    out_of_bounds = num_versions  # an index that is dropped
    version_read = jnp.where(is_contribution, schedule.version, out_of_bounds)
    return jnp.full(num_versions, -1, jnp.int32).at[version_read].max(readers, mode="drop")


def versions_alive(schedule: Schedule) -> jax.Array:
    """int32[]: the most versions that are alive at once: made, and still to be read by some commit."""
    last_commit = last_reader(schedule)
    is_read = last_commit >= 0
    # Version v is there from commit v on, and dead from the commit after its last reader on. Versions that nobody reads
    # have no death: their index is out of bounds and dropped.
    no_deaths, out_of_bounds = jnp.zeros_like(last_commit), last_commit.size
    first_commit_after_death = jnp.where(is_read, last_commit + 1, out_of_bounds)  # [E + 1], as all here
    deaths_by_commit = no_deaths.at[first_commit_after_death].add(1, mode="drop")
    alive_by_commit = jnp.cumsum(is_read, dtype=jnp.int32) - jnp.cumsum(deaths_by_commit, dtype=jnp.int32)
    return alive_by_commit.max()


def allocate_slots(schedule: Schedule, size: int) -> jax.Array:
    """int32[E + 1]: the slot of each version, valid if at most `size` are alive at once; `size` if nobody reads it.

    Slot allocation by live range. Only versions that are read count; they are born in the order of their numbers.
    Invariant: birth number k has slot k if k < size, and otherwise the slot of death number k - size, which comes
    before it, as at most `size` of the k + 1 versions born so far are alive. So every birth points to the birth of the
    version whose slot it takes, and the first `size` to themselves. Pointer jumping (every pointer replaced by the
    pointer of where it points to, so that paths double with each round) leaves all of them at their slot after
    log2(E) rounds.
    """
    last_commit = last_reader(schedule)
    is_read = last_commit >= 0
    birth_number_of_version = jnp.cumsum(is_read, dtype=jnp.int32) - 1
    birth_numbers = jnp.arange(last_commit.size, dtype=jnp.int32)
    versions_by_death = _versions_by_death(last_commit, num_contributions=schedule.worker.shape[1])
    version_replaced = versions_by_death[(birth_numbers - size).clip(0)]
    birth_replaced = birth_number_of_version[version_replaced]  # the birth whose slot is taken over
    pointer = jnp.where(birth_numbers < size, birth_numbers, birth_replaced)
    num_jumps = last_commit.size.bit_length()
    for _ in range(num_jumps):
        pointer = pointer[pointer]
    slot_of_birth, slot_of_unread = pointer, size
    return jnp.where(is_read, slot_of_birth[birth_number_of_version.clip(0)], slot_of_unread).astype(jnp.int32)


def _versions_by_death(last_commit: jax.Array, *, num_contributions: int) -> jax.Array:
    """int32[E + 1]: the versions in the order in which they die; entries after those of all versions read mean nothing.

    Args:
      last_commit: int32[E + 1], the last commit that reads each version, with which it dies; -1 if none reads it.
      num_contributions: C.
    """
    versions, is_read = jnp.arange(last_commit.size, dtype=jnp.int32), last_commit >= 0
    after_all_commits = last_commit.size
    death = jnp.where(is_read, last_commit, after_all_commits)
    if num_contributions > 1:
        return jnp.argsort(death, stable=True)
    # A commit reads one version, so at most one dies with it, and the order needs no sorting.
    has_death = jnp.zeros_like(last_commit).at[death].set(1, mode="drop")  # of each commit
    death_number_of_commit = jnp.cumsum(has_death, dtype=jnp.int32) - 1
    out_of_bounds = last_commit.size  # an index that is dropped
    death_number_of_version = jnp.where(is_read, death_number_of_commit[last_commit], out_of_bounds)
    return jnp.zeros_like(last_commit).at[death_number_of_version].set(versions, mode="drop")


def new_ring(params: Any, size: int) -> Any:
    """A ring of `size` slots and one more for versions that nobody reads, with version 0, `params`, in slot 0.

    That is the slot of the first version that is read. If nobody reads version 0, that is a later one, written later.
    """
    return jax.tree.map(lambda x: jnp.zeros((size + 1, *x.shape), x.dtype).at[0].set(x), params)


def size_of_ring(ring: Any, slot_axis: int = 0) -> int:
    """The past versions that a ring keeps, without the slot for those that nobody reads; 0 if there is no ring.

    `slot_axis`: of the leaves, behind the axes of a batch of rings.
    """
    return 0 if ring is None else jax.tree.leaves(ring)[0].shape[slot_axis] - 1


def read_slot(ring: Any, slot: jax.Array) -> Any:
    """The parameters in a slot, int32[]; or an entry of any tree whose leaves have a common first axis."""
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, slot, keepdims=False), ring)


def write_slot(ring: Any, slot: jax.Array, params: Any) -> Any:
    """The ring with these parameters in a slot."""
    return jax.tree.map(
        lambda slots, value: jax.lax.dynamic_update_index_in_dim(slots, value, slot, axis=0), ring, params
    )


def nan_if(condition: jax.Array, params: Any) -> Any:
    """The parameters, with NaN for every float if the condition (bool[]) holds: an invalid run must show it."""
    return jax.tree.map(
        lambda x: jnp.where(condition, jnp.nan, x) if jnp.issubdtype(x.dtype, jnp.inexact) else x, params
    )
