"""Schedules are simulated on a CPU, also where JAX computes on an accelerator; another CPU stands in for that."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols
from gcjax.protocols import compiled_schedules
from gcjax.stragglers import Network
from tests.devices import devices

DURATIONS = jnp.array([[1.0, 1.5, 2.25]] * 5)


@pytest.fixture
def default_device(monkeypatch):
    """JAX's default device, which counts as an accelerator."""
    *_, device = devices(3)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with jax.default_device(device):
        yield device


def test_they_are_simulated_on_the_cpu_and_are_where_jax_computes(default_device):
    on_cpu = compiled_schedules.on_cpu((DURATIONS, {"a": 1.0}))
    cpu = jax.local_devices(backend="cpu")[0]
    assert all(leaf.devices() == {cpu} for leaf in jax.tree.leaves(on_cpu))
    schedule = protocols.ssp(staleness=1)(DURATIONS)
    assert all(leaf.devices() == {default_device} and not leaf.committed for leaf in jax.tree.leaves(schedule))


@pytest.mark.slow
def test_they_are_the_same(default_device):
    protocol = protocols.k_async(num_contributions=2)
    there, here = protocol(DURATIONS), jax.jit(lambda durations: protocol(durations))(DURATIONS)
    jax.tree.map(np.testing.assert_array_equal, there, here)


def test_inside_of_a_trace_they_stay_where_that_is_compiled_for(default_device):
    def times(durations, staleness):
        return protocols.ssp(staleness=staleness)(durations).time

    expected = protocols.ssp(staleness=2)(DURATIONS).time
    np.testing.assert_array_equal(jax.jit(times, static_argnums=1)(DURATIONS, 2), expected)
    np.testing.assert_array_equal(jax.jit(lambda: times(DURATIONS, 2))(), expected)  # of durations that are known


def total_time(durations, network=None, weight=1.0):
    schedule = protocols.asp(weight=weight)(durations, network)
    return jnp.where(jnp.isfinite(schedule.time), schedule.time, 0).sum() + schedule.weight.sum()


def test_they_have_gradients():
    """Also where JAX traces nothing but a parameter of the protocol, which it does not show."""
    of_durations = jax.grad(total_time)(DURATIONS)
    np.testing.assert_allclose(of_durations, jax.grad(jax.jit(total_time))(DURATIONS))
    assert (of_durations > 0).sum() > 9
    by_weight = jax.grad(lambda weight: total_time(DURATIONS, weight=weight))(0.5)
    num_commits = int(np.isfinite(protocols.asp()(DURATIONS).time).sum())
    assert float(by_weight) == num_commits
    of_latency = jax.grad(lambda latency: total_time(DURATIONS, Network(latency=latency)))(0.5)
    assert float(of_latency) > num_commits


def test_without_a_cpu_they_are_simulated_on_the_accelerator(default_device, monkeypatch):
    def no_cpu(backend=None):
        raise RuntimeError(f"Unknown backend {backend}")

    monkeypatch.setattr(jax, "local_devices", no_cpu)
    schedule = protocols.ssp(staleness=1)(DURATIONS)
    assert schedule.time.shape == (15,) and compiled_schedules.on_cpu((DURATIONS,))[0] is DURATIONS
