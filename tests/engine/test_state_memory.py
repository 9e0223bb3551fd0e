"""A run whose state does not fit into memory is refused before it is allocated, with what would fit."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import engine, memory, protocols, tasks

NUM_WORKERS, NUM_PARAMS = 6, 1000
MODEL_BYTES = 4 * NUM_PARAMS
KEY = jax.random.key(0)
DURATIONS = jnp.asarray(np.random.default_rng(0).uniform(1, 2, (4, NUM_WORKERS)), jnp.float32)
TASK = tasks.Task(
    data=jnp.zeros(1),
    init=lambda rng_key: jnp.ones(NUM_PARAMS),
    loss=lambda params, batch, rng_key: (params**2).sum() / 2,
    unit_batch=lambda data, rng_key, worker, unit: data,
    chunk_batch=lambda data, rng_key, chunk, round: data,
    metrics=lambda params, data: {"norm": (params**2).sum()},
    num_chunks=1,
)


SGD = optax.sgd(0.1)


def run(protocol, optimizer=SGD, **arguments):
    return engine.run(TASK, protocol, optimizer, DURATIONS, rng_key=KEY, **arguments)


def bytes_of_state(models, small):
    """So many models, and `small` more bytes."""
    return models * MODEL_BYTES + small


# By hand: parameters, the ring of W + C versions and a slot that nobody reads, and what optimizers and workers keep.
CASES = {
    "asp": (protocols.asp(), optax.sgd(0.1), bytes_of_state(1 + NUM_WORKERS + 1 + 1, 0)),
    "asp with momentum": (
        protocols.asp(),
        optax.sgd(0.1, momentum=0.9),
        bytes_of_state(1 + NUM_WORKERS + 1 + 1 + 1, 0),
    ),
    "bsp": (protocols.bsp(), optax.sgd(0.1), bytes_of_state(1, 0)),
    "local SGD": (
        protocols.local_sgd(num_local_steps=2),
        optax.sgd(0.1),
        bytes_of_state(1 + NUM_WORKERS, 4 * NUM_WORKERS),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_is_refused_below_its_bytes_and_only_there(name, monkeypatch):
    protocol, optimizer, num_bytes = CASES[name]
    monkeypatch.setattr(memory, "available_bytes", lambda: num_bytes - 1)
    with pytest.raises(ValueError, match="must fit into memory; they take at least"):
        run(protocol, optimizer)
    monkeypatch.setattr(memory, "available_bytes", lambda: num_bytes)
    assert np.isfinite(np.asarray(run(protocol, optimizer).params)).all()


def test_what_fits_is_said_and_fits(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: bytes_of_state(5, 0))
    with pytest.raises(ValueError, match="past versions of them 31.2 KiB") as error:
        run(protocols.asp())
    ring_size = int(re.search(r"pass ring_size=(\d+)", str(error.value)).group(1))
    assert ring_size == 3
    with pytest.raises(ValueError, match="ring"):  # it fits, but the schedule needs more
        run(protocols.asp(), ring_size=ring_size)
    with pytest.raises(ValueError, match="must fit"):
        run(protocols.asp(), ring_size=ring_size + 1)


def test_without_a_ring_there_is_no_word_of_one(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 100)
    with pytest.raises(ValueError, match="Take fewer workers or a smaller model") as error:
        run(protocols.bsp())
    assert "ring_size" not in str(error.value)


def test_a_traced_run_is_refused_when_it_is_traced(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: bytes_of_state(5, 0))
    with pytest.raises(ValueError, match="must fit into memory"):
        jax.jit(lambda durations: engine.run(TASK, protocols.asp(), optax.sgd(0.1), durations, rng_key=KEY).params)(
            DURATIONS
        )
