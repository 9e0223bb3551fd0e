"""From a record back to what made it: units, messages and the server's time."""

import threading

import jax
import numpy as np
import pytest

from gcjax import codes, parameter_server, protocols, stragglers
from gcjax.codes import assignments
from gcjax.parameter_server import fitted_links, measured_absences, predicted_times, time_errors
from gcjax.parameter_server.holdups import held_up_seconds_of_units
from gcjax.parameter_server.message_times import PUSH, REPORT, SIGN, STOP, MessageLog, MessageTimes
from gcjax.protocols.conformance.memberships import Membership
from tests.parameter_server.runs import live_run, setup, start_workers

NUM_WORKERS = 3
CODED = protocols.coded(codes.partial(assignments.cyclic(4, load=2)))
SERVICE = 0.01


def simulated_run(protocol, *, upload=0.2, download=0.1, num_units=60, mean=(1.0, 1.5, 3.0)):
    """What the simulator says of a run, as if it had been live, and the durations and the network of it."""
    key = jax.random.key(3)
    unscaled = stragglers.sample_durations(stragglers.exponential(mean=1.0), key, num_units, NUM_WORKERS)
    durations = unscaled * np.asarray(mean)
    network = stragglers.constant_network(latency=0.05, upload=upload, download=download, service=SERVICE)
    schedule = protocol(durations, network)
    num_messages = int(np.isfinite(schedule.finish).sum())
    run = parameter_server.LiveRun(None, None, schedule, np.zeros(1), (), np.full(num_messages, SERVICE), 0)
    return run, durations, network


def test_what_was_put_in_comes_out():
    with jax.enable_x64(True):
        run, durations, _ = simulated_run(protocols.asp())
        measured = parameter_server.calibration(run)
        known = np.isfinite(measured.durations)
        assert known.sum() > 60
        np.testing.assert_allclose(measured.durations[known], durations[known], rtol=1e-9)
        np.testing.assert_allclose(measured.send_seconds, 0.25, rtol=1e-6)
        np.testing.assert_allclose(measured.receive_seconds, 0.15, rtol=1e-6)
        assert measured.service_seconds == SERVICE


def test_what_is_printed_of_a_run_and_its_calibration_has_the_shapes_of_arrays():
    with jax.enable_x64(True):
        run, *_ = simulated_run(protocols.asp())
        text = repr(parameter_server.calibration(run))
    assert text.startswith("Calibration(\n  durations=float64[60, 3],\n  send_seconds=float64[3],\n")
    assert f"  service_seconds={SERVICE},\n  latency=None,\n" in text and text.count("\n") == 10
    assert repr(run).startswith("LiveRun(\n  params=None,") and "schedule=Schedule(time=" in repr(run)


def test_a_worker_that_was_suspended_while_it_sent_has_had_a_long_unit():
    with jax.enable_x64(True):
        run, durations, _ = simulated_run(protocols.asp())
        late = run.schedule._replace(finish=run.schedule.finish.at[7, 1].add(20.0))
        measured = parameter_server.calibration(run._replace(schedule=late))
    durations = np.asarray(durations)
    assert measured.durations[7, 1] == pytest.approx(durations[7, 1] + 20.0)
    np.testing.assert_allclose(np.delete(measured.durations[:9, 1], 7), np.delete(durations[:9, 1], 7), rtol=1e-9)
    np.testing.assert_allclose(measured.send_seconds, 0.25, rtol=1e-6)


@pytest.mark.slow("other0", "other1", "other2")
@pytest.mark.parametrize("other", [protocols.bsp(), protocols.ssp(staleness=1), protocols.k_async(num_contributions=2)])
def test_another_protocol_is_predicted(other):
    with jax.enable_x64(True):
        measured = parameter_server.calibration(simulated_run(protocols.asp())[0])
        run, *_ = simulated_run(other)
        times = np.asarray(run.schedule.time)
        predicted = predicted_times(other, measured, jax.random.key(0), 60)
        num_known = int(np.isfinite(measured.durations).all(axis=1).sum())  # later units are drawn
        assert num_known >= 15
        before = times < np.asarray(run.schedule.compute_start[num_known]).min()
        assert before.sum() >= 10
        np.testing.assert_allclose(predicted[: before.sum()], times[before], rtol=1e-6)
        assert np.abs(time_errors(times[before], predicted)).max() < 1e-6


def test_latency_and_bandwidth_from_two_sizes():
    with jax.enable_x64(True):
        runs = [simulated_run(protocols.asp(), upload=2e-7 * n, download=1e-7 * n)[0] for n in (10_000, 2_000_000)]
        links = fitted_links([parameter_server.calibration(run) for run in runs], (10_000, 2_000_000))
        np.testing.assert_allclose(links.upload, 5e6, rtol=1e-6)
        np.testing.assert_allclose(links.download, 1e7, rtol=1e-6)
        np.testing.assert_allclose(links.latency, 0.05, rtol=1e-4)
        network = links.network_for(2_000_000)
        np.testing.assert_allclose(network.send_seconds(), 0.45 + SERVICE, rtol=1e-4)


@pytest.mark.slow
def test_units_take_as_long_as_they_do_also_if_all_begin_late():
    """The server's clock begins anew with the first worker's turn, after the workers have looked at it."""
    live_run(protocols.bsp(), 5)  # so that everything is compiled
    server = parameter_server.Server(setup(protocols.bsp()), parameter_server.Limits(10, seconds=30.0))
    start_workers(server.address, protocols.bsp(), workers=range(3))
    threading.Timer(1.5, start_workers, (server.address, protocols.bsp(), (3,))).start()
    measured = parameter_server.calibration(server.run())
    assert np.nanmin(measured.durations) >= 0.002 and np.nanmin(measured.durations[:, 1]) >= 0.006
    assert (measured.receive_seconds < 1.2).all()


def test_what_is_too_little_is_refused():
    run, *_ = simulated_run(protocols.asp(), num_units=4, mean=(1.0, 1.0, np.inf))
    with pytest.raises(ValueError, match="worker 2 has not. Let it run longer"):
        parameter_server.calibration(run)
    with pytest.raises(ValueError, match="two different sizes"):
        fitted_links([], ())


def message_times(*rows):
    """Of rows (kind, worker, sent, handle_start, handle_end, rule_seconds, commit_seconds)."""
    log = MessageLog()
    for *times, rule_seconds, commit_seconds in rows:
        log.add(*times, rule_seconds=rule_seconds, commit_seconds=commit_seconds)
    return log.times()


def test_what_the_server_takes_is_told_apart_by_hand():
    run, *_ = simulated_run(protocols.asp())
    messages = message_times(
        (SIGN, 0, 1.0, 1.5, 1.5, 0.0, 0.0), (SIGN, 0, 2.0, 2.7, 2.7, 0.0, 0.0), (SIGN, 0, 3.0, 3.6, 3.6, 0.0, 0.0),
        (SIGN, 1, 1.0, 1.2, 1.2, 0.0, 0.0), (PUSH, 0, 1.0, 3.0, 3.5, 0.125, 0.25), (PUSH, 2, 2.0, 4.0, 4.75, 0.25, 0.5),
        (PUSH, 2, 3.0, 5.0, 5.0, 0.75, 0.0),
    )  # fmt: skip
    measured = parameter_server.calibration(run._replace(messages=messages))
    np.testing.assert_allclose(measured.latency, [0.6, 0.2, 0.55])  # of worker 2 there is none, so that of all
    # Reports take as long as pushes, until there are any; that of a turn which is over does not count.
    assert (measured.report_seconds, measured.push_seconds, measured.commit_seconds) == (0.25, 0.25, 0.375)
    reports = message_times((REPORT, 0, 1.0, 2.0, 2.5, 0.125, 0.0), (REPORT, 0, 2.0, 3.0, 3.0, 0.0, 0.0))
    with_reports = MessageTimes(*map(np.concatenate, zip(messages, reports, strict=True)))
    assert parameter_server.calibration(run._replace(messages=with_reports)).report_seconds == 0.5
    plain = parameter_server.calibration(run)
    assert (plain.latency, plain.report_seconds, plain.push_seconds, plain.held_up_seconds) == (None, 0.0, None, None)


def test_a_worker_is_held_up_if_its_signs_of_life_stay_away_as_well():
    """Both have one unit of 6 s; worker 0 says every 2 s that it is there, and worker 1 does not at 4 and 6 s."""
    durations = np.array([[1.0, 1.0], [1.0, 1.0], [6.0, 6.0], [1.0, 1.0], [1.0, 1.0]])
    ends = np.cumsum(durations, axis=0)
    run, *_ = simulated_run(protocols.asp(), num_units=5)
    schedule = run.schedule._replace(
        start=ends - durations, compute_end=ends, finish=ends, horizon=np.asarray(10.0)
    )  # fmt: skip
    signs = message_times(
        *[(SIGN, 0, time, time, time, 0.0, 0.0) for time in (2.0, 4.0, 6.0, 8.0, 10.0)],
        *[(SIGN, 1, time, time, time, 0.0, 0.0) for time in (2.0, 8.0, 10.0)],
    )
    held = held_up_seconds_of_units(durations, schedule, signs)
    assert held.tolist() == [[0.0, 0.0], [0.0, 0.0], [0.0, 5.0], [0.0, 0.0], [0.0, 0.0]]
    assert held_up_seconds_of_units(durations, schedule, signs.of(PUSH)) is None


def test_a_run_whose_turns_are_stopped_says_what_a_push_takes_without_the_waiting():
    """The push leaves 0.25 s after the worker has heard of the stop, whenever its unit has ended."""
    with jax.enable_x64(True):
        run, _, _ = simulated_run(protocols.asp())
        waiting = run.schedule._replace(compute_end=run.schedule.compute_end - 0.5)
        stops = message_times(*[(STOP, worker, 1.0, 2.0, 2.25, 0.0, 0.0) for worker in range(3)])
        measured = parameter_server.calibration(run._replace(schedule=waiting, messages=stops))
        np.testing.assert_allclose(measured.send_seconds, 0.25 + 0.25, rtol=1e-6)
        np.testing.assert_allclose(measured.receive_seconds, 0.15, rtol=1e-6)


@pytest.mark.parametrize(
    ("field", "words"), [("computes_while_sending", "while they sent and received"), ("pulls_before_push", "exchanged")]
)
def test_a_run_that_does_not_say_what_messages_took_is_refused(field, words):
    run, *_ = simulated_run(protocols.asp())
    with pytest.raises(ValueError, match=rf"{words}.* Calibrate by a run of gcjax.protocols.asp\(\)"):
        parameter_server.calibration(run._replace(**{field: True}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol", [protocols.worker_busy(overlap=True), protocols.elastic_averaging(num_local_steps=2)]
)
def test_a_live_run_says_itself_that_it_cannot_calibrate(protocol):
    run, _ = live_run(protocol, num_commits=5)
    with pytest.raises(ValueError, match="a calibration needs a run in which"):
        parameter_server.calibration(run)


@pytest.mark.slow
def test_a_live_run_of_a_code_says_when_each_message_was_dealt_with(monkeypatch):
    monkeypatch.setattr("gcjax.parameter_server.stops.MIN_PATIENCE", 10.0)  # no answer to a stop comes too late
    # All are equally fast: of a slow worker no round might need a message.
    run, _ = live_run(CODED, num_commits=40, lease=0.8, throttle=lambda worker, unit: 0.01)
    messages = run.messages
    assert set(messages.kind) == {PUSH, REPORT, STOP, SIGN}
    pushes, stops, reports = (messages.of(kind) for kind in (PUSH, STOP, REPORT))
    num_messages = int(np.isfinite(run.schedule.send_start).sum())
    assert len(pushes.kind) == len(stops.kind) == num_messages and len(reports.kind) >= 40 * 2
    assert (stops.handle_start <= stops.handle_end).all() and (messages.handle_start <= messages.handle_end)[
        messages.kind != STOP
    ].all()
    np.testing.assert_allclose(stops.handle_end, pushes.sent)
    assert np.count_nonzero(pushes.commit_seconds) == 40 and not reports.commit_seconds.any()
    assert np.count_nonzero(reports.rule_seconds) >= 40 * 2 and (pushes.rule_seconds > 0).all()
    assert (np.diff(messages.of(PUSH, REPORT, SIGN).handle_start) >= 0).all()  # one after the other
    assert np.isfinite(parameter_server.calibration(run).latency).all()
    parts = np.array(parameter_server.round_parts(run))
    np.testing.assert_allclose(parts.sum(axis=0), np.diff(run.schedule.time, prepend=0.0), rtol=1e-3, atol=1e-5)


def test_the_parts_of_a_round_are_those_of_the_last_report_and_the_last_push():
    """In each round worker 1 reports last and worker 2 pushes last; a round has its own messages only."""
    with jax.enable_x64(True):
        run, *_ = simulated_run(protocols.bsp(), num_units=3)
        schedule = jax.device_get(run.schedule)
        rows, parts = [], []
        times = schedule.time[np.isfinite(schedule.time)]
        for unit, (begin, end) in enumerate(zip([0.0, *times[:-1]], times, strict=True)):
            compute_start = schedule.compute_start[unit, 1]
            reported = compute_start + 0.4
            heard = reported + 0.11  # of the stop, which was sent 0.01 s before
            rows += [(REPORT, 0, begin, begin + 0.1, begin + 0.1, 0.0, 0.0)]
            rows += [(REPORT, 1, compute_start + 0.3, reported, reported, 0.0, 0.0)]
            rows += [(STOP, worker, reported + 0.1, heard, heard + 0.02 * worker, 0.0, 0.0) for worker in (1, 2)]
            rows += [(PUSH, worker, heard, end - 0.1 / worker, end, 0.0, 0.0) for worker in (1, 2)]
            parts.append([compute_start - begin, 0.3, 0.1, 0.1, 0.01, 0.04, end - (heard + 0.04)])
        measured = parameter_server.round_parts(run._replace(schedule=schedule, messages=message_times(*rows)))
    np.testing.assert_allclose(np.array(measured).T, parts, atol=1e-9)


def test_the_parts_of_a_round_an_hour_later_are_those_of_its_own_push_in_32_bits():
    """The commit is rounded to a time before that at which its last push is dealt with, or the report has no round."""
    run, *_ = simulated_run(protocols.asp())
    end = 3600.0001  # in float32 it is 3600
    schedule = run.schedule._replace(
        time=np.array([end], np.float32), worker=np.array([[0, 1]]), unit=np.array([[0, 0]]),
        compute_start=np.array([[3599.0, 3599.0]]),
    )  # fmt: skip
    rows = [(REPORT, 0, 3599.3, 3599.4, 3599.4, 0.0, 0.0), (REPORT, 1, 3599.3, 3599.35, 3599.4, 0.0, 0.0)]
    rows += [(STOP, worker, 3599.5, 3599.6, 3599.7, 0.0, 0.0) for worker in (0, 1)]
    rows += [(PUSH, 0, 3599.7, 3599.8, 3599.8, 0.0, 0.0), (PUSH, 1, 3599.7, end, end, 0.0, 0.0)]
    for pushes in (rows, [row for row in rows if row[:2] != (PUSH, 0)]):
        parts = parameter_server.round_parts(run._replace(schedule=schedule, messages=message_times(*pushes)))
        np.testing.assert_allclose(parts.push, 0.3, rtol=1e-3)
        np.testing.assert_allclose(parts.compute, 0.3, rtol=1e-3)
    elsewhere = schedule._replace(worker=np.array([[-1, 1]]))  # who reported last is not in the commit
    parts = parameter_server.round_parts(run._replace(schedule=elsewhere, messages=message_times(*rows)))
    assert np.isnan(np.array(parts)).all()


def test_absences_are_taken_from_who_came_and_went():
    run, *_ = simulated_run(protocols.asp())
    changes = [
        (0.0, 0, "joined"), (0.0, 1, "joined"), (2.0, 1, "left"), (3.0, 2, "joined"), (4.0, 0, "skipped"),
        (5.0, 1, "came back"), (6.0, 0, "left"),
    ]  # fmt: skip
    away = measured_absences(run._replace(memberships=tuple(Membership(*change) for change in changes)))
    assert away.leave[:, 0].tolist() == [6.0, 2.0, 0.0] and away.join[:, 0].tolist() == [np.inf, 5.0, 3.0]
    assert measured_absences(run._replace(memberships=tuple(Membership(*change) for change in changes[:2]))) is not None
    everybody = [Membership(0.0, worker, "joined") for worker in range(3)]
    assert measured_absences(run._replace(memberships=tuple(everybody))) is None and measured_absences(run) is None


def test_the_parts_of_a_round_by_hand():
    """The round of `tests.parameter_server.test_virtual_run.test_a_round_by_hand`."""
    run, *_ = simulated_run(protocols.asp())
    schedule = run.schedule._replace(
        time=np.array([21.75]), worker=np.array([[0, 1]]), unit=np.array([[0, 0]]),
        compute_start=np.array([[2.0, 2.0], [12.0, np.inf]]),
    )  # fmt: skip
    messages = message_times(
        (REPORT, 0, 12.0, 13.0, 13.5, 0.5, 0.0), (REPORT, 1, 16.0, 17.0, 17.5, 0.5, 0.0),
        (STOP, 0, 17.5, 18.5, 18.5, 0.0, 0.0), (PUSH, 0, 18.5, 21.5, 21.75, 0.25, 0.0),
        (STOP, 1, 17.5, 18.5, 18.75, 0.0, 0.0), (PUSH, 1, 18.75, 21.75, 22.125, 0.25, 0.125),
    )  # fmt: skip
    parts = parameter_server.round_parts(run._replace(schedule=schedule, messages=messages))
    assert {name: values.tolist() for name, values in parts._asdict().items()} == {
        "receive": [2.0], "compute": [14.0], "report": [1.0], "decision": [0.5], "stop": [1.0], "answer": [0.25],
        "push": [3.0],
    }  # fmt: skip
    with pytest.raises(ValueError, match="in this one it does not"):
        parameter_server.round_parts(run)
