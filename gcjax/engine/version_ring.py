"""The past versions of the parameters that somebody will still read.

A version is alive from the commit that makes it to the last commit that reads it. The schedule says which ones are
alive when, so each is given one of `size` places, and a place is used again as soon as its version is dead: the
first to die is the first to be replaced. A run needs as many places as versions are ever alive at once: at most one a
worker where each computes on one version at a time, however stale it gets.

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
      place: int32[E + 1], where each version stands in the ring; None where there is none.
    """

    params: Any
    ring: Any
    place: jax.Array | None

    def read(self, version: jax.Array) -> Any:
        """The parameters of a version."""
        return self.params if self.place is None else read(self.ring, self.place[version])


def last_reader(schedule: Schedule) -> jax.Array:
    """int32[E + 1]: the last commit that reads each version; -1 if none does."""
    num_commits = schedule.time.shape[0]
    used = schedule.worker >= 0
    commits = jnp.broadcast_to(jnp.arange(num_commits, dtype=jnp.int32)[:, None], used.shape)
    version = jnp.where(used, schedule.version, num_commits + 1)  # out of bounds: dropped
    return jnp.full(num_commits + 1, -1, jnp.int32).at[version].max(commits, mode="drop")


def staleness(schedule: Schedule) -> jax.Array:
    """int32[E]: the largest staleness of each commit; -1 for commits that are not used."""
    commits = jnp.arange(schedule.time.shape[0], dtype=jnp.int32)[:, None]
    return jnp.where(schedule.worker >= 0, commits - schedule.version, -1).max(axis=1)


def versions_alive(schedule: Schedule) -> jax.Array:
    """int32[]: the most versions alive at once."""
    last = last_reader(schedule)
    deaths = jnp.zeros_like(last).at[jnp.where(last >= 0, last + 1, last.size)].add(1, mode="drop")
    return (jnp.cumsum(last >= 0, dtype=jnp.int32) - jnp.cumsum(deaths, dtype=jnp.int32)).max()


def places(schedule: Schedule, size: int) -> jax.Array:
    """int32[E + 1]: the place of each version, valid if at most `size` are alive at once; `size` if nobody reads it.

    With births and deaths in order, birth number k takes the place of death number k - size. Following these links
    back to one of the first `size` births, in steps of doubling length, gives the place.
    """
    last = last_reader(schedule)
    count = last.size
    read = last >= 0
    births = jnp.cumsum(read, dtype=jnp.int32) - 1
    order = jnp.arange(count, dtype=jnp.int32)
    before = births[_by_death(last, schedule.worker.shape[1])[(order - size).clip(0)]]
    link = jnp.where(order < size, order, before)
    for _ in range(count.bit_length()):
        link = link[link]
    return jnp.where(read, link[births.clip(0)], size).astype(jnp.int32)


def _by_death(last: jax.Array, contributions: int) -> jax.Array:
    """int32[E + 1]: the versions in the order in which they die."""
    order = jnp.arange(last.size, dtype=jnp.int32)
    if contributions > 1:
        return jnp.argsort(jnp.where(last >= 0, last, last.size), stable=True)
    # A commit reads one version, so at most one dies with it, and the order needs no sorting.
    dies = jnp.zeros_like(last).at[jnp.where(last >= 0, last, last.size)].set(1, mode="drop")
    rank = jnp.cumsum(dies, dtype=jnp.int32) - 1
    return jnp.zeros_like(last).at[jnp.where(last >= 0, rank[last], last.size)].set(order, mode="drop")


def create(params: Any, size: int, place: jax.Array) -> Any:
    """A ring of `size` places, and one for what nobody reads, with version 0 in its place."""
    return jax.tree.map(lambda x: jnp.zeros((size + 1, *x.shape), x.dtype).at[place].set(x), params)


def read(ring: Any, place: jax.Array) -> Any:
    """The parameters in a place."""
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, place, keepdims=False), ring)


def write(ring: Any, place: jax.Array, params: Any) -> Any:
    """The ring with these parameters in a place."""

    def leaf(x: jax.Array, value: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_index_in_dim(x, value, place, axis=0)

    return jax.tree.map(leaf, ring, params)


def poisoned(params: Any, poison: jax.Array) -> Any:
    """All NaN if a version that is not there would be read, so that the run cannot pass for a result."""

    def leaf(x: jax.Array) -> jax.Array:
        return jnp.where(poison, jnp.nan, x) if jnp.issubdtype(x.dtype, jnp.inexact) else x

    return jax.tree.map(leaf, params)
