"""Timelines parsed back: the states, the arrows and the counters are those of the record."""

import itertools
import json

import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import analysis, protocols, stragglers
from gcjax.analysis.timelines import activity, track_events
from tests.analysis.timelines.records import (
    DURATIONS,
    FAILED,
    PROTOCOLS,
    T,
    W,
    content,
    of_json,
    of_protobuf,
    record,
)


def seconds_of(slices, state):
    """Seconds that all workers together are in a state."""
    return sum(end - begin for _, name, begin, end, *_ in slices if name == state) / 1e9


def spans(schedule):
    """State -> seconds of all units together, unit by unit."""
    totals = dict.fromkeys(("computing", "cut off", "receiving", "sending"), 0.0)
    for t, w in np.ndindex(schedule.start.shape):
        start, begin, end, send, finish = (
            float(getattr(schedule, name)[t, w])
            for name in ("start", "compute_start", "compute_end", "send_start", "finish")
        )
        if not np.isfinite(start):
            continue
        totals["receiving"] += begin - start
        totals["computing" if np.isfinite(finish) else "cut off"] += end - begin
        totals["sending"] += finish - send if np.isfinite(send) else 0.0
    return totals


def pushes(schedule):
    """(worker, unit, commit) of all messages that a commit has taken, contribution by contribution."""
    taken = set()
    for e, c in np.ndindex(schedule.worker.shape):
        w, first = schedule.worker[e, c], schedule.unit[e, c]
        for t in range(first, first + schedule.work[e, c]) if w >= 0 else ():
            has_arrived = schedule.finish[t, w] <= schedule.time[e] * (1 + 1e-5)
            if np.isfinite(schedule.send_start[t, w]) and has_arrived:
                taken.add((int(w), t, e))
    return taken


@pytest.mark.slow("WBSP", "overlapping")
@pytest.mark.parametrize("name", PROTOCOLS)
def test_states_and_arrows_are_those_of_the_record(name, tmp_path):
    schedule = record(name)
    analysis.write_timeline(schedule, tmp_path / "timeline.json", durations=DURATIONS)
    slices, flows, _ = of_json(tmp_path / "timeline.json")
    for state, seconds in spans(schedule).items():
        assert seconds_of(slices, state) == pytest.approx(seconds, rel=1e-4, abs=1e-4), state
    made = {(int(track.split(",")[0].removeprefix("worker ")), unit) for (track, _, _, _, unit), _, _ in flows}
    assert len(flows) == len(pushes(schedule)) > 0
    assert made == {(w, t) for w, t, _ in pushes(schedule)}
    times = {round(1e9 * float(schedule.time[e])) for _, _, e in pushes(schedule)}
    assert {begin for _, track, begin in flows if track == "server"} == times


@pytest.mark.parametrize("name", ["SSP", "partial", "overlapping"])
def test_both_formats_say_the_same(name, tmp_path):
    schedule = record(name)
    loss = np.linspace(2.0, 1.0, len(schedule.time))
    for suffix in ("json", "pftrace"):
        analysis.write_timeline(schedule, tmp_path / f"timeline.{suffix}", durations=DURATIONS, loss=loss)
    from_json, from_protobuf = of_json(tmp_path / "timeline.json"), of_protobuf(tmp_path / "timeline.pftrace")
    assert from_json == from_protobuf
    assert {name for name, _, _ in from_json[2]} == {"largest staleness", "mean staleness", "loss"}


def test_a_push_that_no_commit_took_has_no_arrow(tmp_path):
    schedule = record("SSP")
    first = schedule._replace(  # all have arrived when the first commit is made, of one unit
        time=np.where(np.arange(len(schedule.time)) == 0, np.float32(30.0), np.float32(np.inf)),
        **{name: np.where(np.arange(len(schedule.time))[:, None] == 0, 0 if name == "worker" else 1, -1)
           for name in ("worker", "unit", "work")},
    )  # fmt: skip
    analysis.write_timeline(first, tmp_path / "timeline.json")
    _, flows, _ = of_json(tmp_path / "timeline.json")
    assert [(source[0], source[4], begin) for source, _, begin in flows] == [("worker 0", 1, 30_000_000_000)]


def test_waiting_is_the_rest_of_the_time(tmp_path):
    analysis.write_timeline(record("BSP"), tmp_path / "timeline.json", durations=DURATIONS)
    slices, _, _ = of_json(tmp_path / "timeline.json")
    for worker in range(W):
        own = sorted(s[2:4] for s in slices if s[0] == f"worker {worker}")
        assert own[0][0] == 0 and own[-1][1] == max(s[3] for s in slices)
        assert all(before[1] == after[0] for before, after in itertools.pairwise(own))


def test_sends_beside_computing_are_on_a_track_of_their_own(tmp_path):
    def tracks(name):
        analysis.write_timeline(record(name), tmp_path / f"{name}.json", durations=DURATIONS)
        return {s[0]: {t[1] for t in slices if t[0] == s[0]} for slices in of_json(tmp_path / f"{name}.json")[:1]
                for s in slices}  # fmt: skip

    overlapping = tracks("overlapping")
    assert "sending" in overlapping["worker 0, messages"] and "sending" not in overlapping["worker 0"]
    assert "sending" in tracks("WBSP")["worker 0"] and "worker 0, messages" not in tracks("WBSP")


def test_staleness_and_loss_are_counted(tmp_path):
    schedule = record("SSP")
    loss = np.arange(len(schedule.time)) / 7
    analysis.write_timeline(schedule, tmp_path / "timeline.json", loss=loss)
    _, _, counters = of_json(tmp_path / "timeline.json")
    made = np.flatnonzero(np.isfinite(schedule.time))
    expected = sorted((round(1e9 * float(schedule.time[e])), int(e - schedule.version[e, 0])) for e in made)
    assert [c[1:] for c in counters if c[0] == "largest staleness"] == expected
    assert sorted(c[2] for c in counters if c[0] == "loss") == pytest.approx(sorted(loss[made]))


def test_a_failed_worker_has_failed_only_if_the_durations_say_so(tmp_path):
    schedule = record("BSP", FAILED)
    for durations, state in ((FAILED, "failed"), (None, "cut off")):
        analysis.write_timeline(schedule, tmp_path / "timeline.json", durations=durations)
        slices, _, _ = of_json(tmp_path / "timeline.json")
        last = max((s for s in slices if s[0] == "worker 1"), key=lambda s: s[3])
        assert last[1] == state


def test_without_messages_an_arrow_begins_in_the_unit(tmp_path):
    schedule = record("SSP", network=stragglers.Network())
    analysis.write_timeline(schedule, tmp_path / "timeline.json")
    _, flows, _ = of_json(tmp_path / "timeline.json")
    assert {source[1] for source, _, _ in flows} == {"computing"} and len(flows) == len(pushes(schedule))


def test_a_window_and_some_workers(tmp_path):
    schedule, path = record("SSP"), tmp_path / "timeline.json"
    words = analysis.write_timeline(schedule, path, window=(3.0, 8.0), workers=2)
    slices, flows, counters = of_json(path)
    assert words.startswith("2 of 4 workers, from 3 to 8 s of the ") and words in content(path).decode()
    assert {s[0] for s in slices} == {"server", "worker 0", "worker 2"}
    assert min(s[2] for s in slices) == 3e9 and max(s[3] for s in slices) == 8e9
    assert flows and counters and all(3e9 <= time <= 8e9 for _, time, _ in counters)
    analysis.write_timeline(schedule, path, workers=[3, 1])
    assert {s[0] for s in of_json(path)[0]} == {"server", "worker 1", "worker 3"}


def test_of_a_large_record_a_part_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(activity, "MAX_UNITS", 20)
    monkeypatch.setattr(activity, "MAX_WORKERS", 2)
    words = analysis.write_timeline(record("BSP"), tmp_path / "timeline.json")
    slices, flows, _ = of_json(tmp_path / "timeline.json")
    units = {(s[0], s[4]) for s in slices if s[1] == "computing"}
    assert words.startswith("2 of 4 workers") and len(units) <= 2 * T
    assert {track for track, _ in units} == {"worker 0", "worker 2"} and flows


def test_of_many_commits_those_of_the_workers_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(activity, "MAX_COMMITS", 30)
    schedule, path = record("SSP"), tmp_path / "timeline.json"
    num_commits = int(np.isfinite(schedule.time).sum())
    words = analysis.write_timeline(schedule, path, workers=[1], loss=np.ones(len(schedule.time)))
    own = np.flatnonzero((schedule.worker == 1).any(axis=1))
    assert words.endswith(f", and the {own.size} of {num_commits} commits that took a push of them")
    slices, flows, counters = of_json(path)
    server = sorted((s for s in slices if s[0] == "server"), key=lambda s: s[2])
    assert [s[4] for s in server[1:]] == own.tolist() and len(flows) == own.size
    for e, after, drawn in zip(own, [*own[1:], -1], server[1:], strict=True):
        last = "and later" if after < 0 else f"to {after}"
        assert drawn[1] == (f"version {e + 1}" if after == e + 1 else f"versions {e + 1} {last}")
    assert sum(name == "loss" for name, *_ in counters) == 30
    assert "commits" not in analysis.write_timeline(schedule, path)  # all workers: all commits


def test_of_some_workers_those_that_are_shown_are_among_them(monkeypatch):
    some = activity.of_schedule(record("BSP"), workers=[1, 3])
    monkeypatch.setattr(activity, "MAX_WORKERS", 1)
    assert activity.limited_activity(some, max_units=1).workers.tolist() == [1]
    assert activity.limited_activity(some, workers=1).workers.tolist() == [1]


def test_workers_that_are_asked_for_are_all_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(activity, "MAX_UNITS", 20)
    monkeypatch.setattr(activity, "MAX_WORKERS", 1)
    analysis.write_timeline(record("BSP"), tmp_path / "timeline.json", workers=3)
    assert len({s[0] for s in of_json(tmp_path / "timeline.json")[0]} - {"server"}) == 3


def test_compressed_files_have_the_same_bytes_each_time(tmp_path):
    schedule = record("BSP")
    for name in ("one", "other"):
        analysis.write_timeline(schedule, tmp_path / f"{name}.json.gz")
    analysis.write_timeline(schedule, tmp_path / "plain.json")
    assert (tmp_path / "one.json.gz").read_bytes() == (tmp_path / "other.json.gz").read_bytes()
    assert (tmp_path / "one.json.gz").read_bytes()[4:8] == bytes(4)  # the time at which it was written
    assert content(tmp_path / "one.json.gz") == content(tmp_path / "plain.json")


def test_the_protobuf_says_what_is_shown(tmp_path):
    words = analysis.write_timeline(record("BSP"), tmp_path / "timeline.json", name="BSP & <co>")
    assert json.loads(content(tmp_path / "timeline.json"))["otherData"]["BSP & <co>"] == words
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="no extra perfetto")
    analysis.write_timeline(record("BSP"), tmp_path / "timeline.pftrace", name="BSP & <co>")
    trace = protos.Trace.FromString(content(tmp_path / "timeline.pftrace"))
    process = trace.packet[0].track_descriptor
    assert (process.process.process_name, process.description) == ("BSP & <co>", words)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"path": "timeline.txt"}, r"suffix .json or .pftrace.*got timeline.txt"),
        ({"window": (5.0, 5.0)}, "window must be from one second to a later one"),
        ({"window": (-1.0, 5.0)}, "window must be"),
        ({"window": (float("nan"), 5.0)}, "window must be"),
        ({"workers": [4]}, "workers must be among 0 to 3"),
        ({"workers": 0}, "workers must be a whole number"),
        ({"loss": np.zeros(3)}, r"loss must have the shape .* got \(3,\)"),
        ({"durations": np.zeros(3)}, r"durations must have the shape"),
    ],
)
def test_what_cannot_be_shown_is_refused(options, match, tmp_path):
    path = tmp_path / options.pop("path", "timeline.json")
    with pytest.raises(ValueError, match=match):
        analysis.write_timeline(record("BSP"), path, **options)
    assert not list(tmp_path.iterdir())


def test_a_batch_is_refused(tmp_path):
    batch = record("BSP")._replace(time=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="Take one of it"):
        analysis.write_timeline(batch, tmp_path / "timeline.json")


def test_without_the_package_the_error_says_what_to_install(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    with pytest.raises(ValueError, match=r"Install gcjax\[perfetto\]"):
        analysis.write_timeline(record("BSP"), tmp_path / "timeline.pftrace")
    assert not list(tmp_path.iterdir()) and track_events.write


@pytest.mark.parametrize("seconds", [0.0, np.inf])
def test_a_record_in_which_no_time_passes_can_be_written(tmp_path, seconds):
    analysis.write_timeline(protocols.bsp()(jnp.full((4, 2), seconds)), tmp_path / "timeline.json")
    assert json.loads((tmp_path / "timeline.json").read_text())
