"""The digits, real data."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import tasks
from gcjax.tasks.layers import patches
from tests.parameters import some

KEY = jax.random.key(0)


def train(task, optimizer, num_steps):
    """Plain SGD on the batches of one worker; returns the metrics."""

    @jax.jit
    def run(data):
        def step(unit, carry):
            params, state = carry
            batch = task.unit_batch(data, KEY, 0, unit)
            gradient = jax.grad(task.loss)(params, batch, jax.random.fold_in(KEY, unit))
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        params = task.init(KEY)
        params, _ = jax.lax.fori_loop(0, num_steps, step, (params, optimizer.init(params)))
        return task.metrics(params, data)

    return {name: float(value) for name, value in run(task.data).items()}


@pytest.mark.parametrize(
    ("arguments", "num_steps"),
    some([({}, 1000)], [({"dropout": 0.2}, 1000), ({"hidden": (64, 32)}, 1000), ({"model": "cnn"}, 1000)]),
)
def test_plain_sgd_reaches_95_percent(arguments, num_steps):
    metrics = train(tasks.digits(24, **arguments), optax.sgd(0.1), num_steps)
    assert metrics["accuracy"] > 0.95 and metrics["train_loss"] < metrics["test_loss"] < 0.2


def test_training_and_test_images_are_all_images_once():
    data = tasks.digits(8, test_fraction=0.25).data
    train_images, test_images = data.train.inputs[:1348], data.reference[0]
    assert test_images.shape == (449, 8, 8, 1) and data.train.sizes.sum() == 1348
    assert abs(train_images.mean()) < 1e-5 and abs(train_images.std() - 1) < 1e-5
    assert len(np.unique(np.concatenate([train_images, test_images]).reshape(1797, -1), axis=0)) == 1797


@pytest.mark.slow
def test_the_metrics_are_over_all_images():
    task = tasks.digits(7)
    params = jax.tree.map(jnp.zeros_like, task.init(KEY))
    metrics = task.metrics(params, task.data)
    assert metrics["train_loss"] == pytest.approx(np.log(10))
    assert metrics["test_loss"] == pytest.approx(np.log(10))
    assert metrics["accuracy"] == pytest.approx(float(np.mean(task.data.reference[1] == 0)))


def test_the_sizes_of_the_mlp():
    shapes = jax.tree.map(jnp.shape, tasks.digits(4).init(KEY))
    kernels = [layer["kernel"] for layer in shapes.values()]
    assert kernels == [(64, 128), (128, 10)]


def test_dropout_follows_the_key_and_ends_with_training():
    task = tasks.digits(4, dropout=0.5)
    params, batch = task.init(KEY), task.unit_batch(task.data, KEY, 0, 0)
    other, loss, metrics = jax.random.key(1), jax.jit(task.loss), jax.jit(task.metrics)
    assert loss(params, batch, KEY) == loss(params, batch, KEY)
    assert loss(params, batch, KEY) != loss(params, batch, other)
    assert metrics(params, task.data) == metrics(params, task.data)


def test_the_cnn_convolves():
    """Its first layer equals a convolution with the same kernel."""
    task = tasks.digits(4, model="cnn")
    kernel = task.init(KEY)["Dense_0"]["kernel"]
    images = task.data.reference[0][:5]
    dimensions = ("NHWC", "HWIO", "NHWC")
    expected = jax.lax.conv_general_dilated(
        images, kernel.reshape(3, 3, 1, 8), (1, 1), "SAME", dimension_numbers=dimensions
    )
    np.testing.assert_allclose(patches(images) @ kernel, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "mpl"}, "model must be one of 'cnn', 'lrn_cnn', 'mlp', 'resnet20'; got 'mpl'. Did you mean 'mlp'"),
        ({"model": 3}, "model must be one of 'cnn', 'lrn_cnn', 'mlp', 'resnet20'; got 3"),
        ({"hidden": (0,)}, "an entry of hidden must be a whole number at least 1; got 0"),
        ({"hidden": 3}, r"hidden must be a sequence, as in \(1, 2\); got 3"),
        ({"dropout": [0.1]}, "dropout must be one number; got"),
        ({"local_data": "no"}, "local_data must be True or False; got 'no'"),
        ({"dropout": 1.5}, "dropout must be at least 0 and at most 1; got 1.5"),
        ({"seed": -1}, "seed must be a whole number at least 0; got -1"),
        ({"test_fraction": [0.1, 0.2]}, "test_fraction must be one number"),
        ({"test_fraction": 0.0}, "test_fraction must be above 0 and at most 0.9; got 0"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tasks.digits(4, **arguments)


def test_one_image_at_least_is_held_out():
    task = tasks.digits(4, test_fraction=1e-4)
    assert task.data.reference[0].shape == (1, 8, 8, 1) and task.data.train.inputs.shape[0] == 1796
