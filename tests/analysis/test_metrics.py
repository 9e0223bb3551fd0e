"""The costs of schedules, against worked examples and a plain loop over all units."""

import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import analysis, codes, protocols, stragglers
from gcjax.codes import assignments, stopping
from tests.analysis.results import W

NETWORK = stragglers.constant_network(latency=0.1, upload=0.4, download=0.2)
SLOW_LAST = jnp.asarray(np.tile([1.0, 1.0, 1.0, 3.0], (4, 1)), jnp.float32)
PROTOCOLS = {
    "bsp": protocols.bsp(),
    "asp": protocols.asp(),
    "ssp": protocols.ssp(staleness=1),
    "frc": protocols.coded(codes.fractional_repetition(W, num_stragglers=1)),
    "partial": protocols.coded(codes.partial(assignments.cyclic(W, load=2))),
    "ignore": protocols.coded(codes.ignore_stragglers(W), stop=stopping.fastest(2)),
    "k-sync": protocols.k_sync(num_contributions=2),
    "cuts off": protocols.ringmaster(delay_threshold=2, cuts_off=True),
    "streaming": protocols.streaming_diloco(num_local_steps=2, num_fragments=2, overlap_steps=1),
}


def end_of(schedule):
    """Time of the last commit."""
    time = np.asarray(schedule.time)
    return float(time[np.isfinite(time)].max(initial=0.0))


def by_loop(schedule, durations, moment):
    """Computing, communicating (worker-seconds) and chunks completed, unit by unit."""
    computing = communicating = chunks = 0.0
    for w in range(durations.shape[1]):
        units, messages = [], []
        for n in range(durations.shape[0]):
            start, begin, end, send, finish = (
                float(times[n, w])
                for times in (
                    schedule.start,
                    schedule.compute_start,
                    schedule.compute_end,
                    schedule.send_start,
                    schedule.finish,
                )
            )
            if np.isfinite(min(begin, end)):
                messages.append((start, min(begin, end)))
            if np.isfinite(begin) and np.isfinite(durations[n, w]):
                units.append((begin, end))
            if np.isfinite(send):
                messages.append((send, finish))
            if np.isfinite(finish):
                chunks += end <= moment
        cuts = sorted({0.0, moment, *(t for pair in units + messages for t in pair if t < moment)})
        for low, high in itertools.pairwise(cuts):  # in between nothing changes
            middle = (low + high) / 2
            computes, sends = (any(a <= middle <= b for a, b in pairs) for pairs in (units, messages))
            computing += computes * (high - low)
            communicating += (sends and not computes) * (high - low)
    return computing, communicating, chunks


def test_bsp_by_hand():
    schedule = protocols.bsp()(SLOW_LAST)
    spent = analysis.costs(schedule, np.asarray(SLOW_LAST), np.array([0.0, 2.0, 3.0, 12.0]))
    assert np.isnan(spent.computing[0])
    np.testing.assert_allclose(spent.computing[1:], [(3 * 1 + 2) / 8, 0.5, 0.5])
    np.testing.assert_allclose(spent.waiting[1:], [3 / 8, 0.5, 0.5])
    np.testing.assert_allclose(spent.chunks, [0, 3 / 4, 1, 4])
    np.testing.assert_allclose(spent.messages, [0, 0.75, 1, 4])
    np.testing.assert_array_equal(spent.max_staleness[2:], [0, 0])


@pytest.mark.slow
def test_what_servers_of_groups_send_is_a_message_a_commit_by_hand():
    two_groups = [[0, 1], [2, 3]]
    durations = jnp.array([[1.0, 1.0, 2.0, 3.0]] * 12)  # groups of 1 s and of 3 s a round
    moments = np.array([0.0, 2.5, 3.0, 6.0])
    for protocol, commits in (
        (protocols.grouped(groups=two_groups), [0, 2, 4, 8]),
        (protocols.halos(groups=two_groups, num_local_steps=1, num_contributions=2), [0, 2, 4, 8]),
        (protocols.asp(), [0, 0, 0, 0]),
    ):
        spent = analysis.costs(
            protocol(durations), np.asarray(durations), moments, has_group_servers=protocol.has_group_servers
        )
        np.testing.assert_allclose(spent.server_messages, np.array(commits) / W)


def test_protocols_with_servers_of_groups():
    of_groups = [
        protocols.grouped(groups=[[0, 1], [2, 3]]),
        protocols.grouped(groups=[[0, 1], [2, 3]], code=codes.uncoded(2)),
        protocols.halos(groups=[[0, 1], [2, 3]], num_local_steps=1, num_contributions=2),
        protocols.progressive_groups(),
    ]
    assert all(protocol.has_group_servers for protocol in of_groups)
    assert not any(
        protocol.has_group_servers
        for protocol in (protocols.bsp(), protocols.asp(), protocols.prague(group_size=2, rng_key=jax.random.key(0)))
    )


def test_communication_counts_receiving_and_sending():
    schedule = protocols.bsp()(SLOW_LAST, NETWORK)
    round_seconds = 0.3 + 3.0 + 0.5
    spent = analysis.costs(schedule, np.asarray(SLOW_LAST), np.array([round_seconds]))
    np.testing.assert_allclose(spent.communicating, [0.8 / round_seconds], rtol=1e-5)


def test_redundant_chunks_are_paid_for():
    code = codes.fractional_repetition(W, num_stragglers=1)
    equal = jnp.ones((4, W))
    coded = analysis.costs(protocols.coded(code)(equal), np.asarray(equal), np.array([4.0]), code)
    plain = analysis.costs(protocols.bsp()(equal), np.asarray(equal), np.array([4.0]))
    assert coded.chunks == plain.chunks == 4
    assert coded.messages == 2
    assert plain.messages == 4  # twice the commits for the same chunks


def test_blocks_make_messages_smaller():
    code = codes.partial(assignments.cyclic(W, load=2), num_blocks=2, rng_key=jax.random.key(0))
    equal = jnp.ones((4, W))
    spent = analysis.costs(protocols.coded(code)(equal), np.asarray(equal), np.array([4.0]), code)
    np.testing.assert_allclose(spent.messages, 1.0)


def test_compressed_messages_count_by_their_size():
    """Each worker has sent four messages, under BSP one a round, under a code of two blocks two halves a round."""
    equal, sizes = jnp.ones((4, W)), np.arange(1, W + 1) / 10
    code = codes.partial(assignments.cyclic(W, load=2), num_blocks=2, rng_key=jax.random.key(0))
    for protocol, whole in ((protocols.bsp(), 4.0), (protocols.coded(code), 1.0), (protocols.d_psgd(), 8.0)):
        mixing = protocol.local and protocol.local.mixing
        for size in (0.25, sizes):
            spent = analysis.costs(
                protocol(equal), np.asarray(equal), np.array([4.0]), protocol.code, mixing, message_size=size
            )
            np.testing.assert_allclose(spent.messages, whole * np.mean(size))


def test_cut_off_work_is_time_but_no_chunk():
    code = codes.ignore_stragglers(W)
    schedule = protocols.coded(code, stop=stopping.fastest(3))(SLOW_LAST)
    spent = analysis.costs(schedule, np.asarray(SLOW_LAST), np.array([4.0]), code)
    np.testing.assert_allclose(spent.computing, 1.0)
    np.testing.assert_allclose(spent.chunks, 3.0)
    np.testing.assert_allclose(spent.messages, 3.0)


@pytest.mark.slow
def test_who_is_cut_off_while_receiving_has_received_and_not_computed():
    durations = jnp.ones((12, 2))
    away = stragglers.absences(workers=(1,), leave=(2.5,), join=(40.0,))  # worker 1 receives from 2.2 to 3.2 s
    schedule = protocols.asp()(durations, stragglers.constant_network(download=1.0, upload=0.2), away)
    spent = analysis.costs(schedule, np.asarray(durations), np.array([2.2, 10.0]))
    # Worker 0 takes 2.2 s a unit, of which it computes 1 s.
    np.testing.assert_allclose(spent.computing, [2 / 4.4, (1 + 4 + 0.2) / 20], rtol=1e-5)
    np.testing.assert_allclose(spent.communicating, [2.4 / 4.4, (1.2 + 0.3 + 4 * 1.2 + 1) / 20], rtol=1e-5)
    np.testing.assert_allclose(spent.waiting, [0, 7.5 / 20], atol=1e-6)


def test_whole_worker_codes_send_only_when_all_is_done():
    late = jnp.asarray(np.tile([1.0, 1.0, 1.0, 1.5], (2, 1)), jnp.float32)
    for code, senders in (
        (codes.fractional_repetition(W, num_stragglers=1), 3),
        (codes.partial(assignments.repetition(W, load=2)), 4),
    ):
        spent = analysis.costs(protocols.coded(code)(late), np.asarray(late), np.array([2.0]), code)
        np.testing.assert_allclose(spent.messages, senders / W)


def test_a_failed_worker_waits():
    failed = np.array(SLOW_LAST)
    failed[:, 3] = np.inf
    for protocol in (PROTOCOLS["asp"], PROTOCOLS["frc"]):
        spent = analysis.costs(protocol(jnp.asarray(failed)), failed, np.array([2.0]), protocol.code)
        np.testing.assert_allclose(spent.waiting, 0.25)


def test_asynchronous_staleness():
    durations = jnp.asarray([[1.0, 2.5], [1.0, 2.5], [1.0, 2.5]])
    spent = analysis.costs(protocols.asp()(durations), np.asarray(durations), np.array([0.5, 2.9]))
    assert np.isnan(spent.mean_staleness[0])  # commits at 1, 2, 2.5: the last on the initial parameters
    np.testing.assert_allclose(spent.mean_staleness[1], 2 / 3)
    assert spent.max_staleness[1] == 2


def test_messages_at_once_are_counted_once():
    durations = np.ones((24, 2), np.float32)
    durations[:, 1] = 3.0
    protocol = protocols.streaming_diloco(num_local_steps=4, num_fragments=4, overlap_steps=1)
    schedule = protocol(jnp.asarray(durations), stragglers.constant_network(latency=2.0))  # worker 0: (3, 5) and (4, 6)
    moment = end_of(schedule)
    computing, communicating, _ = by_loop(schedule, durations, moment)
    spent = analysis.costs(schedule, durations, np.array([moment]), num_fragments=4)
    np.testing.assert_allclose(
        [spent.computing[0], spent.communicating[0]], np.divide([computing, communicating], 2 * moment)
    )
    assert spent.waiting[0] >= 0


@hypothesis.settings(max_examples=12)
@hypothesis.given(st.sampled_from(sorted(PROTOCOLS)), st.integers(0, 2**16), st.booleans())
def test_costs_are_those_of_a_loop_over_the_units(name, seed, failing):
    rng = np.random.default_rng(seed)
    durations = rng.exponential(size=(6, W)).astype(np.float32)
    if failing:
        durations[2:, 0] = np.inf
    protocol = PROTOCOLS[name]
    network = NETWORK._replace(download=jnp.asarray([0.2, 0.2, 0.2, 3.0]))  # who comes last may be cut off receiving
    schedule = protocol(jnp.asarray(durations), network)
    moments = np.linspace(0.1, max(end_of(schedule), 0.2), 4)
    spent = analysis.costs(schedule, durations, moments, protocol.code)
    for i, moment in enumerate(moments):
        computing, communicating, chunks = by_loop(schedule, durations, moment)
        np.testing.assert_allclose(spent.computing[i], computing / (W * moment), atol=1e-5)
        np.testing.assert_allclose(spent.communicating[i], communicating / (W * moment), atol=1e-5)
        np.testing.assert_allclose(spent.chunks[i], chunks / W)
    np.testing.assert_allclose(spent.computing + spent.communicating + spent.waiting, 1.0)
    assert (spent.waiting > -1e-5).all()


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_only_those_who_wait_for_a_failed_worker_stall(name):
    failed = np.ones((6, W), np.float32)
    failed[2:, 0] = np.inf
    protocol = PROTOCOLS[name]
    assert not analysis.is_stalled(protocol(jnp.ones((6, W))))
    assert analysis.is_stalled(protocol(jnp.asarray(failed))) == (name in ("bsp", "ssp", "streaming"))


def test_who_would_have_committed_later_has_not_come_to_a_halt():
    failed = np.ones((6, W), np.float32)
    failed[2:, 0] = np.inf  # of a third round, at 2 s
    schedule = protocols.bsp()(jnp.asarray(failed))
    assert [analysis.is_stalled(schedule, seconds) for seconds in (1.5, 2.0, 2.5)] == [False, True, True]


def test_whose_work_is_lost_since_others_are_first_each_time():
    """With equal times the first two are those of the lowest numbers; who fails is not counted."""
    equal, failed = np.ones((6, W), np.float32), np.ones((6, W), np.float32)
    failed[2:, W - 1] = np.inf
    k_sync = protocols.k_sync(num_contributions=2)
    unused = [analysis.num_unused_workers(k_sync(jnp.asarray(d)), d) for d in (equal, failed, equal[:1])]
    assert unused == [W - 2, W - 3, 0]
    assert analysis.num_unused_workers(protocols.bsp()(jnp.asarray(equal)), equal) == 0


def test_work_that_is_on_its_way_to_a_first_commit_is_not_lost():
    """A slow worker has begun its fourth unit of a turn when the others have used theirs up."""
    seconds = np.ones((8, W), np.float32)
    seconds[:, W - 1] = 2.5
    schedule = protocols.async_local_sgd(num_local_steps=4)(jnp.asarray(seconds))
    assert W - 1 not in np.asarray(schedule.worker) and np.isfinite(schedule.time).sum() > W
    assert analysis.num_unused_workers(schedule, seconds) == 0


def test_time_to_target():
    times, accuracy = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.1, 0.8, 0.95, 0.7])
    assert analysis.time_to_target(times, accuracy, 0.9, higher_is_better=True) == 2.0
    assert analysis.time_to_target(times, accuracy, 0.99, higher_is_better=True) == np.inf
    assert analysis.time_to_target(times, 1 - accuracy, 0.2, higher_is_better=False) == 1.0
    assert analysis.time_to_target(times, np.full(4, np.nan), 0.2, higher_is_better=False) == np.inf
    for shape in ((2,), (4, 5)):
        with pytest.raises(ValueError, match=r"times and values must be \[V\] each, of one run; got shapes"):
            analysis.time_to_target(np.zeros(shape), np.zeros((4, 5)), 0.9, higher_is_better=True)
    with pytest.raises(ValueError, match="times must not decrease; got "):
        analysis.time_to_target(times[::-1], accuracy, 0.9, higher_is_better=True)
    for target in (np.nan, "0.9", [0.9]):
        with pytest.raises(ValueError, match="target must be"):
            analysis.time_to_target(times, accuracy, target, higher_is_better=True)
