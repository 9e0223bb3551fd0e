"""The event queue where transfers share the server's link: how long each takes depends on who else transfers.

Each transfer is then an event of its own, and the rates change whenever one begins or ends.
"""

from typing import Any

import jax
import jax.numpy as jnp

from gcjax.protocols.simulation.event_queue import (
    ANSWERING,
    ARRIVING,
    COMPUTING,
    RECEIVING,
    SENDING,
    Queue,
    State,
    replace_where,
)
from gcjax.stragglers.transfers import shared_seconds


class SharedQueue(Queue):
    """The steps of the event queue; a phase that is a transfer ends when nothing of it is left."""

    __slots__ = ()

    def coming(self, state: State) -> jax.Array:
        """float[W]: when the phase of each worker ends, if no transfer begins or ends before."""
        moving = (state.phase == RECEIVING) | (state.phase == SENDING)
        return jnp.where(moving, state.view.now + state.left * self._seconds(state), state.until)

    def passed(self, state: State, now: jax.Array, worker: jax.Array) -> tuple[State, jax.Array]:
        """The state at the next event, which this worker has; and whether its message has arrived."""
        state = self._transferred(state, now)
        state = state._replace(view=state.view._replace(now=now))
        arrives = state.going & (state.phase[worker] == ARRIVING)
        return self._go_on(state, worker, state.going & ~arrives), arrives

    def ask(self, state: State, may: jax.Array, pulls: jax.Array) -> State:
        """These workers begin a turn, by receiving the parameters or by computing."""
        state = self.compute(state, may & ~pulls, jnp.broadcast_to(state.view.now, may.shape), pulls)
        return _transfer(state, pulls, RECEIVING)

    def sending(self, stop: jax.Array, send_start: jax.Array) -> tuple[int, jax.Array, jax.Array]:
        """The phase of those who compute until `stop` and then send; when it ends, and when a message would arrive."""
        return COMPUTING, send_start, super().sending(stop, send_start)[2]

    def _seconds(self, state: State) -> jax.Array:
        """float[W]: seconds that a full gradient takes at the rate of the moment, each in its direction."""
        dtype, shape = self.work.durations.dtype, state.phase.shape
        server = jnp.asarray(self.network.server, dtype)

        def of(phase: int, link: Any) -> jax.Array:
            own = jnp.broadcast_to(jnp.asarray(link, dtype), shape)
            return shared_seconds(state.phase == phase, own, server)

        received, sent = of(RECEIVING, self.network.download), of(SENDING, self.network.upload)
        return jnp.where(state.phase == RECEIVING, received, sent)

    def _transferred(self, state: State, now: jax.Array) -> State:
        """With what has been transferred up to now taken off."""
        seconds = self._seconds(state)
        share = jnp.where(seconds > 0, (now - state.view.now) / jnp.where(seconds > 0, seconds, 1), 0)
        left = jnp.maximum(state.left - share.astype(state.left.dtype), jnp.finfo(state.left.dtype).tiny)
        return replace_where(state, state.going, left=left)

    def _go_on(self, state: State, worker: jax.Array, active: jax.Array) -> State:
        """The next phase of a worker."""
        own = (jnp.arange(state.phase.size, dtype=jnp.int32) == worker) & active
        phase, now = state.phase, state.view.now
        latency = jnp.broadcast_to(jnp.asarray(self.network.latency, now.dtype), phase.shape)
        computed, received, answers, sent = (own & (phase == p) for p in (COMPUTING, RECEIVING, ANSWERING, SENDING))
        arrive = now + latency
        state = replace_where(state, sent, phase=ARRIVING, until=arrive)
        state = state._replace(current=replace_where(state.current, sent, arrive=arrive))
        if self.rule.exchanges:
            state = replace_where(state, received, phase=ANSWERING, until=arrive)
            state = _transfer(state, answers, SENDING)
            return _transfer(state, computed, RECEIVING)
        state = _transfer(state, computed, SENDING)
        return self.compute(state, received, arrive, received)


def _transfer(state: State, which: jax.Array, phase: int) -> State:
    """These workers begin a transfer of a full gradient."""
    return replace_where(state, which, phase=phase, until=jnp.inf, left=jnp.ones((), state.left.dtype))
