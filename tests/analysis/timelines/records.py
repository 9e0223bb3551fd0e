"""Records of several protocols, and timelines read back as both formats have them."""

import gzip
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes, protocols, stragglers

W, T = 4, 24
NETWORK = stragglers.constant_network(latency=0.05, upload=0.2, download=0.1)
DURATIONS = np.array(stragglers.sample_durations(stragglers.exponential(mean=1.0), jax.random.key(0), T, W))
FAILED = DURATIONS.copy()
FAILED[3:, 1] = np.inf
_CHUNKS = codes.assignments.order_chunks(codes.assignments.cyclic(W, load=3))
PROTOCOLS = {
    "BSP": protocols.bsp(),
    "SSP": protocols.ssp(staleness=2),
    "local": protocols.local_sgd(num_local_steps=3),
    "anytime": protocols.anytime_minibatch(seconds=2.5),
    "FRC": protocols.coded(codes.fractional_repetition(W, num_stragglers=1)),
    "partial": protocols.coded(codes.partial(_CHUNKS, num_blocks=2, rng_key=jax.random.key(1))),
    "WBSP": protocols.worker_busy(),
    "overlapping": protocols.worker_busy(overlap=True),
}


def record(name, durations=DURATIONS, network=NETWORK):
    """The record of a protocol, in NumPy arrays."""
    return jax.tree.map(np.asarray, PROTOCOLS[name](jnp.asarray(durations), network))


def content(path):
    """The bytes of a file, decompressed."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def of_json(path):
    """(slices, flows, counters): {(track, name, begin, end, unit)}, {(track, track and begin of the target)}, ..."""
    events = json.loads(content(path))["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    drawn = [e for e in events if e["ph"] == "X"]
    ns = lambda microseconds: round(1000 * microseconds)  # noqa: E731
    slices = [
        (tracks[e["pid"], e["tid"]], e["name"], ns(e["ts"]), ns(e["ts"] + e["dur"]), *e.get("args", {}).values())
        for e in drawn
    ]
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    flows = []
    for e in events:
        if e["ph"] == "s":
            around = [s for s in slices if s[0] == tracks[e["pid"], e["tid"]] and s[2] <= ns(e["ts"]) <= s[3]]
            source = next(s for s in around if s[1] in ("sending", "computing"))
            flows.append((source, tracks[ends[e["id"]]["pid"], ends[e["id"]]["tid"]], ns(ends[e["id"]]["ts"])))
    counters = [(e["name"], ns(e["ts"]), e["args"]["value"]) for e in events if e["ph"] == "C"]
    return sorted(slices), sorted(flows), sorted(counters)


def of_protobuf(path):
    """The same of a file of TrackEvents, by the classes that the package generates."""
    protos = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="the extra perfetto is not installed"
    )
    trace = protos.Trace.FromString(content(path))
    names = {p.track_descriptor.uuid: p.track_descriptor.name for p in trace.packet if p.HasField("track_descriptor")}
    parents = {p.track_descriptor.parent_uuid for p in trace.packet if p.HasField("track_descriptor")}
    assert parents - {0} <= set(names)
    slices, sources, targets, counters, begun, last = [], {}, {}, [], {}, 0
    for packet in trace.packet:
        event, time = packet.track_event, packet.timestamp
        if not packet.HasField("track_event"):
            continue
        assert time >= last
        last = time
        if event.type == protos.TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in begun, "slices of a track overlap"
            begun[event.track_uuid] = event, time
        elif event.type == protos.TrackEvent.TYPE_SLICE_END:
            begin, start = begun.pop(event.track_uuid)
            notes = [note.int_value for note in begin.debug_annotations]
            slices.append((names[event.track_uuid], begin.name, start, time, *notes))
            sources |= dict.fromkeys(begin.flow_ids, slices[-1])
            targets |= dict.fromkeys(begin.terminating_flow_ids, (names[event.track_uuid], start))
        elif event.type == protos.TrackEvent.TYPE_COUNTER:
            counters.append((names[event.track_uuid], time, event.double_counter_value))
    assert not begun and sources.keys() == targets.keys()
    return sorted(slices), sorted((sources[f], *targets[f]) for f in sources), sorted(counters)
