"""A run is printed in a few lines, whatever is in it, and stays a tree of arrays."""

import jax
import jax.numpy as jnp
import optax
import pytest

from gcjax import engine, protocols, stragglers, tasks

KEY = jax.random.key(0)
FLOAT = jnp.zeros(()).dtype.name


@pytest.fixture(scope="module")
def run():
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, 30, 4)
    task = tasks.linear_regression(4, num_examples=16, num_features=3)
    return engine.run(task, protocols.bsp(), durations=durations, optimizer=optax.adam(0.1), rng_key=KEY)


def test_a_run_says_its_last_metrics_and_its_shapes(run):
    text = repr(run)
    assert f"suboptimality {float(run.final('suboptimality')):g}" in text
    assert f"schedule=Schedule(time={FLOAT}[30], worker=int32[30, 4]," in text
    assert f"info=Info(loss={FLOAT}[30]," in text and "opt_state=<tuple of " in text
    assert "array(" not in text.lower() and len(text) < 2000


def test_a_schedule_says_its_shapes(run):
    assert repr(run.schedule).startswith(f"Schedule(\n  time={FLOAT}[30],\n  worker=int32[30, 4],\n")
    assert repr(run.schedule).endswith(f"  horizon={FLOAT}[],\n)")


def test_runs_without_values_can_be_printed(run):
    texts = []
    jax.eval_shape(lambda run: texts.append(repr(run)), run)
    deleted = jax.tree.map(lambda x: x.copy(), run)
    jax.tree.map(lambda x: x.delete(), deleted)
    texts += [repr(deleted), repr(jax.eval_shape(lambda: run)), repr(jax.device_get(run).unscheduled)]
    assert ["at the end" in text for text in texts] == [False, False, False, True]
    assert repr(jax.tree.map(lambda _: 0, run)) and "trajectory=None" in repr(run._replace(trajectory=None))


def test_it_stays_a_tree(run):
    leaves, structure = jax.tree.flatten(run)
    assert structure.unflatten(leaves)._fields == run._fields and len(leaves) > 20
