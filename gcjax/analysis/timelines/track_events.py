"""Timelines as TrackEvent protobuf, the format of Perfetto; needs the package `perfetto` (`gcjax[perfetto]`).

A run is a process, and a worker, the server and a counter are tracks of it. Times are nanoseconds.
"""

from collections.abc import Callable, Sequence
from typing import IO, Any, NamedTuple

import gcjax
from gcjax.analysis.timelines.activity import Activity
from gcjax.analysis.timelines.chrome import track_name
from gcjax.analysis.timelines.slices import SERVER, Flows, Slices, counters, flows, slices

_SEQUENCE_ID = 1  # all packets are of one sequence
_IDS_PER_PROCESS = 1 << 32  # of tracks, of flows


class _Event(NamedTuple):
    """An event before it is a packet: when it is, and what fills the packet's `track_event`."""

    time: int
    fill_track_event: Callable[[Any], None]


def write(file: IO[bytes], activities: Sequence[Activity]) -> None:
    """Writes a file in Perfetto's own format, with a process for each activity.

    Raises:
      ValueError: if the package `perfetto` is not installed.
    """
    builder, protos = _perfetto_modules()
    trace_builder = builder.StreamingTraceProtoBuilder(file)
    events: list[_Event] = []
    for process_number, activity in enumerate(activities, start=1):
        events += _write_tracks(trace_builder, protos, process_number, activity)
    for event in sorted(events, key=lambda event: event.time):  # stable: those of a track stay in their order
        packet = _empty_packet(trace_builder)
        packet.timestamp = event.time
        event.fill_track_event(packet.track_event)
        trace_builder.write_packet(packet)


def _perfetto_modules() -> tuple[Any, Any]:
    """The modules `proto_builder` and `perfetto_trace_pb2` (the messages) of the package `perfetto`."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        from perfetto.trace_builder import proto_builder
    except ImportError as error:
        raise ValueError(
            "a timeline in Perfetto's own format needs the package perfetto, which is not installed. Install "
            "gcjax[perfetto], or write a .json file, which Perfetto opens, too."
        ) from error
    return proto_builder, perfetto_trace_pb2


def _empty_packet(trace_builder: Any) -> Any:
    """An empty packet of the sequence."""
    packet = trace_builder.create_packet()
    packet.trusted_packet_sequence_id = _SEQUENCE_ID
    return packet


def _write_tracks(trace_builder: Any, protos: Any, process_number: int, activity: Activity) -> list[_Event]:
    """Writes the descriptors of the tracks of a process, and returns its events; those of a track are in order."""
    process_uuid = process_number * _IDS_PER_PROCESS
    track_slices, curves = slices(activity), counters(activity)
    track_of_slice = list(zip(track_slices.worker.tolist(), track_slices.lane.tolist(), strict=True))
    uuid_of_track = {track: process_uuid + 1 + rank for rank, track in enumerate(sorted(set(track_of_slice)))}
    _write_process(trace_builder, protos, process_number, activity)
    for rank, (track, track_uuid) in enumerate(uuid_of_track.items()):
        _write_track(trace_builder, process_uuid, track_uuid, track_name(*track), rank)
    track_uuid_of_slice = [uuid_of_track[track] for track in track_of_slice]
    arrows = flows(activity, track_slices)
    events = _slice_events(protos, track_slices, track_uuid_of_slice, arrows, first_flow_id=process_uuid)
    for rank, (name, curve) in enumerate(curves.items(), start=len(uuid_of_track)):
        counter_uuid = process_uuid + 1 + rank
        _write_track(trace_builder, process_uuid, counter_uuid, name, rank, is_counter=True)
        points = zip(curve["time"].tolist(), curve["value"].tolist(), strict=True)
        events += [_counter_event(protos, counter_uuid, time, value) for time, value in points]
    notes = {"written by": f"gcjax {gcjax.__version__}", "shown": activity.shown_part_text}
    server_uuid, begin_nanoseconds = uuid_of_track.get((SERVER, 0), process_uuid), int(1e9 * activity.begin)
    return [_notes_event(protos, server_uuid, begin_nanoseconds, notes), *events]


def _write_process(trace_builder: Any, protos: Any, process_number: int, activity: Activity) -> None:
    """Writes the descriptor of a process, whose tracks keep their order."""
    packet = _empty_packet(trace_builder)
    is_first_of_file = process_number == 1
    if is_first_of_file:
        packet.sequence_flags = protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    descriptor = packet.track_descriptor
    descriptor.uuid, descriptor.description = process_number * _IDS_PER_PROCESS, activity.shown_part_text
    descriptor.process.pid, descriptor.process.process_name = process_number, activity.name
    descriptor.child_ordering = protos.TrackDescriptor.EXPLICIT
    trace_builder.write_packet(packet)


def _write_track(
    trace_builder: Any, process_uuid: int, track_uuid: int, name: str, rank: int, *, is_counter: bool = False
) -> None:
    """Writes the descriptor of a track with a rank among those of its process."""
    packet = _empty_packet(trace_builder)
    descriptor = packet.track_descriptor
    descriptor.uuid, descriptor.parent_uuid, descriptor.name = track_uuid, process_uuid, name
    descriptor.sibling_order_rank = rank
    if is_counter:
        descriptor.counter.SetInParent()  # an empty counter, which says that the track is one
    trace_builder.write_packet(packet)


def _slice_events(
    protos: Any, track_slices: Slices, track_uuid_of_slice: Sequence[int], arrows: Flows, *, first_flow_id: int
) -> list[_Event]:
    """The begin and the end of each slice; a begin has the flows that leave or reach its slice."""
    leaving_flows: dict[int, list[int]] = {}
    reaching_flows: dict[int, list[int]] = {}
    slice_pairs = zip(arrows.source.tolist(), arrows.target.tolist(), strict=True)
    for flow_id, (source, target) in enumerate(slice_pairs, start=first_flow_id):
        leaving_flows.setdefault(source, []).append(flow_id)
        reaching_flows.setdefault(target, []).append(flow_id)
    events = []
    for slice_index, track_uuid in enumerate(track_uuid_of_slice):
        begin_event = _begin_event(
            protos,
            track_uuid,
            track_slices,
            slice_index,
            leaving_flows.get(slice_index, []),
            reaching_flows.get(slice_index, []),
        )
        events += [begin_event, _end_event(protos, track_uuid, int(track_slices.end[slice_index]))]
    return events


def _begin_event(
    protos: Any,
    track_uuid: int,
    track_slices: Slices,
    slice_index: int,
    leaving_flow_ids: list[int],
    reaching_flow_ids: list[int],
) -> _Event:
    """The begin of a slice, with its unit or commit."""
    unit_or_commit = int(track_slices.unit_or_commit[slice_index])
    unit_or_commit_word = "commit" if track_slices.worker[slice_index] == SERVER else "unit"

    def fill_track_event(event: Any) -> None:
        event.type, event.track_uuid = protos.TrackEvent.TYPE_SLICE_BEGIN, track_uuid
        event.name = track_slices.name[slice_index]
        if unit_or_commit >= 0:
            event.debug_annotations.add(name=unit_or_commit_word, int_value=unit_or_commit)
        event.flow_ids.extend(leaving_flow_ids)
        event.terminating_flow_ids.extend(reaching_flow_ids)

    return _Event(int(track_slices.begin[slice_index]), fill_track_event)


def _end_event(protos: Any, track_uuid: int, time: int) -> _Event:
    """The end, at `time` nanoseconds, of the slice that began last on a track."""

    def fill_track_event(event: Any) -> None:
        event.type, event.track_uuid = protos.TrackEvent.TYPE_SLICE_END, track_uuid

    return _Event(time, fill_track_event)


def _counter_event(protos: Any, track_uuid: int, time: int, value: float) -> _Event:
    """The value that a counter has from `time` nanoseconds on; `track_uuid` is that of the counter."""

    def fill_track_event(event: Any) -> None:
        event.type, event.track_uuid = protos.TrackEvent.TYPE_COUNTER, track_uuid
        event.double_counter_value = value

    return _Event(time, fill_track_event)


def _notes_event(protos: Any, track_uuid: int, time: int, notes: dict[str, str]) -> _Event:
    """A mark on a track at `time` nanoseconds, with notes on the file (name -> text)."""

    def fill_track_event(event: Any) -> None:
        event.type, event.track_uuid, event.name = protos.TrackEvent.TYPE_INSTANT, track_uuid, "about this file"
        for name, text in notes.items():
            event.debug_annotations.add(name=name, string_value=text)

    return _Event(time, fill_track_event)
