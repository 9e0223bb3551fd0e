"""From a record back to what made it: units, messages and the server's time."""

import threading

import jax
import numpy as np
import pytest

from gcjax import parameter_server, protocols, stragglers
from gcjax.parameter_server.calibration import fitted_links, predicted_times, time_errors
from tests.parameter_server.runs import setup, start_workers

NUM_WORKERS = 3
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


def test_a_worker_that_was_suspended_while_it_sent_has_had_a_long_unit():
    with jax.enable_x64(True):
        run, durations, _ = simulated_run(protocols.asp())
        late = run.schedule._replace(finish=run.schedule.finish.at[7, 1].add(20.0))
        measured = parameter_server.calibration(run._replace(schedule=late))
    assert measured.durations[7, 1] == pytest.approx(durations[7, 1] + 20.0)
    np.testing.assert_allclose(np.delete(measured.durations[:9, 1], 7), np.delete(durations[:9, 1], 7), rtol=1e-9)
    np.testing.assert_allclose(measured.send_seconds, 0.25, rtol=1e-6)


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
        network = links.of(2_000_000)
        np.testing.assert_allclose(network.send_seconds(), 0.45 + SERVICE, rtol=1e-4)


def test_units_take_as_long_as_they_do_also_if_all_begin_late():
    """The server's clock begins anew with the first worker's turn, after the workers have looked at it."""
    server = parameter_server.Server(setup(protocols.bsp()), parameter_server.Limits(10, seconds=30.0))
    start_workers(server.address, protocols.bsp(), workers=range(3))
    threading.Timer(1.0, start_workers, (server.address, protocols.bsp(), (3,))).start()
    measured = parameter_server.calibration(server.run())
    assert np.nanmin(measured.durations) >= 0.002 and np.nanmin(measured.durations[:, 1]) >= 0.006
    assert (measured.receive_seconds < 0.5).all()


def test_what_is_too_little_is_refused():
    run, *_ = simulated_run(protocols.asp(), num_units=4, mean=(1.0, 1.0, np.inf))
    with pytest.raises(ValueError, match="worker 2 has not. Let it run longer"):
        parameter_server.calibration(run)
    with pytest.raises(ValueError, match="two different sizes"):
        fitted_links([], ())
