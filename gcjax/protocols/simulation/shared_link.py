"""The event queue where transfers share the server's link: how long each takes depends on who else transfers.

Each transfer is then an event of its own, and the rates change whenever one begins or ends.

Letters: W workers.
"""

from typing import Any

import jax
import jax.numpy as jnp

from gcjax.protocols.simulation.event_queue import Queue
from gcjax.protocols.simulation.event_state import (
    ANSWERING,
    ARRIVING,
    COMPUTING,
    RECEIVING,
    SENDING,
    State,
    WorkerStates,
    packed,
    replace_where,
)
from gcjax.protocols.simulation.worker_selection import EVERYBODY, WorkerSelection
from gcjax.stragglers.transfers import shared_seconds


class SharedQueue(Queue):
    """The steps of the event queue; a phase that is a transfer ends when nothing of it is left."""

    __slots__ = ()

    def phase_ends(self, state: State) -> jax.Array:
        """float[W] seconds: when each worker's phase, or the rest of its transfer, ends, if others' go on as now."""
        is_transferring = (state.phase == RECEIVING) | (state.phase == SENDING)
        return jnp.where(
            is_transferring, state.view.now + state.remaining_transfer * self._transfer_seconds(state), state.phase_end
        )

    def with_event_at(
        self, state: State, now: jax.Array, worker: jax.Array, phase_has_ended: jax.Array
    ) -> tuple[State, jax.Array]:
        """The state at `now float[]`; and bool[], whether a message of the worker arrives.

        It does if `phase_has_ended bool[]`, and that was the phase `ARRIVING`; after any other the worker goes on to
        the next one.
        """
        state = self._with_transfers_until(state, now)
        state = state._replace(view=state.view._replace(now=now))
        arrives = phase_has_ended & (state.phase[worker] == ARRIVING)
        return self._with_next_phase(state, worker, phase_has_ended & ~arrives), arrives

    def another_phase_ends(self, state: State) -> jax.Array:
        """bool[]: whether a phase ends at the moment of the event that was, as the latency of what has been sent."""
        return (self.phase_ends(state) <= state.view.now).any()

    def begin_turns(
        self,
        state: State,
        selected_workers: WorkerSelection,
        selected_states: WorkerStates,
        begins: jax.Array,
        pulls: jax.Array,
    ) -> State:
        """The state in which `begins bool[W]` begin a turn, `pulls bool[W]` of them by receiving.

        `selected_workers` is everybody; `selected_states` is what they have done so far, not yet known to the state.
        """
        now = jnp.broadcast_to(state.view.now, begins.shape)
        state = self.with_computing_turns(state, selected_workers, selected_states, begins & ~pulls, now, pulls)
        return _with_begun_transfers(state, pulls, RECEIVING)

    def phase_until_sent(
        self, selected_workers: WorkerSelection, stop: jax.Array, send_start: jax.Array
    ) -> tuple[int, jax.Array, jax.Array]:
        """The phase of who computes and then sends, from `send_start float[W]` on; when it ends, which is then, [W].

        And when the message would arrive by the worker's own link alone, [W], until it is known when it does.
        """
        _, _, arrival_time = super().phase_until_sent(selected_workers, stop, send_start)
        return COMPUTING, send_start, arrival_time

    def _transfer_seconds(self, state: State) -> jax.Array:
        """float[W]: seconds that a full gradient would take at the rates of this moment.

        Those of the download for who receives, those of the upload for all others; transfers share the link.
        """
        dtype, shape = self.work.durations.dtype, state.phase.shape

        def seconds_of(phase: int, link_seconds: Any, server_seconds: Any) -> jax.Array:
            """float[W]: seconds of a gradient where all workers in this phase share the server's link.

            `link_seconds` are the seconds on a worker's own link, `server_seconds` those on the shared one.
            """
            own_seconds = jnp.broadcast_to(jnp.asarray(link_seconds, dtype), shape)
            return shared_seconds(state.phase == phase, own_seconds, jnp.asarray(server_seconds, dtype))

        network = self.network
        download = seconds_of(RECEIVING, network.download, network.server)
        upload = seconds_of(SENDING, network.upload, network.upload_seconds_of_server)
        return jnp.where(state.phase == RECEIVING, download, upload)

    def _with_transfers_until(self, state: State, now: jax.Array) -> State:
        """The state in which what is transferred between the last event and `now` is taken off what is left.

        Transfers that are equal end together, however what is left of them is rounded: each by an event of its own,
        for which a least number is left. Of who transfers nothing, what is left means nothing.
        """
        transfer_seconds = self._transfer_seconds(state)
        takes_time = transfer_seconds > 0  # the others' transfers end at once, by an event at this very moment
        transferred_gradients = jnp.where(
            takes_time, (now - state.view.now) / jnp.where(takes_time, transfer_seconds, 1), 0
        )
        dtype = state.remaining_transfer.dtype
        ends_now = state.view.now + state.remaining_transfer * transfer_seconds <= now
        remaining_transfer = jnp.where(ends_now, 0, state.remaining_transfer - transferred_gradients.astype(dtype))
        remaining_transfer = jnp.maximum(remaining_transfer, jnp.finfo(dtype).tiny)
        return replace_where(state, state.is_running, remaining_transfer=remaining_transfer)

    def _with_next_phase(self, state: State, worker: jax.Array, goes_on: jax.Array) -> State:
        """The state in which this worker goes on to the phase after the one that has ended, if `goes_on bool[]`.

        Receiving, computing, sending, arriving; or, where parameters are exchanged: computing, receiving, answering,
        sending, arriving.
        """
        is_going_on = (jnp.arange(state.phase.size, dtype=jnp.int32) == worker) & goes_on
        phase, now = state.phase, state.view.now
        latency = jnp.broadcast_to(jnp.asarray(self.network.latency, now.dtype), phase.shape)
        has_computed, has_received, has_answered, has_sent = (
            is_going_on & (phase == ended_phase) for ended_phase in (COMPUTING, RECEIVING, ANSWERING, SENDING)
        )
        after_latency = now + latency
        state = replace_where(state, has_sent, phase=ARRIVING, phase_end=after_latency)
        turns = replace_where(state.current_turns.unpacked, has_sent, arrive=after_latency)
        state = state._replace(current_turns=packed(turns))
        if self.rule.pulls_before_push:
            state = replace_where(state, has_received, phase=ANSWERING, phase_end=after_latency)
            state = _with_begun_transfers(state, has_answered, SENDING)
            return _with_begun_transfers(state, has_computed, RECEIVING)
        state = _with_begun_transfers(state, has_computed, SENDING)
        return self.with_computing_turns(
            state, EVERYBODY, state.worker_states, has_received, after_latency, has_received
        )


def _with_begun_transfers(state: State, begins: jax.Array, phase: int) -> State:
    """The state in which the workers of `begins bool[W]` begin a transfer of a full gradient, in this phase."""
    return replace_where(
        state, begins, phase=phase, phase_end=jnp.inf, remaining_transfer=jnp.ones((), state.remaining_transfer.dtype)
    )
