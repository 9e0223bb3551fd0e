"""Invariant 4: protocols that are another protocol for some of their parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols as P
from gcjax.stragglers.network import Network
from tests.protocols import table
from tests.protocols.event_queue import Links
from tests.protocols.table import KEY, T, W, commits_of, random_durations, random_links, tied_durations

SAME_LINKS = Links([0.25] * W, [0.5] * W, [1.0] * W)


@functools.cache
def program(make):
    return jax.jit(make().schedule, compiler_options=table.quick())


def bsp():
    return P.bsp()


def asp():
    return P.asp()


def asp_of_weight_1():
    return P.asp(weight=1.0)


def ssp():
    return P.ssp(staleness=1)


def local_sgd():
    return P.local_sgd(num_local_steps=2)


def commits(make, durations, links):
    network = Network(*(np.asarray(x) for x in links[:3]))
    return commits_of(jax.tree.map(np.asarray, program(make)(durations, network)))


def check_same(one, other, durations, links, weights=True):
    (a, a_weights), (b, b_weights) = commits(one, durations, links), commits(other, durations, links)
    assert [parts for _, parts in a] == [parts for _, parts in b] and len(a) > 0
    np.testing.assert_allclose([t for t, _ in a], [t for t, _ in b], rtol=1e-9)
    assert not weights or a_weights == b_weights


ALWAYS = {
    "groups of one group": (lambda: P.grouped(groups=[range(W)]), bsp),
    "groups of one worker each": (lambda: P.grouped(groups=[[w] for w in range(W)]), asp),
    "K-sync of all": (lambda: P.k_sync(num_contributions=W), bsp),
    "K-async of all": (lambda: P.k_async(num_contributions=W), bsp),
    "K-batch-async of one, but for the weight": (lambda: P.k_batch_async(num_contributions=1), asp),
    "Rennala of one gradient": (lambda: P.rennala(num_contributions=1), lambda: P.ringmaster(delay_threshold=1)),
    "Ringmaster that cuts off every other gradient": (
        lambda: P.ringmaster(delay_threshold=1, cuts_off=True),
        lambda: P.k_batch_sync(num_contributions=1),
    ),
    "Ringmaster that ignores nothing": (lambda: P.ringmaster(delay_threshold=T * W), asp_of_weight_1),
    "FedBuff of single steps": (
        lambda: P.fedbuff(num_local_steps=1, num_contributions=2),
        lambda: P.k_batch_async(num_contributions=2),
    ),
    "asynchronous local SGD of single steps": (lambda: P.async_local_sgd(num_local_steps=1), asp),
    "asynchronous local SGD is FedBuff with a buffer of one": (
        lambda: P.async_local_sgd(num_local_steps=2, weight=1.0),
        lambda: P.fedbuff(num_local_steps=2, num_contributions=1),
    ),
    "Decoupled DiLoCo of one learner and no window is asynchronous local SGD": (
        lambda: P.decoupled_diloco(num_local_steps=2, grace_seconds=0.0),
        lambda: P.async_local_sgd(num_local_steps=2, weight=1.0),
    ),
    "Streaming DiLoCo of one fragment, without overlap": (
        lambda: P.streaming_diloco(num_local_steps=2, num_fragments=1, overlap_steps=0, local_share=0.0),
        lambda: P.diloco(num_local_steps=2),
    ),
    "delay-adaptive with the threshold 1": (lambda: P.delay_adaptive(delay_threshold=1), P.staleness_aware),
    "local SGD of one step": (lambda: P.local_sgd(num_local_steps=1), bsp),
    "no backup workers": (lambda: P.backup_workers(num_backup=0), bsp),
    "DSSP that grants nothing": (lambda: P.dssp(lower=1, span=0), ssp),
    "PSP that looks at everybody": (lambda: P.psp(num_sampled=W - 1, staleness=1, rng_key=KEY), ssp),
    "PSP that looks at nobody": (lambda: P.psp(num_sampled=0, rng_key=KEY), asp),
    "progressive groups that are fast enough": (lambda: P.progressive_groups(no_delay=1000.0), bsp),
}


EQUAL_SPEEDS = {
    "Decoupled DiLoCo that waits for all": (
        lambda: P.decoupled_diloco(num_local_steps=2, min_quorum=W),
        lambda: P.diloco(num_local_steps=2),
    ),
    "WBSP": (P.worker_busy, bsp),
    "STSyn that waits for all": (lambda: P.stsyn(num_local_steps=2, num_waited=W), local_sgd),
}


@pytest.mark.slow(
    "DSSP that grants nothing",
    "Decoupled DiLoCo of one learner and no window is asynchronous local SGD",
    "FedBuff of single steps",
    "K-batch-async of one, but for the weight",
    "K-sync of all",
    "PSP that looks at everybody",
    "PSP that looks at nobody",
    "Rennala of one gradient",
    "Ringmaster that cuts off every other gradient",
    "Ringmaster that ignores nothing",
    "asynchronous local SGD is FedBuff with a buffer of one",
    "asynchronous local SGD of single steps",
    "groups of one group",
    "groups of one worker each",
    "no backup workers",
    "progressive groups that are fast enough",
)
@pytest.mark.parametrize("name", ALWAYS)
def test_the_limit_is_the_other_protocol(name, x64):
    for seed in range(3):
        for durations in (random_durations(seed), tied_durations(seed)):
            for links in (table.no_links(W), random_links(seed)):
                check_same(*ALWAYS[name], durations, links, weights="weight" not in name)


@pytest.mark.slow("Decoupled DiLoCo that waits for all", "STSyn that waits for all")
@pytest.mark.parametrize("name", EQUAL_SPEEDS)
def test_at_equal_speeds_it_is_the_other_protocol(name, x64):
    for seed in range(3):
        durations = np.repeat(tied_durations(seed, (T, 1)), W, axis=1)
        for links in (table.no_links(W), SAME_LINKS):
            check_same(*EQUAL_SPEEDS[name], durations, links)


@pytest.mark.slow("<lambda>0")
@pytest.mark.parametrize("make", [lambda: P.ringleader(), lambda: P.eager_sgd()])
def test_of_one_worker_it_is_asp(make, x64):
    check_same(make, asp_of_weight_1, random_durations(1, (T, 1)), random_links(1, 1))


def test_staleness_aware_is_asp_with_other_weights(x64):
    def aware():
        return P.staleness_aware()

    check_same(aware, asp, random_durations(1), random_links(1), weights=False)


@pytest.mark.slow
def test_dynamic_local_updates_of_one_speed_are_fixed(x64):
    def dynamic():
        return P.async_local_sgd(num_local_steps=2, dynamic=True)

    def fixed():
        return P.async_local_sgd(num_local_steps=2)

    def dynamic_rounds():
        return P.diloco(num_local_steps=2, dynamic=True)

    def fixed_rounds():
        return P.diloco(num_local_steps=2)

    for links in (table.no_links(W), SAME_LINKS):
        check_same(dynamic, fixed, np.full((T, W), 1.25), links)
        check_same(dynamic_rounds, fixed_rounds, np.full((T, W), 1.25), links)


@pytest.mark.slow
def test_messages_do_not_count_as_slowness(x64):
    durations = np.repeat([[1.0, 2.0, 4.0]], 40, axis=0)
    for make in (P.diloco, P.async_local_sgd):
        schedule = make(num_local_steps=8, dynamic=True)(jnp.asarray(durations), Network(3.0, 5.0, 7.0))
        worker, work = np.asarray(schedule.worker), np.asarray(schedule.work)
        assert [work[worker == w][1] for w in range(3)] == [8, 4, 2]


@pytest.mark.slow
def test_the_fastest_of_a_round_takes_all_steps_in_the_next_one_whenever_it_comes():
    """In the second round worker 0, which takes 3 s a step, comes last with 4 steps; worker 1 has taken 2 of 2 s."""
    durations = jnp.array([[1.0, 2.0]] * 4 + [[3.0, 2.0]] * 8)
    assert P.diloco(num_local_steps=4, dynamic=True)(durations).work[:3].tolist() == [[4, 4], [4, 2], [2, 4]]
