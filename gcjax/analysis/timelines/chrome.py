"""Timelines as JSON in the Trace Event Format, which Perfetto and Chrome's own viewer open.

A run is a process and a track a thread. Times are microseconds with three decimals.
"""

import json
from collections.abc import Iterator, Sequence
from typing import IO, Any

import gcjax
from gcjax.analysis.timelines.activity import Activity
from gcjax.analysis.timelines.slices import SERVER, Flows, Slices, counters, flows, slices


def write(file: IO[bytes], activities: Sequence[Activity]) -> None:
    """Writes a file with a process for each activity, an event a line."""
    about = {"written by": f"gcjax {gcjax.__version__}", **{activity.name: activity.words for activity in activities}}
    head = json.dumps({"displayTimeUnit": "ms", "otherData": about})
    file.write(head[:-1].encode() + b', "traceEvents": [')
    separator = b"\n"
    for process, activity in enumerate(activities, start=1):
        for event in _events(process, activity):
            file.write(separator + json.dumps(event, allow_nan=False).encode())
            separator = b",\n"
    file.write(b"\n]}\n")


def track_name(worker: int, lane: int) -> str:
    """What stands beside a track."""
    if worker == SERVER:
        return "server"
    return f"worker {worker}" if lane == 0 else f"worker {worker}, messages" + (f" {lane}" if lane > 1 else "")


def _events(process: int, activity: Activity) -> Iterator[dict[str, Any]]:
    """The events of one process."""
    drawn = slices(activity)
    tracks = sorted(set(zip(drawn.worker.tolist(), drawn.lane.tolist(), strict=True)))
    threads = {track: number for number, track in enumerate(tracks, start=1)}
    yield _named("process_name", process, 0, activity.name)
    yield {"ph": "M", "name": "process_labels", "pid": process, "args": {"labels": activity.words}}
    for track, thread in threads.items():
        yield _named("thread_name", process, thread, track_name(*track))
        yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread, "args": {"sort_index": thread}}
    places = [threads[track] for track in zip(drawn.worker.tolist(), drawn.lane.tolist(), strict=True)]
    yield from _slice_events(process, drawn, places)
    yield from _flow_events(process, drawn, flows(activity, drawn), places)
    for name, curve in counters(activity).items():
        for time, value in zip(curve["time"].tolist(), curve["value"].tolist(), strict=True):
            yield {"ph": "C", "name": name, "pid": process, "ts": time / 1000, "args": {"value": value}}


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    """The event that names a process or a thread."""
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _slice_events(process: int, drawn: Slices, places: Sequence[int]) -> Iterator[dict[str, Any]]:
    """An event for each slice."""
    rows = zip(places, *(column.tolist() for column in drawn), strict=True)
    for thread, worker, _, begin, end, name, unit in rows:
        event = {"ph": "X", "cat": "server" if worker == SERVER else "worker", "name": name, "pid": process,
                 "tid": thread, "ts": begin / 1000, "dur": (end - begin) / 1000}  # fmt: skip
        if unit >= 0:
            event["args"] = {"commit" if worker == SERVER else "unit": unit}
        yield event


def _flow_events(process: int, drawn: Slices, arrows: Flows, places: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Two events for each flow: in the slice that it comes from, and at the begin of the one that it goes to."""
    for number, (source, target) in enumerate(zip(arrows.source.tolist(), arrows.target.tolist(), strict=True)):
        flow = {"cat": "push", "name": "push", "pid": process, "id": f"{process}.{number}"}
        middle = (int(drawn.begin[source]) + int(drawn.end[source])) // 2
        yield {**flow, "ph": "s", "tid": places[source], "ts": middle / 1000}
        yield {**flow, "ph": "f", "bp": "e", "tid": places[target], "ts": int(drawn.begin[target]) / 1000}
