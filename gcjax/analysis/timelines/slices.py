"""What a timeline is drawn of, for all formats: slices on tracks, flows from pushes to commits, and counters.

A worker has a track; where it sends or receives while it computes, its messages are on tracks of their own below it.
On the server's track a slice is a version of the parameters: it begins with the commit that made it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gcjax.analysis.store import Columns, select_rows
from gcjax.analysis.timelines.activity import Activity
from gcjax.analysis.timelines.intervals import state_intervals

SERVER = -1
"""The worker that a slice of the server has."""
NO_UNIT = -1
"""The unit or commit of a slice that is of none."""
_MESSAGE_STATES = ("receiving", "sending")
_ROUNDING = 1e-5  # of float32, relative
_MICROSECOND = 1000  # in nanoseconds


class Slices(NamedTuple):
    """Slices, sorted by track and then by begin; those of one track do not overlap.

    Attributes:
      worker: int[slices]; SERVER for the server.
      lane: int[slices], which of the worker's tracks: 0 is its own, the others are those of its messages.
      begin: int64[slices] nanoseconds.
      end: int64[slices] nanoseconds.
      name: str[slices]: the state of the worker, or the version of the server.
      unit_or_commit: int[slices]; the unit of a worker, or the commit with which a slice of the server begins; NO_UNIT
        if there is none.
    """

    worker: np.ndarray
    lane: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    name: np.ndarray
    unit_or_commit: np.ndarray


class Flows(NamedTuple):
    """Arrows from pushes to commits, [flows] each.

    Attributes:
      source: the index of the slice in which the push is sent; of the last unit, if sending takes no time.
      target: the index of the slice of the server that begins with the commit.
    """

    source: np.ndarray
    target: np.ndarray


def slices(activity: Activity) -> Slices:
    """All slices of workers and server, within the window."""
    worker_slices = _with_lanes(_state_slices(activity))
    waiting_slices, server_slices = _waiting_slices(worker_slices, activity), _version_slices(activity)
    return _concatenate_sorted([worker_slices, waiting_slices, server_slices], by=("worker", "lane", "begin", "end"))


def flows(activity: Activity, track_slices: Slices) -> Flows:
    """The arrow, from slice to slice (indices), of each message of a shown worker that a commit in the window took."""
    contributions = activity.contributions
    if contributions is None:
        return Flows(np.zeros(0, int), np.zeros(0, int))
    messages = zip(*(column.tolist() for column in _messages_in_commits(activity.units, contributions)), strict=True)
    slice_of_unit = {  # in which it is sent; in which it is computed, if sending takes no time
        **_slice_of_unit_in_state(track_slices, "computing"),
        **_slice_of_unit_in_state(track_slices, "sending"),
    }
    slice_of_commit = _slice_of_commit(track_slices)
    source_and_target = [
        (slice_of_unit[worker, unit], slice_of_commit[commit])
        for commit, worker, unit in messages
        if (worker, unit) in slice_of_unit and commit in slice_of_commit
    ]
    return Flows(*np.array(source_and_target, int).reshape(-1, 2).T)


def counters(activity: Activity) -> dict[str, Columns]:
    """Name -> `time` (int64 nanoseconds) and `value`: the staleness of the commits and the loss, within the window."""
    curves = dict(_staleness_curves(activity.contributions)) if activity.contributions is not None else {}
    if activity.loss is not None:
        curves["loss"] = activity.loss
    curves_in_window = {name: _within_window(curve, activity) for name, curve in curves.items()}
    return {
        name: {**curve, "time": nanoseconds(curve["time"])}
        for name, curve in curves_in_window.items()
        if len(curve["time"])
    }


def nanoseconds(seconds: Any) -> np.ndarray:
    """int64: whole nanoseconds."""
    return np.rint(np.asarray(seconds, np.float64) * 1e9).astype(np.int64)


def _concatenate_sorted(groups: Sequence[Slices], *, by: Sequence[str]) -> Slices:
    """The slices of all groups, sorted by the first of these fields, then by the second, and so on."""
    all_slices = Slices(*(np.concatenate(columns) for columns in zip(*groups, strict=True)))
    order = np.lexsort([getattr(all_slices, field) for field in reversed(by)])
    return Slices(*(column[order] for column in all_slices))


def _slice_of_unit_in_state(track_slices: Slices, state: str) -> dict[tuple[int, int], int]:
    """(worker, unit) -> index of the slice of a worker in which the unit is in the state."""
    indices = np.flatnonzero((track_slices.name == state) & (track_slices.unit_or_commit != NO_UNIT)).tolist()
    return {(int(track_slices.worker[i]), int(track_slices.unit_or_commit[i])): i for i in indices}


def _slice_of_commit(track_slices: Slices) -> dict[int, int]:
    """Commit -> index of the slice of the server that begins with it."""
    begins_with_commit = (track_slices.worker == SERVER) & (track_slices.unit_or_commit != NO_UNIT)
    return {int(track_slices.unit_or_commit[i]): i for i in np.flatnonzero(begins_with_commit).tolist()}


def _state_slices(activity: Activity) -> Slices:
    """The slices of the workers' units, each cut to the window; the lane is 1 for messages, else 0."""
    slices_of_states = []
    units = {
        name: column.astype(np.float64) if column.dtype.kind == "f" else column
        for name, column in activity.units.items()
    }
    for state, (state_begin, state_end) in state_intervals(units, activity.end).items():
        with np.errstate(invalid="ignore"):
            begin, end = np.maximum(state_begin, activity.begin), np.minimum(state_end, activity.end)
            is_shown = np.isfinite(begin) & (end > begin)
        num_slices, message_lane = int(is_shown.sum()), int(state in _MESSAGE_STATES)
        slices_of_states.append(
            Slices(
                worker=units["worker"][is_shown],
                lane=np.full(num_slices, message_lane),
                begin=nanoseconds(begin[is_shown]),
                end=nanoseconds(end[is_shown]),
                name=np.full(num_slices, state, object),
                unit_or_commit=units["unit"][is_shown],
            )
        )
    return _concatenate_sorted(slices_of_states, by=("worker", "begin", "end"))


def _with_lanes(worker_slices: Slices) -> Slices:
    """The slices with messages on the worker's own track, if that is free then for all of them; else on further ones.

    Where two slices of a track overlap by rounding, the second begins later.
    """
    lane, begin = _lanes_without_overlap(worker_slices, first_message_lane=0)
    if lane.any():  # some worker sends or receives while it computes
        lane, begin = _lanes_without_overlap(worker_slices, first_message_lane=1)
    return worker_slices._replace(lane=lane, begin=begin)


def _lanes_without_overlap(worker_slices: Slices, *, first_message_lane: int) -> tuple[np.ndarray, np.ndarray]:
    """For each slice its lane, which is the number of its track among those of its worker, and its begin (nanoseconds).

    Args:
      worker_slices: sorted by worker and begin; their lane is 1 if they are messages, else 0.
      first_message_lane: the first lane that messages may be on; 0 is the worker's own.
    """
    lanes, begins = np.zeros(len(worker_slices.lane), int), worker_slices.begin.copy()
    last_end_on_track: dict[tuple[int, int], int] = {}
    fields_of_slices = zip(
        worker_slices.worker.tolist(),
        worker_slices.lane.tolist(),
        worker_slices.begin.tolist(),
        worker_slices.end.tolist(),
        strict=True,
    )
    for index, (worker, is_message, begin, end) in enumerate(fields_of_slices):
        lane, tolerance = (first_message_lane if is_message else 0), max(_MICROSECOND, _ROUNDING * begin)
        while begin < last_end_on_track.get((worker, lane), 0) - tolerance:
            lane += 1
        begin_without_overlap = max(begin, last_end_on_track.get((worker, lane), 0))
        lanes[index], begins[index] = lane, min(end, begin_without_overlap)
        last_end_on_track[worker, lane] = end
    return lanes, begins


def _waiting_slices(worker_slices: Slices, activity: Activity) -> Slices:
    """The slices, named "waiting", of each worker's own track while it has no other slice in the window."""
    window_begin, window_end = nanoseconds([activity.begin, activity.end])
    waiting_intervals = []
    for worker in activity.workers.tolist():
        first_row, end_row = np.searchsorted(worker_slices.worker, [worker, worker + 1])
        busy_until = np.maximum.accumulate(np.append(window_begin, worker_slices.end[first_row:end_row]))
        next_begin = np.append(worker_slices.begin[first_row:end_row], window_end)
        waiting_intervals += [
            (worker, idle_begin, idle_end)
            for idle_begin, idle_end in zip(busy_until, next_begin, strict=True)
            if idle_end > idle_begin
        ]
    worker, begin, end = np.array(waiting_intervals, np.int64).reshape(-1, 3).T
    num_slices = len(waiting_intervals)
    names, no_units = np.full(num_slices, "waiting", object), np.full(num_slices, NO_UNIT)
    return Slices(worker, lane=np.zeros(num_slices, int), begin=begin, end=end, name=names, unit_or_commit=no_units)


def _version_slices(activity: Activity) -> Slices:
    """The slices of the server: each from a commit to the next one, and the version before the first of the window.

    Commit e makes version e + 1; before the first commit, as behind the last one, the commit is -1.
    """
    if activity.contributions is None:
        return Slices(*(np.zeros(0, dtype) for dtype in (int, int, np.int64, np.int64, object, int)))
    commits, first_row_of_commit = np.unique(activity.contributions["commit"], return_index=True)
    commit_times = activity.contributions["time"][first_row_of_commit]
    is_in_window = (commit_times >= activity.begin) & (commit_times <= activity.end)
    earlier_commits = commits[commit_times < activity.begin]
    last_earlier_commit = int(earlier_commits[-1]) if earlier_commits.size else -1
    slice_commits = np.append(last_earlier_commit, commits[is_in_window])
    next_commits = [*slice_commits[1:].tolist(), -1]
    commit_pairs = zip(slice_commits.tolist(), next_commits, strict=True)
    names = np.array([_versions_name(*pair, activity) for pair in commit_pairs], object)
    begin = nanoseconds(np.append(activity.begin, commit_times[is_in_window]))
    end = np.append(begin[1:], nanoseconds(activity.end))
    server, own_lane = np.full(slice_commits.size, SERVER), np.zeros(slice_commits.size, int)
    begins_with_commit = np.arange(slice_commits.size) > 0  # the first slice begins with the window
    return Slices(server, own_lane, begin, end, names, np.where(begins_with_commit, slice_commits, NO_UNIT))


def _versions_name(commit: int, next_commit: int, activity: Activity) -> str:
    """The name of what is from a commit to the next one that is shown; -1 if there is none.

    Commit e replaces version e and makes version e + 1. There may be commits in between that are not shown.
    """
    if activity.has_all_commits or next_commit == commit + 1:
        return f"version {commit + 1}"
    return f"versions {commit + 1} and later" if next_commit < 0 else f"versions {commit + 1} to {next_commit}"


def _messages_in_commits(units: Columns, contributions: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Commit, worker and unit, int[messages] each, of all messages that a commit took.

    A message is taken if its unit is one of a contribution's, `work` units from `unit` on, and arrives by the commit. A
    unit's position is its number among all units of all workers. The contribution that can have a unit is the one that
    begins last up to it.
    """
    sent_units = select_rows(units, np.isfinite(units["send_start"]) & np.isfinite(units["finish"]))
    units_per_worker = 1 + int(max(units["unit"].max(initial=0), contributions["unit"].max(initial=0)))
    sent_position = _position_in_units_of_all_workers(sent_units, units_per_worker)
    begin_position = _position_in_units_of_all_workers(contributions, units_per_worker)
    order_by_begin = np.argsort(begin_position, kind="stable")
    num_contributions_begun = np.searchsorted(begin_position[order_by_begin], sent_position, side="right")
    follows_a_contribution = num_contributions_begun > 0
    sent_units, sent_position = select_rows(sent_units, follows_a_contribution), sent_position[follows_a_contribution]
    row_of_last_begun_contribution = order_by_begin[num_contributions_begun[follows_a_contribution] - 1]
    last_begun_contributions = select_rows(contributions, row_of_last_begun_contribution)
    units_since_begin = sent_position - begin_position[row_of_last_begun_contribution]
    is_within_contribution = units_since_begin < last_begun_contributions["work"]
    is_of_same_worker = sent_units["worker"] == last_begun_contributions["worker"]
    is_arrived_by_commit = sent_units["finish"] <= last_begun_contributions["time"] * (1 + _ROUNDING)
    is_in_commit = is_within_contribution & is_of_same_worker & is_arrived_by_commit
    return (
        last_begun_contributions["commit"][is_in_commit],
        sent_units["worker"][is_in_commit],
        sent_units["unit"][is_in_commit],
    )


def _position_in_units_of_all_workers(unit_rows: Columns, units_per_worker: int) -> np.ndarray:
    """int64[rows]: the position of each row's unit where the units of all workers follow one another, by worker."""
    return unit_rows["worker"].astype(np.int64) * units_per_worker + unit_rows["unit"]


def _staleness_curves(contributions: Columns) -> dict[str, Columns]:
    """The mean and the largest staleness of the contributions to each commit, at its time."""
    commits, first_row_of_commit, commit_index_of_contribution = np.unique(
        contributions["commit"], return_index=True, return_inverse=True
    )
    staleness = (contributions["commit"] - contributions["version"]).astype(np.float64)  # in commits
    largest_staleness = np.full(commits.size, -np.inf)
    np.maximum.at(largest_staleness, commit_index_of_contribution, staleness)
    num_contributions = np.bincount(commit_index_of_contribution, minlength=commits.size)
    mean_staleness = np.bincount(commit_index_of_contribution, staleness, commits.size) / np.maximum(
        num_contributions, 1
    )
    times = contributions["time"][first_row_of_commit]
    return {
        "largest staleness": {"time": times, "value": largest_staleness},
        "mean staleness": {"time": times, "value": mean_staleness},
    }


def _within_window(curve: Columns, activity: Activity) -> Columns:
    """The part of a curve, `time` (seconds) and `value`, that is in the window, without values that are not finite."""
    is_shown = (curve["time"] >= activity.begin) & (curve["time"] <= activity.end) & np.isfinite(curve["value"])
    return select_rows(curve, is_shown)
