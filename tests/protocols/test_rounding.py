"""Units shorter than the rounding of times, rounds that take no time, few units, and times beyond a type's digits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols as P
from gcjax.protocols.simulation import Work
from gcjax.stragglers import Network
from tests.parameters import one_in
from tests.protocols.table import KEY, quick

FEW = {
    "asp": P.asp(),
    "ssp": P.ssp(staleness=1),
    "staleness_aware": P.staleness_aware(),
    "bsp": P.bsp(),
}
SEQUENTIAL = {
    "sr_sgc": P.sr_sgc(4, burst=1, window=3, max_slow=4, tolerance=0.2, rng_key=KEY),
    "m_sgc": P.m_sgc(4, burst=2, window=3, max_slow=2, tolerance=0.2, rng_key=KEY),
}


def test_stsyn_counts_all_units_that_are_shorter_than_rounding():
    column = jnp.asarray([[0.3, 0.7, 0.0, 0.0, 0.1, 0.0, 0.2, 0.3]]).T
    found = P.stsyn(num_local_steps=2, num_waited=1)(column, Network(latency=0.3, upload=0.3, download=0.2))
    assert found.work[:3, 0].tolist() == [4, 2, 2]
    assert found.unit[:3, 0].tolist() == [0, 4, 6]


@pytest.mark.slow("False", "True")
@pytest.mark.parametrize("wide", [False, True])
def test_whoever_is_waited_for_has_done_the_steps(wide):
    with jax.enable_x64(wide):
        program = P.stsyn(num_local_steps=3, num_waited=2)
        schedule = jax.jit(program.schedule, compiler_options=quick())
        for seed in range(10):
            drawn = np.random.default_rng(seed).choice([0, 0, 1e-9, 0.1, 0.3, 0.7], (24, 3))
            found = schedule(jnp.asarray(drawn, float), Network(latency=jnp.asarray(0.3), upload=jnp.asarray(0.7)))
            happens = np.isfinite(found.time)
            assert happens.sum() > 1 and ((found.work[happens] >= 3).sum(axis=1) >= 2).all()


def test_units_are_done_by_their_end_as_it_is_written():
    durations = jnp.asarray(np.random.default_rng(0).choice([0, 1e-9, 0.1, 0.3], (40, 2)), jnp.float32)
    work, first = Work.of(durations), jnp.zeros(2, jnp.int32)
    seconds, done = (jax.jit(f, compiler_options=quick()) for f in (work.seconds, work.num_done))
    for count in range(40):
        for begin in np.float32([0.0, 0.3, 1e4]):
            end = begin + seconds(first, np.full(2, count, np.int32))
            finished = done(first, end, begin)
            assert (begin + seconds(first, finished) <= end).all()
            assert (begin + seconds(first, finished + 1) > end).all()


@pytest.mark.slow("m_sgc")
@pytest.mark.parametrize("name", SEQUENTIAL)
def test_no_round_reads_what_is_committed_later(name):
    protocol = SEQUENTIAL[name]
    for seed in range(5):
        drawn = np.random.default_rng(seed)
        length = drawn.choice([0.0, 0.0, 1.0], (20, 1, 4)) * drawn.choice([1.0, 3.0], (20, 1, 4))
        durations = np.broadcast_to(length, (20, protocol.round_units, 4)).reshape(-1, 4)
        found = protocol(jnp.asarray(durations, jnp.float32))
        there = np.asarray(found.worker >= 0)
        index = np.arange(len(there))[:, None]
        assert there.any() and (np.asarray(found.version) <= index)[there].all()
        assert (np.asarray(index - found.version) <= protocol.max_staleness(4))[there].all()


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("shape", one_in(2, [((1, 2),), ((1, 1),), ((3, 1),), ((2, 1),)]))
def test_one_or_two_units_are_enough(name, shape):
    found = FEW[name](jnp.ones(shape))
    assert found.time[0] == 1.0 and found.work[0, 0] == 1
    grouped = P.grouped(groups=[[w] for w in range(shape[1])])(jnp.ones(shape))
    assert grouped.time[0] == 1.0


@pytest.mark.slow("protocol1")
@pytest.mark.parametrize("protocol", one_in(2, [P.asp(), P.bsp(), SEQUENTIAL["sr_sgc"], SEQUENTIAL["m_sgc"]]))
def test_times_beyond_the_digits_of_float32_are_refused_and_float64_named(protocol):
    durations = np.ones((200, 4))
    durations[0] = 4e7
    with pytest.raises(ValueError, match=r"near 4(\.\d+)?e\+07 s apart .* 4 s, .* 1 s or less.*jax_enable_x64"):
        protocol(jnp.asarray(durations, jnp.float32))
    with jax.enable_x64(True):
        found = protocol(jnp.asarray(durations))
        assert (jnp.diff(found.time[jnp.isfinite(found.time)]) >= 0).all()
    durations[0] = 1e6
    assert protocol(jnp.asarray(durations, jnp.float32)).time[0] >= 1e6


@pytest.mark.parametrize("scale", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("seconds", [(1, 3), (1, 4)])
def test_dssp_grants_the_same_in_any_unit_of_time(seconds, scale):
    """Predicted waits of nothing, or that are equal, are so in spite of rounding."""
    protocol, durations = P.dssp(lower=2, span=6), jnp.tile(jnp.array(seconds, jnp.float32), (40, 1))
    horizon, scaled_horizon = (float(protocol(x).horizon) for x in (durations, durations * scale))
    assert scaled_horizon == pytest.approx(horizon * scale, rel=1e-5)
