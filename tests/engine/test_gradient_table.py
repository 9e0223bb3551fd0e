"""The running mean over the server's table of gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import engine, protocols, tasks
from gcjax.engine.gradient_table import change_of_mean, mean_after_commit
from tests import devices

W = 8
KEY = jax.random.key(3)
DURATIONS = jnp.linspace(1.0, 2.0, W)[None] * jnp.ones((20, 1))


def ringleader_run(params, **arguments):
    """Of a loss with a parameter that is a number, and one of a type of its own."""
    plain = tasks.linear_regression(num_chunks=W, num_features=4, batch_size=2)

    def loss(params, batch, rng_key):
        return plain.loss(params["a"] * params["b"].astype(params["a"].dtype), batch, rng_key)

    task = plain._replace(init=lambda rng_key: params, loss=loss, metrics=lambda params, data: {})
    return engine.run(task, protocols.ringleader(), optax.sgd(0.05), DURATIONS, rng_key=KEY, params=params, **arguments)


@pytest.mark.slow
def test_a_parameter_may_be_a_number_on_a_mesh_too():
    params = {"a": jnp.float32(0.5), "b": jnp.ones(4)}
    mesh = devices.mesh(2)
    alone, on_mesh = ringleader_run(params), ringleader_run(params, mesh=engine.MeshOptions(mesh, "workers"))
    for one, other in zip(jax.tree.leaves(alone.params), jax.tree.leaves(on_mesh.params), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_the_mean_of_short_numbers_is_added_up_in_longer_ones():
    run = ringleader_run({"a": jnp.float32(0.5), "b": jnp.ones(4, jnp.bfloat16)}, num_commits=4 * W - 1)
    mean, table = run.state.local.table_mean["b"], run.state.local.params["b"]
    assert (mean.dtype, table.dtype, run.params["b"].dtype) == (jnp.float32, jnp.bfloat16, jnp.bfloat16)
    # XLA takes the changes before it rounds the rows.
    np.testing.assert_allclose(mean, np.asarray(table, np.float64).mean(axis=0), rtol=2e-3)
    assert change_of_mean(table[0], table[1], W).dtype == jnp.float32


def test_under_vmap_tables_are_read_at_the_same_commits():
    table = jnp.zeros((2, W, 3))
    commits = jnp.array([W, W - 1])  # the second run has ended before
    text = jax.jit(jax.vmap(lambda table, commit: mean_after_commit(table[0], table[1], table, commit)))
    assert "stablehlo.case" in text.lower(table, commits).as_text()


def test_rounding_is_cleared_every_w_commits():
    table, off = jnp.float32([[1, 2], [3, 4], [5, 9]]), jnp.float32([7, 7])  # the mean is (3, 5)
    means = [mean_after_commit(off, jnp.float32([1, -1]), table, jnp.int32(commit)).tolist() for commit in range(4)]
    assert means == [[3, 5], [8, 6], [8, 6], [3, 5]]
