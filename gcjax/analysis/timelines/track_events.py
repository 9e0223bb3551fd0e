"""Timelines as TrackEvent protobuf, the format of Perfetto; needs the package `perfetto` (`gcjax[perfetto]`).

A run is a process, and a worker, the server and a counter are tracks of it. Times are nanoseconds.
"""

from collections.abc import Sequence
from typing import IO, Any, NamedTuple

import gcjax
from gcjax.analysis.timelines.activity import Activity
from gcjax.analysis.timelines.chrome import track_name
from gcjax.analysis.timelines.slices import NO_UNIT, SERVER, Flows, Slices, counters, flows, slices

_SEQUENCE_ID = 1  # all packets are of one sequence
_IDS_PER_PROCESS = 1 << 32  # of tracks, of flows


class _Event(NamedTuple):
    """An event before it is a packet: when it is, in nanoseconds, and the packet's `track_event`."""

    time: int
    track_event: Any


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
        packet.track_event.CopyFrom(event.track_event)
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
        counter_fields = {"type": protos.TrackEvent.TYPE_COUNTER, "track_uuid": counter_uuid}
        events += [
            _Event(time, protos.TrackEvent(**counter_fields, double_counter_value=value)) for time, value in points
        ]
    notes = {"written by": f"gcjax {gcjax.__version__}", "shown": activity.shown_part_text}
    about_file = protos.TrackEvent(
        type=protos.TrackEvent.TYPE_INSTANT, track_uuid=uuid_of_track.get((SERVER, 0), process_uuid),
        name="about this file",
        debug_annotations=[protos.DebugAnnotation(name=name, string_value=text) for name, text in notes.items()],
    )  # fmt: skip
    return [_Event(int(1e9 * activity.begin), about_file), *events]


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
    """The begin of each slice, with its unit or commit and the flows that leave or reach the slice, and its end."""
    leaving_flows: dict[int, list[int]] = {}
    reaching_flows: dict[int, list[int]] = {}
    slice_pairs = zip(arrows.source.tolist(), arrows.target.tolist(), strict=True)
    for flow_id, (source, target) in enumerate(slice_pairs, start=first_flow_id):
        leaving_flows.setdefault(source, []).append(flow_id)
        reaching_flows.setdefault(target, []).append(flow_id)
    events = []
    for slice_index, track_uuid in enumerate(track_uuid_of_slice):
        begin = protos.TrackEvent(
            type=protos.TrackEvent.TYPE_SLICE_BEGIN, track_uuid=track_uuid, name=track_slices.name[slice_index],
            flow_ids=leaving_flows.get(slice_index, []), terminating_flow_ids=reaching_flows.get(slice_index, []),
        )  # fmt: skip
        if (unit_or_commit := int(track_slices.unit_or_commit[slice_index])) != NO_UNIT:
            word = "commit" if track_slices.worker[slice_index] == SERVER else "unit"
            begin.debug_annotations.add(name=word, int_value=unit_or_commit)
        end = protos.TrackEvent(type=protos.TrackEvent.TYPE_SLICE_END, track_uuid=track_uuid)
        events += [_Event(int(track_slices.begin[slice_index]), begin), _Event(int(track_slices.end[slice_index]), end)]
    return events
