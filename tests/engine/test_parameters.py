"""Parameters that are numbers of Python or NumPy, or none at all, where their size matters."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import compression, engine, protocols, stragglers, tasks

LINKS = stragglers.links(upload=8.0, download=8.0)  # bytes a second


def trained(params, protocol=None, **changes):
    def loss(params, batch, key):
        return sum(jnp.sum((x - 1) ** 2) for x in jax.tree.leaves(params))

    task = tasks.linear_regression(num_chunks=2)
    task = task._replace(loss=loss, metrics=lambda params, data: {"loss": loss(params, None, None)})
    protocol = protocol or protocols.bsp()
    return engine.run(
        task, protocol, optax.sgd(0.1), jnp.ones((4, 2)), rng_key=jax.random.key(0), params=params, **changes
    )


@pytest.mark.parametrize("params", [400.0, np.float32(400), -1.0, np.array(2.0, np.float32), jnp.float32(3)], ids=str)
def test_a_number_is_a_parameter_of_four_bytes(params):
    """Half a second there, and as much back."""
    np.testing.assert_allclose(trained(params, network=LINKS).schedule.time, [2, 4, 6, 8])


def test_numbers_in_a_list():
    np.testing.assert_allclose(trained([0.1, 0.2], network=LINKS).schedule.time, [3, 6, 9, 12])
    streaming = protocols.streaming_diloco(num_local_steps=2, num_fragments=2, overlap_steps=0)
    assert int(trained([0.1, 0.2], streaming).info.num_commits) > 0


@pytest.mark.parametrize("changes", [{}, {"network": LINKS}, {"compression": compression.int8()}], ids="|".join)
def test_no_parameters_are_refused(changes):
    with pytest.raises(ValueError, match=r"must have parameters, arrays in a pytree; got \{\}"):
        trained({}, **changes)


@pytest.mark.parametrize("protocol", [protocols.asp(), protocols.local_sgd(num_local_steps=2)], ids=["server", "local"])
def test_optimizers_that_no_run_can_use_are_refused_in_words(protocol):
    task = tasks.linear_regression(num_chunks=2)
    durations = jnp.ones((4, 2))
    with pytest.raises(ValueError, match="without the loss; .* missing 1 required keyword-only argument: 'value'"):
        engine.run(task, protocol, optax.polyak_sgd(), durations, rng_key=jax.random.key(0))

    def update(gradient, count, params):
        return gradient, jax.tree.map(lambda x: x.astype(jnp.float32), count)

    changing = optax.GradientTransformation(lambda params: {"count": jnp.zeros((), jnp.int32)}, update)
    with pytest.raises(ValueError, match=r"keep the types of its state; .* \['count'\] from int32\[\] to float32\[\]"):
        engine.run(task, protocol, changing, durations, rng_key=jax.random.key(0))
