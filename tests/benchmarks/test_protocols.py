"""The benchmark of runs: which protocols it has, and the gradients that it counts."""

import jax
import jax.numpy as jnp
import optax

from benchmarks import protocols as benchmark
from gcjax import codes, engine, protocols, tasks

KEY = jax.random.key(0)


def test_every_protocol_is_measured():
    names = {protocol.schedule.compared_by[0][0].__name__ for protocol in benchmark._protocols().values()}
    assert set(protocols.TABLE) - names == {"asp", "m_sgc", "coded_reduce"}  # asp is ssp without a bound


def test_gradients_are_counted_once_a_chunk():
    durations = jnp.ones((5, 4))
    counts = {}
    for name, protocol in {
        "bsp": protocols.bsp(),
        "asp": protocols.asp(),
        "local": protocols.local_sgd(num_local_steps=2),
        "coded": protocols.coded(codes.fractional_repetition(4, num_stragglers=1)),
    }.items():
        task = tasks.linear_regression(4, num_features=2)
        run = engine.run(task, protocol, optax.sgd(0.1), durations, rng_key=KEY)
        counts[name] = benchmark._num_gradients(run, protocol)
    assert counts == {"bsp": 20, "asp": 20, "local": 16, "coded": 8}  # two rounds of two chunks a worker
