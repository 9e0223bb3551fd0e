"""Messages that have arrived and are in no commit.

Letters: T units sampled per worker, W workers, E commits.
"""

import numpy as np

from gcjax.protocols.conformance.committed_units import CommittedUnits
from gcjax.protocols.conformance.structure import latest_equal
from gcjax.protocols.schedule import Schedule


def num_unused_messages(record: Schedule, committed: CommittedUnits) -> tuple[np.ndarray, np.ndarray]:
    """int32[E]: the messages that have arrived since the commit before, by this one, and are in no commit.

    Of several commits at the moment of an arrival it counts at the last one, since it may have come after the others.
    Then int32[E], how many of these arrive at the very moment of the record's last commit, up to rounding: 0 at the
    others. One that carries a unit that is in a commit is none of them.
    """
    commit_time = record.time[: committed.lowest_worker.size]
    end = commit_time.max(initial=-np.inf)
    is_unused = np.isfinite(record.send_start) & (record.finish <= end)  # [T, W]
    is_unused[committed.unit, committed.worker] = False
    arrival = record.finish[is_unused]
    last_commit_until = np.searchsorted(commit_time, arrival, side="right") - 1
    next_commit = np.maximum(np.searchsorted(commit_time, arrival), last_commit_until)
    has_no_message_in_commit = np.zeros_like(is_unused)
    has_no_message_in_commit[committed.unit, committed.worker] = True
    has_no_message_in_commit &= ~np.isfinite(record.send_start)
    follows_its_unit = np.concatenate([np.zeros_like(is_unused[:1]), has_no_message_in_commit[:-1]])[is_unused]
    arrives_at_end = (latest_equal(arrival) >= end) & ~follows_its_unit
    num_unused, num_at_end = (
        np.bincount(commit, minlength=commit_time.size).astype(np.int32)
        for commit in (next_commit, next_commit[arrives_at_end])
    )
    return num_unused, num_at_end


def num_skipped_messages(record: Schedule, committed: CommittedUnits) -> np.ndarray:
    """int32[E]: the messages in no commit whose worker has a later one in one, the first of these in this commit.

    Those that came before the first commit do not count: in a part of a log they are in commits before the part.
    """
    first_commit_time = record.time[: committed.lowest_worker.size].min(initial=np.inf)
    is_skipped = np.isfinite(record.send_start) & np.isfinite(record.finish) & (record.finish > first_commit_time)
    is_skipped[committed.unit, committed.worker] = False  # [T, W]
    unit, worker = np.nonzero(is_skipped)
    num_units = record.start.shape[0]
    # The next committed unit of the same worker; they are ordered by worker and unit.
    next_committed = np.searchsorted(committed.worker * np.int64(num_units) + committed.unit, worker * num_units + unit)
    worker_of_next, commit_of_next = np.append(committed.worker, -1), np.append(committed.commit, -1)
    is_same_worker = worker_of_next[next_committed] == worker
    skipped_at = commit_of_next[next_committed[is_same_worker]]
    return np.bincount(skipped_at, minlength=committed.lowest_worker.size).astype(np.int32)
