"""What a timeline is drawn of, for all formats: slices on tracks, flows from pushes to commits, and counters.

A worker has a track; where it sends or receives while it computes, its messages are on tracks of their own below it.
On the server's track a slice is a version of the parameters: it begins with the commit that made it.
"""

from typing import Any, NamedTuple

import numpy as np

from gcjax.analysis.store import Columns, select
from gcjax.analysis.timelines.activity import Activity
from gcjax.analysis.timelines.intervals import intervals

SERVER = -1
"""The worker that a slice of the server has."""
_MESSAGES = ("receiving", "sending")
_ROUNDING = 1e-5  # of float32, relative


class Slices(NamedTuple):
    """Slices, sorted by track and then by begin; those of one track do not overlap.

    Attributes:
      worker: int[slices]; SERVER for the server.
      lane: int[slices]; 0 is the worker's own track, the others are those of its messages.
      begin: int64[slices] nanoseconds.
      end: int64[slices] nanoseconds.
      name: str[slices]: the state of the worker, or the version of the server.
      unit: int[slices]; -1 if it is of none. Of a slice of the server: the commit, -1 if there is none.
    """

    worker: np.ndarray
    lane: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    name: np.ndarray
    unit: np.ndarray


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
    of_workers = _with_lanes(_states(activity))
    waiting, server = _waiting(of_workers, activity), _versions(activity)
    columns = [np.concatenate(parts) for parts in zip(of_workers, waiting, server, strict=True)]
    order = np.lexsort((columns[3], columns[2], columns[1], columns[0]))  # by worker, lane, begin, end
    return Slices(*(column[order] for column in columns))


def flows(activity: Activity, drawn: Slices) -> Flows:
    """The arrow of each message of a shown worker that a commit within the window took."""
    contributions = activity.contributions
    if contributions is None:
        return Flows(np.zeros(0, int), np.zeros(0, int))
    commit, worker, unit = _messages(activity.units, contributions)
    source_of = {  # a later state of the unit wins: sending
        (int(w), int(u)): i
        for state in ("computing", "sending")
        for i in np.flatnonzero((drawn.name == state) & (drawn.unit >= 0))
        for w, u in [(drawn.worker[i], drawn.unit[i])]
    }
    target_of = {int(drawn.unit[i]): i for i in np.flatnonzero((drawn.worker == SERVER) & (drawn.unit >= 0))}
    pairs = [
        (source_of[w, u], target_of[e])
        for e, w, u in zip(commit.tolist(), worker.tolist(), unit.tolist(), strict=True)
        if (w, u) in source_of and e in target_of
    ]
    return Flows(*np.array(pairs, int).reshape(-1, 2).T)


def counters(activity: Activity) -> dict[str, Columns]:
    """Name -> `time` (int64 nanoseconds) and `value`: the staleness of the commits and the loss, within the window."""
    curves = dict(_staleness(activity.contributions)) if activity.contributions is not None else {}
    if activity.loss is not None:
        curves["loss"] = activity.loss
    shown = {name: _within(curve, activity) for name, curve in curves.items()}
    return {name: {**curve, "time": nanoseconds(curve["time"])} for name, curve in shown.items() if len(curve["time"])}


def nanoseconds(seconds: Any) -> np.ndarray:
    """int64: whole nanoseconds."""
    return np.rint(np.asarray(seconds, np.float64) * 1e9).astype(np.int64)


def _states(activity: Activity) -> Slices:
    """The slices of the workers' units, each within the window; the lane is 1 for messages."""
    parts = []
    units = {name: x.astype(np.float64) if x.dtype.kind == "f" else x for name, x in activity.units.items()}
    for state, (begin, end) in intervals(units, activity.end).items():
        with np.errstate(invalid="ignore"):
            begin, end = np.maximum(begin, activity.begin), np.minimum(end, activity.end)
            has_length = np.isfinite(begin) & (end > begin)
        count = int(has_length.sum())
        lane, name = np.full(count, int(state in _MESSAGES)), np.full(count, state, object)
        worker, unit = units["worker"][has_length], units["unit"][has_length]
        parts.append((worker, lane, nanoseconds(begin[has_length]), nanoseconds(end[has_length]), name, unit))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[3], columns[2], columns[0]))
    return Slices(*(column[order] for column in columns))


def _with_lanes(states: Slices) -> Slices:
    """The slices with messages on the worker's own track, if that is free then for all of them; else on further ones.

    Where two slices of a track overlap by rounding, the second begins later.
    """
    for num_lanes_before in (0, 1):
        lane, begin, is_own_enough = _assigned(states, num_lanes_before)
        if num_lanes_before or is_own_enough:
            break
    return states._replace(lane=lane, begin=begin)


def _assigned(states: Slices, first_of_messages: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """The lane and the begin of each slice, and whether there is one lane only.

    Args:
      states: sorted by worker and begin; the lane is 1 for messages.
      first_of_messages: the first lane that messages may be on.
    """
    lane, begin = np.zeros(len(states.lane), int), states.begin.copy()
    ends: dict[tuple[int, int], int] = {}
    rows = zip(states.worker.tolist(), states.lane.tolist(), states.begin.tolist(), states.end.tolist(), strict=True)
    for i, (worker, is_message, start, end) in enumerate(rows):
        number = first_of_messages * is_message
        while start < ends.get((worker, number), 0) - max(1000, _ROUNDING * start):  # 1 µs
            number += 1
        lane[i], begin[i] = number, min(end, max(start, ends.get((worker, number), 0)))
        ends[worker, number] = end
    return lane, begin, not lane.any()


def _waiting(states: Slices, activity: Activity) -> Slices:
    """The slices of a worker's own track in which it does nothing else."""
    begin_of_window, end_of_window = nanoseconds([activity.begin, activity.end])
    rows = []
    for worker in activity.workers.tolist():
        first, last = np.searchsorted(states.worker, [worker, worker + 1])
        done = np.maximum.accumulate(np.append(begin_of_window, states.end[first:last]))  # until when it did something
        next_begin = np.append(states.begin[first:last], end_of_window)
        rows += [(worker, a, b) for a, b in zip(done, next_begin, strict=True) if b > a]
    worker, begin, end = np.array(rows, np.int64).reshape(-1, 3).T
    nothing = np.full(len(rows), -1)
    return Slices(worker, np.zeros(len(rows), int), begin, end, np.full(len(rows), "waiting", object), nothing)


def _versions(activity: Activity) -> Slices:
    """The slices of the server: each from a commit to the next one, and the version before the first of the window."""
    if activity.contributions is None:
        return Slices(*(np.zeros(0, kind) for kind in (int, int, np.int64, np.int64, object, int)))
    commit, first = np.unique(activity.contributions["commit"], return_index=True)
    times = activity.contributions["time"][first]
    is_shown = (times >= activity.begin) & (times <= activity.end)
    before = commit[times < activity.begin]
    last_before = int(before[-1]) if before.size else -1
    made = np.append(last_before, commit[is_shown])
    begin = nanoseconds(np.append(activity.begin, times[is_shown]))
    end = np.append(begin[1:], nanoseconds(activity.end))
    next_made = [*made[1:].tolist(), -1]
    names = np.array([_versions_name(*pair, activity) for pair in zip(made.tolist(), next_made, strict=True)], object)
    is_begin_shown = np.arange(made.size) > 0
    unit = np.where(is_begin_shown, made, -1)
    return Slices(np.full(made.size, SERVER), np.zeros(made.size, int), begin, end, names, unit)


def _versions_name(commit: int, next_commit: int, activity: Activity) -> str:
    """The name of what is from a commit to the next one that is shown; -1 if there is none."""
    if activity.has_all_commits or next_commit == commit + 1:
        return f"version {commit + 1}"
    return f"versions {commit + 1} and later" if next_commit < 0 else f"versions {commit + 1} to {next_commit}"


def _messages(units: Columns, contributions: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Commit, worker and unit of each message that a commit took: of units of a contribution, arrived by the commit."""
    sent = select(units, np.isfinite(units["send_start"]) & np.isfinite(units["finish"]))
    stride = 1 + int(max(units["unit"].max(initial=0), contributions["unit"].max(initial=0)))
    own = contributions["worker"].astype(np.int64) * stride + contributions["unit"]
    order = np.argsort(own, kind="stable")
    message = sent["worker"].astype(np.int64) * stride + sent["unit"]
    position = np.searchsorted(own[order], message, side="right") - 1  # of the contribution that begins last before it
    is_after_one = position >= 0
    row = order[position[is_after_one]] if order.size else np.zeros(0, int)
    sent = select(sent, is_after_one if order.size else np.zeros_like(is_after_one))
    is_inside = message[is_after_one][: row.size] - own[row] < contributions["work"][row]
    is_same = sent["worker"] == contributions["worker"][row]
    is_arrived = sent["finish"] <= contributions["time"][row] * (1 + _ROUNDING)
    taken = is_inside & is_same & is_arrived
    return contributions["commit"][row[taken]], sent["worker"][taken], sent["unit"][taken]


def _staleness(contributions: Columns) -> dict[str, Columns]:
    """The mean and the largest staleness of the contributions to each commit, at its time."""
    commit, first, row = np.unique(contributions["commit"], return_index=True, return_inverse=True)
    values = (contributions["commit"] - contributions["version"]).astype(np.float64)
    largest = np.full(commit.size, -np.inf)
    np.maximum.at(largest, row, values)
    mean = np.bincount(row, values, commit.size) / np.maximum(np.bincount(row, minlength=commit.size), 1)
    times = contributions["time"][first]
    return {"largest staleness": {"time": times, "value": largest}, "mean staleness": {"time": times, "value": mean}}


def _within(curve: Columns, activity: Activity) -> Columns:
    """The part of a curve that is in the window, without what is no number."""
    is_shown = (curve["time"] >= activity.begin) & (curve["time"] <= activity.end) & np.isfinite(curve["value"])
    return select(curve, is_shown)
