"""Rounds in which the server stops everybody at once: the times of their units.

Round r takes the units r K, ..., r K + K - 1 of every worker, also of those that do not get to them. Everybody receives
the parameters when it begins; when the server stops it, what is unfinished is cut off, and messages go out; when the
last has arrived, the next round begins.

Letters: K units of a worker in a round, W workers, T units sampled per worker.
"""

import jax
import jax.numpy as jnp

from gcjax.protocols.schedule import Timeline
from gcjax.stragglers.network import Network


def units_of_rounds(durations: jax.Array, load: int) -> jax.Array:
    """float[num_rounds, K, W]: the durations `[T, W]` by rounds of K = `load` units, up to the last whole one."""
    num_rounds = durations.shape[0] // load
    return durations[: num_rounds * load].reshape(num_rounds, load, durations.shape[1])


def read_by_unit(version: jax.Array, load: int, num_units: int) -> jax.Array:
    """int32[T, W or 1]: what each of `num_units` units has read, `version int32[num_rounds, W or 1]` of its round.

    -1 behind the last of the rounds, of K = `load` units each.
    """
    return _by_unit(jnp.repeat(version[:, None], load, axis=1), num_units, fill=-1)


def begin_times(end_time: jax.Array) -> jax.Array:
    """float[num_rounds] seconds, when rounds begin that follow each other without a pause, and end at these times."""
    return jnp.concatenate([jnp.zeros_like(end_time[:1]), end_time[:-1]])


def _by_unit(values: jax.Array, num_units: int, fill: float) -> jax.Array:
    """[T, W]: the values `[num_rounds, K, W]` of the units of rounds, one after the other; T is `num_units`.

    Units behind the last round have `fill`.
    """
    values_by_unit = values.reshape(-1, values.shape[2])
    return jnp.pad(values_by_unit, ((0, num_units - values_by_unit.shape[0]), (0, 0)), constant_values=fill)


def message_seconds(message_size: jax.Array, network: Network) -> jax.Array:
    """float[W] seconds that the messages of a round take, all sent when it stops; 0 for who sends nothing.

    `message_size float[W]` is what each worker sends, in full gradients; 0 if nothing.
    """
    sends = message_size > 0
    send_begin = jnp.where(sends, 0, jnp.inf).astype(message_size.dtype)
    return jnp.where(sends, network.arrivals_at_server(send_begin, message_size), 0)


def stopped_rounds(
    finish: jax.Array,
    has_unit: jax.Array,
    is_done: jax.Array,
    stop: jax.Array,
    message_size: jax.Array,
    network: Network,
    num_units: int,
    begin_time: jax.Array | None = None,
) -> tuple[Timeline, jax.Array]:
    """The times of all units, and float[num_rounds], when the rounds end.

    Args:
      finish: float[num_rounds, K, W] seconds, when each unit would end, from the begin of its round.
      has_unit: bool[1 or num_rounds, K, W], whether each worker has this unit in the round.
      is_done: bool[num_rounds, K, W], which units end before the round is stopped.
      stop: float[num_rounds] seconds, when each round is stopped, from its begin.
      message_size: float[num_rounds, W], what each worker sends, in full gradients; 0 if nothing.
      network: the time of messages.
      num_units: T.
      begin_time: float[num_rounds] seconds, when each round begins; when the one before has ended if None.
    """
    sends = message_size > 0
    seconds_of_message = jax.vmap(lambda size: message_seconds(size, network))(message_size)  # [num_rounds, W]
    round_seconds = stop + seconds_of_message.max(axis=1)
    if begin_time is None:  # rounds follow each other without a pause
        end_time = jnp.cumsum(round_seconds)
        begin_time = begin_times(end_time)
    else:
        end_time = begin_time + round_seconds
    send = jnp.where(sends, stop[:, None], jnp.inf)  # once the round has stopped
    timeline = timeline_of_rounds(
        finish, has_unit=has_unit, is_done=is_done, stop=stop, send=send, seconds_of_message=seconds_of_message,
        network=network, num_units=num_units, begin_time=begin_time, end_time=end_time,
    )  # fmt: skip
    return timeline, end_time


def timeline_of_rounds(
    finish: jax.Array,
    *,
    has_unit: jax.Array,
    is_done: jax.Array,
    stop: jax.Array,
    send: jax.Array,
    seconds_of_message: jax.Array,
    network: Network,
    num_units: int,
    begin_time: jax.Array,
    end_time: jax.Array,
) -> Timeline:
    """The times of all units of rounds, whose messages go out with the last unit that is done.

    Args:
      finish: float[num_rounds, K, W] seconds; this and what has the same name is as for `stopped_rounds`.
      has_unit: bool[1 or num_rounds, K, W].
      is_done: bool[num_rounds, K, W].
      stop: float[num_rounds] seconds.
      send: float[num_rounds, W] seconds, when each worker begins to send, from the begin of the round; inf if it does
        not.
      seconds_of_message: float[num_rounds, W], what its message takes.
      network: the time of messages.
      num_units: T.
      begin_time: float[num_rounds] seconds, when each round begins.
      end_time: float[num_rounds] seconds, when each ends; no message that is waited for arrives later, as by rounding.
    """
    receive_seconds = network.arrivals_at_workers(jnp.zeros(finish.shape[2:], finish.dtype))
    begin_time, end_of_round = begin_time[:, None, None], end_time[:, None, None]
    stop, receive_of_first_unit = stop[:, None, None], jnp.broadcast_to(receive_seconds, finish[:, :1].shape)
    ready_time = jnp.concatenate([receive_of_first_unit, finish[:, :-1]], axis=1)  # when each unit could be computed
    is_begun = (has_unit & (ready_time < stop)) | is_done  # a unit of no length may begin and end at the stop
    num_done_so_far, num_done = jnp.cumsum(is_done, axis=1), is_done.sum(axis=1, keepdims=True)
    is_last_done = is_done & (num_done_so_far == num_done)  # [num_rounds, K, W]
    has_message = is_last_done & jnp.isfinite(send)[:, None]

    def in_round(is_there: jax.Array, time: jax.Array) -> jax.Array:
        """float[num_rounds, K, W] seconds: the time, not after the end of the round; inf where there is none."""
        return jnp.where(is_there & jnp.isfinite(time), jnp.minimum(time, end_of_round), jnp.inf)

    compute_start = in_round(is_begun, begin_time + ready_time)
    compute_end = in_round(is_begun, begin_time + jnp.minimum(finish, stop))
    send_time = begin_time + send[:, None]
    send_start = in_round(has_message, send_time)
    message_arrival = in_round(has_message, send_time + seconds_of_message[:, None])
    arrival_time = jnp.where(has_message, message_arrival, jnp.where(is_done, compute_end, jnp.inf))
    is_first_of_round = (jnp.arange(finish.shape[1]) == 0)[None, :, None]
    waits_for_parameters = is_begun & is_first_of_round
    start = jnp.where(waits_for_parameters, begin_time, compute_start)
    times = [
        _by_unit(x, num_units, fill=jnp.inf) for x in (start, compute_start, compute_end, send_start, arrival_time)
    ]
    return Timeline._make([*times, end_time[-1]])
