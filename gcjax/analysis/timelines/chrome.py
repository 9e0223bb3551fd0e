"""Timelines as JSON in the Trace Event Format, which Perfetto and Chrome's own viewer open.

A run is a process and a track a thread. Times are microseconds with three decimals.
"""

import json
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

import gcjax
from gcjax.analysis.timelines.activity import Activity
from gcjax.analysis.timelines.slices import SERVER, Flows, Slices, counters, flows, slices


def write(file: IO[bytes], activities: Sequence[Activity]) -> None:
    """Writes a file in Trace Event JSON, with a process for each activity, and an event a line."""
    shown_parts = {activity.name: activity.shown_part_text for activity in activities}
    notes = {"written by": f"gcjax {gcjax.__version__}", **shown_parts}
    head_object = json.dumps({"displayTimeUnit": "ms", "otherData": notes})
    file.write(head_object.removesuffix("}").encode() + b', "traceEvents": [')
    separator = b"\n"
    for process_id, activity in enumerate(activities, start=1):
        for event in _process_events(process_id, activity):
            file.write(separator + json.dumps(event, allow_nan=False).encode())
            separator = b",\n"
    file.write(b"\n]}\n")


def track_name(worker: int, lane: int) -> str:
    """What stands beside a track."""
    if worker == SERVER:
        return "server"
    return f"worker {worker}" if lane == 0 else f"worker {worker}, messages" + (f" {lane}" if lane > 1 else "")


def _process_events(process_id: int, activity: Activity) -> Iterator[dict[str, Any]]:
    """The events of one process, with a thread for each track, that is (worker, lane), in their order.

    The kind of an event is `ph`: "M" names or describes something, "X" is a slice, "s" and "f" are the ends of an
    arrow, "C" is a value of a counter. `ts` is its time in microseconds.
    """
    track_slices = slices(activity)
    track_of_slice = list(zip(track_slices.worker.tolist(), track_slices.lane.tolist(), strict=True))
    thread_of_track = {track: thread for thread, track in enumerate(sorted(set(track_of_slice)), start=1)}
    yield _name_event("process_name", process_id, 0, activity.name)
    yield {"ph": "M", "name": "process_labels", "pid": process_id, "args": {"labels": activity.shown_part_text}}
    for track, thread in thread_of_track.items():
        sort_index = {"sort_index": thread}
        yield _name_event("thread_name", process_id, thread, track_name(*track))
        yield {"ph": "M", "name": "thread_sort_index", "pid": process_id, "tid": thread, "args": sort_index}
    thread_of_slice = [thread_of_track[track] for track in track_of_slice]
    yield from _slice_events(process_id, track_slices, thread_of_slice)
    yield from _flow_events(process_id, track_slices, flows(activity, track_slices), thread_of_slice)
    for name, curve in counters(activity).items():
        for time, value in zip(_microseconds(curve["time"]), curve["value"].tolist(), strict=True):
            yield {"ph": "C", "name": name, "pid": process_id, "ts": time, "args": {"value": value}}


def _name_event(kind: str, process_id: int, thread: int, name: str) -> dict[str, Any]:
    """The event that names a process or a thread."""
    return {"ph": "M", "name": kind, "pid": process_id, "tid": thread, "args": {"name": name}}


def _microseconds(nanoseconds: np.ndarray) -> list[float]:
    """The unit of the format, as Python numbers."""
    return [time / 1000 for time in nanoseconds.tolist()]


def _slice_events(process_id: int, track_slices: Slices, thread_of_slice: Sequence[int]) -> Iterator[dict[str, Any]]:
    """An event for each slice, in the thread that `thread_of_slice` says; with its unit or commit, if it has one."""
    begins, durations = _microseconds(track_slices.begin), _microseconds(track_slices.end - track_slices.begin)
    names, units_or_commits = track_slices.name.tolist(), track_slices.unit_or_commit.tolist()
    for slice_index, thread in enumerate(thread_of_slice):
        is_server = track_slices.worker[slice_index] == SERVER
        event = {"ph": "X", "cat": "server" if is_server else "worker", "name": names[slice_index], "pid": process_id,
                 "tid": thread, "ts": begins[slice_index], "dur": durations[slice_index]}  # fmt: skip
        if units_or_commits[slice_index] >= 0:
            event["args"] = {"commit" if is_server else "unit": units_or_commits[slice_index]}
        yield event


def _flow_events(
    process_id: int, track_slices: Slices, arrows: Flows, thread_of_slice: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Two events for each arrow: in the slice that it comes from, and at the begin of the one that it goes to."""
    middles = _microseconds((track_slices.begin + track_slices.end) // 2)
    begins = _microseconds(track_slices.begin)
    for flow_index, (source, target) in enumerate(zip(arrows.source.tolist(), arrows.target.tolist(), strict=True)):
        event = {"cat": "push", "name": "push", "pid": process_id, "id": f"{process_id}.{flow_index}"}
        yield {**event, "ph": "s", "tid": thread_of_slice[source], "ts": middles[source]}
        # "bp": "e": the arrow ends in the slice that is there at this time, not in the next one.
        yield {**event, "ph": "f", "bp": "e", "tid": thread_of_slice[target], "ts": begins[target]}
