"""Local work of which a run keeps no parameters, or of which it adds up the gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import compression, engine, parameter_server, protocols, tasks
from gcjax.parameter_server.worker_program import worker_program
from gcjax.protocols.conformance.memberships import Membership
from tests.devices import mesh
from tests.engine.test_run import assert_close

KEY = jax.random.key(5)
W, T = 3, 6
SGD = optax.sgd(0.1)


def regression():
    return tasks.linear_regression(num_chunks=W, num_features=4, batch_size=2)


def durations():
    return jnp.array([[1.0, 1.5, 2.2]] * T)


@pytest.mark.parametrize(
    ("protocol", "has_opt_state"),
    [
        (protocols.anytime_minibatch(seconds=2.5), False),
        (protocols.eager_sgd(), False),
        (protocols.async_local_sgd(num_local_steps=2), False),
        (protocols.async_local_sgd(num_local_steps=2, inner=optax.sgd(0.1, momentum=0.5)), True),
    ],
)
def test_no_parameters_are_kept_where_each_contribution_begins_with_reading(protocol, has_opt_state):
    run = jax.eval_shape(lambda key: engine.run(regression(), protocol, SGD, durations(), rng_key=key), KEY)
    assert run.state.local.params is None
    assert bool(jax.tree.leaves(run.state.local.opt_state)) == has_opt_state


def test_a_version_is_read_again_for_each_contribution(x64):
    """All contributions read version 0, from which each worker takes a step; the changes add up."""
    task, protocol = regression(), protocols.async_local_sgd(num_local_steps=1, weight=1.0)
    schedule = protocol(durations())
    schedule = schedule._replace(read=jnp.minimum(schedule.read, 0))
    start = params = jnp.ones(4)
    run = engine.replay(task, protocol, SGD, schedule, rng_key=KEY, params=start, num_commits=7)
    _, batch_key = jax.random.split(KEY)
    for worker, unit in zip(schedule.worker[:7, 0], schedule.unit[:7, 0], strict=True):
        batch = task.unit_batch(task.data, batch_key, worker, unit)
        params = params - 0.1 * jax.grad(task.loss)(start, batch, KEY)
    assert_close(run.params, params)


def test_a_worker_of_the_server_reads_the_last_version_again():
    """A turn that comes without newer parameters begins at those of the last one; with others at the worker's own."""
    changes = {}
    for name in ("async_local_sgd", "local_sgd"):
        protocol = getattr(protocols, name)(num_local_steps=1)
        program = worker_program(parameter_server.Setup(regression(), protocol, SGD, W, KEY), 0)
        changes[name] = []
        for version_params in (jnp.ones(4), None):
            program.begin(version_params)
            program.compute(0)  # the same unit
            changes[name].append(np.asarray(program.push_tree(None, 1.0)))
    np.testing.assert_array_equal(*changes["async_local_sgd"])
    assert np.abs(np.subtract(*changes["local_sgd"])).max() > 1e-3


@pytest.mark.slow("anytime_minibatch", "eager_sgd")
@pytest.mark.parametrize(
    "protocol",
    [protocols.anytime_minibatch(seconds=2.5), protocols.eager_sgd()],
    ids=["anytime_minibatch", "eager_sgd"],
)
def test_contributions_are_compressed_one_by_one(protocol):
    """With a quarter of the numbers, there is a state for each worker, and the parameters are others."""
    plain, compressed = (
        engine.run(regression(), protocol, SGD, durations(), rng_key=KEY, compression=how)
        for how in (None, compression.error_feedback(compression.top_k(share=0.25)))
    )
    assert np.abs(plain.params - compressed.params).max() > 1e-3
    assert jax.tree.leaves(compressed.state.local.compression)


@pytest.mark.slow
def test_the_table_of_a_process_that_begins_anew_is_empty(x64):
    """One after the other as side by side, where the same is computed in another way."""
    task, protocol = regression(), protocols.ringleader()
    schedule = protocol(durations())
    anew = [Membership(float(time), 0, "came back", anew=True) for time in range(2, T)]
    alone, on_mesh, as_it_was = (
        engine.replay(task, protocol, SGD, schedule, rng_key=KEY, memberships=memberships, mesh=size and mesh(size))
        for memberships, size in ((anew, None), (anew, 2), ((), None))
    )
    assert_close(alone.params, on_mesh.params)
    assert_close(alone.state.local, on_mesh.state.local)
    assert np.abs(alone.params - as_it_was.params).max() > 1e-6


def test_who_reads_always_has_no_table():
    protocol = protocols.ringleader()
    protocol = protocol.replace(local=protocol.local._replace(reads_always=True))
    with pytest.raises(ValueError, match="must not have gradient_table, .*; got gradient_table"):
        engine.run(regression(), protocol, SGD, durations(), rng_key=KEY)
