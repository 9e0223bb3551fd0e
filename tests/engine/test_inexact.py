"""Whoever waits for exact decodes is told where there was none."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, engine, protocols, stragglers, tasks
from gcjax.codes import assignments, stopping

KEY = jax.random.key(5)
W = 4


def result(code, stop=None, traced=False, protocol=None):
    """A run of four workers, the protocol, `coded` if none is given, and the warnings of the run."""
    task = tasks.linear_regression(num_chunks=code.assignment.num_chunks, num_examples=24, num_features=2)
    seconds = stragglers.sample_durations(stragglers.exponential(mean=1.0), KEY, 3, W)
    protocol = protocol or protocols.coded(code, stop=stop)
    one = lambda d: engine.run(task, protocol, optax.sgd(0.1), d, rng_key=KEY)  # noqa: E731
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = jax.jit(one)(seconds) if traced else one(seconds)
    return run, protocol, [w for w in told if w.category is engine.InexactWarning]


def too_early():
    """Least squares of one chunk a worker, and the word that the first to arrive is enough."""
    return codes.fixed_code(assignments.cyclic(W, load=1), np.ones((W, 1)), completion=lambda arrivals: arrivals.min())


def test_a_code_that_promised_exactness_and_is_not_exact_is_told_once():
    run, protocol, told = result(too_early())
    np.testing.assert_allclose(run.info.residual, np.sqrt(3.0), rtol=1e-6)
    assert len(told) == 1
    assert "3 of 3 commits have a residual above 0.002, up to 1.7: in float32" in str(told[0].message)
    with pytest.warns(engine.InexactWarning):
        engine.check(run, protocol)


@pytest.mark.slow
def test_who_waits_for_exact_messages_of_kept_gradients_is_told():
    code = too_early()
    run, protocol, told = result(code, protocol=protocols.pipelined_coded(code))
    np.testing.assert_allclose(run.info.residual, np.sqrt(3.0), rtol=1e-6)
    assert len(told) == 1 and "3 of 3 commits have a residual above 0.002" in str(told[0].message)
    with pytest.warns(engine.InexactWarning):
        engine.check(run, protocol)


@pytest.mark.parametrize("wait_for", [None, 2])
def test_kept_gradients_that_decode_or_do_not_promise_it_are_left_alone(wait_for):
    """Two pairs of workers with the same two chunks: two messages may be of the same pair."""
    code = codes.fractional_repetition(W, num_stragglers=1)
    run, _, told = result(code, protocol=protocols.pipelined_coded(code, wait_for=wait_for))
    assert not told
    assert (np.asarray(run.info.residual).max() > 1) == (wait_for == 2)


def test_so_it_is_after_a_run_under_jit_or_vmap():
    run, protocol, told = result(too_early(), traced=True)
    assert not told
    with pytest.warns(engine.InexactWarning, match="6 of 6"):
        engine.check(jax.tree.map(lambda x: jnp.stack([x, x]), run), protocol)


@pytest.mark.slow("exact", "fastest")
@pytest.mark.parametrize(
    ("code", "stop"),
    [
        (codes.cyclic_repetition(W, num_stragglers=1, rng_key=KEY), None),
        (codes.uncoded(W), stopping.deadline(0.5)),
        (too_early(), stopping.fastest(2)),
    ],
    ids=["exact", "deadline", "fastest"],
)
def test_who_is_exact_or_does_not_promise_it_is_left_alone(code, stop):
    run, protocol, told = result(code, stop)
    assert not told
    engine.check(run, protocol)


def test_rounding_that_eats_a_code_is_told():
    """Ten neighbours missing of fifty: no float32 holds the weights of a cyclic MDS code."""
    code = codes.cyclic_mds(50, num_stragglers=10)
    task = tasks.linear_regression(num_chunks=50, num_examples=50, num_features=2)
    seconds = jnp.where(jnp.arange(50)[None] < 10, 100.0, jnp.ones((11, 50)))
    with pytest.warns(engine.InexactWarning, match="1 of 1 commits .* up to"):
        engine.run(task, protocols.coded(code), optax.sgd(0.1), seconds, rng_key=KEY, num_commits=1)
