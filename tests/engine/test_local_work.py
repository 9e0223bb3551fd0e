"""Local work: the engine against its definition, against identities between protocols, and against itself."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import engine, protocols, stragglers, tasks
from tests.engine.by_definition import AdamW, Rule, Sgd, trained, units
from tests.engine.test_run import assert_close

KEY = jax.random.key(3)
W, T = 4, 12
SPEEDS = (1.0, 3.1, 1.3, 2.0)
GROUPS = ((2, 0, 1), (3,))
GROUP_OF = (0, 0, 0, 1)
OPTIMIZERS = {
    "sgd": (optax.sgd(0.1, momentum=0.5), Sgd(0.1, 0.5)),
    "adamw": (optax.adamw(0.05, weight_decay=0.1), AdamW(0.05, 0.1)),
}
SGD = OPTIMIZERS["sgd"][0]
INNER = optax.adamw(0.02, weight_decay=0.3)

# name -> (protocol, what its contributions are)
PROTOCOLS = {
    "local_sgd": (protocols.local_sgd(num_steps=2), Rule()),
    "diloco": (
        protocols.diloco(num_steps=3, inner=INNER),
        Rule(inner=AdamW(0.02, 0.3), outer=Sgd(0.7, 0.9, nesterov=True)),
    ),
    "stsyn": (protocols.stsyn(num_steps=2, num_waited=2), Rule()),
    "anytime": (protocols.anytime_minibatch(seconds=2.6), Rule(outer="run", summed=True)),
    "elastic": (protocols.elastic_averaging(num_steps=2), Rule(elastic=True)),
    "worker_busy": (protocols.worker_busy(), Rule()),
    "worker_busy eager": (protocols.worker_busy(eager=True), Rule()),
    "worker_busy overlap": (protocols.worker_busy(overlap=True), Rule(in_flight=True)),
    "worker_busy eager overlap": (protocols.worker_busy(eager=True, overlap=True), Rule(in_flight=True)),
    "grouped change": (protocols.grouped(groups=GROUPS, local_rounds=2, merge="change"), Rule(owner=GROUP_OF)),
    "grouped elastic": (
        protocols.grouped(groups=GROUPS, local_rounds=2, merge="elastic"),
        Rule(owner=GROUP_OF, elastic=True),
    ),
    "adacomm": (protocols.adacomm(num_steps=3, seconds=6.0, num_windows=4), Rule()),
    "adsp": (protocols.adsp(seconds=4.0, num_windows=3, least_interval=0.5), Rule()),
}
NETWORK = stragglers.constant_network(latency=0.05, upload=0.2, download=0.3)


@functools.cache
def _regression(x64):
    return tasks.linear_regression(num_chunks=W, num_examples=60, num_features=4, batch_size=8)


def regression():
    """One task for each setting of 64 bits, so that its functions are the same in every test."""
    return _regression(jax.config.jax_enable_x64)


def durations(key=KEY, num_units=T, speeds=SPEEDS):
    noise = jax.random.uniform(key, (num_units, len(speeds)), minval=0.7, maxval=1.3)
    return noise * jnp.asarray([speeds], noise.dtype)


def run(name, optimizer=SGD, **changes):
    arguments = {"durations": durations(), "network": NETWORK, "rng_key": KEY, "eval_every": 4} | changes
    return engine.run(regression(), PROTOCOLS[name][0], optimizer, arguments.pop("durations"), **arguments)


@functools.cache
def result(name):
    """With SGD, on one device, one contribution after the other; in 64 bits."""
    return run(name)


@functools.cache
def batches():
    return units(regression(), KEY, W, T)


def some(fast, slow):
    """Parameters of tests, of which some are slow."""
    return [*fast, *(pytest.param(*(x if isinstance(x, tuple) else (x,)), marks=pytest.mark.slow) for x in slow)]


FIRST = ("stsyn", "anytime", "elastic", "worker_busy", "worker_busy eager overlap", "grouped elastic")
SECOND = ("diloco", "worker_busy overlap", "grouped change")


@pytest.mark.promotes  # optax.adamw does
@pytest.mark.parametrize(
    ("name", "optimizer"),
    some(
        [(name, "sgd") for name in (*FIRST, "adsp", "adacomm")] + [(name, "adamw") for name in SECOND],
        [(name, "sgd") for name in PROTOCOLS if name not in (*FIRST, "adsp", "adacomm")]
        + [(name, "adamw") for name in PROTOCOLS if name not in SECOND],
    ),
)
def test_a_run_is_local_work_by_its_definition(name, optimizer, x64):
    """Parameters, losses, and what the workers have at the end."""
    found = result(name) if optimizer == "sgd" else run(name, OPTIMIZERS[optimizer][0])
    start = np.zeros(regression().data.train.inputs.shape[-1])
    wanted = trained(found.schedule, PROTOCOLS[name][1], OPTIMIZERS[optimizer][1], batches(), start)
    assert len(wanted.losses) == found.info.num_commits >= 3
    assert_close(found.params, wanted.params)
    assert_close(found.info.loss[: len(wanted.losses)], np.array(wanted.losses))
    for owner, params in wanted.local.items():
        if not PROTOCOLS[name][1].summed:
            assert_close(found.state.local.params[owner], params)
