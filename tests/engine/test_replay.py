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
    with pytest.raises(ValueError, match=r"gcjax\.protocols\.Schedule; got tuple"):
        engine.replay(TASK, PROTOCOLS["ssp"], OPTIMIZER, (1, 2), rng_key=KEY)
