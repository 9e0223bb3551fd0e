"""Delayed Nesterov against its formula, and against SGD with Nesterov momentum."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import protocols

RATE, MOMENTUM = 0.3, 0.8
GRADIENTS = np.random.default_rng(4).normal(size=(11, 3))


def run(optimizer, dtype=np.float64):
    params = jnp.zeros(3, dtype)
    state, found = optimizer.init(params), []
    for gradient in GRADIENTS.astype(dtype):
        changes, state = jax.jit(optimizer.update)(jnp.asarray(gradient), state, params)
        params = optax.apply_updates(params, changes)
        found.append(params)
    return np.array(found)


@pytest.mark.parametrize(("period", "activation"), [(1, 0.0), (1, 1.0), (2, 0.5), (3, 0.0), (4, 0.1)])
def test_it_is_the_formula(period, activation, x64):
    params, velocity, total, expected = np.zeros(3), np.zeros(3), np.zeros(3), []
    for t, gradient in enumerate(GRADIENTS, start=1):
        total = total + gradient
        if t % period == 0:
            velocity = MOMENTUM * velocity + total / period
            share, total = 1 - activation * period + activation, np.zeros(3)
        else:
            share = activation
        params = params - RATE * (share * MOMENTUM * velocity + gradient / period)
        expected.append(params)
    made = protocols.delayed_nesterov(RATE, momentum=MOMENTUM, num_gradients=period, activation=activation)
    np.testing.assert_allclose(run(made), expected, rtol=1e-12, atol=1e-14)


def test_momentum_of_each_gradient_is_that_of_nesterov(x64):
    made = protocols.delayed_nesterov(RATE, momentum=MOMENTUM, num_gradients=1)
    nesterov = optax.sgd(RATE, momentum=MOMENTUM, nesterov=True)
    np.testing.assert_allclose(run(made), run(nesterov), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float32])
def test_parameters_keep_their_dtype(dtype):
    made = protocols.delayed_nesterov(RATE, num_gradients=2)
    assert run(made, dtype).dtype == dtype


def test_equal_ones_are_equal():
    assert protocols.delayed_nesterov(RATE, num_gradients=2) == protocols.delayed_nesterov(RATE, num_gradients=2)
    assert protocols.delayed_nesterov(RATE, num_gradients=2) != protocols.delayed_nesterov(RATE, num_gradients=3)
