"""Transfers that share a link, each with an equal part of it at any time (processor sharing, Kleinrock 1967).

Letters: W workers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class _Link(NamedTuple):
    """The link at a moment: what is left of every transfer, and when those that are done arrived."""

    now: jax.Array
    left: jax.Array
    arrived: jax.Array


def shared_seconds(active: jax.Array, worker_link: jax.Array, server_link: jax.Array) -> jax.Array:
    """float[W]: seconds that a message of size 1 takes at the rate of the moment.

    Args:
      active: bool[W], who transfers.
      worker_link: float[W] seconds on the worker's own link.
      server_link: float[] seconds on the shared link for one alone.
    """
    return jnp.maximum(worker_link, server_link * active.sum().astype(server_link.dtype))


def shared_arrivals(ready: jax.Array, size: jax.Array, worker_link: jax.Array, server_link: jax.Array) -> jax.Array:
    """float[W]: when transfers end that share a link; inf for those that never begin.

    Args:
      ready: float[W] seconds, when each begins; inf if it does not.
      size: float[W], of each message.
      worker_link: float[W] seconds that a message of size 1 takes on the worker's own link.
      server_link: float[] seconds that it takes on the shared link, for one alone.
    """

    def step(_: int, link: _Link) -> _Link:
        waiting = (link.left > 0) & jnp.isfinite(ready)
        active = waiting & (ready <= link.now)
        seconds = shared_seconds(active, worker_link, server_link)
        ends = jnp.where(active, link.now + link.left * seconds, jnp.inf)
        begins = jnp.where(waiting & ~active, ready, jnp.inf)
        now = jnp.minimum(ends.min(), begins.min())
        done = active & (ends <= now)
        passed = jnp.where(seconds > 0, (now - link.now) / jnp.where(seconds > 0, seconds, 1), link.left)
        left = jnp.where(active, jnp.maximum(link.left - passed, jnp.finfo(ready.dtype).tiny), link.left)
        reached = jnp.where(jnp.isfinite(now), now, link.now)
        return _Link(reached, jnp.where(done, 0, left), jnp.where(done, now, link.arrived))

    first = jnp.min(ready)
    now = jnp.where(jnp.isfinite(first), first, 0).astype(ready.dtype)
    link = _Link(now, size, jnp.where(size > 0, jnp.inf, ready))
    return jax.lax.fori_loop(0, 2 * ready.size, step, link).arrived
