"""Rounds of local work: all begin with the same version, work until a rule says stop, and push what they have done.

Letters: T units sampled per worker, W workers, E rounds.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.schedule import Schedule, record
from gcjax.protocols.simulation.turns import Turns, Work, units_of
from gcjax.stragglers.network import Network


class Round(NamedTuple):
    """What the workers do in a round.

    Attributes:
      num_units: int32[W], the units that each pushes; it sends nothing if there are none.
      num_begun: int32[W], the units that each has begun.
      stop: float[W] seconds, when each stops computing; inf if never.
    """

    num_units: jax.Array
    num_begun: jax.Array
    stop: jax.Array


State = tuple[jax.Array, jax.Array]

RoundRule = Callable[[Work, jax.Array, jax.Array, jax.Array], Round]
"""`(work, first_unit int32[W], receive_time float[W], begin_time float[]) -> Round`, all times in seconds."""


def rounds(rule: RoundRule, durations: jax.Array, network: Network, num_rounds: int) -> Schedule:
    """The schedule of rounds; commit e is round e, with one contribution of each worker that has done something.

    A round ends when the last message has arrived. Those who push something have the weight 1/W, whoever else does.

    Args:
      rule: what happens in a round.
      durations: float[T, W] seconds.
      network: the time of messages.
      num_rounds: E, at least the rounds for which units are sampled.
    """
    work = Work.of(durations)

    def step(state: State, round_number: jax.Array) -> tuple[State, tuple[Turns, jax.Array, jax.Array]]:
        """One round, for a scan.

        The state: when it begins, float[] seconds, and the first unit of each worker, int32[W]. Collected: the turns,
        when the round ends (inf if it does not happen), and, if it does not since units run out, when it would begin.
        `rule` says what workers do in the round, `work` are the sampled units. A round happens if it begins at all, and
        all units that it begins are sampled.
        """
        begin_time, first_unit = state
        receive_time = network.arrivals_at_workers(jnp.broadcast_to(begin_time, first_unit.shape))
        this_round = rule(work, first_unit, receive_time, begin_time)
        happens = jnp.isfinite(begin_time) & (first_unit + this_round.num_begun <= work.num_units).all()
        send_start = jnp.where((this_round.num_units > 0) & happens, this_round.stop, jnp.inf)
        arrival_time = network.arrivals_at_server(send_start)
        last_arrival = jnp.max(jnp.where(this_round.num_units > 0, arrival_time, -jnp.inf))
        # Also where nobody pushes anything, it lasts until all have stopped.
        end_time = jnp.where(happens, jnp.maximum(last_arrival, jnp.max(this_round.stop)), jnp.inf)
        turns = Turns(
            first_unit=jnp.where(happens, first_unit, work.num_units),
            num_begun=jnp.where(happens, this_round.num_begun, 0),
            num_sent_units=jnp.where(happens, this_round.num_units, 0),
            first_unit_on_version=first_unit,
            version=jnp.broadcast_to(round_number, first_unit.shape),
            commit=jnp.broadcast_to(round_number, first_unit.shape),
            position=jnp.arange(first_unit.size, dtype=jnp.int32),
            begin=jnp.broadcast_to(begin_time, first_unit.shape),
            compute_start=jnp.where(happens, receive_time, jnp.inf),
            stop=jnp.where(happens, this_round.stop, jnp.inf),
            send_start=send_start,
            arrive=arrival_time,
        )
        next_first_unit = jnp.where(happens, first_unit + this_round.num_begun, first_unit)
        ran_out_time = jnp.where(happens, jnp.inf, begin_time)
        return (end_time, next_first_unit), (turns, end_time, ran_out_time)

    initial = jnp.zeros((), durations.dtype), jnp.zeros(work.num_workers, jnp.int32)
    # Turns are arrays [E, W], and times [E].
    turns, end, ran_out = jax.lax.scan(step, initial, jnp.arange(num_rounds, dtype=jnp.int32))[1]
    # The horizon is when a round would begin for which units have run out, or the end of the last one.
    timeline, read, _ = units_of(turns, work, jnp.minimum(ran_out.min(), end[-1]))
    return record(
        timeline,
        time=end,
        worker=jnp.where(turns.num_sent_units > 0, turns.position, -1),
        unit=turns.first_unit,
        work=turns.num_sent_units,
        weight=1.0 / work.num_workers,
        read=read,
    )


def fixed_units(count: int | jax.Array) -> RoundRule:
    """The rule (work, first unit, received, begun) -> round in which every worker does `count` units."""

    def rule(work: Work, first_unit: jax.Array, receive_time: jax.Array, begin_time: jax.Array) -> Round:
        """The round of `count` units of each worker, from `first_unit int32[W]` on, from `receive_time float[W]`."""
        del begin_time
        num_units = jnp.broadcast_to(jnp.asarray(count, jnp.int32), first_unit.shape)
        stop = receive_time + work.seconds(first_unit, num_units)
        return Round(num_units, num_begun=num_units, stop=stop)

    return rule


def units_until(
    work: Work, first_unit: jax.Array, receive_time: jax.Array, stop: jax.Array, min_units: jax.Array | int = 0
) -> Round:
    """The round in which every worker does what it can until `stop`; a unit that is not done by then is cut off.

    Whether a unit is done is decided by the same rounded sum that is recorded as its end.

    Args:
      work: the sampled units.
      first_unit: int32[W], the first unit of each worker.
      receive_time: float[W] seconds, when the parameters arrive, and it begins.
      stop: float[W] seconds, when it stops computing.
      min_units: int32[W], how many units are known to be done by then, however their sum is rounded.
    """
    num_done = jnp.maximum(work.num_done(first_unit, end=stop, begin=receive_time), min_units)
    begins_another = receive_time + work.seconds(first_unit, num_done) < stop  # the unit that is cut off
    return Round(num_done, num_begun=num_done + begins_another.astype(jnp.int32), stop=stop)
