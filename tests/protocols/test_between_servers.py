"""Messages between the servers of groups and the central one: their time in schedules, promises and training."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, engine, stragglers, tasks
from gcjax import protocols as P
from gcjax.stragglers import Network, constant_network, links
from tests.parameters import some
from tests.protocols import table
from tests.protocols.table import FAR, T, W, halves, random_durations, random_links, tied_durations
from tests.protocols.test_event_queues import check

KEY = jax.random.key(4)
NAMES = [name for name, case in table.CASES.items() if case.servers is not None]
WITHOUT = {
    "grouped": P.grouped(groups=halves(W)),
    "grouped coded": P.grouped(groups=halves(W), code=table.codes_of_halves(W)),
    "halos": P.halos(groups=halves(W), num_local_steps=2, num_contributions=2),
    "progressive_groups": P.progressive_groups(num_rounds=1),
}
ALONE = {
    "grouped": P.grouped(groups=[[0], [1], [2]]),
    "grouped coded": P.grouped(groups=[[0], [1], [2]], code=codes.uncoded(1)),
}


def quick(protocol, durations, network):
    """The schedule, by a program that is compiled fast, in numpy arrays."""
    run = jax.jit(protocol.schedule, compiler_options=table.quick())
    return jax.tree.map(np.asarray, run(jnp.asarray(durations), network.validated()))


def assert_same(found, expected, names=None):
    for name in names or found._fields:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def test_a_worked_example(x64):
    """Ways of 0.5 s and 0.75 s for the pair, of 0.25 s and 1 s for worker 2; a member's message takes 0.5 s."""
    servers = Network(latency=(0.25, 0.0), upload=(0.5, 1.0), download=0.25)
    network = constant_network(upload=0.5, servers=servers)
    s = P.grouped(groups=((0, 1), (2,)))(jnp.broadcast_to(jnp.asarray([1.0, 3.0, 2.0]), (3, 3)), network)
    assert s.time[:5].tolist() == [3.75, 4.75, 7.5, 9.5, 11.25] and s.horizon == 11.25
    assert s.worker[:5].tolist() == [[2, -1], [0, 1], [2, -1], [0, 1], [2, -1]]
    assert s.version[:5, 0].tolist() == [0, 0, 1, 2, 3]  # what is there when a group asks, with its last commit
    assert s.start[:2].tolist() == [[0, 0, 0], [4.75, 4.75, 3.75]]
    assert s.compute_start[:2].tolist() == [[0.5, 0.5, 0.25], [5.25, 5.25, 4.0]]
    assert s.finish[:2].tolist() == [[2.0, 4.0, 2.75], [6.75, 8.75, 6.5]]  # at the server of the group


@pytest.mark.slow("halos", "halos dynamic", "halos servers")
@pytest.mark.parametrize("name", NAMES)
def test_commits_are_those_of_plain_python(name, x64):
    num_commits = 0
    for seed in (0, 2):
        for draw in (random_durations, tied_durations):
            for of_workers in (table.no_links(W), random_links(seed)):
                num_commits += check(name, draw(seed, failing=0.04 * (seed == 2)), of_workers)
    assert num_commits > 16


@pytest.mark.slow(
    "grouped change",
    "grouped coded",
    "grouped servers",
    "halos",
    "halos dynamic",
    "halos servers",
    "progressive_groups servers",
)
@pytest.mark.parametrize("name", NAMES)
def test_promises_are_kept_and_damage_is_seen(name):
    promise, num_damaged = table.protocol(name).specification(W), 0
    for seed in range(3):
        found = table.schedule(name, random_durations(seed).astype(np.float32), random_links(seed))
        assert P.check(found, promise)
        for commit in range(1, int(np.isfinite(found.time).sum())):
            read, place = found.read.copy(), found.work[commit].argmax()
            units = slice(found.unit[commit, place], found.unit[commit, place] + found.work[commit, place])
            read[units, found.worker[commit, place]] += 1
            is_two_commits_late = read[units.start, found.worker[commit, place]] > commit + 1
            if not is_two_commits_late:
                num_damaged += not P.check(found._replace(read=read), promise)
    assert num_damaged > 3


@pytest.mark.slow("halos")
@pytest.mark.parametrize("name", some(["grouped", "halos"], ["grouped coded", "progressive_groups"]))
def test_servers_next_to_each_other_change_no_bit(name):
    durations, network = random_durations(1).astype(np.float32), Network(0.25, 0.5, 0.125)
    near = quick(WITHOUT[name], durations, network._replace(servers=Network()))
    assert_same(near, quick(WITHOUT[name], durations, network))
    far = quick(WITHOUT[name], durations, network._replace(servers=Network(0.25)))
    assert far.time[0] > near.time[0]


@pytest.mark.slow("grouped coded")
@pytest.mark.parametrize("name", ALONE)
def test_groups_of_one_are_asynchronous_workers_along_both_ways(name, x64):
    """But for `finish`, which is when a push is at the server of the group."""
    servers = Network(latency=(0.25, 0.5, 0.0), upload=(0.5, 0.25, 1.0), download=(0.0, 1.0, 0.25))
    network = Network(latency=0.25, upload=0.5, download=0.125)
    for durations in (tied_durations(3), tied_durations(4)):
        found = quick(ALONE[name], durations, network._replace(servers=servers))
        both = Network(
            network.latency + np.asarray(servers.latency),
            network.upload + np.asarray(servers.upload),
            network.download + np.asarray(servers.download),
        )
        asp = quick(P.asp(), durations, both)
        assert_same(found, asp, ("time", "start", "compute_start", "compute_end", "send_start", "read", "horizon"))
        assert_same(found._replace(worker=found.worker.max(axis=1)), asp._replace(worker=asp.worker[:, 0]), ("worker",))
        sent = np.isfinite(found.send_start)
        np.testing.assert_array_equal(found.finish[sent], (found.send_start + 0.75)[sent])


@pytest.mark.slow
def test_who_has_no_servers_of_groups_sends_nothing_along_it():
    durations, network = random_durations(0).astype(np.float32), Network(0.25)
    for of_workers in (network, network._replace(service=0.5)):
        far = P.asp()(jnp.asarray(durations), of_workers._replace(servers=FAR.validated()))
        near = P.asp()(jnp.asarray(durations), of_workers)
        assert_same(*(jax.tree.map(np.asarray, schedule) for schedule in (far, near)))


def test_training_follows_the_schedule_and_a_replay_makes_it_again(x64):
    task = tasks.linear_regression(num_chunks=W, num_examples=30, num_features=3)
    protocol, network = P.grouped(groups=halves(W)), Network(0.125, servers=Network((0.25, 0.5), (0.25, 1.0), 0.25))
    durations = jnp.asarray(random_durations(5))
    run = engine.run(task, protocol, optax.sgd(0.1), durations, rng_key=KEY, network=network)
    assert_same(run.schedule, protocol(durations, network))
    replayed = engine.replay(task, protocol, optax.sgd(0.1), run.schedule, rng_key=KEY)
    np.testing.assert_array_equal(run.params, replayed.params)
    near = engine.run(task, protocol, optax.sgd(0.1), durations, rng_key=KEY, network=network._replace(servers=None))
    assert np.abs(run.params - near.params).max() > 1e-6


def test_bandwidths_become_seconds():
    apart = links(upload=100.0, servers=links(latency=0.5, upload=(10.0, 20.0), download=40.0)).network_for(200)
    assert float(apart.upload) == 2.0 and apart.servers.latency == 0.5
    assert np.asarray(apart.servers.upload).tolist() == [20.0, 10.0] and float(apart.servers.download) == 5.0
    assert links(upload=1.0, servers=Network(0.25)).network_for(4).servers == Network(0.25)
    assert links(upload=1.0).network_for(4).servers is None
    assert {
        float(links(upload=10.0).network_for(number(1000)).upload) for number in (int, float, np.int64, np.float32)
    } == {100.0}
    share = apart.with_smaller_messages(0.5)
    assert float(share.upload) == 1.0 and np.asarray(share.servers.upload).tolist() == [20.0, 10.0]


D = np.ones((4, 3), np.float32)
GROUPS = [[0, 1], [2]]
BAD = {
    "no network": (
        lambda: constant_network(servers=0.5),
        "servers must be a Network, for .*constant_network.*; got 0.5",
    ),
    "no links": (lambda: links(servers=0.5), "servers must be Links or a Network; got 0.5. Use .*links"),
    "servers of servers": (
        lambda: constant_network(servers=Network(servers=Network())),
        "servers must be one network, without servers of its own",
    ),
    "negative": (lambda: constant_network(servers=Network(latency=-1.0)), "latency of servers must be"),
    "endless": (
        lambda: constant_network(servers=Network(upload=np.inf)),
        "upload of servers must be .*finite; got inf",
    ),
    "shared": (
        lambda: constant_network(servers=Network(server=1.0, server_upload=2.0)),
        "servers must have a link of its own for each group; got server=1.0, server_upload=2.0. Say latency",
    ),
    "shared, of links": (
        lambda: P.grouped(groups=GROUPS).schedule(jnp.asarray(D), Network(servers=links(server=1.0).network_for(2))),
        "servers must have a link of its own for each group; got server=2.0",
    ),
    "of other groups": (
        lambda: P.grouped(groups=GROUPS)(D, Network(servers=Network(latency=np.ones(3)))),
        r"latency of servers must be a number, or one for each of 2 groups; got shape \(3,\)",
    ),
    "of other groups, coded": (
        lambda: P.grouped(groups=[[0, 1, 2]], code=codes.uncoded(3))(D, Network(servers=Network(upload=np.ones(2)))),
        r"upload of servers must be a number, or one for each of 1 groups; got shape \(2,\)",
    ),
    "of other groups, HALoS": (
        lambda: P.halos(groups=GROUPS, num_local_steps=1, num_contributions=1)(
            D, Network(servers=FAR._replace(latency=(1, 2, 3)))
        ),
        r"latency of servers must be a number, or one for each of 2 groups; got shape \(3,\)",
    ),
    "one a group that changes": (
        lambda: P.progressive_groups()(D, Network(servers=Network(upload=np.ones(2)))),
        "servers must have one value for all groups under progressive_groups, whose groups change; got shapes .*2,",
    ),
    "a link that members share": (
        lambda: P.progressive_groups()(D, Network(server=1.0, servers=Network(0.5))),
        "not simulated under progressive_groups where those of workers share a link.*servers and server of",
    ),
    "absences": (
        lambda: P.grouped(groups=GROUPS)(
            D, Network(servers=FAR), stragglers.absences(workers=(1,), leave=(1.0,)).sample(KEY, 3)
        ),
        "take no time in the event queue, which simulates absences, .*Leave these out",
    ),
    "service": (
        lambda: P.grouped(groups=GROUPS)(D, Network(service=0.5, servers=FAR)),
        "take no time in the event queue, .*servers that take time for a message",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    make, words = BAD[name]
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.slow
def test_halos_counts_service_as_latency_between_servers_that_are_apart_too():
    halos = P.halos(groups=GROUPS, num_local_steps=1, num_contributions=1)
    durations, network = jnp.asarray(random_durations(0), jnp.float32), Network(0.25, servers=FAR)
    busy, slower = halos(durations, network._replace(service=0.5)), halos(durations, network._replace(upload=0.5))
    np.testing.assert_array_equal(busy.time, slower.time)


def test_a_batch_of_networks_is_one_program():
    protocol, durations = WITHOUT["grouped"], jnp.asarray(random_durations(0), jnp.float32)
    networks = [Network(servers=Network(jnp.full(2, seconds))) for seconds in (0.0, 0.5)]
    alone = jax.jit(protocol.schedule, compiler_options=table.quick())
    at_once = jax.jit(jax.vmap(protocol.schedule, (None, 0)), compiler_options=table.quick())
    batch = at_once(durations, jax.tree.map(lambda *x: jnp.stack(x), *networks))
    for run, network in enumerate(networks):
        np.testing.assert_allclose(batch.time[run], alone(durations, network.validated()).time, rtol=1e-6)
    assert np.isfinite(batch.time[1]).sum() >= T
