"""Turns of workers that go on computing while they send and receive.

Letters: W workers.
"""

import jax
import jax.numpy as jnp

from gcjax.protocols.schedule import Schedule
from gcjax.protocols.simulation.rules import TurnPlan
from gcjax.protocols.simulation.turns import Work


def overlapping_turn(
    work: Work, first_unit: jax.Array, ready_time: jax.Array, compute_begin_time: jax.Array
) -> TurnPlan:
    """The push of all units that are done once the worker's last push and its reading after it have ended, or of one.

    Computing began with unit 0 and never stops, so all times are sums of units from there on.

    Args:
      work: the sampled units.
      first_unit: int32[W], the first unit that was not pushed yet.
      ready_time: float[W] seconds, when the last push and reading end.
      compute_begin_time: float[W] seconds, when each worker began to compute.
    """
    # All that follows is [W], and all times seconds.
    first_unit_end_time = compute_begin_time + work.seconds_of_first(first_unit + 1)
    earliest_send_time = jnp.maximum(ready_time, first_unit_end_time)
    num_done_by_send = work.num_of_first_done(earliest_send_time, compute_begin_time)
    num_units = (num_done_by_send - first_unit).clip(1)
    stop = compute_begin_time + work.seconds_of_first(first_unit + num_units)
    # The step that is under way at `ready_time` is the first one on the new parameters.
    num_done_when_ready = work.num_of_first_done(ready_time, compute_begin_time)
    first_unit_on_new_params = num_done_when_ready.clip(first_unit, first_unit + num_units)
    send_start = jnp.where(jnp.isfinite(stop), earliest_send_time, jnp.inf)
    compute_start = compute_begin_time + work.seconds_of_first(first_unit)
    return TurnPlan(
        num_units,
        compute_start=compute_start,
        stop=stop,
        send_start=send_start,
        first_unit_on_version=first_unit_on_new_params,
    )


def with_units_under_way(record: Schedule, work: Work, compute_begin_time: jax.Array) -> Schedule:
    """The record with all units that begin before its horizon; it has those of turns that were planned by then.

    What a worker computes while it sends and receives is planned only when that has ended. Such units are in no
    message, end without one, and are on the version of those before them. Nothing changes where there is no horizon.

    Args:
      record: of workers that never stop computing.
      work: the sampled units.
      compute_begin_time: float[W] seconds, when each worker began to compute.
    """
    bounds = compute_begin_time[None] + work.sums_from_unit_0  # [T + 1, W]
    begin, end = bounds[:-1], bounds[1:]
    is_planned = jnp.isfinite(record.compute_start)
    is_under_way = ~is_planned & (begin < record.horizon) & jnp.isfinite(record.horizon)
    read_before = jax.lax.cummax(jnp.where(is_planned, record.read, -1), axis=0)
    return record._replace(
        start=jnp.where(is_under_way, begin, record.start),
        compute_start=jnp.where(is_under_way, begin, record.compute_start),
        compute_end=jnp.where(is_under_way, end, record.compute_end),
        finish=jnp.where(is_under_way, end, record.finish),
        read=jnp.where(is_under_way, read_before, record.read),
    )
