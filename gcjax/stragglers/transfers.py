"""Transfers that share a link, each with an equal part of it at any time (processor sharing, Kleinrock 1967).

Letters: W workers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class _Link(NamedTuple):
    """The link at the time `now`: the size left of every transfer [W], and when those that are done arrived [W]."""

    now: jax.Array
    left: jax.Array
    arrived: jax.Array


def shared_seconds(active: jax.Array, link_seconds: jax.Array, server_seconds: jax.Array) -> jax.Array:
    """float[W]: seconds that a message of size 1 takes at the rate of the moment.

    Args:
      active: bool[W], who transfers.
      link_seconds: float[W] seconds on the worker's own link.
      server_seconds: float[] seconds on the shared link for one alone.
    """
    return jnp.maximum(link_seconds, server_seconds * active.sum().astype(server_seconds.dtype))


def shared_arrivals(ready: jax.Array, size: jax.Array, link_seconds: jax.Array, server_seconds: jax.Array) -> jax.Array:
    """float[W]: when transfers end that share a link; inf for those that never begin.

    Args:
      ready: float[W] seconds, when each begins; inf if it does not.
      size: float[W], of each message.
      link_seconds: float[W] seconds that a message of size 1 takes on the worker's own link.
      server_seconds: float[] seconds that it takes on the shared link, for one alone.
    """

    def to_next_event(_: int, link: _Link) -> _Link:
        """The link when the next transfer begins or ends; until then all rates stay the same."""
        is_waiting = (link.left > 0) & jnp.isfinite(ready)
        active = is_waiting & (ready <= link.now)
        seconds = shared_seconds(active, link_seconds, server_seconds)
        end_if_rate_stays = jnp.where(active, link.now + link.left * seconds, jnp.inf)
        begin_times = jnp.where(is_waiting & ~active, ready, jnp.inf)
        now = jnp.minimum(end_if_rate_stays.min(), begin_times.min())
        is_done = active & (end_if_rate_stays <= now)
        transferred = jnp.where(seconds > 0, (now - link.now) / jnp.where(seconds > 0, seconds, 1), link.left)
        # Above 0, so that rounding ends no transfer: only `is_done` does.
        left = jnp.where(active, jnp.maximum(link.left - transferred, jnp.finfo(ready.dtype).tiny), link.left)
        reached_now = jnp.where(jnp.isfinite(now), now, link.now)
        return _Link(reached_now, jnp.where(is_done, 0, left), jnp.where(is_done, now, link.arrived))

    first_ready = jnp.min(ready)
    now = jnp.where(jnp.isfinite(first_ready), first_ready, 0).astype(ready.dtype)
    link = _Link(now, size, jnp.where(size > 0, jnp.inf, ready))
    # Each of the W transfers begins once and ends once.
    return jax.lax.fori_loop(0, 2 * ready.size, to_next_event, link).arrived
