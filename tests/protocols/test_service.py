"""A server that takes time for each message: the event queue against one in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols, stragglers
from tests.protocols.test_rules import PROTOCOLS

LATENCY, UPLOAD, DOWNLOAD, SERVICE = 0.25, 0.5, 0.375, 0.5
NETWORK = stragglers.constant_network(latency=LATENCY, upload=UPLOAD, download=DOWNLOAD, service=SERVICE)


def sampled(num_units=12, num_workers=4):
    key = jax.random.key(1)
    return stragglers.sample_durations(stragglers.exponential(mean=1.0), key, num_units, num_workers)


def plain_asp(durations, staleness):
    """The times of commits, of a server that deals with one message after the other, in the order of arrival."""
    num_units, num_workers = durations.shape
    clock, free, times = [0] * num_workers, 0.0, []
    waiting, sent = set(range(num_workers)), {}
    now = 0.0
    while True:
        for worker in sorted(waiting):
            if clock[worker] - min(clock) <= staleness:
                if clock[worker] == num_units:
                    return times
                begin = max(now, free) + LATENCY + DOWNLOAD
                sent[worker] = begin + durations[clock[worker], worker] + LATENCY + UPLOAD
                waiting.discard(worker)
        worker = min(sent, key=sent.get)
        now = max(sent.pop(worker), free)
        free = now + SERVICE
        times.append(now)
        clock[worker] += 1
        waiting.add(worker)


@pytest.mark.slow("protocol0-100")
@pytest.mark.parametrize(("protocol", "staleness"), [(protocols.asp(), 100), (protocols.ssp(staleness=1), 1)])
def test_messages_wait_for_the_server(protocol, staleness):
    with jax.enable_x64(True):
        durations = sampled()
        times = np.asarray(protocol(durations, NETWORK).time)
        expected = plain_asp(np.asarray(durations), staleness)
        np.testing.assert_allclose(times[np.isfinite(times)][: len(expected)], expected, rtol=1e-12)
        assert len(expected) > 20 and np.diff(expected).min() >= SERVICE * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bsp", "k_async", "local_sgd", "worker_busy"])
def test_the_record_keeps_to_the_promise(name):
    protocol = PROTOCOLS[name]
    schedule = protocol(sampled(), NETWORK)
    assert protocols.check(schedule, protocol.specification(4))
    slower = float(np.nanmax(np.where(np.isfinite(schedule.time[:2]), schedule.time[:2], np.nan)))
    without = protocol(sampled(), NETWORK._replace(service=None))
    assert slower > float(without.time[0])


def test_a_server_without_work_changes_nothing():
    with jax.enable_x64(True):
        idle = protocols.ssp(staleness=2)(sampled(), NETWORK._replace(service=0.0))
        none = protocols.ssp(staleness=2)(sampled(), NETWORK._replace(service=None))
        happens = np.isfinite(idle.time) & np.isfinite(none.time)
        assert happens.sum() > 20
        np.testing.assert_allclose(idle.time[happens], none.time[happens], rtol=1e-12)


@pytest.mark.slow
def test_without_a_rule_each_message_takes_longer():
    coded = protocols.anytime_minibatch(seconds=5.0).replace(rule=None)
    with_service, without = coded(sampled(40), NETWORK), coded(sampled(40), NETWORK._replace(service=None))
    np.testing.assert_allclose(np.diff(with_service.time[:3]) - np.diff(without.time[:3]), SERVICE, rtol=1e-5)


def test_a_message_that_waits_for_the_server_at_the_end_arrives_behind_the_last_commit():
    elastic = protocols.elastic_averaging(num_local_steps=1)
    network = stragglers.constant_network(upload=0.5, service=0.5)
    schedule = elastic(jnp.asarray([[2.0, 3.0], [1.0, 2.0], [1.0, 1.0]]), network)
    assert schedule.finish[:, 0].tolist() == [2.5, 4.5, 6.5] and schedule.finish[1, 1] == 7.0
    assert jnp.isfinite(schedule.time).sum() == 4  # worker 1's second message has come at 6.5 s, too
    assert protocols.check(schedule, elastic.specification(2))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"service": -1.0}, "service must be"),
        ({"service": (1.0, 2.0)}, "service must be one number"),
        ({"service": 1.0, "server": 1.0}, "a link that is shared or a time of service"),
    ],
)
def test_what_is_no_time_of_service(fields, words):
    with pytest.raises(ValueError, match=words):
        stragglers.constant_network(**fields)
