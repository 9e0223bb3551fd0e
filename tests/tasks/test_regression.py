"""Synthetic regression and its known optimum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcjax import tasks
from gcjax.tasks.logistic import _newton_optimum
from tests.parameters import some

KEY = jax.random.key(0)
BOTH = pytest.mark.parametrize("factory", [tasks.linear_regression, tasks.logistic_regression])


@pytest.mark.slow("7-linear_regression")
@BOTH
@pytest.mark.parametrize("num_chunks", some([7], [1]))
def test_the_optimum_has_no_gradient(factory, num_chunks, x64):
    task = factory(num_chunks, num_examples=200, num_features=10)
    optimum = task.data.reference.weights
    gradient = jax.grad(task.loss)(optimum, tasks.all_examples(task.data.train), KEY)
    np.testing.assert_allclose(gradient, 0, atol=1e-12)


@BOTH
def test_the_metrics_vanish_at_the_optimum_and_only_there(factory, x64):
    task = factory(7, num_examples=200, num_features=10)
    weights = task.data.reference.weights
    metrics = task.metrics(weights, task.data)
    assert metrics["train_loss"] == pytest.approx(float(task.data.reference.loss), abs=1e-14)
    assert abs(metrics["suboptimality"]) < 1e-14 and metrics["distance"] == 0
    away = task.metrics(weights + 0.1, task.data)
    assert away["suboptimality"] == pytest.approx(float(away["train_loss"] - metrics["train_loss"]), abs=1e-12)
    assert away["suboptimality"] > 1e-3 and away["distance"] == pytest.approx(0.1 * np.sqrt(10))


@pytest.mark.slow("linear_regression")
@BOTH
def test_full_gradient_descent_finds_the_optimum(factory, x64):
    task = factory(1, num_examples=200, num_features=5, batch_size=None, local_data=True)

    @jax.jit
    def descend(data):
        batch = task.unit_batch(data, KEY, 0, 0)

        def step(_, params):
            return params - 0.5 * jax.grad(task.loss)(params, batch, KEY)

        return jax.lax.fori_loop(0, 3000, step, task.init(KEY))

    metrics = task.metrics(descend(task.data), task.data)
    assert metrics["distance"] < 1e-9 and metrics["suboptimality"] < 1e-14


def test_the_linear_suboptimality_does_not_cancel_in_float32():
    task = tasks.linear_regression(4, num_examples=200, num_features=5)
    close = task.metrics(task.data.reference.weights + 1e-5, task.data)
    assert 1e-11 < close["suboptimality"] < 1e-9


def test_noise_is_the_loss_that_remains():
    task = tasks.linear_regression(4, num_examples=4000, num_features=5, noise=0.3)
    assert task.data.reference.loss == pytest.approx(0.5 * 0.3**2, rel=0.1)
    assert tasks.linear_regression(4, noise=0.0).data.reference.loss < 1e-12


@given(l2=st.floats(1e-6, 1e4), scale=st.floats(0.1, 100.0), seed=st.integers(0, 1000))
def test_newton_converges_also_for_separable_data(l2, scale, seed):
    rng = np.random.default_rng(seed)
    inputs = scale * rng.normal(size=(30, 4))
    targets = (inputs[:, 0] > 0).astype(float)
    assert gradient_size(inputs, targets, l2) < 1e-10 * max(1.0, scale)


def test_newton_converges_where_full_steps_overshoot():
    """Nearly separable labels: in one of ten of these data sets, some full step makes the gradient larger."""
    for rng in map(np.random.default_rng, range(50)):
        inputs = 30 * rng.normal(size=(30, 2))
        chances = 1 / (1 + np.exp(-inputs @ rng.normal(size=2)))
        targets = (rng.uniform(size=30) < chances).astype(float)
        assert gradient_size(inputs, targets, 1e-5) < 1e-10


def gradient_size(inputs, targets, l2):
    weights = _newton_optimum(inputs, targets, l2)
    error = 0.5 * (1 + np.tanh(0.5 * inputs @ weights)) - targets
    return np.linalg.norm(inputs.T @ error / len(targets) + l2 * weights)


@pytest.mark.parametrize(
    ("factory", "arguments", "message"),
    [
        (tasks.linear_regression, {"noise": -1.0}, "noise must be at least 0 and finite; got -1"),
        (tasks.linear_regression, {"noise": [1.0, 2.0]}, "noise must be one number"),
        (tasks.linear_regression, {"seed": -1}, "seed must be a whole number at least 0; got -1"),
        (tasks.logistic_regression, {"seed": 0.5}, "seed must be a whole number at least 0; got 0.5"),
        (tasks.logistic_regression, {"l2": 0.0}, "l2 must be above 0 and finite; got 0"),
        (
            tasks.linear_regression,
            {"num_features": 50, "num_examples": 40},
            "num_features must be a whole number between 1 and 40; got 50. More features than examples",
        ),
        (
            tasks.logistic_regression,
            {"num_examples": 0},
            "num_examples must be a whole number at least 1; got 0",
        ),
    ],
)
def test_bad_input_is_refused(factory, arguments, message):
    with pytest.raises(ValueError, match=message):
        factory(4, **arguments)


def test_logistic_labels_follow_the_model():
    task = tasks.logistic_regression(4, num_examples=4000, l2=1e-6)
    logits = task.data.train.inputs @ task.data.reference.weights
    calibrated = jnp.mean(jax.nn.sigmoid(logits) - task.data.train.targets)
    assert abs(calibrated) < 0.01 and set(np.unique(task.data.train.targets)) == {0.0, 1.0}
