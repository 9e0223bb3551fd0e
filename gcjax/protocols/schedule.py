"""The record of what happened: what every producer makes, simulated or live, and every consumer reads.

A push is what a worker did from one message to the next: one unit of work, or several, of which the last one has the
`send_start` and the arrival of the message. All that is known of a push stands at its units, so that there is one row
for each unit; what the server did stands at its commits.

Letters: T units sampled per worker, W workers, E commits (server updates), C contributions to a commit.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import short_repr


class Timeline(NamedTuple):
    """The times of all units, float[T, W] seconds each, and the horizon, float[], as in `Schedule`."""

    start: jax.Array
    compute_start: jax.Array
    compute_end: jax.Array
    send_start: jax.Array
    finish: jax.Array
    horizon: jax.Array


class Commits(NamedTuple):
    """The commits of a run, for whoever executes them: `time` [E], everything else [E, C], as in `Schedule`."""

    time: jax.Array
    worker: jax.Array
    unit: jax.Array
    version: jax.Array
    work: jax.Array
    weight: jax.Array


class Schedule(NamedTuple):
    """What happened when, independent of any gradient.

    Commit e happens at `time[e]` and uses, for each contribution c, the units from `unit[e, c]` on of worker
    `worker[e, c]`, computed on the parameters of commit `version[e, c]` (version v = the parameters after v commits).
    Commits that lie beyond the horizon, or that never happen, come last, with time inf and -1 everywhere. What is in no
    commit was cut off, or is pending at the end, or its code did not need it.

    Attributes:
      time: float[E] seconds, never decreasing; inf for commits that are not used.
      worker: int32[E, C], -1 pads.
      unit: int32[E, C], the unit of work; the first one of the round where a contribution has several.
      work: int32[E, C], the chunks or local steps in the contribution.
      weight: float[E, C], the factor of the contribution in the commit.
      start: float[T, W] seconds, when a unit begins: it asks for the parameters; inf if it never does.
      compute_start: float[T, W], when the parameters have arrived and computing begins.
      compute_end: float[T, W], when computing ends, or is cut off.
      send_start: float[T, W], when sending begins; inf if the unit ends without a message of its own, or it is cut off.
        A message carries its unit and those before it that are in the same commit.
      finish: float[T, W], when the unit's message has arrived, or it has ended without one; inf if it never ends, or it
        or its message is cut off.
      read: int32[T, W], the version that the worker has read for a unit; where parameters are exchanged, the one that
        is read before it is pushed. -1 where nothing was read, as for an exchange that begins behind the horizon.
      horizon: float[], the time at which the first worker would begin a unit that was not sampled, or a turn of several
        units of which one was not; inf if none ever does, because somebody is waited for that never ends a unit. Where
        each commit takes a message of everybody, the record ends then, also for workers that nobody makes wait. Where
        messages share a link, it can be when that has sent the parameters for such a unit: until then everything is
        known.
    """

    time: jax.Array
    worker: jax.Array
    unit: jax.Array
    work: jax.Array
    weight: jax.Array
    start: jax.Array
    compute_start: jax.Array
    compute_end: jax.Array
    send_start: jax.Array
    finish: jax.Array
    read: jax.Array
    horizon: jax.Array

    def __repr__(self) -> str:
        """The types and shapes of the arrays."""
        return short_repr.named_tuple_text(self)

    @property
    def version(self) -> jax.Array:
        """int32[..., E, C], the version that a contribution's first unit has read; -1 pads.

        The axes in front are those of a batch of records.
        """
        numpy_or_jax: Any = np if isinstance(self.read, np.ndarray) else jnp
        *batch, num_units, num_workers = self.read.shape
        # In range also where -1 pads, which the last line puts back.
        flat_index = self.unit.clip(0, num_units - 1) * num_workers + self.worker.clip(0, num_workers - 1)
        flat_read = self.read.reshape(*batch, -1)  # [..., T * W]
        flat_version = numpy_or_jax.take_along_axis(flat_read, flat_index.reshape(*batch, -1), axis=-1)
        version = flat_version.reshape(flat_index.shape)
        return numpy_or_jax.where(self.worker >= 0, version, -1)

    @property
    def staleness(self) -> jax.Array:
        """int32[..., E, C], the commits since the version that a contribution's first unit has read; -1 pads."""
        numpy_or_jax: Any = np if isinstance(self.read, np.ndarray) else jnp
        commit = numpy_or_jax.arange(self.worker.shape[-2], dtype=np.int32)[:, None]  # commit e replaces version e
        return numpy_or_jax.where(self.worker >= 0, commit - self.version, -1)


def record(
    timeline: Timeline,
    *,
    time: jax.Array,
    worker: jax.Array,
    unit: jax.Array,
    work: jax.Array,
    weight: jax.Array | float,
    read: jax.Array,
) -> Schedule:
    """The record of E commits of C contributions, with -1 (weight 0) where there is none or the time is inf.

    Args:
      timeline: the times of all units.
      time: float[E] seconds.
      worker: int32[E, C]; -1 where there is no contribution.
      unit: int32, broadcasts to [E, C], the first unit of each contribution.
      work: int32, likewise, its chunks or local steps.
      weight: float, likewise, its factor.
      read: int32, broadcasts to [T, W], the version that each unit has read.
    """
    is_contribution = jnp.isfinite(time)[:, None] & (worker >= 0)  # [E, C]

    def minus_1_elsewhere(values: jax.Array) -> jax.Array:
        """int32[E, C]: the values, which broadcast to it, and -1 where `is_contribution bool[E, C]` is false."""
        return jnp.where(is_contribution, values, -1).astype(jnp.int32)

    return Schedule(
        time=time,
        worker=minus_1_elsewhere(worker),
        unit=minus_1_elsewhere(unit),
        work=minus_1_elsewhere(work),
        weight=jnp.where(is_contribution, weight, 0).astype(time.dtype),
        read=jnp.broadcast_to(read, timeline.start.shape).astype(jnp.int32),
        **timeline._asdict(),
    )


def with_weights(schedule: Schedule, weight: Callable[[jax.Array, jax.Array], Any]) -> Schedule:
    """The record with other factors of its contributions.

    Args:
      schedule: of one run.
      weight: `(staleness int32[E, C], work int32[E, C]) -> float[E, C or 1]`, as in a rule; both are 0 where -1 pads.
    """
    weights = jnp.asarray(weight(schedule.staleness.clip(0), schedule.work.clip(0)), schedule.weight.dtype)
    return schedule._replace(weight=jnp.where(schedule.worker >= 0, weights, 0))


def commits(schedule: Schedule) -> Commits:
    """The commits of a record, or of a batch of them."""
    return Commits(*(getattr(schedule, name) for name in Commits._fields))


def truncate(
    schedule: Schedule, seconds: float | jax.Array = jnp.inf, *, num_commits: int | jax.Array | None = None
) -> Schedule:
    """The record without the commits that are later than so many seconds, or come after so many others.

    These stay as rows at time inf, with -1 everywhere, as commits that never happen. What the workers did is left as it
    is: it had begun before.

    Args:
      schedule: of one run.
      seconds: the last commits are at this time.
      num_commits: how many there are at most; any number if None.
    """
    is_kept = schedule.time <= seconds  # [E]
    if num_commits is not None:
        is_kept &= jnp.arange(is_kept.size) < num_commits
    indices = {name: jnp.where(is_kept[:, None], getattr(schedule, name), -1) for name in ("worker", "unit", "work")}
    weight = jnp.where(is_kept[:, None], schedule.weight, 0)
    return schedule._replace(time=jnp.where(is_kept, schedule.time, jnp.inf), weight=weight, **indices)
