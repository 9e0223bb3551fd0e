"""The units of a record that are in commits, and the messages that carried them.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit, P units in commits.
"""

from typing import NamedTuple

import numpy as np

from gcjax.protocols.conformance.structure import ROUNDING
from gcjax.protocols.schedule import Schedule


class CommittedUnits(NamedTuple):
    """The units that are in commits, by worker and unit; arrays [P], and what is known of commits; arrays [E]."""

    commit: np.ndarray
    worker: np.ndarray
    unit: np.ndarray
    arrival: np.ndarray
    late: np.ndarray  # bool: it arrives after the commit, or was computed on another version than its contribution
    first: np.ndarray  # bool: the first one of its message
    label: np.ndarray  # the lowest worker
    size: np.ndarray  # the units
    workers: np.ndarray  # the workers
    max_work: np.ndarray  # the most units of a worker


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
    used = (host.worker >= 0) & np.isfinite(host.time)[:, None]
    num_units, num_workers = host.start.shape
    rules = {
        "times must be numbers": not np.isnan(host.time).any(),
        f"workers must be below {num_workers}": (host.worker < num_workers).all(),
        f"units must be among the {num_units} sampled ones": (
            ~used | ((host.unit >= 0) & (host.unit < num_units))
        ).all(),
    }
    for rule, holds in rules.items():
        if not holds:
            raise ValueError(f"{rule} in a schedule; in this one they do otherwise. Correct the protocol's schedule.")
    return host


def committed_units(host: Schedule, *, whole: bool) -> CommittedUnits:
    """The units in commits, when they arrive, and in which messages; only the first of each contribution if not all."""
    number = int(np.isfinite(host.time).sum())
    num_units = host.start.shape[0]
    row, column = np.nonzero((host.worker[:number] >= 0) & (host.work[:number] > 0))
    worker, first, work = (np.asarray(x)[row, column] for x in (host.worker, host.unit, host.work))
    count = work if whole else np.ones_like(work)
    owner = np.repeat(np.arange(row.size, dtype=np.int32), count)
    commit, worker = row[owner].astype(np.int32), worker[owner]
    unit = first[owner] + (np.arange(owner.size, dtype=np.int32) - np.repeat(np.cumsum(count) - count, count))
    if unit.size and unit.max() >= num_units:
        raise ValueError(
            f"contributions must consist of the {num_units} sampled units; one has unit {unit.max()}. Correct the "
            "protocol's schedule."
        )
    order = np.argsort(worker.astype(np.int64) * num_units + unit, kind="stable")
    commit, worker, unit, start = commit[order], worker[order], unit[order].astype(np.int32), first[owner][order]
    arrival, message = _arrival(host, commit, worker, unit)
    rounded = (arrival > host.time[commit]) & (arrival <= host.time[commit] * (1 + ROUNDING))
    arrival = np.where(rounded, host.time[commit], arrival)
    late = ((arrival > host.time[commit]) | (host.read[unit, worker] != host.read[start, worker])) & whole
    backwards = np.diff(host.time[:number], prepend=0) < 0
    late |= backwards[commit] if backwards.any() else False
    label = np.zeros(number, np.int32)
    label[commit[::-1]] = worker[::-1]  # the lowest one is written last
    change = (worker[1:] != worker[:-1]) | (message[1:] != message[:-1])
    size = np.bincount(row, work, number).astype(np.int32)
    runs = np.flatnonzero(np.append(True, (np.diff(worker) != 0) | (np.diff(commit) != 0))[: unit.size])
    workers = np.bincount(commit[runs], minlength=number).astype(np.int32)
    max_work = np.zeros(number, np.int32)
    np.maximum.at(max_work, commit[runs], np.diff(np.append(runs, unit.size)).astype(np.int32))
    return CommittedUnits(
        commit, worker, unit, arrival, late, np.append(True, change)[: unit.size], label, size, workers, max_work
    )


def _arrival(host: Schedule, commit: np.ndarray, worker: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When units have arrived, and a number for the message that carries each; arrays [P].

    A message carries its unit and those before it that are in the same commit. What none of the commit carries is known
    without one, as the progress of a coded round is.
    """
    num_units, num_workers = host.start.shape
    finish, sent = np.asarray(host.finish), np.isfinite(host.send_start)
    rest = np.flatnonzero(~sent[unit, worker])
    carrier, message = unit.copy(), unit.copy()
    if rest.size:
        places = np.where(sent, np.arange(num_units, dtype=np.int32)[:, None], num_units)
        following = np.minimum.accumulate(places[::-1], axis=0)[::-1]
        commit_of = np.full((num_units + 1, num_workers), -1, np.int32)
        commit_of[unit, worker] = commit
        last = following[unit[rest], worker[rest]]
        known = commit_of[last, worker[rest]] != commit[rest]
        carrier[rest] = np.where(known, unit[rest], last)
        message[rest] = np.where(known, num_units + commit[rest], last)
    return finish[carrier, worker], message


def last_arrival(host: Schedule, worker: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """When the last message of a worker before a unit has arrived; 0 if there is none."""
    sent, before = np.isfinite(host.send_start), (unit - 1).clip(0)
    rest = np.flatnonzero(~sent[before, worker])
    if rest.size:
        rows = np.arange(host.start.shape[0], dtype=np.int32)[:, None]
        before[rest] = np.maximum.accumulate(np.where(sent, rows, -1), axis=0)[before[rest], worker[rest]]
    return np.where((unit > 0) & (before >= 0), host.finish[before, worker], 0)
