"""What a commit takes is looked at, and right runs in which messages take time, or units none, are right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes, protocols, stragglers

KEY = jax.random.key(0)
NETWORK = stragglers.Network(latency=0.1, upload=0.3, download=0.2)
PATIENT = {
    "sr_sgc": lambda: protocols.sr_sgc(4, burst=1, window=2, max_slow=1, rng_key=KEY),
    "m_sgc": lambda: protocols.m_sgc(4, burst=1, window=2, max_slow=1, rng_key=KEY),
}


def host(schedule):
    return jax.tree.map(np.array, schedule)


def is_kept(protocol, schedule):
    return bool(protocols.check(schedule, protocol.specification(schedule.start.shape[1])))


@pytest.mark.slow("sr_sgc-network")
@pytest.mark.parametrize("network", [NETWORK, stragglers.Network()], ids=["network", "at once"])
@pytest.mark.parametrize("name", PATIENT)
def test_messages_are_sent_and_arrive_before_the_commit_that_waits_for_them(name, network):
    """Also where the time of the commit is a sum that is rounded otherwise."""
    protocol = PATIENT[name]()
    for seed in range(2):
        durations = np.random.default_rng(seed).exponential(size=(40 * protocol.round_units, 4)).astype(np.float32)
        schedule = protocol(durations, network)
        arrival, commit, send = (np.asarray(x) for x in (schedule.finish, schedule.time, schedule.send_start))
        assert (send[np.isfinite(send)] <= arrival[np.isfinite(send)]).all()
        assert is_kept(protocol, schedule)
        assert (arrival[np.isfinite(arrival)] <= commit[np.isfinite(commit)].max()).all()


NO_LENGTH = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])


@pytest.mark.slow("K-batch-async")
@pytest.mark.parametrize(
    "protocol", [protocols.worker_busy(), protocols.k_batch_async(num_contributions=2)], ids=["WBSP", "K-batch-async"]
)
def test_a_begin_at_the_moment_of_a_commit_that_replaces_its_version(protocol):
    assert is_kept(protocol, protocol(NO_LENGTH))


def test_a_unit_of_no_length_after_the_last_commit():
    protocol = protocols.pipelined_coded(codes.cyclic_repetition(3, num_stragglers=1, rng_key=KEY))
    durations = jnp.array([[jnp.inf, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, jnp.inf]])
    assert is_kept(protocol, protocol(durations))


def without(schedule, commit, columns):
    """The schedule where a commit lacks the contributions in these columns."""
    for field in ("worker", "unit", "work"):
        getattr(schedule, field)[commit, columns] = -1
    return schedule


@pytest.mark.parametrize(
    "protocol", [protocols.bsp(), protocols.d_psgd(), protocols.sgp()], ids=["BSP", "D-PSGD", "SGP"]
)
def test_a_round_without_a_worker(protocol):
    right = host(protocol(jnp.array([[1.0, 1.5, 2.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])))
    assert is_kept(protocol, right)
    assert not is_kept(protocol, without(right, -1, slice(1, None)))


def test_a_commit_of_stsyn_that_lacks_what_has_arrived():
    protocol = protocols.stsyn(num_local_steps=2, num_waited=1)
    right = host(protocol(jnp.array([[1.0, 1.5, 1.2]] * 8)))
    assert is_kept(protocol, right)
    assert not is_kept(protocol, without(right, 0, slice(1, None)))


def test_a_push_of_eager_worker_busy_in_the_commit_after_its_own():
    protocol = protocols.worker_busy(eager=True)
    right = host(protocol(jnp.array([[1.0, 9.0]] * 4)))
    assert is_kept(protocol, right)
    fields = ("worker", "unit", "work", "weight")
    two_columns = {
        name: np.c_[getattr(right, name), np.full(len(right.time), -1, getattr(right, name).dtype)] for name in fields
    }
    wrong = right._replace(**two_columns)
    for name in fields[:3]:
        getattr(wrong, name)[1, 1] = getattr(wrong, name)[0, 0]
        getattr(wrong, name)[0] = -1
    assert not is_kept(protocol, wrong)


@pytest.mark.parametrize("protocol", [protocols.ssp(staleness=2**30), protocols.hop(max_gap=2**30)], ids=["SSP", "Hop"])
def test_bounds_as_large_as_they_can_be(protocol):
    assert is_kept(protocol, protocol(jnp.ones((6, 5))))


def in_type(schedule, dtype):
    """The record with times, and weights, of another type."""
    return schedule._replace(
        **{name: x.astype(dtype) for name, x in schedule._asdict().items() if np.issubdtype(x.dtype, np.floating)}
    )


def test_milliseconds_count_after_a_day():
    """In records of float64, as of a live run; float32 has no milliseconds there."""
    durations = np.array([[86_402, 86_403.25], [2, 3], [2, 3]])  # seconds; float32 has all sums of them
    right = in_type(host(protocols.asp()(durations)), np.float64)
    early_commit = right._replace(time=right.time - [0, 0.005, 0, 0, 0, 0])  # its push arrives later
    early_read = right._replace(read=right.read.copy(), start=right.start.copy())
    early_read.read[1, 0], early_read.start[1, 0] = 2, right.time[1] - 0.005  # before worker 1 has made version 2
    assert is_kept(protocols.asp(), right) and is_kept(protocols.asp(), in_type(early_commit, np.float32))
    assert not is_kept(protocols.asp(), early_commit)
    assert not is_kept(protocols.asp(), early_read)
