"""The rule by which a protocol is served gives the schedule that it is simulated by, and keeps its promise."""

import jax
import numpy as np
import pytest

from gcjax import codes, protocols, stragglers
from gcjax.protocols import simulation
from gcjax.protocols.conformance.structure import check_structure
from tests.parameters import some

W = 4
GROUPS = ((0, 2), (1, 3))
PROTOCOLS = {
    "asp": protocols.asp(),
    "async_local_sgd": protocols.async_local_sgd(num_local_steps=2),
    "async_local_sgd dynamic": protocols.async_local_sgd(num_local_steps=3, dynamic=True),
    "backup_workers": protocols.backup_workers(num_backup=1),
    "bsp": protocols.bsp(),
    "decoupled_diloco": protocols.decoupled_diloco(num_local_steps=2, min_quorum=2),
    "decoupled_diloco fixed": protocols.decoupled_diloco(num_local_steps=2, grace_seconds=0.5),
    "delay_adaptive": protocols.delay_adaptive(delay_threshold=2),
    "diloco": protocols.diloco(num_local_steps=3),
    "diloco dynamic": protocols.diloco(num_local_steps=3, dynamic=True),
    "dssp": protocols.dssp(lower=1, span=3),
    "eager_sgd": protocols.eager_sgd(),
    "eager_sgd majority": protocols.eager_sgd(collective="majority", rng_key=jax.random.key(1)),
    "elastic_averaging": protocols.elastic_averaging(num_local_steps=2),
    "fedbuff": protocols.fedbuff(num_local_steps=2, num_contributions=3, weigh_staleness=True),
    "grouped": protocols.grouped(groups=GROUPS),
    "k_async": protocols.k_async(num_contributions=2),
    "k_batch_async": protocols.k_batch_async(num_contributions=3),
    "k_batch_sync": protocols.k_batch_sync(num_contributions=3),
    "k_sync": protocols.k_sync(num_contributions=3),
    "local_sgd": protocols.local_sgd(num_local_steps=3),
    "progressive_groups": protocols.progressive_groups(num_rounds=2, no_delay=0.7),
    "psp": protocols.psp(num_sampled=2, staleness=1, rng_key=jax.random.key(1)),
    "rennala": protocols.rennala(num_contributions=3),
    "ringmaster": protocols.ringmaster(delay_threshold=3),
    "ringmaster cuts off": protocols.ringmaster(delay_threshold=2, cuts_off=True),
    "ssp": protocols.ssp(staleness=1),
    "staleness_aware": protocols.staleness_aware(num_contributions=2),
    "worker_busy": protocols.worker_busy(),
    "worker_busy eager": protocols.worker_busy(eager=True, trigger=1),
    "worker_busy eager overlap": protocols.worker_busy(eager=True, overlap=True, trigger=1),
    "worker_busy overlap": protocols.worker_busy(overlap=True),
}


def contributions(schedule):
    """Of each commit, by (worker, unit): time, version, work, weight."""
    host = jax.device_get(schedule)
    return [
        {
            (host.worker[e, c], host.unit[e, c]): (time, host.version[e, c], host.work[e, c], host.weight[e, c])
            for c in np.flatnonzero(host.worker[e] >= 0)
        }
        for e, time in enumerate(host.time)
        if np.isfinite(time)
    ]


ADAPTIVE = {  # by their first controls
    "adacomm": protocols.adacomm(num_local_steps=3, seconds=5.0, num_windows=3),
    "adsp": protocols.adsp(seconds=3.0, num_windows=3, min_interval=1.5),
}
SIMULATED = {**PROTOCOLS, **ADAPTIVE}


QUICK = ("adsp", "decoupled_diloco", "elastic_averaging", "grouped", "k_async", "ssp", "worker_busy overlap")


@pytest.mark.slow("decoupled_diloco", "adsp", "elastic_averaging", "grouped", "k_async", "ssp", "worker_busy overlap")
@pytest.mark.parametrize("name", some(QUICK, [name for name in sorted(SIMULATED) if name not in QUICK]))
def test_a_rule_gives_the_schedule_of_its_protocol(name):
    protocol = SIMULATED[name]
    durations = stragglers.sample_durations(stragglers.exponential(), jax.random.key(3), 12, W)
    by_rule = simulation.event_schedule(protocol.rule(W), durations, stragglers.Network())
    check_structure(by_rule, protocol)
    assert bool(protocols.check(by_rule, protocol.specification(W)))
    expected, got = contributions(protocol(durations)), contributions(by_rule)
    assert len(got) >= len(expected) > 2
    for left, right in zip(expected, got, strict=False):
        assert left.keys() == right.keys()
        for key, values in left.items():
            np.testing.assert_allclose(right[key], values, rtol=1e-5)


REFUSED = {
    "ad_psgd": (protocols.ad_psgd(rng_key=jax.random.key(1)), "there is no server in this protocol"),
    "d_psgd": (protocols.d_psgd(), "there is no server in this protocol"),
    "hop": (protocols.hop(), "there is no server in this protocol"),
    "prague": (protocols.prague(group_size=2, rng_key=jax.random.key(1)), "there is no server in this protocol"),
    "sgp": (protocols.sgp(), "there is no server in this protocol"),
    "coded_reduce": (protocols.coded_reduce(codes.uncoded(W), num_layers=1), "a server hears those below it only"),
    "grouped coded": (
        protocols.grouped(groups=GROUPS, code=codes.uncoded(2)),
        "a server of coded rounds stops all of its workers",
    ),
    "grouped elastic": (protocols.grouped(groups=GROUPS, merge="elastic"), "server of each group"),
    "halos": (
        protocols.halos(groups=GROUPS, num_local_steps=1, num_contributions=2),
        "each group has a server with parameters",
    ),
    "m_sgc": (protocols.m_sgc(W, burst=1, window=2, max_slow=1), "their jobs last for several rounds"),
    "ringleader": (protocols.ringleader(), "applies gradients of earlier commits again"),
    "pipelined_coded": (
        protocols.pipelined_coded(codes.fractional_repetition(2, num_stragglers=1)),
        "made of gradients of several versions",
    ),
    "streaming_diloco": (
        protocols.streaming_diloco(num_local_steps=4, num_fragments=2),
        "merge a fragment of the parameters some steps after",
    ),
    "sr_sgc": (protocols.sr_sgc(W, burst=1, window=2, max_slow=1), "their jobs last for several rounds"),
    "grouped": (protocols.grouped(groups=GROUPS, merge="change", num_local_steps=2), "server of each group"),
    "progressive_groups": (protocols.progressive_groups(), "needs no_delay"),
    "worker_busy eager": (protocols.worker_busy(eager=True), "needs the trigger"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_served_says_why(name):
    protocol, why = REFUSED[name]
    with pytest.raises(ValueError, match=why):
        protocol.rule(W)


def test_the_event_queue_does_not_stop_turns():
    rule = protocols.stsyn(num_local_steps=2, num_waited=2).rule(W)
    with pytest.raises(ValueError, match=r"does not simulate a rule whose turns the server stops"):
        simulation.event_schedule(rule, np.ones((4, W), np.float32), stragglers.Network())
