"""The benchmark of runs: which protocols it has, and the gradients that it counts."""

from types import SimpleNamespace

import jax.numpy as jnp

from benchmarks import protocols as benchmark
from gcjax import codes, protocols


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
        counts[name] = benchmark._num_gradients(SimpleNamespace(schedule=protocol(durations)), protocol)
    assert counts == {"bsp": 20, "asp": 20, "local": 16, "coded": 8}  # two rounds of two chunks a worker
