"""The units of a record that are in commits, and the messages that carried them.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit.
"""

from typing import NamedTuple

import numpy as np

from gcjax.protocols.conformance.structure import ROUNDING
from gcjax.protocols.schedule import Schedule


class CommittedUnits(NamedTuple):
    """The units that are in commits, in the order of workers and units; and the sizes of the commits.

    Attributes:
      commit: int32[units], the commit that the unit is in.
      worker: int32[units].
      unit: int32[units].
      arrival: float[units] seconds, when the message that carries it has arrived.
      late: bool[units], whether it arrives after the commit, or was computed on another version than its contribution.
      first: bool[units], whether it is the first one of its message.
      label: int32[E], the lowest worker in the commit.
      size: int32[E], the number of its units.
      workers: int32[E], the number of its workers.
      max_work: int32[E], the most units of one worker in it.
    """

    commit: np.ndarray
    worker: np.ndarray
    unit: np.ndarray
    arrival: np.ndarray
    late: np.ndarray
    first: np.ndarray
    label: np.ndarray
    size: np.ndarray
    workers: np.ndarray
    max_work: np.ndarray


def on_host(schedule: Schedule) -> Schedule:
    """The record of a run as numpy arrays, if its numbers are what they must be.

    Raises:
      ValueError: if it is of a batch, or one of its numbers cannot be.
    """
    if np.ndim(schedule.time) != 1:
        raise ValueError(
            f"events are of one run; this schedule is of a batch, its times have shape {np.shape(schedule.time)}. "
            "Take one of it with jax.tree.map(lambda x: x[i], schedule)."
        )
    host = Schedule(*(np.asarray(x) for x in schedule))  # type: ignore[arg-type]
    is_contribution = (host.worker >= 0) & np.isfinite(host.time)[:, None]
    num_units, num_workers = host.start.shape
    rules = {
        "times must be numbers": not np.isnan(host.time).any(),
        f"workers must be below {num_workers}": (host.worker < num_workers).all(),
        f"units must be among the {num_units} sampled ones": (
            ~is_contribution | ((host.unit >= 0) & (host.unit < num_units))
        ).all(),
    }
    for rule, holds in rules.items():
        if not holds:
            raise ValueError(f"{rule} in a schedule; in this one they do otherwise. Correct the protocol's schedule.")
    return host


def committed_units(host: Schedule, *, whole: bool) -> CommittedUnits:
    """The units in commits, when they arrive, and in which messages.

    Args:
      host: the record in numpy arrays.
      whole: whether a contribution stands for all its `work` units; otherwise for the first one only.
    """
    num_commits = int(np.isfinite(host.time).sum())
    num_units = host.start.shape[0]
    row, column = np.nonzero((host.worker[:num_commits] >= 0) & (host.work[:num_commits] > 0))
    worker, first, work = (np.asarray(x)[row, column] for x in (host.worker, host.unit, host.work))
    count = work if whole else np.ones_like(work)
    owner = np.repeat(np.arange(row.size, dtype=np.int32), count)  # the contribution that each unit is in
    commit, worker = row[owner].astype(np.int32), worker[owner]
    offset = np.arange(owner.size, dtype=np.int32) - np.repeat(np.cumsum(count) - count, count)  # 0, ..., count - 1
    unit = first[owner] + offset
    if unit.size and unit.max() >= num_units:
        raise ValueError(
            f"contributions must consist of the {num_units} sampled units; one has unit {unit.max()}. Correct the "
            "protocol's schedule."
        )
    order = np.argsort(worker.astype(np.int64) * num_units + unit, kind="stable")
    commit, worker, unit, start = commit[order], worker[order], unit[order].astype(np.int32), first[owner][order]
    arrival, message = _arrival(host, commit, worker, unit)
    after_by_rounding = (arrival > host.time[commit]) & (arrival <= host.time[commit] * (1 + ROUNDING))
    arrival = np.where(after_by_rounding, host.time[commit], arrival)
    late = ((arrival > host.time[commit]) | (host.read[unit, worker] != host.read[start, worker])) & whole
    is_before_last = np.diff(host.time[:num_commits], prepend=0) < 0  # commits that are not in order of time
    late |= is_before_last[commit] if is_before_last.any() else False
    label = np.zeros(num_commits, np.int32)
    label[commit[::-1]] = worker[::-1]  # the lowest one is written last
    is_other_message = (worker[1:] != worker[:-1]) | (message[1:] != message[:-1])
    # Where the units of another worker, or in another commit, begin.
    begin = np.flatnonzero(np.append(True, (np.diff(worker) != 0) | (np.diff(commit) != 0))[: unit.size])
    max_work = np.zeros(num_commits, np.int32)
    np.maximum.at(max_work, commit[begin], np.diff(np.append(begin, unit.size)).astype(np.int32))
    return CommittedUnits(
        commit=commit,
        worker=worker,
        unit=unit,
        arrival=arrival,
        late=late,
        first=np.append(True, is_other_message)[: unit.size],
        label=label,
        size=np.bincount(row, work, num_commits).astype(np.int32),
        workers=np.bincount(commit[begin], minlength=num_commits).astype(np.int32),
        max_work=max_work,
    )


def _arrival(host: Schedule, commit: np.ndarray, worker: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float[units] seconds, when units have arrived; and int32[units], a number for the message that carries each.

    The units are `unit` of `worker`, in `commit`, int32[units] each. A message is sent with its last unit, and
    carries those before it that are in the same commit. A unit without such a message arrives when it ends, as the
    progress of a coded round does; all of these of a commit count as one message.
    """
    num_units, num_workers = host.start.shape
    finish, has_message = np.asarray(host.finish), np.isfinite(host.send_start)  # [T, W]
    others = np.flatnonzero(~has_message[unit, worker])  # the units that are not the last of a message
    arriving_unit, message = unit.copy(), unit.copy()  # a message has the number of its last unit
    if others.size:
        unit_with_message = np.where(has_message, np.arange(num_units, dtype=np.int32)[:, None], num_units)
        next_message = np.minimum.accumulate(unit_with_message[::-1], axis=0)[::-1]  # [T, W]; T if there is none
        commit_of = np.full((num_units + 1, num_workers), -1, np.int32)
        commit_of[unit, worker] = commit
        last_unit = next_message[unit[others], worker[others]]
        has_none = commit_of[last_unit, worker[others]] != commit[others]
        arriving_unit[others] = np.where(has_none, unit[others], last_unit)
        message[others] = np.where(has_none, num_units + commit[others], last_unit)  # a number that no unit has
    return finish[arriving_unit, worker], message


def last_arrival(host: Schedule, worker: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """float[...] seconds: when the last message of each worker before its unit has arrived; 0 if there is none."""
    has_message, last_unit = np.isfinite(host.send_start), (unit - 1).clip(0)
    others = np.flatnonzero(~has_message[last_unit, worker])  # the unit before has no message: look further back
    if others.size:
        units = np.arange(host.start.shape[0], dtype=np.int32)[:, None]
        last_message = np.maximum.accumulate(np.where(has_message, units, -1), axis=0)  # [T, W]; -1 if there is none
        last_unit[others] = last_message[last_unit[others], worker[others]]
    return np.where((unit > 0) & (last_unit >= 0), host.finish[last_unit, worker], 0)
