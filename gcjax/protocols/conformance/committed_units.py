"""The units of a record that are in commits, and the messages that carried them.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit.
"""

from typing import Any, NamedTuple

import numpy as np

from gcjax.protocols.conformance.structure import latest_equal
from gcjax.protocols.schedule import Schedule


class CommittedUnits(NamedTuple):
    """The units that are in commits, in the order of workers and units; and the sizes of the commits.

    Attributes:
      commit: int32[units], the commit that the unit is in.
      worker: int32[units].
      unit: int32[units].
      arrival: float[units] seconds, when the message that carries it has arrived.
      column: int32[units], of the contribution that the unit is in.
      is_late: bool[units], whether it arrives after the commit, or was computed on another version than its
        contribution, or is in another contribution before.
      is_first_of_message: bool[units], whether it is the first one of its message.
      lowest_worker: int32[E], the lowest worker in the commit.
      num_units: int32[E], the number of its units.
      num_workers: int32[E], the number of its workers.
      max_work: int32[E], the most units of one worker in it.
      first_column: int32[E], the first column in which there is work; -1 if there is none.
    """

    commit: np.ndarray
    worker: np.ndarray
    unit: np.ndarray
    arrival: np.ndarray
    column: np.ndarray
    is_late: np.ndarray
    is_first_of_message: np.ndarray
    lowest_worker: np.ndarray
    num_units: np.ndarray
    num_workers: np.ndarray
    max_work: np.ndarray
    first_column: np.ndarray


def on_host(schedule: Schedule) -> Schedule:
    """The record of a run as numpy arrays, if workers, units and times are possible; -1 is a worker where none is.

    Raises:
      ValueError: if it is of a batch, or one of its numbers cannot be.
    """
    if np.ndim(schedule.time) != 1:
        raise ValueError(
            f"events are of one run; this schedule is of a batch, its times have shape {np.shape(schedule.time)}. "
            "Take one of it with jax.tree.map(lambda x: x[i], schedule)."
        )
    record = Schedule(*(np.asarray(x) for x in schedule))  # type: ignore[arg-type]
    is_contribution = (record.worker >= 0) & np.isfinite(record.time)[:, None]
    num_units, num_workers = record.start.shape
    happens = np.isfinite(record.time)
    holds_of_rule = {
        "times must be numbers": not any(np.isnan(times).any() for times in (record.time, record.start, record.finish)),
        "commits that never happen must be the last ones": (happens[:-1] | ~happens[1:]).all(),
        f"workers must be below {num_workers}": (record.worker < num_workers).all(),
        f"units must be among the {num_units} sampled ones": (
            ~is_contribution | ((record.unit >= 0) & (record.unit < num_units))
        ).all(),
    }
    for rule, holds in holds_of_rule.items():
        if not holds:
            raise ValueError(f"{rule} in a schedule; in this one they do otherwise. Correct the protocol's schedule.")
    return record


def time_of_version(record: Schedule, version: Any) -> np.ndarray:
    """When each version, `int32[...]`, was made, in seconds `float[...]`; -inf for 0 and -1 (none), inf if never."""
    return np.take(np.r_[np.float32(-np.inf), record.time, np.float32(np.inf)], version, mode="clip")


def committed_units(record: Schedule, *, commits_all_units: bool) -> CommittedUnits:
    """The units in commits, when they arrive, and in which messages.

    Args:
      record: the record in numpy arrays.
      commits_all_units: whether a contribution stands for all its `work` units; otherwise for the first one only, and
        no unit counts as late, unless commits are not in order of time.

    Raises:
      ValueError: if a contribution has a unit that was not sampled.
    """
    num_commits = int(np.isfinite(record.time).sum())  # E without those that never happen
    num_units = record.start.shape[0]
    row, column = np.nonzero((record.worker[:num_commits] >= 0) & (record.work[:num_commits] > 0))
    worker, first_unit, work = (np.asarray(x)[row, column] for x in (record.worker, record.unit, record.work))
    units_of_contribution = work if commits_all_units else np.ones_like(work)
    contribution = np.repeat(np.arange(row.size, dtype=np.int32), units_of_contribution)  # [units], that each is in
    commit, worker, first_unit = row[contribution].astype(np.int32), worker[contribution], first_unit[contribution]
    num_units_before = np.repeat(np.cumsum(units_of_contribution) - units_of_contribution, units_of_contribution)
    offset_in_contribution = np.arange(contribution.size, dtype=np.int32) - num_units_before
    unit = first_unit + offset_in_contribution
    if unit.size and unit.max() >= num_units:
        raise ValueError(
            f"contributions must consist of the {num_units} sampled units; one has unit {unit.max()}. Correct the "
            "protocol's schedule."
        )
    by_worker_and_unit = np.argsort(worker.astype(np.int64) * num_units + unit, kind="stable")
    commit, worker, unit, first_unit = (x[by_worker_and_unit] for x in (commit, worker, unit, first_unit))
    column_of_unit = column[contribution][by_worker_and_unit].astype(np.int32)
    first_column = np.full(num_commits, -1, np.int32)
    first_column[row[::-1]] = column[::-1]  # the first one is written last
    unit = unit.astype(np.int32)
    arrival, message = _arrival_and_message(record, commit, worker, unit)
    commit_time = record.time[commit]
    after_by_rounding = (arrival > commit_time) & (arrival <= latest_equal(commit_time))
    arrival = np.where(after_by_rounding, commit_time, arrival)
    is_of_other_version = record.read[unit, worker] != record.read[first_unit, worker]
    is_in_another = np.append(False, (np.diff(worker) == 0) & (np.diff(unit) == 0))[: unit.size]  # the one before it
    is_late = ((arrival > record.time[commit]) | is_of_other_version | is_in_another) & commits_all_units
    is_out_of_order = np.diff(record.time[:num_commits], prepend=0) < 0  # commits that are not in order of time
    is_late |= is_out_of_order[commit] if is_out_of_order.any() else False
    lowest_worker = np.zeros(num_commits, np.int32)
    lowest_worker[commit[::-1]] = worker[::-1]  # the lowest one is written last
    is_other_message = (worker[1:] != worker[:-1]) | (message[1:] != message[:-1])
    is_other_contribution = (np.diff(worker) != 0) | (np.diff(commit) != 0)
    # A stretch: the units of one worker that are in one commit, next to each other.
    stretch_begin = np.flatnonzero(np.append(True, is_other_contribution)[: unit.size])
    stretch_length = np.diff(np.append(stretch_begin, unit.size)).astype(np.int32)
    max_work = np.zeros(num_commits, np.int32)
    np.maximum.at(max_work, commit[stretch_begin], stretch_length)
    return CommittedUnits(
        commit=commit,
        worker=worker,
        unit=unit,
        arrival=arrival,
        column=column_of_unit,
        is_late=is_late,
        is_first_of_message=np.append(True, is_other_message)[: unit.size],
        lowest_worker=lowest_worker,
        num_units=np.bincount(row, work, num_commits).astype(np.int32),
        num_workers=np.bincount(commit[stretch_begin], minlength=num_commits).astype(np.int32),
        max_work=max_work,
        first_column=first_column,
    )


def _arrival_and_message(
    record: Schedule, commit: np.ndarray, worker: np.ndarray, unit: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """float[units] seconds, when units have arrived; and int32[units], a number for the message that carries each.

    The units are `unit` of `worker`, in `commit`, int32[units] each. A message is sent with its last unit, and
    carries those before it that are in the same commit; where one of these ends later, as it never should, that is
    when it arrives. A unit without such a message arrives when it ends, as the progress of a coded round does; all of
    these of a commit count as one message, with the number T + commit.
    """
    num_units, num_workers = record.start.shape
    finish, has_message = np.asarray(record.finish), np.isfinite(record.send_start)  # [T, W]
    without_message = np.flatnonzero(~has_message[unit, worker])  # the units that are not the last of a message
    arriving_unit, message = unit.copy(), unit.copy()  # a message has the number of its last unit
    if without_message.size:
        unit_with_message = np.where(has_message, np.arange(num_units, dtype=np.int32)[:, None], num_units)
        next_message = np.minimum.accumulate(unit_with_message[::-1], axis=0)[::-1]  # [T, W]; T if there is none
        commit_of_unit = np.full((num_units + 1, num_workers), -1, np.int32)  # -1 if in none, as unit T, which is none
        commit_of_unit[unit, worker] = commit
        last_of_message = next_message[unit[without_message], worker[without_message]]
        next_is_of_other_commit = commit_of_unit[last_of_message, worker[without_message]] != commit[without_message]
        arriving_unit[without_message] = np.where(next_is_of_other_commit, unit[without_message], last_of_message)
        number_of_no_unit = num_units + commit[without_message]
        message[without_message] = np.where(next_is_of_other_commit, number_of_no_unit, last_of_message)
    return np.maximum(finish[unit, worker], finish[arriving_unit, worker]), message


def last_arrival(record: Schedule, worker: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """float[n] seconds: when the last message of `worker[n]` before its `unit[n]` arrived; 0 if there is none."""
    has_message, previous_unit = np.isfinite(record.send_start), (unit - 1).clip(0)
    without_message = np.flatnonzero(~has_message[previous_unit, worker])  # look further back for these
    if without_message.size:
        unit_numbers = np.arange(record.start.shape[0], dtype=np.int32)[:, None]
        unit_or_none = np.where(has_message, unit_numbers, -1)
        last_with_message = np.maximum.accumulate(unit_or_none, axis=0)  # [T, W]; -1 if there is none
        previous_unit[without_message] = last_with_message[previous_unit[without_message], worker[without_message]]
    has_previous = (unit > 0) & (previous_unit >= 0)  # [n]; what is looked up elsewhere is not used
    return np.where(has_previous, record.finish[previous_unit, worker], 0)
