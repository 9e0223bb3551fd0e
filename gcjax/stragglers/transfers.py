"""Transfers that share a link, each with an equal part of it at any time (processor sharing, Kleinrock 1967).

Letters: W workers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class _LinkState(NamedTuple):
    """The shared link at a moment.

    Attributes:
      time: float[] seconds.
      size_left: float[W], what of each message is still to be transferred.
      arrival: float[W] seconds, when each transfer ended; inf if it has not.
    """

    time: jax.Array
    size_left: jax.Array
    arrival: jax.Array


def shared_seconds(is_sending: jax.Array, link_seconds: jax.Array, server_seconds: jax.Array) -> jax.Array:
    """float[W]: seconds that a message of size 1 (a full gradient) takes at the rate that each has at the moment.

    Args:
      is_sending: bool[W], who transfers.
      link_seconds: float[W] seconds on the worker's own link.
      server_seconds: float[] or float[W] seconds on the shared link for one alone.
    """
    return jnp.maximum(link_seconds, server_seconds * is_sending.sum().astype(server_seconds.dtype))


def shared_arrivals(ready: jax.Array, size: jax.Array, link_seconds: jax.Array, server_seconds: jax.Array) -> jax.Array:
    """float[W] seconds: when transfers end that share the server's link in equal parts; inf for those that never begin.

    Args:
      ready: float[W] seconds, when each begins; inf if it does not.
      size: float[W], of each message.
      link_seconds: float[W] seconds that a message of size 1 takes on the worker's own link.
      server_seconds: float[] or float[W] seconds that it takes on the shared link, for one alone.
    """

    def to_next_event(_: int, state: _LinkState) -> _LinkState:
        """The state when the next transfer begins (at `ready`) or ends; until then all rates stay the same.

        `ready`, `size_left` and the other arrays are float[W]; once nothing happens any more, the state stays as it is.
        """
        is_unfinished = (state.size_left > 0) & jnp.isfinite(ready)
        is_sending = is_unfinished & (ready <= state.time)
        unit_size_seconds = shared_seconds(is_sending, link_seconds, server_seconds)  # [W], at the present rates
        end_if_rate_stays = jnp.where(is_sending, state.time + state.size_left * unit_size_seconds, jnp.inf)
        begin_times = jnp.where(is_unfinished & ~is_sending, ready, jnp.inf)
        # inf if all transfers are done, or those that are left never begin.
        next_time = jnp.minimum(end_if_rate_stays.min(), begin_times.min())
        is_done = is_sending & (end_if_rate_stays <= next_time)
        # On a link that takes no time, all of it.
        size_moved = jnp.where(
            unit_size_seconds > 0,
            (next_time - state.time) / jnp.where(unit_size_seconds > 0, unit_size_seconds, 1),
            state.size_left,
        )
        # Above 0, so that rounding ends no transfer: only `is_done` does.
        size_left = jnp.where(
            is_sending, jnp.maximum(state.size_left - size_moved, jnp.finfo(ready.dtype).tiny), state.size_left
        )
        return _LinkState(
            time=jnp.where(jnp.isfinite(next_time), next_time, state.time),
            size_left=jnp.where(is_done, 0, size_left),
            arrival=jnp.where(is_done, next_time, state.arrival),
        )

    first_ready = jnp.min(ready)
    first_time = jnp.where(jnp.isfinite(first_ready), first_ready, 0).astype(ready.dtype)
    arrival = jnp.where(size > 0, jnp.inf, ready)  # an empty message arrives at once
    state = _LinkState(time=first_time, size_left=size, arrival=arrival)
    # Each of the W transfers begins once and ends once.
    return jax.lax.fori_loop(0, 2 * ready.size, to_next_event, state).arrival
