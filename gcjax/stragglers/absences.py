"""When workers are away: they leave, come back, or join later.

A worker that is away does nothing, and nobody waits for it. Its turn under way when it leaves is lost, with a message
that has not arrived yet. Failures (`gcjax.stragglers.failures`) are something else: there nobody knows, and it is
waited for.

Letters: W workers, M absences of a worker at most.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate

if TYPE_CHECKING:
    from gcjax.protocols.conformance.memberships import Membership
    from gcjax.protocols.schedule import Schedule


class Changes(NamedTuple):
    """Who leaves and who joins after the beginning, in order; arrays [n], the last time is inf.

    At one moment those who join come before those who leave, so that nobody is missed who is replaced at once; then the
    lowest worker comes first.

    Attributes:
      time: float seconds; inf for what does not happen.
      worker: int32.
      joins: bool, whether it joins; otherwise it leaves.
    """

    time: jax.Array
    worker: jax.Array
    joins: jax.Array


class Absences(NamedTuple):
    """When each worker is away; the absences of a worker are in order and apart, those that there are not are inf.

    Workers without a row are always there.

    Attributes:
      leave: float[W, M] seconds; 0 for a worker that is away from the beginning on.
      join: float[W, M] seconds, when it is back; inf if never.
    """

    leave: jax.Array
    join: jax.Array

    def sample(self, rng_key: jax.Array, num_workers: int) -> "Absences":
        """The absences themselves, of so many workers: there is nothing to draw."""
        del rng_key
        return self.validated(num_workers)

    def validated(self, num_workers: int, dtype: Any = None) -> "Absences":
        """The absences of so many workers; a `ValueError` if they are of others, or not in order and apart.

        Args:
          num_workers: W.
          dtype: the type of the times, that of the durations; default floats if None.
        """
        leave, join = (jnp.asarray(x, dtype or jnp.result_type(float)) for x in self)
        if leave.ndim != 2 or leave.shape != join.shape:
            raise ValueError(
                f"leave and join must have the same shape [W, M]; got {list(leave.shape)} and {list(join.shape)}. "
                "gcjax.stragglers.absences makes them from lists."
            )
        if leave.shape[0] > num_workers:
            raise ValueError(f"absences must be of the {num_workers} workers; got {leave.shape[0]} rows, one for each.")
        if not _validate.is_traced(leave) and not _validate.is_traced(join):
            _check_order(np.asarray(leave), np.asarray(join))
        more_rows = (0, num_workers - leave.shape[0]), (0, 0)
        return Absences(*(jnp.pad(x, more_rows, constant_values=jnp.inf) for x in (leave, join)))

    @property
    def is_present(self) -> jax.Array:
        """bool[W]: who is there at the beginning."""
        return ~(self.leave == 0).any(axis=1)

    def changes(self) -> Changes:
        """Who leaves and who joins after the beginning, in order."""
        num_workers, max_count = self.leave.shape
        leave = jnp.where(self.leave == 0, jnp.inf, self.leave)
        time = jnp.concatenate([leave.ravel(), self.join.ravel(), jnp.full(1, jnp.inf, leave.dtype)])
        worker = jnp.repeat(jnp.arange(num_workers, dtype=jnp.int32), max_count)
        worker = jnp.concatenate([worker, worker, jnp.zeros(1, jnp.int32)])
        joins = jnp.arange(time.size) >= worker.size // 2
        order = jnp.lexsort((worker, ~joins, time))
        return Changes(time[order], worker[order], joins[order])

    def memberships(self, schedule: "Schedule") -> "tuple[Membership, ...]":
        """Who joins and leaves when, as `gcjax.protocols.check` takes it.

        Args:
          schedule: of one run with these absences; its times are of the type in which they were simulated.
        """
        from gcjax.protocols.conformance.memberships import Membership

        absences = self.validated(schedule.start.shape[1], schedule.start.dtype)
        present = np.asarray(absences.is_present)
        memberships = [Membership(0.0, int(worker), "joined") for worker in np.flatnonzero(present)]
        has_joined = present.copy()
        for time, worker, joins in zip(*jax.device_get(absences.changes()), strict=True):
            if np.isfinite(time):
                change = ("came back" if has_joined[worker] else "joined") if joins else "left"
                memberships.append(Membership(float(time), int(worker), change))
                has_joined[worker] = True
        return tuple(memberships)


class RandomAbsences(NamedTuple):
    """Absences to be drawn: a worker is there, and then away, each for an exponential time.

    Attributes:
      mean_present: seconds that a worker is there on average before it leaves.
      mean_away: seconds that it is away on average.
      max_count: M, how often each leaves.
    """

    mean_present: float
    mean_away: float
    max_count: int

    def sample(self, rng_key: jax.Array, num_workers: int) -> Absences:
        """Draws the absences of so many workers; all are there at the beginning."""
        dtype = jnp.result_type(float)
        means = jnp.asarray([self.mean_present, self.mean_away], dtype).reshape(1, 1, 2)
        gaps = jax.random.exponential(rng_key, (num_workers, self.max_count, 2), dtype) * means
        gaps = gaps.reshape(num_workers, -1)  # there, away, there, ...
        # Each long enough to change the times after it, which are sums.
        shortest = 16 * jnp.finfo(gaps.dtype).eps * gaps.sum(axis=1, keepdims=True)
        times = jnp.cumsum(jnp.maximum(gaps, shortest), axis=1)
        return Absences(leave=times[:, ::2], join=times[:, 1::2])


def absences(*, workers: Sequence[int], leave: Sequence[float], join: Sequence[float] | None = None) -> Absences:
    """Given workers are away at given times.

    Args:
      workers: who, by number, one entry for each absence; several of one worker are in order of time.
      leave: seconds, when each absence begins; 0 for a worker that joins later.
      join: seconds, when it ends; for good if None, or where it is inf.

    Raises:
      ValueError: if these are not as many, or a worker is none, or a time is not after the one before.

    Example:
      >>> away = gcjax.stragglers.absences(workers=(0, 2), leave=(3.0, 0.0), join=(5.0, 4.0))  # worker 2 joins at 4 s
      >>> schedule = gcjax.protocols.bsp()(jnp.ones((5, 3)), absences=away)
      >>> (schedule.worker >= 0).sum(axis=1)[:5].tolist()  # how many are in each commit
      [2, 2, 1, 3, 3]
    """
    join = (np.inf,) * len(leave) if join is None else join
    if not len(workers) == len(leave) == len(join):
        raise ValueError(
            f"absences must each have a worker, a time of leaving and one of coming back; got {len(workers)} workers, "
            f"{len(leave)} and {len(join)} times."
        )
    own: dict[int, list[tuple[float, float]]] = {}
    for worker, times in zip(workers, zip(leave, join, strict=True), strict=True):
        own.setdefault(_validate.integer("a worker of absences", worker), []).append(times)
    shape = max(own, default=-1) + 1, max(map(len, own.values()), default=0), 2
    table = np.full(shape, np.inf)
    for worker, rows in own.items():
        table[worker, : len(rows)] = [[_seconds("leave", first), _seconds("join", last)] for first, last in rows]
        if not np.isfinite(table[worker, : len(rows), 0]).all():
            raise ValueError(f"leave must be finite; got {[first for first, _ in rows]} for worker {worker}.")
    leave_array, join_array = jnp.moveaxis(jnp.asarray(table, jnp.result_type(float)), -1, 0)
    return Absences(leave_array, join_array).validated(shape[0])


def random_absences(*, mean_present: float, mean_away: float, max_count: int) -> RandomAbsences:
    """All workers leave and come back at random: exponential times, drawn anew for each seed of a study.

    `random_absences(...).sample(rng_key, num_workers)` draws them for one run.

    Args:
      mean_present: seconds that a worker is there on average before it leaves, above 0.
      mean_away: seconds that it is away on average, above 0.
      max_count: how often each leaves, 1 or more; after that it stays.

    Raises:
      ValueError: if a number is out of its range.
    """
    for name, value in {"mean_present": mean_present, "mean_away": mean_away}.items():
        _validate.single_number(name, value, above=True, finite=True)
    _validate.integer("max_count", max_count, minimum=1)
    return RandomAbsences(mean_present, mean_away, max_count)


def _seconds(name: str, value: Any) -> float:
    """The number of seconds; a `ValueError` if it is negative or NaN."""
    return float(_validate.single_number(name, value))


def _check_order(leave: np.ndarray, join: np.ndarray) -> None:
    """Raises `ValueError` unless each worker leaves, joins, leaves, ... at times that are each after the one before."""
    times = np.stack([leave, join], axis=-1).reshape(leave.shape[0], 2 * leave.shape[1])
    later = (times[:, 1:] > times[:, :-1]) | np.isposinf(times[:, 1:])
    if not (later.all() and (times >= 0).all()):
        worker = int(np.argmin(later.all(axis=1) & (times >= 0).all(axis=1)))
        raise ValueError(
            "absences of a worker must be apart, and each must end after it has begun: leave < join < leave < ..., "
            f"from 0 seconds on; got {times[worker][np.isfinite(times[worker])].tolist()} for worker {worker}."
        )
