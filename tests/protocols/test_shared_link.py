"""Messages that share the server's link: processor sharing against a simulation in plain Python."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols
from gcjax.protocols import bsp, ssp, worker_busy
from gcjax.stragglers.network import Network
from tests.protocols import table
from tests.protocols import waiting_rules as rules
from tests.protocols.event_queue import Server
from tests.protocols.table import W, commits_of, merged, queue, random_durations, random_links, tied_durations

M = 5
SERVER = 0.5


@functools.cache
def link():
    """`(ready, size, network) -> when the messages have arrived, when the parameters have`."""
    return jax.jit(
        lambda ready, size, network: (network.arrivals_at_server(ready, size), network.arrivals_at_workers(ready))
    )


def arrivals(ready, size, own, server):
    """When transfers end that have equal parts of a link, one step from event to event; no latency."""
    left = {w: s for w, s in enumerate(size) if math.isfinite(ready[w])}
    ends, now = [math.inf] * len(ready), 0.0
    for w in [w for w, s in left.items() if s == 0]:
        ends[w] = ready[w]
        del left[w]
    while left:
        active = [w for w in left if ready[w] <= now]
        rate = {w: min(1 / own[w] if own[w] else math.inf, 1 / (server * len(active))) for w in active}
        moments = [now + left[w] / rate[w] for w in active] + [ready[w] for w in left if ready[w] > now]
        then = min(moments)
        for w in active:
            left[w] -= (then - now) * rate[w]
            if left[w] < 1e-9:
                ends[w] = then
                del left[w]
        now = then
    return ends


def draw(seed):
    rng = np.random.default_rng(seed)
    ready = rng.exponential(size=M) if seed % 2 else rng.choice([0.0, 0.5, 1.0, 2.0], size=M)
    ready = np.where(rng.random(M) < 0.15, math.inf, ready)
    size = rng.choice([0.0, 0.25, 1.0, 3.0], size=M)
    return ready, size, rng.choice([0.0, 0.25, 0.5, 2.0], size=M), rng.choice([0.25, 1.0])


def test_transfers_are_those_of_processor_sharing(x64):
    for seed in range(60):
        ready, size, own, server = draw(seed)
        latency = np.random.default_rng(seed).exponential(size=M)
        sent, received = link()(ready, size, Network(latency, own, own[::-1].copy(), server))
        np.testing.assert_allclose(sent, latency + arrivals(ready, size, own, server), rtol=1e-9)
        np.testing.assert_allclose(received, latency + arrivals(ready, [1.0] * M, own[::-1], server), rtol=1e-9)


def test_the_link_carries_no_more_than_it_can_and_is_never_idle_without_need(x64):
    """Any messages take the link for their size in all, from the first that is ready to the last that arrives."""
    for seed in range(40):
        ready, size, _, server = draw(seed)
        sent, _ = (np.asarray(x) for x in link()(ready, size, Network(0.0 * size, 0.0 * size, 0.0 * size, server)))
        there = np.isfinite(ready) & (size > 0)
        assert (sent[there] >= ready[there] + size[there] * server - 1e-9).all()
        for begin in ready[there]:  # within any window, never above the capacity
            for end in sent[there]:
                inside = there & (ready >= begin) & (sent <= end)
                assert size[inside].sum() * server <= max(end - begin, 0) + 1e-9
        order = np.argsort(ready[there])
        busy = 0.0  # without links of their own, the link works whenever there is something to carry
        for at, amount in zip(ready[there][order], size[there][order], strict=True):
            busy = max(busy, at) + amount * server
        np.testing.assert_allclose(sent[there].max(initial=0), busy, rtol=1e-9)


def test_alone_a_message_takes_the_time_of_the_slower_link(x64):
    ready, size = np.full(M, math.inf), np.full(M, 2.0)
    ready[3] = 1.5
    for own, seconds in ((0.25, 1.0), (0.75, 1.5)):
        sent, received = link()(ready, size, Network(size * 0 + 0.125, size * 0 + own, size * 0 + own, SERVER))
        assert sent[3] == 1.5 + seconds + 0.125 and received[3] == 1.5 + seconds / 2 + 0.125
        assert np.isinf(np.delete(sent, 3)).all()


QUEUES = {
    "bsp": (bsp, lambda d, links: Server(rules.FirstK(d.shape[1], True, False), d, links).run()),
    "ssp": (lambda: ssp(staleness=1), queue(rules.Ssp, 1)),
    "worker_busy": (worker_busy, merged(queue(rules.WorkerBusy))),
    "k_sync": (lambda: protocols.k_sync(num_contributions=2), queue(rules.FirstK, 2, True, True)),
    "elastic_averaging": (lambda: protocols.elastic_averaging(num_local_steps=2), queue(rules.Elastic, 2)),
    "grouped": (lambda: protocols.grouped(groups=[range(W)]), None),
}
DEFAULT = ("bsp", "ssp", "worker_busy")
MORE = [pytest.param(name, marks=pytest.mark.slow) for name in QUEUES if name not in (*DEFAULT, "grouped")]


@functools.cache
def program(name):
    return jax.jit(QUEUES[name][0]().schedule, compiler_options=table.quick())


def shared(name, durations, links, server):
    network = Network(*(np.asarray(x) for x in links[:3]), None if server is None else np.asarray(server))
    found = jax.tree.map(np.asarray, program(name)(durations, network))
    return *commits_of(found), found


def check_same(found, expected):
    assert [parts for _, parts in found] == [sorted(parts) for _, parts in expected]
    np.testing.assert_allclose([t for t, _ in found], [t for t, _ in expected], rtol=1e-9)


@pytest.mark.slow("worker_busy")
@pytest.mark.parametrize("name", [*DEFAULT, *MORE])
def test_schedules_with_a_shared_link_are_those_of_the_event_queue(name, x64):
    for seed in range(6):
        for durations in (random_durations(seed), tied_durations(seed)):
            links = random_links(seed, W, SERVER)
            commits, _, found = shared(name, durations, links, SERVER)
            expected = QUEUES[name][1](durations, links)
            check_same(commits, expected.commits)
            np.testing.assert_allclose(found.horizon, expected.horizon, rtol=1e-9)


@pytest.mark.slow("worker_busy")
@pytest.mark.parametrize("name", [*DEFAULT, *MORE])
def test_a_link_that_nobody_waits_for_is_none(name, x64):
    for seed in range(3):
        durations, links = random_durations(seed), random_links(seed)
        commits, weights, found = shared(name, durations, links, 0.0)
        expected, others, plain = shared(name, durations, links, None)
        check_same(commits, expected)
        assert weights == others
        np.testing.assert_allclose(found.horizon, plain.horizon, rtol=1e-9)


def test_members_of_a_group_share_the_link_of_their_server(x64):
    durations, links = tied_durations(3), random_links(3)
    check_same(shared("grouped", durations, links, SERVER)[0], shared("bsp", durations, links, SERVER)[0])


def test_a_message_that_is_under_way_at_the_end_has_not_arrived():
    schedule = protocols.asp()(jnp.array([[1.0, 1.0, 2.0]] * 2), Network(server=1.0))
    assert np.isinf(schedule.finish[1, 2]) and np.isfinite(schedule.send_start[1, 2])
    is_committed = np.zeros(schedule.finish.shape, bool)
    taken = np.asarray(schedule.worker) >= 0
    is_committed[np.asarray(schedule.unit)[taken], np.asarray(schedule.worker)[taken]] = True
    np.testing.assert_array_equal(is_committed, np.isfinite(schedule.finish))


def test_who_receives_still_at_the_end_has_begun():
    """As on a link of its own, where it is known already when it will have received."""
    durations, download = jnp.array([[1.0, 1.0], [0.5, 1.0]]), jnp.array([0.0, 4.0])
    own, shared = (protocols.asp()(durations, Network(download=download, server=server)) for server in (None, 0.001))
    assert (
        (float(shared.start[0, 1]), int(shared.read[0, 1])) == (float(own.start[0, 1]), int(own.read[0, 1])) == (0, 0)
    )
    assert np.isinf(shared.compute_start[0, 1]) and np.isinf(shared.finish[0, 1])


@pytest.mark.slow("0.7564")
@pytest.mark.parametrize("server", [0.7564, 0.8308])  # seconds whose twelfths are rounded
def test_equal_workers_go_on_together_however_times_are_rounded(server):
    """In float32: everybody reads what all have brought."""
    num_units, num_workers = 6, 12
    network = Network(server=jnp.float32(server))
    for protocol in (protocols.asp(), protocols.k_batch_async(num_contributions=4)):
        schedule = protocol(jnp.ones((num_units, num_workers), jnp.float32), network)
        is_commit = np.isfinite(schedule.time)
        assert np.sum((schedule.worker >= 0) & is_commit[:, None]) == num_units * num_workers
        assert np.unique(np.asarray(schedule.time)[is_commit]).size == num_units
        assert (np.asarray(schedule.read) == np.asarray(schedule.read)[:, :1]).all()


@pytest.mark.slow
def test_adsp_sizes_a_turn_by_the_window_in_which_it_begins_not_in_which_it_has_received(x64):
    """Turn 3 begins at 7 s, in the first window of 10 s, and has the parameters at 10 s."""
    protocol = protocols.adsp(seconds=10.0, num_windows=2, min_interval=0.0)
    rates = protocol.loss_feedback.initial(2)._replace(num_commits=jnp.array([4, 1], jnp.int32))
    for server in (None, 0.0):
        network = Network(download=jnp.array([3.0]), server=server)
        found = jax.jit(protocol.loss_feedback.schedule)(jnp.full((30, 1), 0.5), network, rates)
        assert found.time[:3].tolist() == [3.5, 7, 10.5] and found.work[:3, 0].tolist() == [1, 1, 1]
