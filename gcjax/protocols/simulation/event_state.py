"""The state of the event queue: what each worker does, the turns that have ended, and the commits.

Letters: W workers, J turns of a worker, E commits.
"""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from gcjax.protocols.simulation.presence import Presence
from gcjax.protocols.simulation.rules import View
from gcjax.protocols.simulation.turns import FLOATS, INTEGERS, Turns

IDLE, RECEIVING, COMPUTING, ANSWERING, SENDING, ARRIVING = range(6)

Fields = TypeVar("Fields", bound=Any)


class State(NamedTuple):
    """The simulation at a moment.

    Attributes:
      view: what the rule may look at.
      phase: int32[W], what each worker does: `IDLE`, `RECEIVING`, ...
      phase_end: float[W] seconds, when the phase ends; inf for a transfer on the shared link.
      remaining_transfer: float[W], what is left of such a transfer, in full gradients.
      num_turns: int32[W], the turns that have ended so far.
      current: the turn under way of each worker, or else its last one; arrays [W].
      integers: int32[J, W, fields], the turns that have ended: their fields `INTEGERS`.
      floats: float[J, W, fields], their fields `FLOATS`.
      time: float[E] seconds of the commits; inf for those that have not happened.
      horizon: float[] seconds, when the first worker would begin a unit that was not sampled; inf if none has so far.
      is_running: bool[], whether the simulation goes on.
      server_free_time: float[] seconds, when the server has dealt with the last message.
      presence: of the workers that leave and join; None where nobody does.
    """

    view: View
    phase: jax.Array
    phase_end: jax.Array
    remaining_transfer: jax.Array
    num_turns: jax.Array
    current: Turns
    integers: jax.Array
    floats: jax.Array
    time: jax.Array
    horizon: jax.Array
    is_running: jax.Array
    server_free_time: jax.Array
    presence: Presence | None = None


def replace_where(fields: Fields, mask: jax.Array, **values: Any) -> Fields:
    """The NamedTuple of arrays, with new values for the named fields, where `mask bool[...]` is true."""
    return fields._replace(**{name: jnp.where(mask, value, getattr(fields, name)) for name, value in values.items()})


def with_ended_turns(state: State, has_ended: jax.Array, worker: jax.Array) -> State:
    """The state in which the current turns of some workers are written to the turns that have ended.

    These are in `state.integers` and `state.floats`, by turn, worker and field: the fields INTEGERS and FLOATS.

    Args:
      state: the simulation.
      has_ended: bool[...], whose turns have ended.
      worker: int32[...], one number or several.
    """
    out_of_bounds = state.integers.shape[0]
    turn_number = jnp.where(has_ended, state.num_turns[worker], out_of_bounds)  # out of bounds: dropped
    entry = turn_number, worker
    integers = jnp.stack([getattr(state.current, name)[worker] for name in INTEGERS], axis=-1)
    floats = jnp.stack([getattr(state.current, name)[worker] for name in FLOATS], axis=-1)
    return state._replace(
        integers=state.integers.at[entry].set(integers, mode="drop"),
        floats=state.floats.at[entry].set(floats, mode="drop"),
        num_turns=state.num_turns.at[worker].add(has_ended.astype(jnp.int32)),
    )
