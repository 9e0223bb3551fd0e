"""`check_straggler_model` is red on broken models, each with its sentence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import stragglers
from gcjax.stragglers import StragglerModel
from gcjax.testing import ContractError, check_straggler_model


def model(sample, init=lambda rng_key, num_workers: jnp.zeros(num_workers)):
    return StragglerModel(init, sample)


def drawn(rng_key, state):
    return jax.random.exponential(rng_key, state.shape, state.dtype)


@jax.custom_batching.custom_vmap
def odd(x):
    return x


@odd.def_vmap
def _odd_under_vmap(axis_size, in_batched, x):
    return x + 1, in_batched[0]


# Made at import: what changes from call to call.
GENERATOR = np.random.default_rng(0)

BROKEN = {
    "negative": (
        model(lambda s, k: (drawn(k, s) - 1, s)),
        r"at least 0.*; they are -.* Smallest case: unit \d+ of worker",
    ),
    "no number": (model(lambda s, k: (s / 0, s)), "they are nan. Smallest case: unit 0 of worker 0"),
    "one for all": (model(lambda s, k: (drawn(k, s)[0], s)), r"sample must give seconds float\[5\]"),
    "32 bits": (
        model(lambda s, k: (drawn(k, s).astype(jnp.float32), s)),
        "default float type, float64; they are float32",
    ),
    "whole numbers": (
        model(lambda s, k: (jnp.ones(s.shape, jnp.int32), s)),
        "default float type, float32; they are int32",
    ),
    "a state that changes its type": (
        model(lambda s, k: (drawn(k, s), s > 0)),
        r"keep its structure, shapes and types; float32\[5\] becomes bool",
    ),
    "a state that grows": (model(lambda s, k: (drawn(k, s), (s, s))), "its structure changes"),
    "no state": (model(lambda s, k: drawn(k, s)), r"sample must give \(seconds, state\)"),
    "other random numbers": (
        model(lambda s, k: (drawn(k, s) + GENERATOR.random(), s)),
        "more units must begin with the same bits as fewer.*unit",
    ),
    "another thing under vmap": (
        model(lambda s, k: (odd(drawn(k, s)), s)),
        "vmap over keys must give what a loop gives. Smallest case: unit 0",
    ),
    "random state": (
        model(lambda s, k: (s, s), lambda k, w: jnp.full(w, GENERATOR.random())),
        "the same key must give the same state",
    ),
    "cannot be traced": (model(lambda s, k: (s if s[0] > 0 else s + 1, s)), "sample must be a pure function .* traced"),
    "other workers": (model(lambda s, k: (s, s), lambda k, w: jnp.ones(3)), r"sample must give seconds float\[5\]"),
    "no model": (stragglers.exponential, "must be a gcjax.stragglers.StragglerModel; got function"),
}


@pytest.mark.slow("another thing under vmap")
@pytest.mark.parametrize("name", BROKEN)
def test_broken_models_are_red(name):
    broken, sentence = BROKEN[name]
    with pytest.raises(ContractError, match=sentence):
        check_straggler_model(broken)


def test_more_units_that_begin_otherwise_are_red(monkeypatch):
    """Only a way of sampling of one's own can do that; the package's own folds the unit's number into the key."""
    from gcjax.testing import stragglers as checks

    def all_at_once(model, rng_key, num_units, num_workers):
        return jax.random.exponential(rng_key, (num_units, num_workers)) / num_units

    monkeypatch.setattr(checks, "sample_durations", all_at_once)
    with pytest.raises(ContractError, match="more units must begin with the same bits as fewer"):
        check_straggler_model(stragglers.exponential())


def test_a_good_model_is_green():
    check_straggler_model(model(lambda s, k: (drawn(k, s) + s, s + 1)), rng_key=jax.random.key(2))
