"""A record is enough to make a run again."""

import chex
import jax
import jax.numpy as jnp
import optax
import pytest

from gcjax import engine, protocols, stragglers, tasks

KEY, OPTIMIZER = jax.random.key(0), optax.sgd(0.1, momentum=0.5)
DURATIONS = stragglers.sample_durations(stragglers.exponential(), jax.random.key(2), 12, 4)
TASK = tasks.linear_regression(num_chunks=4, num_examples=40)
PROTOCOLS = {
    "ssp": protocols.ssp(staleness=1),
    "worker_busy": protocols.worker_busy(),
    "adacomm": protocols.adacomm(num_local_steps=3, seconds=3.0, num_windows=3),
}


@pytest.mark.slow
@pytest.mark.promotes  # a mean loss divides by a count
@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_the_record_of_a_run_gives_the_same_bits(name):
    protocol = PROTOCOLS[name]
    run = engine.run(TASK, protocol, OPTIMIZER, DURATIONS, rng_key=KEY, eval_every=2)
    again = engine.replay(TASK, protocol, OPTIMIZER, jax.device_get(run.schedule), rng_key=KEY, eval_every=2)
    chex.assert_trees_all_equal(again.params, run.params)
    chex.assert_trees_all_equal(again.trajectory, run.trajectory)


def test_a_replay_can_stop_early():
    run = engine.run(TASK, PROTOCOLS["ssp"], OPTIMIZER, DURATIONS, rng_key=KEY, num_commits=7)
    again = engine.replay(TASK, PROTOCOLS["ssp"], OPTIMIZER, run.schedule, rng_key=KEY, num_commits=7)
    assert int(again.info.num_commits) == 7
    chex.assert_trees_all_equal(again.params, run.params)


def test_a_record_that_cannot_be_is_refused():
    schedule = PROTOCOLS["ssp"](DURATIONS)
    with pytest.raises(ValueError, match="used once only"):
        engine.replay(
            TASK, PROTOCOLS["ssp"], OPTIMIZER, schedule._replace(unit=jnp.zeros_like(schedule.unit)), rng_key=KEY
        )
    per_commit = ("time", "worker", "unit", "work", "weight")
    empty = schedule._replace(**{name: getattr(schedule, name)[:0] for name in per_commit})
    with pytest.raises(ValueError, match="a record with commits"):
        engine.replay(TASK, PROTOCOLS["ssp"], OPTIMIZER, empty, rng_key=KEY)
    with pytest.raises(ValueError, match=r"gcjax\.protocols\.Schedule; got tuple"):
        engine.replay(TASK, PROTOCOLS["ssp"], OPTIMIZER, (1, 2), rng_key=KEY)


def start_of(protocol, optimizer, schedule, commit):
    """The start after so many commits, with all versions before it."""
    runs = [
        engine.replay(TASK, protocol, optimizer, schedule, rng_key=KEY, num_commits=count)
        for count in range(1, commit + 1)
    ]
    versions = {count: run.params for count, run in enumerate(runs, start=1)} | {0: TASK.init(jax.random.split(KEY)[0])}
    return engine.Start(commit, runs[-1].params, runs[-1].state.opt_state, versions)


@pytest.mark.slow("ssp")
@pytest.mark.parametrize("name", ["ssp", pytest.param("bsp", marks=pytest.mark.slow)])
def test_a_replay_goes_on_from_a_start(name):
    protocol = {"ssp": PROTOCOLS["ssp"], "bsp": protocols.bsp()}[name]
    run = engine.run(TASK, protocol, OPTIMIZER, DURATIONS, rng_key=KEY)
    start = start_of(protocol, OPTIMIZER, run.schedule, 5)
    again = engine.replay(TASK, protocol, OPTIMIZER, run.schedule, rng_key=KEY, start=start)
    chex.assert_trees_all_close(again.params, run.params, rtol=1e-6)
    chex.assert_trees_all_close(again.state.opt_state, run.state.opt_state, rtol=1e-6)
    assert (
        jnp.isposinf(again.info.loss[:5]).all() and jnp.isfinite(again.info.loss[5 : int(run.info.num_commits)]).all()
    )


@pytest.mark.promotes  # a mean loss divides by a count
def test_a_replay_is_evaluated_at_its_start_which_stays_as_it_is():
    arguments = {"rng_key": KEY, "eval_every": 4}
    run = engine.run(TASK, protocols.bsp(), OPTIMIZER, DURATIONS, **arguments)
    part = engine.run(TASK, protocols.bsp(), OPTIMIZER, DURATIONS, num_commits=4, **arguments)
    start = engine.Start(4, part.params, part.state.opt_state)
    again = engine.replay(TASK, protocols.bsp(), OPTIMIZER, run.schedule, rng_key=KEY, start=start)
    chex.assert_trees_all_close(again.trajectory, run.trajectory, rtol=1e-6)
    assert again.final("train_loss") == again.trajectory.metrics["train_loss"][-1]
    assert not any(x.is_deleted() for x in jax.tree.leaves((start.params, start.opt_state)))


@pytest.mark.slow
def test_local_steps_go_on_from_a_start_where_workers_keep_nothing():
    protocol, plain = protocols.local_sgd(num_local_steps=2), optax.sgd(0.1)
    run = engine.run(TASK, protocol, plain, DURATIONS, rng_key=KEY)
    start = start_of(protocol, plain, run.schedule, 3)
    again = engine.replay(TASK, protocol, plain, run.schedule, rng_key=KEY, start=start._replace(versions={}))
    chex.assert_trees_all_close(again.params, run.params, rtol=1e-6)
    with pytest.raises(ValueError, match="only where workers keep nothing from before"):
        engine.replay(TASK, protocol, OPTIMIZER, run.schedule, rng_key=KEY, start=start)


def test_a_start_that_lacks_a_version_is_refused():
    schedule = PROTOCOLS["ssp"](DURATIONS)
    start = engine.Start(5, TASK.init(KEY), OPTIMIZER.init(TASK.init(KEY)))
    with pytest.raises(ValueError, match=r"needs the versions that later commits read; \[\d"):
        engine.replay(TASK, PROTOCOLS["ssp"], OPTIMIZER, schedule, rng_key=KEY, start=start)
    with pytest.raises(ValueError, match="after one of the 4 commits; got 5"):
        engine.replay(TASK, PROTOCOLS["ssp"], OPTIMIZER, schedule, rng_key=KEY, num_commits=4, start=start)
    with pytest.raises(ValueError, match=r"start\.commit must be a whole number at least 1; got 0"):
        engine.replay(TASK, PROTOCOLS["ssp"], OPTIMIZER, schedule, rng_key=KEY, start=start._replace(commit=0))


def test_a_width_of_no_commits_is_refused():
    with pytest.raises(ValueError, match="wavefront_width must be a whole number at least 1; got 0"):
        engine.replay(TASK, protocols.bsp(), OPTIMIZER, None, rng_key=KEY, wavefront_width=0)


@pytest.mark.slow
@pytest.mark.promotes  # a mean loss divides by a count
def test_a_worker_that_comes_back_can_read_another_version_than_its_group():
    protocol = protocols.grouped(groups=((0, 1), (2, 3)))
    durations = jnp.broadcast_to(jnp.array([3.0, 3.0, 1.0, 1.0]), (12, 4))
    away = stragglers.absences(workers=(0,), leave=(1.2,), join=(1.5,))
    run = engine.run(TASK, protocol, OPTIMIZER, durations, rng_key=KEY, absences=away)
    schedule = jax.device_get(run.schedule)
    versions = [set(v[w >= 0].tolist()) for v, w in zip(schedule.version, schedule.worker, strict=True)]
    assert {0, 1} in versions
    memberships = away.memberships(run.schedule)
    again = engine.replay(TASK, protocol, OPTIMIZER, run.schedule, rng_key=KEY, memberships=memberships)
    chex.assert_trees_all_close(run.params, again.params, rtol=1e-6)
