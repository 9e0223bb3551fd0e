"""Messages of a record that have arrived, and are in no commit.

Letters: T units sampled per worker, W workers, E commits.
"""

import numpy as np

from gcjax.protocols.conformance.committed_units import CommittedUnits
from gcjax.protocols.schedule import Schedule


def num_unused_messages(record: Schedule, committed: CommittedUnits) -> np.ndarray:
    """int32[E]: the messages that have arrived since the commit before, by this one, and are in no commit.

    Of several commits at the moment of an arrival it counts at the last one, since it may have come after the others.
    """
    commit_time = record.time[: committed.lowest_worker.size]
    arrival = record.finish[_is_unused(record, committed)]
    last_commit_until = np.searchsorted(commit_time, arrival, side="right") - 1
    next_commit = np.maximum(np.searchsorted(commit_time, arrival), last_commit_until)
    return np.bincount(next_commit, minlength=commit_time.size).astype(np.int32)


def num_skipped_messages(record: Schedule, committed: CommittedUnits) -> np.ndarray:
    """int32[E]: the messages in no commit of which a commit has the next one of the same worker that is in any."""
    num_units, num_commits = record.start.shape[0], committed.lowest_worker.size
    commit_of_unit = np.full(record.start.shape, -1, np.int32)  # [T, W]
    commit_of_unit[committed.unit, committed.worker] = committed.commit
    unit_in_commit = np.where(commit_of_unit >= 0, np.arange(num_units)[:, None], num_units)
    next_in_commit = np.minimum.accumulate(unit_in_commit[::-1], axis=0)[::-1]  # T if there is none
    unit, worker = np.nonzero(_is_unused(record, committed))
    next_unit = next_in_commit[unit, worker]
    has_next = next_unit < num_units
    return np.bincount(commit_of_unit[next_unit[has_next], worker[has_next]], minlength=num_commits).astype(np.int32)


def _is_unused(record: Schedule, committed: CommittedUnits) -> np.ndarray:
    """bool[T, W]: whether a unit's message has arrived by the last commit, and is in none."""
    last_commit_time = record.time[: committed.lowest_worker.size].max(initial=-np.inf)
    is_unused = np.isfinite(record.send_start) & (record.finish <= last_commit_time)
    is_unused[committed.unit, committed.worker] = False
    return is_unused
