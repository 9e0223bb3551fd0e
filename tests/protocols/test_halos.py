"""HALoS beyond the tables: the order of pushes, its limits, shared links within groups, and room for pushes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import engine, specifications, tasks
from gcjax import protocols as P
from gcjax.stragglers.network import Network
from tests.parameters import some
from tests.protocols import table
from tests.protocols import waiting_rules as rules
from tests.protocols.event_queue import Server
from tests.protocols.regions_reference import regions
from tests.protocols.table import FAR, T, W, commits_of, halves, random_durations, random_links, tied_durations

KEY = jax.random.key(3)


def quick(made, durations, network=None):
    """The schedule, by a program that is compiled fast, in numpy arrays."""
    run = jax.jit(made.schedule, compiler_options=table.quick())
    return jax.tree.map(np.asarray, run(jnp.asarray(durations), (network or Network()).validated()))


def parts_in_order(schedule, commit):
    used = schedule.worker[commit] >= 0
    return [(int(schedule.worker[commit, c]), int(schedule.unit[commit, c])) for c in np.flatnonzero(used)]


@pytest.mark.slow
def test_who_begins_at_a_moment_in_which_several_groups_commit_may_have_read_the_version_before():
    made = P.halos(groups=[[0, 1], [2, 3]], num_local_steps=1, num_contributions=2)
    schedule = made(jnp.ones((3, 4)))
    assert schedule.read.tolist() == [[0, 0, 0, 0], [0, 1, 0, 2], [1, 3, 2, 4]]
    assert P.check(schedule, made.specification(4))
    for version in range(5):  # of worker 0's third begin: 1 before its group's commit at that moment, 3 after it
        other = schedule._replace(read=schedule.read.at[2, 0].set(version))
        assert bool(P.check(other, made.specification(4))) == (version in (1, 3))


@pytest.mark.parametrize("name", ["halos", "halos at once"])
def test_contributions_are_in_the_order_in_which_they_were_pushed(name, x64):
    num_commits = 0
    for seed in range(6):
        for durations in (random_durations(seed), tied_durations(seed)):
            found = table.schedule(name, durations)
            expected = table.CASES[name].expected(durations, table.no_links(W))
            for e, (_, parts) in enumerate(expected.commits):
                assert parts_in_order(found, e) == [(w, unit) for w, unit, _, _ in parts]
                num_commits += len(parts) > 2
    assert num_commits > 10


@pytest.mark.slow
@pytest.mark.parametrize("groups", some([(((2,), (0, 1)),)], [(((0, 1, 2),),), (((0,), (1,), (2,)),)]))
def test_groups_that_exchange_each_push_at_once_and_take_all_over_are_asynchronous_local_sgd(groups, x64):
    """However many groups there are: the same commits, and bit by bit the same parameters."""
    outer = optax.sgd(0.5, momentum=0.5)
    one = P.halos(
        groups=groups, num_local_steps=2, num_contributions=1, merge_weight=1.0, regional=optax.sgd(1.0), outer=outer
    )
    other = P.async_local_sgd(num_local_steps=2, weight=1.0, outer=outer)
    durations, links = random_durations(1), random_links(1)
    network = Network(*(np.asarray(x) for x in links[:3]))
    (found, weights), (wanted, wanted_weights) = (commits_of(quick(p, durations, network)) for p in (one, other))
    assert found == wanted and weights == wanted_weights and len(found) > 8
    task = tasks.linear_regression(num_chunks=W, num_examples=30, num_features=3)
    trained = [
        engine.run(task, p, optax.sgd(0.1), jnp.asarray(durations), rng_key=KEY, network=network) for p in (one, other)
    ]
    np.testing.assert_allclose(trained[0].params, trained[1].params, rtol=1e-12)
    np.testing.assert_allclose(trained[0].info.loss, trained[1].info.loss, rtol=1e-12)


@pytest.mark.slow
def test_members_share_the_link_of_their_own_group(x64):
    """The pushes of each group are those of an asynchronous server of its own."""
    made = P.halos(groups=halves(W), num_local_steps=1, num_contributions=2)
    durations, links = random_durations(2), random_links(2, server=0.5)
    network = Network(*(np.asarray(x) for x in links[:3]), np.asarray(links.server), servers=FAR)
    found = quick(made, durations, network)
    horizon = np.inf
    for group in halves(W):
        members = list(group)
        own_links = links._replace(**{n: [getattr(links, n)[w] for w in members] for n in links._fields[:3]})
        alone = Server(rules.Rule(), durations[:, members], own_links).run()
        horizon = min(horizon, alone.horizon)
        finish = np.asarray(alone.times["finish"])
        in_time = finish <= found.horizon
        np.testing.assert_allclose(found.finish[:, members][in_time], finish[in_time], rtol=1e-9)
    np.testing.assert_allclose(found.horizon, horizon, rtol=1e-9)
    one_by_one = quick(made, durations, network._replace(server=np.asarray(0.0)))
    own_link = quick(made, durations, network._replace(server=None))
    assert commits_of(one_by_one) == commits_of(own_link) and commits_of(found) != commits_of(own_link)


@pytest.mark.slow
def test_service_is_latency_towards_the_server(x64):
    made = P.halos(groups=halves(W), num_local_steps=1, num_contributions=2)
    with_service, slower = (
        quick(made, random_durations(3), network)
        for network in (Network(0.25, 0.5, 0.125, service=0.5, servers=FAR), Network(0.25, 1.0, 0.125, servers=FAR))
    )
    assert commits_of(with_service) == commits_of(slower)


@pytest.mark.slow
def test_slow_messages_between_servers_hold_up_no_worker(x64):
    near, far = (
        quick(
            P.halos(groups=halves(W), num_local_steps=1, num_contributions=2),
            random_durations(4),
            Network(servers=servers),
        )
        for servers in (None, FAR)
    )
    np.testing.assert_array_equal(near.finish, far.finish)
    assert (far.time[0] > near.time[0]) and np.isfinite(far.time).sum() < np.isfinite(near.time).sum()
    assert (near.weight[np.isfinite(near.time)].sum(axis=1) == 2).all()
    assert (far.weight[np.isfinite(far.time)].sum(axis=1) == 2).all()


def with_room_for(max_pushes):
    return P.halos(groups=halves(W), num_local_steps=1, num_contributions=2, max_pushes=max_pushes)


GOLDEN_DURATIONS = np.array([[1.0, 1.5, 3.0], [1.0, 4.0, 3.0]] + [[1.0, 1.5, 3.0]] * 6)


@pytest.mark.slow
def test_a_commit_of_more_pushes_than_there_is_room_for_shows(x64):
    enough, too_little = (quick(with_room_for(room), GOLDEN_DURATIONS, Network(servers=FAR)) for room in (5, 4))
    assert enough.worker.shape == (T * W // 2, 5) and enough.horizon == 8
    assert commits_of(enough) == commits_of(table.schedule("halos", GOLDEN_DURATIONS))
    assert np.isnan(too_little.horizon)


@pytest.mark.slow
def test_a_commit_of_more_pushes_than_there_is_room_for_is_refused(x64):
    with pytest.raises(ValueError, match="max_pushes must be the most pushes .*; got 4, and there are 5. Raise it"):
        with_room_for(4)(jnp.asarray(GOLDEN_DURATIONS), Network(servers=FAR))


@pytest.mark.parametrize("options", [{"max_pushes": 2**31 - 1}, {"num_contributions": 2**31 - 1}], ids=str)
def test_room_that_does_not_fit_into_memory_is_refused(options):
    made = P.halos(**{"groups": halves(W), "num_local_steps": 1, "num_contributions": 2} | options)
    with pytest.raises(ValueError, match=r"room for \d+ each must fit into memory; .* Give max_pushes"):
        made(jnp.ones((T, W)))


def test_the_reference_knows_the_order_of_what_happens_at_one_moment():
    """An answer comes before pushes; a push that brings a commit at once comes with all that this leads to."""
    run = regions(lambda num_workers: ((0, 1),), rules.Rule, 1).run
    commits = run(np.ones((3, 2)), table.no_links(2)).commits
    assert [parts for _, parts in commits[:3]] == [[(0, 0, 0, 1)], [(1, 0, 0, 1)], [(0, 1, 1, 1)]]


def changed(found, name, place, value):
    values = getattr(found, name).copy()
    values[place] = value
    return found._replace(**{name: values})


@pytest.mark.promotes  # states are of 32 bits
def test_the_specification_knows_too_few_pushes_and_other_groups():
    with jax.enable_x64(True):
        found = table.schedule("halos", random_durations(1))
    promised = table.protocol("halos").specification(W)
    assert P.check(found, promised)
    options = {"groups": halves(W), "num_local_steps": 1}
    more = P.check(found, specifications.halos(W, num_contributions=3, **options))
    assert (more.violated, more.action) == ("guarantee", "commit")
    other_groups = P.check(
        found, specifications.halos(W, groups=((0,), (1, 2)), num_local_steps=1, num_contributions=2)
    )
    assert other_groups.violated == "guarantee"
    num_lost = 0
    for commit in np.flatnonzero(np.isfinite(found.time))[:-1]:  # without the last push of a commit
        last = int((found.worker[commit] >= 0).sum()) - 1
        lost = found
        for name, value in (("worker", -1), ("unit", -1), ("work", -1), ("weight", 0)):
            lost = changed(lost, name, (commit, last), value)
        alone = P.check(lost, promised)
        too_few = (found.worker[commit] >= 0).sum() == 2
        assert alone.violated or not too_few, commit
        num_lost += bool(alone.violated)
    assert num_lost >= 1
