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

from gcjax import _validate, memory

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
      leave: float[W, absences] seconds; 0 for a worker that is away from the beginning on.
      join: float[W, absences] seconds, when it is back; inf if never.
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
        leave, join = (jnp.asarray(times, dtype or jnp.result_type(float)) for times in self)
        if leave.ndim != 2 or leave.shape != join.shape:
            raise ValueError(
                f"leave and join must have the same shape [W, absences]; got {list(leave.shape)} and "
                f"{list(join.shape)}. gcjax.stragglers.absences makes them from lists."
            )
        if leave.shape[0] > num_workers:
            raise ValueError(f"absences must be of the {num_workers} workers; got {leave.shape[0]} rows, one for each.")
        if not _validate.is_traced(leave) and not _validate.is_traced(join):
            _check_order(np.asarray(leave), np.asarray(join))
        padding_rows = (0, num_workers - leave.shape[0]), (0, 0)  # of inf, for workers that are always there
        return Absences(*(jnp.pad(times, padding_rows, constant_values=jnp.inf) for times in (leave, join)))

    @property
    def is_present(self) -> jax.Array:
        """bool[W]: who is there at the beginning."""
        return ~(self.leave == 0).any(axis=1)

    def changes(self) -> Changes:
        """Who leaves and who joins after the beginning, in the order of time; what does not happen is last, at inf.

        Arrays [2 W M + 1] for M absences a worker: W M times of leaving, as many of joining, and one more that is inf.
        """
        num_workers, max_absences = self.leave.shape
        leave_later = jnp.where(self.leave == 0, jnp.inf, self.leave)  # inf for who is away at the beginning
        leave_times = leave_later.ravel()
        join_times = self.join.ravel()
        last_time = jnp.full(1, jnp.inf, leave_later.dtype)
        time = jnp.concatenate([leave_times, join_times, last_time])
        worker_of_absence = jnp.repeat(jnp.arange(num_workers, dtype=jnp.int32), max_absences)
        worker = jnp.concatenate([worker_of_absence, worker_of_absence, jnp.zeros(1, jnp.int32)])
        joins = jnp.arange(time.size) >= worker_of_absence.size
        event_order = jnp.lexsort((worker, ~joins, time))  # by time; at one time joins first, then by worker
        return Changes(time[event_order], worker[event_order], joins[event_order])

    def memberships(self, schedule: "Schedule") -> "tuple[Membership, ...]":
        """Who joins and leaves when, as `gcjax.protocols.check` takes it.

        Args:
          schedule: of one run with these absences; its times are of the type in which they were simulated.

        Returns:
          In the order of time: who is there at the beginning "joined" at 0 s, and then each change "left", or "joined"
          for a worker that was not there before, else "came back".
        """
        from gcjax.protocols.conformance.memberships import Membership

        absences = self.validated(schedule.start.shape[1], schedule.start.dtype)
        is_present = np.asarray(absences.is_present)
        memberships = [Membership(0.0, int(worker), "joined") for worker in np.flatnonzero(is_present)]
        has_joined = is_present.copy()
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
      max_count: how often each leaves.
    """

    mean_present: float
    mean_away: float
    max_count: int

    def sample(self, rng_key: jax.Array, num_workers: int) -> Absences:
        """Draws the absences of W = `num_workers` workers, times in seconds; all are there at the beginning.

        None is shorter than what JAX's default float type resolves at its time.

        Raises:
          ValueError: if they do not fit into memory.
        """
        num_workers, dtype = _validate.integer("num_workers", num_workers, minimum=1), jnp.result_type(float)
        num_bytes = np.dtype(dtype).itemsize * num_workers * self.max_count * 2
        memory.check_fits(f"{self.max_count} absences of {num_workers} workers", num_bytes, "Lower max_count.")
        mean_present_and_away = jnp.asarray([self.mean_present, self.mean_away], dtype).reshape(1, 1, 2)
        # Of each worker and absence: how long it is there before, and then away.
        lengths = jax.random.exponential(rng_key, (num_workers, self.max_count, 2), dtype) * mean_present_and_away
        lengths = lengths.reshape(num_workers, -1)  # there, away, there, ...
        alternating_times = _increasing_sums(lengths)
        return Absences(leave=alternating_times[:, ::2], join=alternating_times[:, 1::2])


def _increasing_sums(lengths: jax.Array) -> jax.Array:
    """float[W, n]: the sums of the first 1, 2, ..., n of `lengths float[W, n]`, each above the one before.

    What rounding adds to a sum is taken off the next length (Kahan's summation), so that means stay right.
    """

    def next_sum(
        state: tuple[jax.Array, jax.Array], length: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        """The sum with `length float[W]` added to it, and what is too much in it, from those before."""
        total, excess = state
        addend = length - excess
        next_total = jnp.maximum(total + addend, jnp.nextafter(total, jnp.inf))
        return (next_total, (next_total - total) - addend), next_total

    zeros = jnp.zeros_like(lengths[:, 0])
    return jax.lax.scan(next_sum, (zeros, zeros), lengths.T)[1].T


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
    workers, leave = _validate.sequence("workers", workers), _validate.sequence("leave", leave)
    join = (np.inf,) * len(leave) if join is None else _validate.sequence("join", join)
    if not len(workers) == len(leave) == len(join):
        raise ValueError(
            f"absences must each have a worker, a time of leaving and one of coming back; got {len(workers)} workers, "
            f"{len(leave)} and {len(join)} times."
        )
    times_of_worker: dict[int, list[tuple[float, float]]] = {}
    for worker, leave_and_join in zip(workers, zip(leave, join, strict=True), strict=True):
        times_of_worker.setdefault(_validate.integer("a worker of absences", worker), []).append(leave_and_join)
    num_rows = max(times_of_worker, default=-1) + 1
    max_absences = max(map(len, times_of_worker.values()), default=0)
    memory.check_fits(
        f"{max_absences} absences of {num_rows} workers", 16 * num_rows * max_absences, "Workers count from 0."
    )
    table = np.full((num_rows, max_absences, 2), np.inf)  # (leave, join); inf for absences that there are not
    for worker, times in times_of_worker.items():
        table[worker, : len(times)] = [[_seconds("leave", begin), _seconds("join", end)] for begin, end in times]
        if not np.isfinite(table[worker, : len(times), 0]).all():
            raise ValueError(f"leave must be finite; got {[begin for begin, _ in times]} for worker {worker}.")
    dtype = jnp.result_type(float)
    longest = table[np.isfinite(table)].max(initial=0.0)
    if longest > jnp.finfo(dtype).max:
        raise ValueError(f"leave and join must be below {jnp.finfo(dtype).max:g}, or inf; got {longest:g}.")
    leave_array, join_array = jnp.moveaxis(jnp.asarray(table, dtype), -1, 0)
    return Absences(leave_array, join_array).validated(num_rows)


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
    max_count = _validate.integer("max_count", max_count, minimum=1)
    return RandomAbsences(mean_present, mean_away, max_count)


def _seconds(name: str, value: Any) -> float:
    """The number of seconds; a `ValueError` if it is negative or NaN."""
    return float(_validate.single_number(name, value))


def _check_order(leave: np.ndarray, join: np.ndarray) -> None:
    """Raises `ValueError` unless each worker leaves, joins, leaves, ... at times that are each after the one before."""
    # float[W, 2 M], M absences: leave, join, leave, ...; those that there are not are inf.
    alternating_times = np.stack([leave, join], axis=-1).reshape(leave.shape[0], 2 * leave.shape[1])
    is_later = (alternating_times[:, 1:] > alternating_times[:, :-1]) | np.isposinf(alternating_times[:, 1:])
    is_valid_worker = is_later.all(axis=1) & (alternating_times >= 0).all(axis=1)
    if not is_valid_worker.all():
        worker = int(np.argmin(is_valid_worker))
        times = alternating_times[worker]
        raise ValueError(
            "absences of a worker must be apart, and each must end after it has begun: leave < join < leave < ..., "
            f"from 0 seconds on; got {times[np.isfinite(times)].tolist()} for worker {worker}."
        )
