"""Who is there: the changes of absences, as the event queue goes through them.

Letters: W workers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax.stragglers.absences import Changes


class Presence(NamedTuple):
    """What the event queue knows of those who leave and join.

    Attributes:
      num_changes: int32[], the changes that have happened.
      last_version: int32[W], the version that each worker had when its last message arrived; -1 if none has.
    """

    num_changes: jax.Array
    last_version: jax.Array


def nobody_has_changed(num_workers: int) -> Presence:
    """The presence of W workers before the first change, and before any message: all last versions are -1."""
    return Presence(jnp.zeros((), jnp.int32), jnp.full(num_workers, -1, jnp.int32))


def next_change(changes: Changes, presence: Presence) -> Changes:
    """The next change, as numbers; its time is inf if there is none, as that of the last of `changes`, arrays [n]."""
    return Changes(*(x[presence.num_changes] for x in changes))


def will_change(changes: Changes, presence: Presence) -> jax.Array:
    """bool[W]: who leaves or joins later, by the `changes`, arrays [n], that have not happened yet."""
    is_later = (jnp.arange(changes.time.size, dtype=jnp.int32) >= presence.num_changes) & jnp.isfinite(changes.time)
    return jnp.zeros_like(presence.last_version, bool).at[changes.worker].max(is_later)


def with_last_version(presence: Presence, worker: jax.Array, arrives: jax.Array, version: jax.Array) -> Presence:
    """The presence after a message of the worker, if `arrives bool[]`; `version int32[W]`, that each has read last."""
    version_of_worker = jnp.where(arrives, version[worker], presence.last_version[worker])
    return presence._replace(last_version=presence.last_version.at[worker].set(version_of_worker))
