"""The server in virtual time: by hand, and against the simulated rounds where messages and the server take no time."""

import jax
import numpy as np
import pytest

from gcjax import codes, protocols, stragglers
from gcjax.codes import assignments, stopping
from gcjax.parameter_server import Calibration, predicted_schedule, predicted_times, prediction, sampled_durations
from gcjax.parameter_server.virtual_run import Delays, virtual_schedule
from gcjax.stragglers import Network, absences
from tests.protocols.test_adaptive_coded import CANDIDATES, WINDOW, W, markov

ORDERS = protocols.coded(codes.partial(assignments.cyclic(2, load=2)))
"""Worker 0 does chunk 0 first, worker 1 chunk 1."""
SECONDS = Delays(
    send=np.array([3.0, 3.0]), receive=np.array([2.0, 2.0]), latency=np.array([1.0, 1.0]),
    report=0.5, push=0.25, commit=0.125,
)  # fmt: skip
NOTHING = np.zeros((12, 2))


def units(*own, num_units=12):
    """float[T, W]: all units of a worker take as long."""
    return np.tile(np.array(own, float), (num_units, 1))


def finite_times(schedule):
    times = np.asarray(schedule.time)
    return times[np.isfinite(times)]


def test_a_round_by_hand(x64):
    """The parameters are there at 2 s. Worker 0 ends its first chunk at 12 s, and the server hears of it at 13 s.

    Worker 1 ends its first one at 16 s. The server hears of it at 17 s, and at 17.5 s it has decided that this is
    enough. Both workers hear of the stop at 18.5 s and push, worker 0 in its second chunk. Their pushes come at 21.5 s.
    The server takes one after the other, so that the commit is at 21.75 s, and the parameters leave at 22.125 s.
    """
    schedule = virtual_schedule(ORDERS, units(10.0, 14.0), NOTHING, SECONDS)
    assert finite_times(schedule)[:3].tolist() == pytest.approx([21.75, 43.875, 66.0])
    assert schedule.work[0].tolist() == [1, 1]
    assert schedule.start[0].tolist() == pytest.approx([0.0, 0.0], abs=1e-9)
    assert schedule.compute_start[:2, 0].tolist() == [2.0, 12.0]
    assert schedule.compute_end[:2, 0].tolist() == [12.0, 21.75]
    assert schedule.send_start[0].tolist() == [18.5, 18.5]
    assert schedule.finish[0].tolist() == [21.5, 21.75]
    assert schedule.compute_start[2].tolist() == [24.125, 24.125]
    assert protocols.check(schedule, ORDERS.specification(2))


def test_who_is_held_up_hears_of_the_stop_and_of_the_next_round_later(x64):
    """Worker 1 is held up for 40 s from 2 s on, so worker 0 does both chunks until 22 s, and is stopped at 24.5 s.

    The commit is at 27.5 s. Worker 0 has the new parameters at 29.875 s, worker 1 begins only at 42 s. Its chunk ends
    at 46 s, the server hears of it at 47 s, and this is enough: the stop is there at 48.5 s, the pushes at 51.5 s.
    Until 51.875 s the server deals with the reports of the second chunks, which have come at 50.875 and 51 s.
    """
    durations, held = units(10.0, 4.0), NOTHING.copy()
    durations[0, 1], held[0, 1] = 54.0, 40.0
    schedule = virtual_schedule(ORDERS, durations, held, SECONDS)
    assert finite_times(schedule)[:2].tolist() == pytest.approx([27.5, 52.125])
    assert schedule.work[:2].tolist() == [[2, 0], [1, 1]]
    assert schedule.compute_start[2].tolist() == [29.875, 42.0]


def test_a_long_unit_of_a_worker_that_is_not_held_up_is_broken_off(x64):
    durations = units(10.0, 4.0)
    durations[0, 1] = 54.0
    schedule = virtual_schedule(ORDERS, durations, NOTHING, SECONDS)
    assert schedule.compute_start[2].tolist() == [29.875, 29.875]


def test_a_worker_that_leaves_and_comes_back_by_hand(x64):
    """Worker 1 leaves at 5 s, in its first chunk; worker 0 does both, and the commit is at 27.5 s as above.

    Worker 1 is back at 30 s, after worker 0 has begun the next round at 29.875 s, and begins at 32 s. Its chunk is done
    at 46 s, of which the server hears at 47 s.
    """
    away = absences(workers=(1,), leave=(5.0,), join=(30.0,))
    schedule = virtual_schedule(ORDERS, units(10.0, 14.0), NOTHING, SECONDS, away)
    assert finite_times(schedule)[:2].tolist() == pytest.approx([27.5, 51.75])
    assert schedule.work[:2].tolist() == [[2, 0], [1, 1]]
    assert schedule.start[2].tolist() == pytest.approx([27.5, 30.0])
    assert schedule.compute_start[2, 1] == 32.0


def test_nobody_at_the_beginning_is_refused():
    away = absences(workers=(0, 1), leave=(0.0, 0.0), join=(1.0, 2.0))
    with pytest.raises(ValueError, match="somebody must be there at the beginning"):
        virtual_schedule(ORDERS, units(1.0, 1.0), NOTHING, SECONDS, away)


STOPPED = {
    "coded": protocols.coded(codes.partial(assignments.cyclic(4, load=2))),
    "coded in blocks": protocols.coded(
        codes.partial(assignments.cyclic(4, load=3), num_blocks=2, rng_key=jax.random.key(2))
    ),
    "coded deadline": protocols.coded(codes.partial(assignments.cyclic(4, load=2)), stop=stopping.deadline(3.0)),
    "coded whole workers": protocols.coded(codes.cyclic_mds(4, num_stragglers=1)),
    "anytime_minibatch": protocols.anytime_minibatch(seconds=3.0),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == "coded" else pytest.param(name, marks=pytest.mark.slow) for name in STOPPED]
)
def test_without_reports_and_service_it_is_the_simulated_schedule(name, x64):
    protocol, key = STOPPED[name], jax.random.key(3)
    durations = 0.5 + np.asarray(stragglers.sample_durations(stragglers.exponential(mean=1.0), key, 24, 4))
    zeros = np.zeros(4)
    # Anytime, the server counts from its order, and the simulation from when a worker has the parameters.
    download = zeros if name == "anytime_minibatch" else np.array([0.1, 0.4, 0.2, 0.3])
    seconds = Delays(send=zeros, receive=download, latency=zeros, report=0.0, push=0.0, commit=0.0)
    expected = protocol(durations, Network(download=download))
    schedule = virtual_schedule(protocol, durations, np.zeros((24, 4)), seconds)
    times, simulated = finite_times(schedule), finite_times(expected)
    count = min(len(times), len(simulated))
    assert count >= 5
    np.testing.assert_allclose(times[:count], simulated[:count], rtol=1e-9)
    np.testing.assert_array_equal(schedule.work[:count], expected.work[:count])


@pytest.mark.slow("0.0-1", "0.0-2", "3.0-1", "3.0-2", "40.0-1", "40.0-2")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("upload", [0.0, 3.0, 40.0])
def test_a_server_chooses_the_codes_that_the_simulation_chooses(upload, seed, x64):
    """The simulation is told what messages take, and the server finds it out; workers leave the choice as it is."""
    rounds, zeros = 16, np.zeros(W)
    durations, protocol = markov(seed, rounds), protocols.adaptive_coded(CANDIDATES, window=WINDOW)
    seconds = Delays(send=zeros + upload, receive=zeros, latency=zeros, report=0.0, push=0.0, commit=0.0)
    simulated = protocol(durations, Network(upload=upload))
    schedule = virtual_schedule(protocol, durations, np.zeros(durations.shape), seconds)
    np.testing.assert_allclose(finite_times(schedule)[:rounds], simulated.time, rtol=1e-9)
    np.testing.assert_array_equal(schedule.work[:rounds], simulated.work)
    used = protocols.used_candidate(simulated)
    np.testing.assert_array_equal(protocols.used_candidate(schedule)[:rounds], used)
    assert len(set(used.tolist())) > 1
    kept = protocols.check(schedule, protocol.specification(W))
    assert kept, str(kept)


@pytest.mark.slow
def test_the_prediction_takes_what_was_measured(x64):
    """The round by hand, from a calibration; a worker that was held up is so in its unit, and no unit drawn later."""
    durations = units(10.0, 14.0)
    held = NOTHING.copy()
    durations[4, 1], held[4, 1] = 54.0, 40.0
    measured = Calibration(
        durations, np.array([3.0, 3.0]), np.array([2.0, 2.0]), 0.375, np.array([1.0, 1.0]), 0.5, 0.25, 0.125, held
    )
    times = predicted_times(ORDERS, measured, jax.random.key(0), 16)
    first = [21.75, 43.875]  # then worker 0 does both chunks, and worker 1 is held up in what follows
    assert times[:3].tolist() == pytest.approx([*first, 43.875 + 0.375 + 27.5])
    assert np.diff(times).max() < 40.0 and len(times) == 8
    drawn = sampled_durations(measured, jax.random.key(0), 200)[12:, 1]
    assert set(drawn.tolist()) == {14.0}
    without = predicted_times(ORDERS, measured._replace(held_up_seconds=None), jax.random.key(0), 8)
    assert without[3] < times[3]


@pytest.mark.slow
def test_absences_are_passed_on_by_the_prediction(x64):
    away = absences(workers=(1,), leave=(16.0,), join=(40.0,))
    measured = Calibration(units(10.0, 14.0), np.array([3.0, 3.0]), np.array([2.0, 2.0]), 0.5)
    key = jax.random.key(0)
    for protocol in (protocols.bsp(), ORDERS):
        whole, gone = (predicted_times(protocol, measured, key, 8, some) for some in (None, away))
        assert len(whole) > 2 and whole[:3].tolist() != gone[:3].tolist()
    expected = protocols.bsp()(units(10.0, 14.0, num_units=8), measured.network, away)
    np.testing.assert_array_equal(
        predicted_schedule(protocols.bsp(), measured, key, 8, away).time, np.asarray(expected.time)
    )


def test_a_message_without_parameters_takes_no_longer_than_one_with_them():
    """Of the latencies 1 s and 9 s the second is more than the 3 s of a push and the 2 s of an order."""
    measured = Calibration(NOTHING, np.array([3.0, 3.0]), np.array([2.0, 2.0]), 0.375, np.array([1.0, 9.0]))
    assert prediction._delays(measured).latency.tolist() == [1.0, 2.0]
    assert prediction._delays(measured._replace(latency=None)).latency.tolist() == [0.0, 0.0]
