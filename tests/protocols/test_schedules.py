"""Invariant 3: the max-plus schedules against an event queue, and what must hold of every schedule."""

import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcjax import codes, protocols
from gcjax.codes import assignments, stopping
from gcjax.stragglers.network import Network
from tests.parameters import one_in, some
from tests.protocols import reference

KEY = jax.random.key(11)
TIMES = st.sampled_from([0.0, 0.5, 1.0, 1.25, 2.0, 3.0, 7.5, math.inf])


@functools.cache
def jitted(name, *parameters):
    """The schedule function of a protocol, compiled once for each shape."""
    return jax.jit(getattr(protocols, name)(**dict(parameters)).schedule)


def schedule_of(durations, name, network=None, **parameters):
    return jitted(name, *parameters.items())(jnp.asarray(durations), network or Network(0.0, 0.0, 0.0))


def draw_durations(data, with_failures=True):
    shape = data.draw(st.sampled_from([(7, 3), (4, 5), (5, 1)]))
    size = shape[0] * shape[1]
    if data.draw(st.booleans()):  # many ties
        values = data.draw(st.lists(TIMES, min_size=size, max_size=size))
        durations = np.array(values, np.float32).reshape(shape)
    else:
        durations = np.random.default_rng(data.draw(st.integers(0, 999))).exponential(size=shape).astype(np.float32)
    return durations if with_failures else np.where(np.isinf(durations), np.float32(4), durations)


def commits(schedule):
    used = np.isfinite(schedule.time)
    fields = (schedule.time, schedule.worker[:, 0], schedule.unit[:, 0], schedule.version[:, 0])
    return [tuple(row) for row in zip(*(np.asarray(f)[used].tolist() for f in fields), strict=True)]


@pytest.mark.slow
@given(st.data())
@settings(max_examples=20, deadline=None)
def test_bounded_staleness_is_the_event_queue(data):
    durations = draw_durations(data)
    staleness = data.draw(st.sampled_from([0, 1, 2, 3, math.inf]))
    receive, send = data.draw(st.sampled_from([(0.0, 0.0), (0.25, 0.5)]))
    network = Network(latency=0.0, upload=send, download=receive)
    schedule = schedule_of(durations, "ssp", network, staleness=staleness)
    assert commits(schedule) == reference.arrivals(durations, staleness, receive, send)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_holds_of_every_schedule(data):
    durations = draw_durations(data)
    staleness = data.draw(st.sampled_from([0, 1, 3, math.inf]))
    protocol = protocols.ssp(staleness=staleness)
    s = jax.tree.map(np.asarray, schedule_of(durations, "ssp", staleness=staleness))
    used = np.isfinite(s.time)
    assert not used[np.argmin(used) :].any() or used.all()
    assert (np.diff(s.time[used]) >= 0).all()
    stale = (np.arange(s.time.size)[:, None] - s.version)[used]
    assert (stale >= 0).all()
    if protocol.max_staleness is not None:
        assert stale.max(initial=0) <= protocol.max_staleness(durations.shape[1])
    for name in ("worker", "unit", "version", "work"):
        assert (getattr(s, name)[~used] == -1).all()
    assert (s.weight[~used] == 0).all() and np.allclose(s.weight[used], 1 / durations.shape[1])
    assert (s.start[1:] >= s.finish[:-1]).all()  # nobody starts before being free
    for before, after in (
        (s.start, s.compute_start),
        (s.compute_start, s.compute_end),
        (s.compute_end, s.finish),
    ):
        assert (before <= after).all()
    clock = np.zeros(durations.shape[1], int)  # units are used in order, each once, and within the bound
    for worker, unit in zip(s.worker[used, 0], s.unit[used, 0], strict=True):
        assert unit == clock[worker] and clock[worker] - clock.min() <= staleness
        clock[worker] += 1


@pytest.mark.slow
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_bsp_waits_for_everybody(data):
    durations = draw_durations(data)
    schedule = schedule_of(durations, "bsp")
    used = np.isfinite(schedule.time)
    np.testing.assert_array_equal(np.asarray(schedule.time)[used], reference.rounds(durations))
    np.testing.assert_array_equal(schedule.version[used], np.arange(used.sum())[:, None] + np.zeros(durations.shape[1]))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_ssp_0_reads_what_bsp_reads_and_ssp_inf_is_asp(data):
    durations = draw_durations(data, with_failures=False)
    workers = durations.shape[1]
    bsp, ssp = schedule_of(durations, "bsp"), schedule_of(durations, "ssp", staleness=0)
    np.testing.assert_array_equal(bsp.time, np.asarray(ssp.time)[workers - 1 :: workers])
    np.testing.assert_array_equal(ssp.version[:, 0], np.repeat(np.asarray(bsp.version)[:, 0], workers) * workers)
    unbounded, asp = schedule_of(durations, "ssp", staleness=10**6), schedule_of(durations, "asp")
    for one, other in zip(unbounded, asp, strict=True):
        np.testing.assert_array_equal(one, other)


CODES = {
    "uncoded": codes.uncoded(4, load=2),
    "frc": codes.fractional_repetition(6, num_stragglers=2),
    "crc": codes.cyclic_repetition(5, num_stragglers=1, rng_key=KEY),
    "partial": codes.partial(assignments.cyclic(5, load=3)),
    "partial L=2": codes.partial(assignments.cyclic(5, load=3), num_blocks=2, rng_key=KEY),
    "uneven": codes.partial(assignments.from_matrix([[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1], [0, 0, 1]])),
}


@pytest.mark.slow("crc", "uncoded")
@pytest.mark.parametrize("name", one_in(2, CODES))
def test_coded_rounds_are_the_event_queue(name, x64):
    code = CODES[name]
    workers = code.assignment.num_workers
    rng = np.random.default_rng(0)
    decodable = reference.is_decodable(code)
    trials = [rng.exponential(size=(13, workers)) for _ in range(4)]
    for trial, durations in enumerate(trials):
        durations[rng.random(durations.shape) < 0.04 * trial] = np.inf
    network = Network(latency=0.0, upload=0.5 * code.num_blocks, download=0.25)
    rules = {
        stopping.decodable(): decodable,
        stopping.all_workers(): reference.count_finished(code, workers),
        stopping.fastest(2): reference.count_finished(code, 2),
        stopping.first_of(stopping.fastest(3), stopping.decodable()): lambda p: (
            decodable(p) or reference.count_finished(code, 3)(p)
        ),
    }
    for rule, condition in rules.items():
        compiled = jax.jit(protocols.coded(code, stop=rule).schedule)
        for durations in trials:
            schedule = compiled(jnp.asarray(durations), network)
            expected = reference.coded_rounds(code, durations, condition, receive=0.25, send=0.5)
            used = np.isfinite(schedule.time)
            assert used.sum() == len(expected)
            np.testing.assert_allclose(np.asarray(schedule.time)[used], [t for t, _ in expected], rtol=1e-5)
            np.testing.assert_array_equal(
                np.asarray(schedule.work)[used], np.reshape([p for _, p in expected], (-1, workers))
            )


def test_coded_timeline_of_a_worked_example():
    # Three workers, chunks 01, 12, 20; the third one is slow and cut off; a message takes 0.5.
    code = codes.partial(assignments.cyclic(3, load=2))
    durations = jnp.asarray([[1.0, 1.5, 10.0], [1.0, 1.5, 10.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    s = protocols.coded(code)(durations, Network(upload=0.5, download=0.25))
    np.testing.assert_allclose(s.time, [3.75, 5.5])
    np.testing.assert_array_equal(s.work, [[2, 2, 0], [1, 1, 1]])
    np.testing.assert_array_equal(s.unit, [[0, 0, 0], [2, 2, 2]])
    np.testing.assert_array_equal(s.version, [[0, 0, 0], [1, 1, 1]])
    np.testing.assert_allclose(s.weight, np.full((2, 3), 1 / 3), rtol=1e-6)
    inf = math.inf
    np.testing.assert_allclose(s.start[:2], [[0, 0, 0], [1.25, 1.75, inf]])
    np.testing.assert_allclose(s.compute_start[:2], [[0.25, 0.25, 0.25], [1.25, 1.75, inf]])
    np.testing.assert_allclose(s.compute_end[:2], [[1.25, 1.75, 3.25], [2.25, 3.25, inf]])
    np.testing.assert_allclose(s.send_start[:2], [[inf, inf, inf], [3.25, 3.25, inf]])
    np.testing.assert_allclose(s.finish[:2], [[1.25, 1.75, inf], [3.75, 3.75, inf]])
    np.testing.assert_allclose(s.finish[2], [5.5, 5.5, 5.5])


def test_deadline_cuts_off_and_an_early_end_does_not_wait():
    code = codes.uncoded(2, load=2)
    durations = jnp.asarray([[1.0, 2.0], [1.0, 2.0], [0.25, 0.25], [0.25, 0.25]])
    s = protocols.coded(code, stop=stopping.deadline(3.0))(durations)
    np.testing.assert_allclose(s.time, [3.0, 3.5])
    np.testing.assert_array_equal(s.work, [[2, 1], [2, 2]])


def test_the_message_of_a_round_goes_out_at_its_stop_however_fast_the_network():
    code, durations = codes.uncoded(2, load=2), jnp.asarray([[1.0, 1.0], [1.0, 2.0]])
    for upload in (0.0, 0.5):
        s = protocols.coded(code)(durations, Network(upload=upload))
        np.testing.assert_allclose(s.send_start[1], [3.0, 3.0])
        np.testing.assert_allclose(s.finish[1], [3.0 + upload] * 2)


def test_slots_that_a_worker_does_not_hold_never_begin():
    s = protocols.coded(codes.partial(assignments.from_matrix([[1, 1], [1, 0]])))(jnp.ones((2, 2)))
    assert np.isinf([x[1, 1] for x in s[5:10]]).all() and np.isfinite([x[1, 0] for x in s[5:8]]).all()


def test_nothing_begins_at_the_moment_of_the_stop():
    s = protocols.coded(codes.uncoded(2, load=2), stop=stopping.deadline(1.0))(jnp.ones((2, 2)))
    np.testing.assert_array_equal(s.work, [[1, 1]])
    assert np.isinf(s.start[1]).all() and np.isinf(s.compute_end[1]).all()
    np.testing.assert_allclose(s.weight, np.full((1, 2), 1 / 4))


@pytest.mark.slow
def test_units_of_no_length_read_only_what_is_there():
    durations = jnp.asarray([[0.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    for staleness in (0, 1, math.inf):
        schedule = protocols.ssp(staleness=staleness)(durations)
        used = np.isfinite(schedule.time)
        version = np.asarray(schedule.version)[used, 0]
        assert used.any() and (version >= 0).all() and (version <= np.arange(used.sum())).all()


def test_a_failed_worker_stops_those_who_wait_and_nobody_else():
    durations = jnp.where(jnp.arange(20)[:, None] >= jnp.asarray([[5, 99]]), jnp.inf, 1.0)
    assert np.isfinite(protocols.bsp()(durations).time).sum() == 5
    assert np.isfinite(protocols.ssp(staleness=2)(durations).time).sum() == 5 + 8
    assert np.isfinite(protocols.asp()(durations).time).sum() == 25
    assert np.isfinite(protocols.coded(codes.partial(assignments.cyclic(2, load=2)))(durations).time).sum() == 10


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [protocols.bsp(), protocols.asp(), protocols.coded(CODES["frc"])])
@pytest.mark.parametrize("wide", some([True], [False]))
def test_dtypes_vmap_and_no_recompilation(protocol, wide):
    with jax.enable_x64(wide):
        dtype = jnp.float64 if wide else jnp.float32
        durations = jax.random.exponential(KEY, (3, 9, 6), dtype)
        compiled = jax.jit(lambda d: protocol(d))
        batched = jax.jit(jax.vmap(lambda d: protocol(d)))(durations)
        for i in range(3):
            one = compiled(durations[i])
            chex.assert_equal_shape([one.worker, one.unit, one.version, one.work, one.weight])
            chex.assert_shape([one.start, one.compute_start, one.compute_end, one.send_start, one.finish], (9, 6))
            chex.assert_type([one.worker, one.unit, one.version, one.work, one.read], jnp.int32)
            chex.assert_type([one.time, one.weight, one.start, one.finish, one.horizon], dtype)
            for a, b in zip(one, batched, strict=True):
                np.testing.assert_allclose(a, b[i], rtol=1e-6)
        assert compiled._cache_size() == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: protocols.ssp(staleness=-1), "staleness must be a whole number >= 0, or inf .* got -1"),
        (lambda: protocols.ssp(staleness=1.5), "got 1.5"),
        (lambda: protocols.asp(weight=-2.0), "weight must be at least 0 and finite; got -2"),
        (lambda: protocols.bsp()(jnp.asarray([[1.0, -1.0]])), "got -1.0 for unit 0 of worker 1"),
        (lambda: protocols.bsp()(jnp.asarray([[1.0, math.nan]])), "got nan for unit 0 of worker 1"),
        (lambda: protocols.bsp()(jnp.ones((3, 2)), Network(latency=-0.5)), "latency must be at least 0; got -0.5"),
        (lambda: protocols.bsp()(jnp.ones(3)), r"shape \[T, W\]"),
        (lambda: protocols.bsp()(jnp.ones((3, 2), jnp.int32)), "floating point seconds; got dtype int32"),
        (lambda: protocols.coded("frc"), "coded needs a GradientCode"),
        (lambda: protocols.coded(CODES["frc"], stop=3.0), "stop must be a stopping rule"),
        (lambda: protocols.coded(CODES["frc"])(jnp.ones((3, 5))), "5 columns for 6 workers"),
        (lambda: protocols.coded(CODES["frc"])(jnp.ones((2, 6))), "Sample at least 3"),
        (
            lambda: protocols.coded(codes.partial(assignments.cyclic(4, load=2), num_blocks=3, rng_key=KEY)),
            "L=3 blocks, and some chunk has fewer holders",
        ),
        (
            lambda: protocols.coded(
                codes.fixed_code(assignments.cyclic(4, load=2), np.ones((4, 2)), decode=lambda *_: jnp.ones((4, 1, 1)))
            ),
            "the weights of this one do not give the exact sum. Use other weights, or gcjax.codes.stopping.deadline",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
