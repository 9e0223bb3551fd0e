"""Rules with an alarm: the event queue, held against a simulation in plain Python, and the real clock."""

import heapq
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import compiler_options, protocols, stragglers
from gcjax.protocols.conformance.structure import check_structure
from gcjax.protocols.simulation import Rule, all_have_pushed, event_schedule
from gcjax.stragglers import Network
from tests.parameter_server.runs import assert_kept_and_replayed, live_run

W = 4


class First(NamedTuple):
    """The first message after `commits` commits came at `time`."""

    time: jax.Array
    commits: jax.Array


def grace_rule(grace, num_workers):
    """A commit takes all messages, once everybody has one, or `grace` seconds after the first; then they begin anew."""

    def end(view):
        return jnp.where(view.memory.commits == view.num_commits, view.memory.time + grace, jnp.inf)

    def remember(view, worker):
        is_first = view.num_uncommitted.sum() == 1  # those of the commit that a message has brought still count
        time = jnp.where(is_first, view.now, view.memory.time)
        return First(time, jnp.where(is_first, view.num_commits, view.memory.commits))

    return Rule(
        commits=lambda view, worker: all_have_pushed(view) | (view.now >= end(view)),
        ready=lambda view: view.num_uncommitted == 0,
        memory=lambda num_workers, dtype: First(jnp.zeros((), dtype), jnp.int32(-1)),
        remember=remember,
        alarm=end,
        weight=1.0 / num_workers,
        num_contributions=num_workers,
    )


def commits_in_python(durations, grace):
    """Of each commit its time and the units (worker, unit, version) in it, until the units of a worker run out."""
    num_units, num_workers = durations.shape
    queue = [(durations[0, w], w, 0, 0) for w in range(num_workers)]
    heapq.heapify(queue)
    waiting, commits, end = [], [], math.inf
    while queue or waiting:
        now = min(queue[0][0] if queue else math.inf, end)
        if queue and queue[0][0] == now:
            _, worker, unit, version = heapq.heappop(queue)
            if not waiting:
                end = now + grace
            waiting.append((worker, unit, version))
        if len(waiting) == num_workers or now >= end:
            commits.append((now, sorted(waiting)))
            for worker, unit, _ in waiting:
                if unit + 1 == num_units:
                    return commits
                heapq.heappush(queue, (now + durations[unit + 1, worker], worker, unit + 1, len(commits)))
            waiting, end = [], math.inf
    return commits


@pytest.mark.slow
@pytest.mark.slow("0.25")
@pytest.mark.parametrize("grace", [0.25, 1.0, 50.0])
def test_a_grace_window_is_that_of_plain_python(grace):
    durations = stragglers.sample_durations(stragglers.exponential(), jax.random.key(5), 30, W)
    schedule = jax.device_get(event_schedule(grace_rule(grace, W), durations, Network()))
    check_structure(schedule)
    expected = commits_in_python(np.asarray(durations), np.float32(grace))
    num_commits = int(np.isfinite(schedule.time).sum())
    assert num_commits == len(expected) > 5
    for e, (time, units) in enumerate(expected):
        np.testing.assert_allclose(schedule.time[e], time, rtol=1e-5)
        columns = schedule.worker[e] >= 0
        got = zip(schedule.worker[e], schedule.unit[e], schedule.version[e], strict=True)
        assert sorted(x for x, used in zip(got, columns, strict=True) if used) == units


@pytest.mark.slow
def test_an_alarm_rings_while_transfers_share_a_link():
    """Both receive until 1 s; worker 0 arrives at 3 s; half a second later worker 1 is on its way, and goes on."""
    durations = jnp.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    network = Network(upload=1.0, server=0.5)
    schedule = jax.device_get(event_schedule(grace_rule(0.5, 2), durations, network))
    assert schedule.time[0] == 3.5 and schedule.worker[0].tolist() == [0, -1]
    assert schedule.finish[0].tolist() == [3.0, 4.0]


@pytest.mark.slow
def test_a_grace_window_on_the_real_clock():
    protocol = protocols.Protocol(
        lambda durations, network: event_schedule(grace_rule(0.004, durations.shape[1]), durations, network),
        one_version=False,
        rule=lambda num_workers: grace_rule(0.004, num_workers),
    )
    with jax.enable_x64(True):
        run, _ = live_run(protocol)
        assert_kept_and_replayed(protocol, run)
        first = np.where(run.schedule.worker >= 0, run.schedule.finish[run.schedule.unit, run.schedule.worker], np.inf)
        is_whole = (run.schedule.worker >= 0).all(axis=1)
        assert not is_whole.all()
        assert (is_whole | (run.schedule.time - first.min(axis=1) >= 0.004)).all()


@pytest.mark.slow
def test_a_push_that_brings_its_commit_alone_leaves_no_window_for_those_after_it():
    """Until 1.5 s worker 0 is alone; from 2 s on the windows of a quarter of a second are those of both."""
    protocol = protocols.decoupled_diloco(num_local_steps=1, grace_seconds=0.25)
    away = stragglers.absences(workers=(1,), leave=(0.0,), join=(1.5,))
    schedule = protocol(jnp.tile(jnp.array([1.0, 0.8]), (8, 1)), absences=away)
    np.testing.assert_allclose(schedule.time[:4], [1.0, 2.25, 2.55, 3.1], rtol=1e-6)
    assert [sorted(set(row) - {-1}) for row in schedule.worker[:4].tolist()] == [[0], [0], [1], [0, 1]]


def test_a_worker_that_leaves_has_not_pushed_then():
    """The window is that of the push at 10 s, of 10 s a step; worker 1, which takes 1 s, has pushed at 11.5 s."""
    durations = jnp.array([[10.0, 1.0, 100.0]] + [[100.0] * 3] * 3)
    away = stragglers.absences(workers=(1, 0), leave=(0.0, 15.0), join=(10.5, math.inf))
    assert protocols.decoupled_diloco(num_local_steps=1)(durations, absences=away).time[0] == 20.0


def test_a_worker_that_is_back_does_not_push_anew_what_it_had_pushed():
    """The window of the pushes at 1 and 1.25 s is 0.875 s; of one at 1.9375 s instead of 1.25 there would be none."""
    durations = jnp.array([[1.0, 1.25, 20.0]] * 8)
    away = stragglers.absences(workers=(1,), leave=(1.5,), join=(1.9375,))
    protocol = protocols.decoupled_diloco(num_local_steps=1, min_quorum=2, overlap_steps=1.0, margin=1.0)
    assert protocol(durations, absences=away).time[0] == 2.125


@pytest.mark.slow
def test_a_window_is_over_for_all_of_a_compiled_program_or_for_nothing():
    """Whatever the compiler computes twice: no commit is counted and has no time, as when rounding differed."""
    protocol = protocols.decoupled_diloco(num_local_steps=2, min_quorum=3)
    keys = jax.random.split(jax.random.key(0), 9)
    durations = jax.vmap(lambda key: stragglers.sample_durations(stragglers.exponential(), key, 80, 6))(keys)
    zeros = jnp.zeros(9)
    networks = Network(latency=zeros, upload=zeros, download=zeros)
    schedules_of_runs = jax.vmap(protocol.schedule)
    quick = jax.jit(schedules_of_runs, compiler_options=compiler_options.small_operations())(durations, networks)
    check_structure(quick)
    assert np.isfinite(quick.time).sum() > 9 * 30
    np.testing.assert_allclose(quick.time, jax.jit(schedules_of_runs)(durations, networks).time, rtol=1e-5)


@pytest.mark.slow("0.0")
@pytest.mark.parametrize("server", [None, 0.0])
def test_a_grace_window_ends_also_where_another_transfer_ends_at_that_moment(server):
    """Worker 0 has sent its second gradient, but for the latency, as the window of its first one ends."""
    protocol = protocols.decoupled_diloco(num_local_steps=1, min_quorum=1, grace_seconds=1.0)
    network = Network(latency=0.5, server=server)  # a shared link that takes no time is none
    schedule = protocol(jnp.array([[1.0, 10.0]] * 8), network)
    np.testing.assert_allclose(schedule.time[:4], [3.0, 4.5, 6.5, 8.5])


@pytest.mark.slow("0.0-durations0-0.0-workers0", "None-durations1-0.5-workers1")
@pytest.mark.parametrize(
    ("durations", "latency", "workers"), [([1.0, 1.25, 3.0], 0.0, [0, 1]), ([1.5, 1.0, 1.25, 6.0], 0.5, [1, 2])]
)
@pytest.mark.parametrize("server", [None, 0.0])
def test_a_push_at_the_end_of_a_grace_window_is_in_its_commit(server, durations, latency, workers):
    """Also where its transfer ends at that very moment, or that of another worker."""
    protocol = protocols.decoupled_diloco(num_local_steps=2, min_quorum=1, grace_seconds=0.5)
    schedule = protocol(jnp.array([durations] * 6), Network(latency=latency, server=server))
    assert sorted(set(schedule.worker[0].tolist()) - {-1}) == workers
