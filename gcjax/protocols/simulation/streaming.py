"""Synchronised fragments: all push every so many steps, and merge what has come of it some steps later.

Letters: T units sampled per worker, W workers, E commits, P fragments, L units between two pushes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.schedule import Schedule, Timeline, record
from gcjax.stragglers.network import Network


class _State(NamedTuple):
    """What the next turn, of L units, depends on.

    Attributes:
      compute_end: float[W] seconds, when each has done its units so far.
      upload_end: float[W], when the link of each towards the server is free.
      download_end: float[W], when that from the server is.
      commit_time: float[q + 1], of the last commits, number e at place `e % (q + 1)`; 0 for those before the first.
      commit_arrival: float[q + 1, W], when what came of them has arrived at each worker.
    """

    compute_end: jax.Array
    upload_end: jax.Array
    download_end: jax.Array
    commit_time: jax.Array
    commit_arrival: jax.Array


def streaming_commits(
    durations: jax.Array, network: Network, *, num_units: int, num_fragments: int, overlap_units: int
) -> Schedule:
    """The schedule in which commit e takes the L = `num_units` units `e L, ..., e L + L - 1` of everybody.

    Commit e is when the messages of all about its units have arrived. What comes of it is sent to all, and each worker
    merges it before its unit `(e + 1) L + τ`, for which it waits if need be. A message is fragment `e % P`, as large as
    `network.fragments` says; the first parameters are received whole. Messages of one worker in one direction pass its
    link one after the other; those of different commits do not share the server's link.

    With τ = q L + r, contributions of a worker to a commit are two where r > 0: the units before it merges within the
    turn, at place w, and those after it at W + w. One, at place w, where nothing is merged there.

    Args:
      durations: float[T, W] seconds.
      network: the time of messages.
      num_units: L.
      num_fragments: P.
      overlap_units: τ, below P L.
    """
    sampled_units, num_workers = durations.shape
    num_commits = sampled_units // num_units
    seconds = _units_by_turn(durations, num_units)
    lag_turns, merge_offset = divmod(overlap_units, num_units)
    message_sizes = jnp.asarray(network.fragment_shares(num_fragments), durations.dtype)
    turns = _StreamedTurns(network, message_sizes, lag_turns, merge_offset)
    numbers = jnp.arange(num_commits + 1, dtype=jnp.int32)  # of turns: the last one has units that are not sampled
    times, time = jax.lax.scan(turns.step, turns.initial_state(num_workers, durations.dtype), (numbers, seconds))[1]
    rows = {name: x.reshape(-1, num_workers) for name, x in times.items()}  # [units, W], from [turns, L, W]
    timeline = Timeline(
        **{name: x[:sampled_units] for name, x in rows.items()}, horizon=rows["start"][sampled_units].min()
    )
    return _record(timeline, time[:num_commits], num_units, lag_turns, merge_offset)


def _units_by_turn(durations: jax.Array, num_units: int) -> jax.Array:
    """float[turns, L, W]: the seconds of units, L = `num_units` a turn; inf for those that are not sampled.

    There is one of these at least, in the last turn: when it would begin is the horizon.
    """
    sampled_units, num_workers = durations.shape
    num_padding_units = num_units - sampled_units % num_units
    padded_durations = jnp.pad(durations, ((0, num_padding_units), (0, 0)), constant_values=jnp.inf)
    return padded_durations.reshape(-1, num_units, num_workers)


class _StreamedTurns(NamedTuple):
    """The turns of L units, each of which ends with a push.

    Attributes:
      network: the time of messages.
      message_sizes: float[P], their sizes.
      lag_turns: q, in the turn after so many others what came of a push is merged.
      merge_offset: r, before its unit of this number.
    """

    network: Network
    message_sizes: jax.Array
    lag_turns: int
    merge_offset: int

    def initial_state(self, num_workers: int, dtype: jnp.dtype) -> _State:
        """The state before the first turn.

        It keeps the last q + 1 commits, commit e at place e % (q + 1): what comes of one is merged q = `lag_turns`
        turns later. For those before the first, all times are 0.
        """
        zeros = jnp.zeros(num_workers, dtype)
        num_kept_commits = self.lag_turns + 1
        return _State(
            compute_end=zeros,
            upload_end=zeros,
            download_end=zeros,
            commit_time=jnp.zeros(num_kept_commits, dtype),
            commit_arrival=jnp.zeros((num_kept_commits, num_workers), dtype),
        )

    def step(
        self, state: _State, inputs: tuple[jax.Array, jax.Array]
    ) -> tuple[_State, tuple[dict[str, jax.Array], jax.Array]]:
        """One turn (L units, then a push), whose number and seconds [L, W] are given, for a scan.

        Before unit r = `merge_offset` a worker merges what came of the push that is `lag_turns` + 1 turns ago, and
        waits for it: its commit is at place `ring_index` of those kept, where this turn's goes afterwards.

        Collected: the times of its units, float[L, W] each, and that of its commit.
        """
        turn_number, seconds = inputs
        ring_index = turn_number % (self.lag_turns + 1)
        message_size = self.message_sizes[turn_number % self.message_sizes.size]
        first_receive_time = self.network.arrivals_at_workers(state.compute_end)  # of all parameters
        ready_time = jnp.where(turn_number == 0, first_receive_time, state.compute_end)
        begins_before_merge = _begins_and_end(ready_time, seconds[: self.merge_offset])  # [r + 1, W]
        done_before_merge = begins_before_merge[-1] if self.merge_offset else state.compute_end
        merge_start = jnp.maximum(done_before_merge, state.commit_time[ring_index])
        begins_after_merge = _begins_and_end(
            jnp.maximum(begins_before_merge[-1], state.commit_arrival[ring_index]), seconds[self.merge_offset :]
        )
        compute_start = jnp.concatenate([begins_before_merge[:-1], begins_after_merge[:-1]])  # [L, W], as the ends
        compute_end = jnp.concatenate([begins_before_merge[1:], begins_after_merge[1:]])
        last_unit, last_compute_end = len(seconds) - 1, compute_end[-1]
        send_start = jnp.maximum(last_compute_end, state.upload_end)
        arrival = self.network.arrivals_at_server(send_start, message_size)
        times = {
            # If r is 0, unit 0 is the one that waits for the merge: the second entry counts.
            "start": compute_start.at[0].set(state.compute_end).at[self.merge_offset].set(merge_start),
            "compute_start": compute_start,
            "compute_end": compute_end,
            "send_start": jnp.full_like(compute_end, jnp.inf).at[last_unit].set(send_start),
            "finish": compute_end.at[last_unit].set(arrival),
        }
        return self._state_after(state, ring_index, message_size, last_compute_end, arrival), (times, arrival.max())

    def _state_after(
        self, state: _State, ring_index: jax.Array, message_size: jax.Array, end: jax.Array, arrival: jax.Array
    ) -> _State:
        """The state after a turn that the workers end at `end float[W]`, and whose messages come at `arrival float[W]`.

        Its commit is when the last has arrived; `ring_index` is its place among those kept, `message_size` that of what
        comes of it, in full gradients.
        """
        network, dtype, time = self.network, end.dtype, arrival.max()
        received = network.arrivals_at_workers(jnp.maximum(time, state.download_end), message_size)
        # A link is free before the message on it has arrived, and before the server has dealt with it; never if it
        # never arrives.
        latency = jnp.asarray(network.latency, dtype)
        service = jnp.asarray(0 if network.service is None else network.service, dtype)
        return _State(
            compute_end=end,
            upload_end=jnp.where(jnp.isinf(arrival), jnp.inf, arrival - latency - service),
            download_end=jnp.where(jnp.isinf(received), jnp.inf, received - latency),
            commit_time=state.commit_time.at[ring_index].set(time),
            commit_arrival=state.commit_arrival.at[ring_index].set(received),
        )


def _begins_and_end(begin: jax.Array, seconds: jax.Array) -> jax.Array:
    """float[units + 1, W]: when units of these seconds [units, W] begin one after the other, and the last one ends."""
    return begin[None] + jnp.concatenate([jnp.zeros_like(begin)[None], jnp.cumsum(seconds, axis=0)])


def _record(timeline: Timeline, time: jax.Array, num_units: int, lag_turns: int, merge_offset: int) -> Schedule:
    """The record of these units, if commits are at `time float[E]`; what came of a push is merged later.

    That is in the turn after q = `lag_turns` others, before its unit r = `merge_offset`; units before that are another
    contribution, on the version before.
    """
    sampled_units, num_workers = timeline.start.shape
    units = jnp.arange(sampled_units, dtype=jnp.int32)
    # int32[T], below 0 before the first merge: then it is version 0.
    version_of_unit = units // num_units - lag_turns - (units % num_units < merge_offset).astype(jnp.int32)
    commit = jnp.arange(time.size, dtype=jnp.int32)[:, None]
    worker = jnp.broadcast_to(jnp.arange(num_workers, dtype=jnp.int32), (time.size, num_workers))
    unit, work = commit * num_units, jnp.full_like(commit, num_units)  # [E, 1], of every worker
    if merge_offset:  # two contributions a worker, at place w before the merge, at W + w after it: all [E, 2 W]
        merges = commit > lag_turns  # a fragment within the turn
        worker = jnp.concatenate([worker, jnp.where(merges, worker, -1)], axis=1)
        work = jnp.repeat(
            jnp.concatenate([jnp.where(merges, merge_offset, work), work - merge_offset], axis=1), num_workers, axis=1
        )
        unit = jnp.repeat(jnp.concatenate([unit, unit + merge_offset], axis=1), num_workers, axis=1)
    return record(
        timeline,
        time=jnp.where(time <= timeline.horizon, time, jnp.inf),
        worker=worker,
        unit=unit,
        work=work,
        weight=1.0 / num_workers,
        read=jnp.where(jnp.isfinite(timeline.start), version_of_unit.clip(0)[:, None], -1),
    )
