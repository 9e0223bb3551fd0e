"""Workers that leave, come back and join, in simulations: by hand, against other programs, and against the promises."""

import itertools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from gcjax import protocols
from gcjax.protocols import check, simulation
from gcjax.protocols.compiled_schedules import _program_without_options, compiled_schedule, schedule_program
from gcjax.protocols.conformance.structure import check_structure
from gcjax.stragglers import Absences, Network, absences, random_absences
from tests.protocols.absences import Served, exponential, k_async
from tests.protocols.test_memberships import HELD
from tests.protocols.test_rules import PROTOCOLS, contributions

W, INF = 4, float("inf")
QUICK = ("bsp", "k_async", "worker_busy")
SIMULATED = [name for name in sorted(PROTOCOLS) if not PROTOCOLS[name].rule(W).overlaps]
"""The others are refused."""
NETWORKS = {
    "instantaneous": Network(),
    "links": Network(latency=0.1, upload=jnp.arange(4.0) / 10, download=0.2),
    "shared": Network(latency=0.1, upload=0.1, download=0.2, server=0.3),
    "service": Network(latency=0.1, upload=0.1, download=0.2, service=0.15),
}

pytestmark = pytest.mark.promotes  # states are of 32 bits, what is counted about them in Python is not


def quick(names, fast=QUICK):
    """The names, all but the fast ones marked as slow."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def committed(schedule):
    """[(time, [(worker, unit, version)])] of the commits."""
    return [
        (float(next(iter(c.values()))[0]), sorted((*k, v[1]) for k, v in c.items())) for c in contributions(schedule)
    ]


def drawn(seed, num_workers=W, max_count=3):
    return random_absences(mean_present=4.0, mean_away=2.0, max_count=max_count).sample(
        jax.random.key(seed), num_workers
    )


def test_bsp_by_hand(x64):
    """Worker 2 leaves at 6 s, in its second unit, and is back at 9 s.

    Round 0 is over at 4 s. In the next one workers 0 and 1 push at 6 and 7 s, and nobody waits for worker 2. They begin
    round 2 at 7 s and push at 9 and 10 s. Worker 2 takes part in it from 9 s on: its unit takes until 13 s. From then
    on a round takes 4 s.
    """
    durations = jnp.tile(jnp.array([2.0, 3.0, 4.0]), (5, 1))
    away = absences(workers=(2,), leave=(6.0,), join=(9.0,))
    schedule = protocols.bsp()(durations, absences=away)
    assert committed(schedule) == [
        (4.0, [(0, 0, 0), (1, 0, 0), (2, 0, 0)]),
        (7.0, [(0, 1, 1), (1, 1, 1)]),
        (13.0, [(0, 2, 2), (1, 2, 2), (2, 2, 2)]),
        (17.0, [(0, 3, 3), (1, 3, 3), (2, 3, 3)]),
        (21.0, [(0, 4, 4), (1, 4, 4), (2, 4, 4)]),
    ]
    assert schedule.start[:, 2].tolist() == [0.0, 4.0, 9.0, 13.0, 17.0]
    assert schedule.compute_end[:, 2].tolist() == [4.0, 6.0, 13.0, 17.0, 21.0]
    assert schedule.finish[:, 2].tolist() == [4.0, INF, 13.0, 17.0, 21.0]
    assert schedule.horizon == 21.0
    assert check(schedule, protocols.bsp().specification(3), memberships=away.memberships(schedule))


def test_ssp_by_hand(x64):
    """Staleness 1; worker 1 is three times slower, leaves at 4 s in its second unit, and is back at 7 s.

    Worker 0 pushes at 1 and 2 s, waits, and begins its third unit when worker 1 has pushed, at 3 s. From 4 s on nobody
    holds it up. At 7 s worker 1 joins with the clock of worker 0 before its push at this moment, 5. So worker 0 may
    push a seventh unit at 8 s, and waits for the push of worker 1 at 10 s, and after its eighth for that at 13 s.
    """
    durations = jnp.tile(jnp.array([1.0, 3.0]), (8, 1))
    away = absences(workers=(1,), leave=(4.0,), join=(7.0,))
    schedule = protocols.ssp(staleness=1)(durations, absences=away)
    assert committed(schedule) == [
        (1.0, [(0, 0, 0)]), (2.0, [(0, 1, 1)]), (3.0, [(1, 0, 0)]), (4.0, [(0, 2, 3)]), (5.0, [(0, 3, 4)]),
        (6.0, [(0, 4, 5)]), (7.0, [(0, 5, 6)]), (8.0, [(0, 6, 7)]), (10.0, [(1, 2, 7)]), (11.0, [(0, 7, 9)]),
        (13.0, [(1, 3, 9)]),
    ]  # fmt: skip
    assert schedule.start[:, 0].tolist() == [0.0, 1.0, 3.0, 4.0, 5.0, 6.0, 7.0, 10.0]
    assert schedule.start[:4, 1].tolist() == [0.0, 3.0, 7.0, 10.0]
    assert schedule.finish[:4, 1].tolist() == [3.0, INF, 10.0, 13.0]
    assert schedule.horizon == 13.0
    assert check(schedule, protocols.ssp(staleness=1).specification(2), memberships=away.memberships(schedule))


def test_leaving_brings_the_commit_that_the_others_wait_for(x64):
    durations = jnp.array([[1.0, 2.0, 10.0]] * 3)
    away = absences(workers=(2,), leave=(5.0,))
    assert committed(protocols.bsp()(durations, absences=away))[0] == (5.0, [(0, 0, 0), (1, 0, 0)])


def test_when_all_have_left_their_gradients_are_committed(x64):
    """Worker 0 has pushed at 1 s; it waits for worker 1, which is drawn for the first commit, and leaves last."""
    protocol = protocols.eager_sgd(collective="majority", rng_key=jax.random.key(1))
    away = absences(workers=(0, 1), leave=(1.5, 2.0), join=(5.0, INF))
    schedule = protocol(jnp.tile(jnp.array([1.0, 9.0]), (4, 1)), absences=away)
    assert committed(schedule)[:2] == [(2.0, [(0, 0, 0)]), (6.0, [(0, 1, 1)])]


def test_nobody_begins_between_two_who_leave_at_one_moment(x64):
    durations = jnp.array([[9.0, 2.0, 2.0]] * 3)
    schedule = protocols.bsp()(durations, absences=absences(workers=(0, 2), leave=(5.0, 5.0)))
    assert committed(schedule)[:2] == [(5.0, [(1, 0, 0), (2, 0, 0)]), (7.0, [(1, 1, 1)])]
    assert schedule.start[1].tolist() == [INF, 5.0, INF]


def test_a_message_on_its_way_is_lost_with_its_worker_and_one_that_has_arrived_counts(x64):
    durations, network = jnp.array([[1.0, 3.0]] * 4), Network(upload=1.0)
    lost = protocols.bsp()(durations, network, absences(workers=(0,), leave=(1.5,)))
    assert committed(lost)[0] == (4.0, [(1, 0, 0)])
    assert (lost.compute_end[0, 0], lost.send_start[0, 0], lost.finish[0, 0]) == (1.0, INF, INF)
    at_arrival = protocols.bsp()(durations, network, absences(workers=(0,), leave=(2.0,)))
    assert committed(at_arrival)[0] == (4.0, [(1, 0, 0)])
    arrived = protocols.bsp()(durations, network, absences(workers=(0,), leave=(2.5,)))
    assert committed(arrived)[0] == (4.0, [(0, 0, 0), (1, 0, 0)])


def test_a_link_that_is_shared_is_free_when_a_worker_leaves(x64):
    durations, network = jnp.array([[1.0, 1.0]] * 3), Network(server=2.0)  # each takes 2 s alone, both together 4 s
    schedule = protocols.asp()(durations, network, absences(workers=(1,), leave=(6.0,)))
    # Both receive until 4 s and compute until 5 s; worker 0 has half of the link for 1 s and then all of it.
    assert committed(schedule)[0] == (7.5, [(0, 0, 0)])


@pytest.mark.slow
def test_a_worker_that_never_ends_its_unit_holds_up_a_round_until_it_leaves(x64):
    durations = jnp.array([[1.0, INF], [1.0, 1.0], [1.0, 1.0]])
    assert not committed(protocols.bsp()(durations))
    away = absences(workers=(1,), leave=(9.0,), join=(9.5,))
    schedule = protocols.bsp()(durations, absences=away)
    assert committed(schedule)[:2] == [(9.0, [(0, 0, 0)]), (10.5, [(0, 1, 1), (1, 1, 1)])]


def test_who_comes_back_in_a_local_protocol_goes_on_with_what_it_had_read(x64):
    """Workers 1 and 2 are slow, so that no commit comes before 10 s: worker 0 has read version 0 and need not again."""
    durations = jnp.array([[1.0, 10.0, 10.0]] * 12)
    network, away = Network(download=0.5), absences(workers=(0,), leave=(3.0,), join=(4.0,))
    start = protocols.worker_busy()(durations, network, away).compute_start[:5, 0].tolist()
    assert start == [0.5, 1.5, 2.5, 4.0, 5.0]
    of_gradients = protocols.k_batch_async(num_contributions=12)(durations, network, away)
    assert of_gradients.compute_start[:5, 0].tolist() == [0.5, 1.5, 2.5, 4.5, 5.5]  # it has kept nothing


@pytest.mark.slow
def test_the_speed_of_who_has_left_does_not_count(x64):
    """Worker 1 is four times slower, so it takes four steps, and then one; four again when worker 0 has left."""
    durations = jnp.tile(jnp.array([1.0, 4.0]), (40, 1))
    away = absences(workers=(0,), leave=(21.5,))
    schedule = protocols.async_local_sgd(num_local_steps=4, dynamic=True)(durations, absences=away)
    steps = [int(work) for worker, work in zip(schedule.worker[:, 0], schedule.work[:, 0], strict=True) if worker == 1]
    assert steps[:6] == [4, 1, 1, 4, 4, 4]


@pytest.mark.slow
def test_who_was_faster_than_all_who_stayed_takes_h_steps_when_it_is_back(x64):
    """Worker 0 leaves with its push, at 5 s, before that of worker 1 at 16 s, and is back in the round after."""
    durations = jnp.tile(jnp.array([1.0, 4.0]), (40, 1))
    away = absences(workers=(0,), leave=(5.0,), join=(17.0,))
    schedule = protocols.diloco(num_local_steps=4, dynamic=True)(durations, absences=away)
    assert [float(t) for t in schedule.time[:2]] == [16.0, 32.0] and int(schedule.work.max()) == 4


@pytest.mark.slow
def test_a_contribution_is_a_stretch_of_units_without_the_lost_one(x64):
    durations = jnp.array([[1.0, 5.0]] * 8)
    schedule = protocols.worker_busy()(durations, absences=absences(workers=(0,), leave=(2.5,), join=(3.0,)))
    first = contributions(schedule)[0]
    assert {key: values[2] for key, values in first.items()} == {(0, 0): 2, (0, 3): 2, (1, 0): 1}


@pytest.mark.slow
def test_there_is_room_for_as_many_stretches_as_there_are(x64):
    away = absences(workers=(0,) * 4, leave=(1.5, 3.5, 5.5, 7.5), join=(2.0, 4.0, 6.0, 8.0))
    schedule = protocols.worker_busy()(jnp.array([[1.0, 20.0]] * 25), absences=away)
    first = {key: values[2] for key, values in contributions(schedule)[0].items()}
    assert first == {(0, 0): 1, (0, 2): 1, (0, 4): 1, (0, 6): 1, (0, 8): 12, (1, 0): 1}


@pytest.mark.slow(
    "bsp-instantaneous",
    "bsp-links",
    "bsp-service",
    "bsp-shared",
    "k_async-instantaneous",
    "k_async-links",
    "k_async-service",
    "k_async-shared",
    "worker_busy-instantaneous",
    "worker_busy-links",
    "worker_busy-service",
)
@pytest.mark.parametrize("network", sorted(NETWORKS))
@pytest.mark.parametrize("name", quick(HELD))
def test_promises_hold_where_workers_come_and_go(name, network):
    protocol, specification = PROTOCOLS[name], PROTOCOLS[name].specification(W)
    for seed in range(4):
        away = drawn(seed)
        schedule = protocol(exponential(seed, (20, W)).astype(jnp.float32), NETWORKS[network], away)
        kept = check(schedule, specification, memberships=away.memberships(schedule))
        assert kept, str(kept)
        started, ended = np.isfinite(schedule.start), np.isfinite(schedule.finish)
        assert (started & ~ended).any() and np.isfinite(schedule.time).sum() > 1


def test_the_same_schedules_break_the_promise_if_nobody_had_left():
    away = drawn(0)
    schedule = protocols.bsp()(exponential(0, (20, W)).astype(jnp.float32), absences=away)
    joined = [m for m in away.memberships(schedule) if m.time == 0]
    assert not check(schedule, protocols.bsp().specification(W), memberships=joined)


def small_cases(step):
    """Every `step`-th of the small cases: two workers, away never or once, at some of the moments that matter."""
    times = [(INF, INF), *((t, t + d) for t in (0.0, 0.5, 1.0, 2.0, 2.5) for d in (0.5, 1.0, INF))]
    rows = [[[1.0, 1.0]] * 3, [[1.0, 2.0]] * 3, [[2.0, 1.0], [1.0, 1.0], [1.0, 2.0]]]
    cases = list(itertools.product(rows, times, times))[::step]
    durations, one, other = (np.array(x, np.float32) for x in zip(*cases, strict=True))
    leave, join = np.moveaxis(np.stack([one, other], axis=1), -1, 0)[..., None]
    return jnp.asarray(durations), Absences(jnp.asarray(leave), jnp.asarray(join))


@pytest.mark.slow
@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", quick(("asp", "bsp", "k_async", "k_sync", "ssp", "worker_busy"), ("ssp",)))
def test_small_cases_keep_the_promise(name, step):
    counted = {"k_async": protocols.k_async, "k_sync": protocols.k_sync}
    protocol = counted[name](num_contributions=2) if name in counted else PROTOCOLS[name]
    durations, away = small_cases(step)
    schedules = jax.device_get(jax.jit(jax.vmap(lambda *x: protocol(x[0], None, x[1])))(durations, away))
    for case in range(len(durations)):
        schedule, own = jax.tree.map(lambda x, case=case: x[case], (schedules, away))
        check_structure(schedule, protocol)
        kept = check(schedule, protocol.specification(2), memberships=own.memberships(schedule))
        assert kept, f"{own}: {kept}"


@pytest.mark.slow("grouped")
@pytest.mark.parametrize("name", quick(SIMULATED, ("grouped",)))
def test_the_server_decides_the_same(name, x64):
    protocol = PROTOCOLS[name]
    for seed in range(4):
        durations, away = exponential(seed, (16, W)), drawn(seed)
        simulated, served = protocol(durations, absences=away), Served(protocol, durations, away)
        expected, got = contributions(served.schedule), contributions(simulated)
        assert len(got) == len(expected) > 2
        for left, right in zip(expected, got, strict=True):
            assert left.keys() == right.keys()
            for key, values in left.items():
                np.testing.assert_allclose(right[key], values, rtol=1e-9)
        assert_same_units(simulated, served)


def assert_same_units(simulated, served):
    """Every unit that the server knows began and ended when it did in the simulation, and read the same version.

    Of a turn that is under way at the end the server knows the first unit.
    """
    record, host = served.schedule, jax.device_get(simulated)
    num_units = record.start.shape[0]
    np.testing.assert_allclose(host.horizon, served.horizon)
    known, started = np.isfinite(record.finish), np.isfinite(record.start)
    np.testing.assert_allclose(host.start[:num_units][started], record.start[started], rtol=1e-9)
    np.testing.assert_allclose(host.finish[:num_units][known], record.finish[known], rtol=1e-9)
    is_lost = np.isfinite(record.start) & ~known & np.isfinite(record.compute_end)
    assert np.isinf(host.finish[:num_units][is_lost]).all() and is_lost.any()
    has_read = known if served.rule.pulls_before_push else started  # where it is exchanged, it is when the turn ends
    np.testing.assert_array_equal(host.read[:num_units][has_read], record.read[has_read])


@pytest.mark.slow
@pytest.mark.parametrize("count", quick((1, 2, 3), (2,)))
def test_k_async_is_that_of_a_plain_program(count, x64):
    protocol, generator = protocols.k_async(num_contributions=count), np.random.default_rng(count)
    num_lost = 0
    for seed in range(25):
        durations = jnp.asarray(generator.integers(1, 4, (8, 3)).astype(float))  # often several things at one moment
        away = drawn(seed, num_workers=3, max_count=2)
        away = Absences(*jnp.round(2 * jnp.stack(away).at[1].add(1.0)) / 2)  # half seconds, 1 s at least
        away = away if (away.leave[:, 1] > away.join[:, 0]).all() else Absences(away.leave[:, :1], away.join[:, :1])
        commits, lost, horizon = k_async(durations, away, count)
        schedule = protocol(durations, absences=away)
        assert committed(schedule) == [(time, sorted(parts)) for time, parts in commits]
        assert schedule.horizon == horizon
        unit, worker = np.nonzero(np.isfinite(schedule.start) & np.isinf(schedule.finish))
        assert sorted(lost) == sorted(zip(worker.tolist(), unit.tolist(), strict=True))
        num_lost += len(lost)
    assert num_lost > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", quick(sorted(PROTOCOLS), ("ssp",)))
def test_absences_that_never_begin_change_nothing(name):
    durations, network = exponential(0, (8, W)).astype(jnp.float32), NETWORKS["links"]
    nobody = Absences(*(jnp.full((W, 1), jnp.inf),) * 2)
    rule = PROTOCOLS[name].rule(W)
    plain = simulation.event_schedule(rule, durations, network)
    with_absences = simulation.event_schedule(rule, durations, network, absences=nobody)
    if rule.one_contribution_per_worker:  # there is room for more contributions
        plain, with_absences = (x._replace(worker=0, unit=0, work=0, weight=0) for x in (plain, with_absences))
    jax.tree.map(np.testing.assert_array_equal, with_absences, plain)


REFUSED = {
    "adacomm": (protocols.adacomm(num_local_steps=3, seconds=5.0, num_windows=3), "looks at the loss"),
    "anytime_minibatch": (protocols.anytime_minibatch(seconds=2.0), "stopped by the server.*parameter_server"),
    "grouped elastic": (protocols.grouped(groups=((0, 2), (1, 3)), merge="elastic"), "server of each group"),
    "m_sgc": (protocols.m_sgc(W, burst=1, window=2, max_slow=1), "their jobs last for several rounds"),
    "stsyn": (protocols.stsyn(num_local_steps=2, num_waited=2), "stopped by the server.*failed_workers"),
    "worker_busy overlap": (protocols.worker_busy(overlap=True), "compute while they send"),
    "without a rule": (protocols.bsp().replace(rule=None), "Give it one"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_protocols_that_the_event_queue_does_not_simulate_say_why(name):
    protocol, why = REFUSED[name]
    with pytest.raises(ValueError, match=f"workers can only be away under a protocol with a rule.*{why}"):
        protocol(jnp.ones((6, W)), absences=absences(workers=(0,), leave=(1.0,)))


@pytest.mark.slow
def test_a_batch_is_its_runs():
    durations, away = exponential(0, (10, W)).astype(jnp.float32), [drawn(seed) for seed in range(3)]
    batch = jax.tree.map(lambda *x: jnp.stack(x), *away)
    schedules = jax.vmap(lambda x: protocols.ssp(staleness=1)(durations, None, x))(batch)
    for i, own in enumerate(away):
        single = protocols.ssp(staleness=1)(durations, absences=own)
        jax.tree.map(lambda x, y, i=i: np.testing.assert_array_equal(x[i], y), schedules, single)


def test_other_times_compile_nothing(x64):
    durations = jnp.tile(jnp.array([1.0, 3.0]), (8, 1))  # as above
    protocols.ssp(staleness=1)(durations, absences=absences(workers=(1,), leave=(4.0,), join=(7.0,)))
    sizes = [program._cache_size() for program in (schedule_program(), _program_without_options)]
    protocols.ssp(staleness=1)(durations, absences=absences(workers=(1,), leave=(3.5,), join=(5.0,)))
    assert [program._cache_size() for program in (schedule_program(), _program_without_options)] == sizes


SECONDS = st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, INF])


@st.composite
def many_at_one_moment(draw):
    """Durations [6, 3] of halves of seconds, and who is away; somebody may never end a unit."""
    durations = draw(st.lists(st.lists(SECONDS, min_size=3, max_size=3), min_size=6, max_size=6))
    times = np.full((3, 2, 2), INF, np.float32)
    for worker in range(3):
        halves = sorted(draw(st.sets(st.integers(0, 14), max_size=4)))
        own = np.array(halves, np.float32) / 2
        times[worker].reshape(-1)[: own.size] = own
    durations = np.array(durations, np.float32)
    durations[0] = np.where(np.isfinite(durations[0]).any(), durations[0], 1.0)
    return jnp.asarray(durations), Absences(jnp.asarray(times[..., 0]), jnp.asarray(times[..., 1]))


@pytest.mark.slow
@pytest.mark.parametrize("name", HELD)
@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(case=many_at_one_moment())
def test_promises_hold_where_much_happens_at_one_moment(name, case):
    durations, away = case
    rule = {
        "k_sync": lambda: protocols.k_sync(num_contributions=2),
        "diloco": lambda: protocols.diloco(num_local_steps=2),
    }
    protocol = rule.get(name, lambda: PROTOCOLS[name])()
    # The simulation alone: what is asked of a schedule besides, such as that there is a commit, need not hold.
    simulation_of_case = protocol.simulation(Network(), away)
    schedule = jax.device_get(compiled_schedule(simulation_of_case, durations, Network(), away))
    check_structure(schedule, protocol)
    kept = check(schedule, protocol.specification(3), memberships=away.memberships(schedule))
    assert kept, str(kept)


@pytest.mark.slow
def test_dssp_predicts_nothing_from_one_push_of_who_has_joined():
    away = absences(workers=(0,), leave=(0.0,), join=(10.0,))
    schedule = protocols.dssp(lower=1, span=6)(jnp.array([[3.0, 1.0]] * 40), absences=away)
    np.testing.assert_allclose(schedule.start[10:20, 1], np.arange(10.0, 40.0, 3.0))  # it waits each time


@pytest.mark.slow
def test_dssp_grants_steps_to_the_fastest_of_those_who_are_there():
    """Worker 0 is four units ahead when it leaves; worker 2, the fastest then, is granted units from 9 s on."""
    away = absences(workers=(0,), leave=(7.25,))
    durations = jnp.array([[0.125] * 3] * 8 + [[0.5, 3.0, 2.0]] * 20)
    schedule = protocols.dssp(lower=1, span=6)(durations, absences=away)
    assert schedule.start[11:15, 2].tolist() == [7.0, 9.0, 11.0, 13.0]


@pytest.mark.slow
def test_trials_of_groups_count_the_units_of_those_who_are_there():
    away = absences(workers=(2, 3), leave=(0.0, 0.0))
    schedule = protocols.progressive_groups(num_rounds=2, no_delay=0.1)(jnp.ones((30, 4)), absences=away)
    num_workers = (np.asarray(schedule.work) > 0).sum(axis=1)
    assert num_workers[:9].tolist() == [2] * 8 + [1]  # 2 * 4 units with one group, as many with two, then alone


@pytest.mark.slow
def test_trials_of_groups_count_the_commit_that_a_leaving_worker_brings():
    """The group of both commits at 2 s, as worker 1 leaves, and at 3 s: two units, so that it is halved then."""
    away = absences(workers=(1,), leave=(2.0,), join=(3.5,))
    schedule = protocols.progressive_groups(num_rounds=1, no_delay=0.1)(jnp.array([[1.0, 4.0]] * 6), absences=away)
    assert schedule.time[:5].tolist() == [2.0, 3.0, 4.0, 5.0, 6.0]  # nobody waits for worker 1, which joins at 3.5 s
    assert (schedule.worker[:5, 1] == -1).all()


@pytest.mark.slow
def test_an_initiator_that_joins_with_its_gradient_brings_the_commit():
    """The first in the order of a round has done its gradient, left, and is back before anybody else is done."""
    orders = ((key, jax.random.permutation(jax.random.fold_in(key, 0), 3)) for key in map(jax.random.key, range(200)))
    key = next(key for key, order in orders if order.tolist() == [1, 0, 2])
    protocol = protocols.eager_sgd(collective="majority", rng_key=key)
    away = absences(workers=(0, 1), leave=(1.5, 2.0), join=(2.5, 30.0))
    assert protocol(jnp.array([[1.0, 10.0, 5.0]] * 8), absences=away).time[0] == 2.5
