"""Timelines as TrackEvent protobuf, the format of Perfetto; needs the package `perfetto` (`gcjax[perfetto]`).

A run is a process, and a worker, the server and a counter are tracks of it. Times are nanoseconds.
"""

from collections.abc import Callable, Sequence
from typing import IO, Any, NamedTuple

import gcjax
from gcjax.analysis.timelines.activity import Activity
from gcjax.analysis.timelines.chrome import track_name
from gcjax.analysis.timelines.slices import SERVER, Flows, Slices, counters, flows, slices

_SEQUENCE = 1  # all packets are of one sequence
_PROCESS_STRIDE = 1 << 32  # of the numbers of tracks and flows of two processes


class _Event(NamedTuple):
    """An event before it is a packet: when it is, and what fills the packet's `track_event`."""

    time: int
    fill: Callable[[Any], None]


def write(file: IO[bytes], activities: Sequence[Activity]) -> None:
    """Writes a file with a process for each activity.

    Raises:
      ValueError: if the package `perfetto` is not installed.
    """
    builder, protos = _package()
    out = builder.StreamingTraceProtoBuilder(file)
    events: list[_Event] = []
    for number, activity in enumerate(activities, start=1):
        events += _described(out, protos, number, activity)
    for event in sorted(events, key=lambda event: event.time):  # stable: those of a track stay in their order
        packet = _packet(out)
        packet.timestamp = event.time
        event.fill(packet.track_event)
        out.write_packet(packet)


def _package() -> tuple[Any, Any]:
    """The builder and the messages of the package `perfetto`."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        from perfetto.trace_builder import proto_builder
    except ImportError as error:
        raise ValueError(
            "a timeline in Perfetto's own format needs the package perfetto, which is not installed. Install "
            "gcjax[perfetto], or write a .json file, which Perfetto opens, too."
        ) from error
    return proto_builder, perfetto_trace_pb2


def _packet(out: Any) -> Any:
    """An empty packet of the sequence."""
    packet = out.create_packet()
    packet.trusted_packet_sequence_id = _SEQUENCE
    return packet


def _described(out: Any, protos: Any, number: int, activity: Activity) -> list[_Event]:
    """Writes the descriptors of the tracks of a process, and returns its events; those of a track are in order."""
    first, drawn, curves = number * _PROCESS_STRIDE, slices(activity), counters(activity)
    tracks = list(zip(drawn.worker.tolist(), drawn.lane.tolist(), strict=True))
    uuids = {track: first + 1 + place for place, track in enumerate(sorted(set(tracks)))}
    _write_process(out, protos, number, activity)
    for place, (track, uuid) in enumerate(uuids.items()):
        _write_track(out, first, uuid, track_name(*track), place)
    events = _slice_events(protos, drawn, [uuids[track] for track in tracks], flows(activity, drawn), first)
    for place, (name, curve) in enumerate(curves.items(), start=len(uuids)):
        counter = first + 1 + place
        _write_track(out, first, counter, name, place, is_counter=True)
        values = zip(curve["time"].tolist(), curve["value"].tolist(), strict=True)
        events += [_counter_event(protos, counter, time, value) for time, value in values]
    about = {"written by": f"gcjax {gcjax.__version__}", "shown": activity.words}
    return [_about(protos, uuids.get((SERVER, 0), first), int(1e9 * activity.begin), about), *events]


def _write_process(out: Any, protos: Any, number: int, activity: Activity) -> None:
    """Writes the descriptor of a process, whose tracks keep their order."""
    packet = _packet(out)
    if number == 1:
        packet.sequence_flags = protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    descriptor = packet.track_descriptor
    descriptor.uuid, descriptor.description = number * _PROCESS_STRIDE, activity.words
    descriptor.process.pid, descriptor.process.process_name = number, activity.name
    descriptor.child_ordering = protos.TrackDescriptor.EXPLICIT
    out.write_packet(packet)


def _write_track(out: Any, parent: int, uuid: int, name: str, place: int, *, is_counter: bool = False) -> None:
    """Writes the descriptor of a track at a place among those of its process."""
    packet = _packet(out)
    descriptor = packet.track_descriptor
    descriptor.uuid, descriptor.parent_uuid, descriptor.name = uuid, parent, name
    descriptor.sibling_order_rank = place
    if is_counter:
        descriptor.counter.SetInParent()
    out.write_packet(packet)


def _slice_events(protos: Any, drawn: Slices, uuids: Sequence[int], arrows: Flows, first_flow: int) -> list[_Event]:
    """The begin and the end of each slice; a begin has the flows that leave or reach its slice."""
    leaving: dict[int, list[int]] = {}
    reaching: dict[int, list[int]] = {}
    pairs = zip(arrows.source.tolist(), arrows.target.tolist(), strict=True)
    for flow, (source, target) in enumerate(pairs, start=first_flow):
        leaving.setdefault(source, []).append(flow)
        reaching.setdefault(target, []).append(flow)
    rows = zip(uuids, drawn.worker.tolist(), drawn.begin.tolist(), drawn.end.tolist(), drawn.name, drawn.unit.tolist(),
               strict=True)  # fmt: skip
    events = []
    for i, (uuid, worker, begin, end, name, unit) in enumerate(rows):
        note = ("commit" if worker == SERVER else "unit", unit)
        events.append(_begin(protos, uuid, begin, name, note, leaving.get(i, []), reaching.get(i, [])))
        events.append(_end(protos, uuid, end))
    return events


def _begin(
    protos: Any, uuid: int, time: int, name: str, note: tuple[str, int], leaving: list[int], reaching: list[int]
) -> _Event:
    """The begin of a slice."""

    def fill(event: Any) -> None:
        event.type, event.track_uuid, event.name = protos.TrackEvent.TYPE_SLICE_BEGIN, uuid, name
        if note[1] >= 0:
            event.debug_annotations.add(name=note[0], int_value=note[1])
        event.flow_ids.extend(leaving)
        event.terminating_flow_ids.extend(reaching)

    return _Event(time, fill)


def _end(protos: Any, uuid: int, time: int) -> _Event:
    """The end of the slice that began last on a track."""

    def fill(event: Any) -> None:
        event.type, event.track_uuid = protos.TrackEvent.TYPE_SLICE_END, uuid

    return _Event(time, fill)


def _counter_event(protos: Any, uuid: int, time: int, value: float) -> _Event:
    """A value of a counter."""

    def fill(event: Any) -> None:
        event.type, event.track_uuid = protos.TrackEvent.TYPE_COUNTER, uuid
        event.double_counter_value = value

    return _Event(time, fill)


def _about(protos: Any, uuid: int, time: int, notes: dict[str, str]) -> _Event:
    """A mark at the begin of a track, with notes on the file."""

    def fill(event: Any) -> None:
        event.type, event.track_uuid, event.name = protos.TrackEvent.TYPE_INSTANT, uuid, "about this file"
        for name, text in notes.items():
            event.debug_annotations.add(name=name, string_value=text)

    return _Event(time, fill)
