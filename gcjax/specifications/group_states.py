"""States of servers of groups, and how those of a long record are counted, for `gcjax.specifications.group_servers`."""

from typing import NamedTuple

import numpy as np

from gcjax.specifications.base import Numbers
from gcjax.specifications.event_counts import (
    is_first_after,
    last_before,
    latest_values,
    num_before,
    num_before_own_row,
    rows_of_kind,
)
from gcjax.specifications.events import BEGIN, COMMIT, KINDS, UNIT, Event


class Groups(NamedTuple):
    """The state; arrays [W] that belong to a group have its entry at its lowest worker.

    Attributes:
      version: int[], the pushes so far.
      group: int[W], the group of each worker.
      pending_units: int[W], the units of each since its group has read.
      read: int[W], the version that each group has read last.
      pushes_of_others: int[W], the pushes of others since then.
      num_unread_pushes: int[W], 1 from a group's push to its read.
      level: int[], how often groups have been halved.
    """

    version: Numbers
    group: Numbers
    pending_units: Numbers
    read: Numbers
    pushes_of_others: Numbers
    num_unread_pushes: Numbers
    level: Numbers


def states_before_events(state: Groups, events: Event, rows: np.ndarray) -> Groups:
    """The states before the events with the numbers `rows`, as arrays [rows, ...], if the first happens in this state.

    Groups stay as they are. What has happened before each row, and before the last read of each worker's group before
    it, is counted. A group reads when the first of it begins after its push.
    """
    num_workers, num_events = state.group.size, events.kind.size
    is_begin, is_commit = events.kind == KINDS.index(BEGIN), events.kind == KINDS.index(COMMIT)
    unit_rows, commit_rows = rows_of_kind(events, UNIT), rows_of_kind(events, COMMIT)
    group_of_event = state.group[events.worker]
    is_read = is_first_after(is_begin, is_commit, group_of_event, state.num_unread_pushes > 0)
    read_rows = np.flatnonzero(is_read)
    last_read = last_before(rows, read_rows, group_of_event[read_rows], num_workers)[:, state.group]  # int[rows, W]
    has_read = last_read >= 0
    version = state.version + np.searchsorted(commit_rows, rows).astype(np.int32)
    version_at_read = np.where(has_read, state.version + np.searchsorted(commit_rows, last_read), state.read)

    def num_since_read(event_rows: np.ndarray, worker: np.ndarray) -> np.ndarray:
        """int32[rows, W]: the events of each of `worker` between the last read of its group and each row."""
        num_before_read = num_before_own_row(last_read, event_rows, worker, num_events)
        return num_before(rows, event_rows, worker, num_workers) - num_before_read

    # What is counted from a read on, if there was none before a row is counted from the first event on.
    version_before = np.where(has_read, version_at_read, state.version)
    pushes_of_others = version[:, None] - version_before - num_since_read(commit_rows, group_of_event[commit_rows])
    is_lowest_member = state.group == np.arange(num_workers)
    return Groups(
        version=version,
        group=np.broadcast_to(state.group, has_read.shape),
        pending_units=np.where(has_read, 0, state.pending_units) + num_since_read(unit_rows, events.worker[unit_rows]),
        read=version_at_read,
        pushes_of_others=np.where(has_read, 0, state.pushes_of_others)
        + np.where(is_lowest_member, pushes_of_others, 0),
        num_unread_pushes=latest_values(rows, is_commit | is_read, group_of_event, is_commit, state.num_unread_pushes),
        level=np.broadcast_to(state.level, rows.shape),
    )
