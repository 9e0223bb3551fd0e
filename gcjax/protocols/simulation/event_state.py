"""The state of the event queue: what each worker does, the turns that have ended, and the commits.

Letters: W workers, J turns of a worker, E commits.
"""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from gcjax.protocols.simulation.one_row_each import with_rows
from gcjax.protocols.simulation.presence import Presence
from gcjax.protocols.simulation.rules import View
from gcjax.protocols.simulation.turns import FLOATS, INTEGERS, Turns
from gcjax.protocols.simulation.worker_selection import WorkerSelection, with_entry

IDLE, RECEIVING, COMPUTING, ANSWERING, SENDING, ARRIVING = range(6)

Fields = TypeVar("Fields", bound=Any)


class PackedTurns(NamedTuple):
    """Turns in two arrays, of which all about one turn is read or written at once.

    Attributes: integers: int32[..., fields], the fields `INTEGERS`; floats: float[..., fields], the fields `FLOATS`.
    """

    integers: jax.Array
    floats: jax.Array

    @property
    def unpacked(self) -> Turns:
        """The same as turns, whose arrays are [...]."""
        return Turns(*jnp.moveaxis(self.integers, -1, 0), *jnp.moveaxis(self.floats, -1, 0))


def packed(turns: Turns) -> PackedTurns:
    """The turns, arrays `[...]`, in two arrays `[..., fields]`."""
    integers = jnp.stack([getattr(turns, name) for name in INTEGERS], axis=-1)
    return PackedTurns(integers, jnp.stack([getattr(turns, name) for name in FLOATS], axis=-1))


class WorkerStates(NamedTuple):
    """What some workers do, or all; every array has an entry for each of them, and is called as in `View` or `State`.

    Attributes: idle, version, begin_time: of the view; phase, phase_end, current_turns: of the state.
    """

    idle: jax.Array
    version: jax.Array
    begin_time: jax.Array
    phase: jax.Array
    phase_end: jax.Array
    current_turns: PackedTurns


class State(NamedTuple):
    """The simulation at a moment.

    Attributes:
      view: what the rule may look at.
      phase: int32[W], what each worker does: `IDLE`, `RECEIVING`, ...
      phase_end: float[W] seconds, when the phase ends; inf for a transfer on the shared link.
      remaining_transfer: float[W], what is left of such a transfer, in full gradients.
      num_turns: int32[W], the turns that have ended so far.
      current_turns: the turn under way of each worker, or else its last one.
      ended_turns: the turns that have ended, arrays [J + 1, W, fields]; the last row means nothing.
      time: float[E + 1] seconds of the commits; inf for those that have not happened; the last entry means nothing.
      horizon: float[] seconds, when the first worker would begin a unit that was not sampled; inf if none has so far.
      is_running: bool[], whether the simulation goes on.
      server_free_time: float[] seconds, when the server has dealt with the last message.
      sender: int32[], whose event was the last.
      asks_everybody: bool[], whether others than the sender may begin since workers began last.
      somebody_is_stuck: bool[], whether the unit of somebody who is not idle may never end.
      earliest_phase_ends: float[B], the earliest `phase_end` of each block of workers; None where events look at all.
      presence: of the workers that leave and join; None where nobody does.
    """

    view: View
    phase: jax.Array
    phase_end: jax.Array
    remaining_transfer: jax.Array
    num_turns: jax.Array
    current_turns: PackedTurns
    ended_turns: PackedTurns
    time: jax.Array
    horizon: jax.Array
    is_running: jax.Array
    server_free_time: jax.Array
    sender: jax.Array
    asks_everybody: jax.Array
    somebody_is_stuck: jax.Array
    earliest_phase_ends: jax.Array | None
    presence: Presence | None = None

    @property
    def worker_states(self) -> WorkerStates:
        """What everybody does, arrays [W]."""
        view = self.view
        return WorkerStates(view.idle, view.version, view.begin_time, self.phase, self.phase_end, self.current_turns)

    def with_worker_states(self, selected_workers: WorkerSelection, selected_states: WorkerStates) -> "State":
        """The state in which what `selected_workers` do is `selected_states`, arrays [m]: m is 1, or W for all."""
        idle, version, begin_time, phase, phase_end, current_turns = selected_workers.with_entries(
            self.worker_states, selected_states
        )
        view = self.view._replace(idle=idle, version=version, begin_time=begin_time)
        return self._replace(view=view, phase=phase, phase_end=phase_end, current_turns=current_turns)


def replace_where(fields: Fields, mask: jax.Array, **values: Any) -> Fields:
    """The NamedTuple of arrays, with new values for the named fields, where `mask bool[...]` is true."""
    return fields._replace(**{name: jnp.where(mask, value, getattr(fields, name)) for name, value in values.items()})


def with_ended_turn(
    state: State, has_ended: jax.Array, worker: jax.Array, turn: PackedTurns, num_turns: jax.Array
) -> State:
    """The state in which the turn of one worker is written to the turns that have ended, if `has_ended bool[]`.

    If it has not, it is written to the row that means nothing, so that nothing is read, and there is no scatter.

    Args:
      state: the simulation.
      has_ended: as said.
      worker: int32[].
      turn: its turn, arrays [1, fields].
      num_turns: int32[1], how many of its turns have ended before.
    """
    unused_row = state.ended_turns.integers.shape[0] - 1
    # All fields of one turn, [1, 1, fields], are written at [row, worker, 0] of [J + 1, W, fields].
    row, first_field = jnp.where(has_ended, num_turns[0], unused_row), jnp.zeros_like(worker)
    return state._replace(
        ended_turns=PackedTurns(
            *(
                jax.lax.dynamic_update_slice(rows, field_values[None], (row, worker, first_field))
                for rows, field_values in zip(state.ended_turns, turn, strict=True)
            )
        ),
        num_turns=with_entry(state.num_turns, worker, num_turns[0] + has_ended.astype(jnp.int32)),
    )


def with_ended_turns(state: State, has_ended: jax.Array) -> State:
    """The state in which the turns of the workers of `has_ended bool[W]` are written to the turns that have ended.

    The others' are written to the row that means nothing.
    """
    unused_row = state.ended_turns.integers.shape[0] - 1
    row = jnp.where(has_ended, state.num_turns, unused_row)  # int32[W]
    return state._replace(
        ended_turns=PackedTurns(*with_rows(tuple(state.ended_turns), row, tuple(state.current_turns))),
        num_turns=state.num_turns + has_ended.astype(jnp.int32),
    )
