"""The begins of work among the events of a record: when each worker began, and before which event of that moment.

Letters: T units sampled per worker, W workers, E commits.
"""

from typing import Any

import numpy as np

from gcjax.protocols.conformance.committed_units import CommittedUnits, last_arrival, time_of_version
from gcjax.protocols.conformance.structure import latest_equal
from gcjax.protocols.schedule import Schedule
from gcjax.specifications.events import BEGIN, COMMIT, KINDS, STEP, UNIT

Columns = dict[str, Any]
"""Of events, by the names of `Event`, with the time, whether they are premature, and what orders them at a moment."""


def begin_columns(
    record: Schedule,
    committed: CommittedUnits,
    event_order: np.ndarray,
    columns_by_kind: dict[str, Columns],
    *,
    before_commits: bool,
) -> tuple[Columns, np.ndarray]:
    """The begins of the work of messages, as columns; and int[begins], the position of the event after each.

    A worker begins when it has started the first unit of the message, and its last message has arrived: computing may
    have gone on before. What arrives at this moment comes before it, but not the commit that replaces the version that
    it has read.

    Args:
      record: the record in numpy arrays.
      committed: the units in commits; those of a message lie next to each other.
      event_order: the order of all other events.
      columns_by_kind: the columns of the other events, which are numbered through.
      before_commits: `begins_before_commits` of `events`.
    """
    first_row = np.flatnonzero(committed.is_first_of_message)  # the rows of the first and the last unit of each message
    last_row = np.append(first_row[1:], committed.unit.size)[: first_row.size] - 1  # none if there are no messages
    worker, unit, commit = committed.worker[first_row], committed.unit[first_row], committed.commit[first_row]
    version = np.asarray(record.read[committed.unit[last_row], committed.worker[last_row]])  # for the last unit
    last_message, start = last_arrival(record, worker, unit), record.start[unit, worker]
    commit_before = committed.commit[first_row - 1]  # of the worker's push before; means nothing for its first begin
    # Who computes while it sends may have started before its message arrived, and so before the commit that this is in.
    starts_after_commit = ~_has_pushed_before(committed, first_row) | (np.asarray(record.time)[commit_before] <= start)
    is_one_moment = starts_after_commit & (last_message <= latest_equal(start))
    time = np.where(is_one_moment, start, np.maximum(start, last_message))
    begins = {
        "kind": KINDS.index(BEGIN),
        "time": time,
        "worker": worker,
        "unit": unit,
        "commit": commit,
        "version": version,
        "size": committed.num_workers[commit],
        "group": committed.lowest_worker[commit],
        "column": committed.column[first_row],
        "waited": time > latest_equal(last_message),
        "is_premature": time_of_version(record, version) > time,
    }
    is_ambiguous = time == _ambiguous_begin_times(record, committed)[version.clip(0, record.time.size)]
    is_ambiguous |= _is_replaced_at_moment(record, time, version, also_made=not before_commits)
    precedes_commit = is_ambiguous & (version == commit_before)
    if before_commits:  # other groups may have made commits since that version
        precedes_commit |= (version <= commit_before) & (time == np.asarray(record.time)[commit_before])
        is_ambiguous |= precedes_commit
    position = _begin_positions(time, version, is_ambiguous, record.time.size + 1, event_order, columns_by_kind)
    follows_commit = _may_follow_commit_before(record, committed, first_row, time, version)
    # At the very moment of the commit before, the version that it replaces can only have been read before it.
    follows_commit &= ~precedes_commit
    return begins, _clipped_to_own_pushes(position, committed, first_row, event_order, columns_by_kind, follows_commit)


def _may_follow_commit_before(
    record: Schedule, committed: CommittedUnits, first_row: np.ndarray, begin_time: np.ndarray, version: np.ndarray
) -> np.ndarray:
    """bool[begins]: whether each begin can be after the commit that its worker's push before it is in.

    It can if it is at the time of that commit or later, or has read a newer version than the commit replaces. Otherwise
    the server has waited for more. The entry of a worker's first begin means nothing (row -1 is the last).

    Args:
      record: the record in numpy arrays.
      committed: the units in commits, by worker and unit.
      first_row: the first unit of each begin, as an index into `committed`.
      begin_time: float[begins] seconds.
      version: int32[begins], that is read.
    """
    commit_before = committed.commit[first_row - 1]
    return (version > commit_before) | (begin_time >= np.asarray(record.time)[commit_before])


def _begin_positions(
    begin_time: np.ndarray,
    version: np.ndarray,
    is_ambiguous: np.ndarray,
    num_versions: int,
    event_order: np.ndarray,
    columns_by_kind: dict[str, Columns],
) -> np.ndarray:
    """int[begins]: the position, in the order of the other events, of the event that each begin comes before.

    At one moment a begin is after what arrives, unless it is ambiguous: then the version read decides.

    Args:
      begin_time: float[begins] seconds.
      version: int32[begins], that is read.
      is_ambiguous: bool[begins], where the begin is at the very time of the commit that replaces its version.
      num_versions: E + 1.
      event_order: the order of the other events.
      columns_by_kind: the columns of the other events.
    """
    event_time = np.concatenate([columns["time"] for columns in columns_by_kind.values()])[event_order]
    position = np.searchsorted(event_time, begin_time, side="right")
    ambiguous = np.flatnonzero(is_ambiguous)
    if ambiguous.size:
        commit_of_event = np.concatenate([columns["commit_order"] for columns in columns_by_kind.values()])[event_order]
        # Within a moment events are in the order of their commits: the begin comes before those of commit `version`.
        first_at_moment, first_of_begin = (
            np.searchsorted(event_time, x, side="left") for x in (event_time, begin_time[ambiguous])
        )
        place_in_order = first_at_moment * (num_versions + 1) + commit_of_event  # commits are at most E
        position[ambiguous] = np.searchsorted(place_in_order, first_of_begin * (num_versions + 1) + version[ambiguous])
    return position


def _is_replaced_at_moment(
    record: Schedule, begin_time: np.ndarray, version: np.ndarray, *, also_made: bool
) -> np.ndarray:
    """bool[begins]: whether the `version` int32[begins] that a begin has read was replaced at its moment.

    `also_made`: whether it must have been made at this moment, too.
    """
    num_commits = record.time.size
    made, replaced = (version - 1).clip(0, num_commits - 1), version.clip(0, num_commits - 1)  # the numbers of commits
    is_replaced = (version < num_commits) & (record.time[replaced] == begin_time)
    return is_replaced & ((version > 0) & (record.time[made] == begin_time) if also_made else True)


def _ambiguous_begin_times(record: Schedule, committed: CommittedUnits) -> np.ndarray:
    """float[E + 1] seconds: for each version, the time of the commit after it, where that time alone gives no order.

    That is where the commit, or one after it at the same moment, has a unit of no length, which was begun at this very
    moment: other workers may then have begun before the commit or after it. Elsewhere inf, since those who begin at the
    moment of a commit do so after it.

    Args:
      record: the record in numpy arrays; unit n of worker w begins at `record.start[n, w]`, commit e is at
        `record.time[e]`.
      committed: the units that are in commits.
    """
    begins_at_commit = record.start[committed.unit, committed.worker] >= record.time[committed.commit]
    commit_time = record.time[: committed.lowest_worker.size]
    # Of the commits of one moment, the last that has such a unit: it leaves those before it open, too.
    moments, moment_of_commit = np.unique(commit_time, return_inverse=True)
    last_of_moment = np.full(moments.size, -1)
    commit = committed.commit[begins_at_commit]
    np.maximum.at(last_of_moment, moment_of_commit[commit], commit)
    is_open = np.arange(commit_time.size) <= last_of_moment[moment_of_commit]
    replacement_time = np.full(record.time.size + 1, np.inf)
    replacement_time[: commit_time.size][is_open] = commit_time[is_open]  # commit e replaces version e
    return replacement_time


def _clipped_to_own_pushes(
    begin_position: np.ndarray,
    committed: CommittedUnits,
    first_row: np.ndarray,
    event_order: np.ndarray,
    columns_by_kind: dict[str, Columns],
    follows_commit: np.ndarray,
) -> np.ndarray:
    """int[begins]: the positions of begins, each after the worker's push before it and not after its own push.

    The push before is here the event of its last unit, the own push that of its first: that the unit has arrived (UNIT)
    or, where there are no such events, been computed (STEP), or else the commit that it is in. If the commit of the
    push before is the very next event, the begin is also after this, where `follows_commit` says that it can be.

    Args:
      begin_position: the positions so far, that is the position of the event that each begin comes before.
      committed: the units in commits, by worker and unit; events of units are in the same order, one for each.
      first_row: the first unit of each begin, as an index into `committed`.
      event_order: the numbers of the other events in their order.
      columns_by_kind: the columns of the other events; the events are numbered through over the kinds.
      follows_commit: bool[begins], of `_may_follow_commit_before`.
    """
    position_of_event = np.empty_like(event_order)  # by the number of the event
    position_of_event[event_order] = np.arange(event_order.size)
    num_events = [columns["time"].size for columns in columns_by_kind.values()]
    first_event_of_kind = dict(zip(columns_by_kind, np.cumsum([0, *num_events]), strict=False))
    push_kind = next((kind for kind in (UNIT, STEP) if kind in columns_by_kind), None)
    if push_kind is not None:
        first_push = first_event_of_kind[push_kind]
        push_position = position_of_event[first_push : first_push + committed.unit.size]
    else:  # commits only: each is the push of one worker
        push_position = position_of_event[first_event_of_kind[COMMIT] + committed.commit]
    # That of the row before; of row -1, the last, for row 0, which is a first begin: see `_has_pushed_before`.
    previous_position = push_position[first_row - 1]
    if COMMIT in columns_by_kind:
        position_of_its_commit = position_of_event[first_event_of_kind[COMMIT] + committed.commit[first_row - 1]]
        commit_follows = (position_of_its_commit == previous_position + 1) & follows_commit
        previous_position = previous_position + commit_follows
    min_position = np.where(_has_pushed_before(committed, first_row), previous_position + 1, 0)
    return np.minimum(np.maximum(begin_position, min_position), push_position[first_row])


def _has_pushed_before(committed: CommittedUnits, first_row: np.ndarray) -> np.ndarray:
    """bool[begins]: whether the worker of each begin has pushed before it: not at its first begin.

    `first_row` is the first unit of each begin, as an index into `committed`.
    """
    is_same_worker = committed.worker[first_row[1:]] == committed.worker[first_row[:-1]]
    return np.append(False, is_same_worker)[: first_row.size]
