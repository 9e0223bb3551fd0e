"""A finite completion time of any combination of codes is a time at which its plan is exact."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gcjax import codes
from gcjax.codes import assignments
from tests.codes.combinations import combined, finish_times
from tests.codes.helpers import KEY, distances
from tests.parameters import some


def at_completion(code, finish):
    """The completion times, and the residuals at that time by the definition; NaN where it never comes."""

    @jax.jit
    @jax.vmap
    def both(finish):
        time = code.completion(finish)
        done = (finish <= time) & jnp.isfinite(finish) & jnp.asarray(code.assignment.chunks >= 0)
        return time, code.plan(done.sum(axis=1, dtype=jnp.int32))

    time, coding = both(jnp.asarray(finish))
    chex.assert_shape(time, (len(finish),))
    return np.asarray(time), np.where(np.isfinite(time), distances(code, jax.tree.map(np.asarray, coding)), np.nan)


def check(code, seed, wide):
    with jax.enable_x64(wide):
        times, left = at_completion(code, finish_times(code, np.random.default_rng(seed), 24))
    bound = 1e-8 if wide else 1e-3
    finite = np.isfinite(times)
    assert (left[finite] < bound).all(), (times[finite], left[finite])


@given(code=combined(), seed=st.integers(0, 1000), wide=st.booleans())
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_finite_completion_time_is_exact(code, seed, wide):
    check(code, seed, wide)


@pytest.mark.slow
@given(code=combined(), seed=st.integers(0, 1000), wide=st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_finite_completion_time_is_exact_for_many_combinations(code, seed, wide):
    check(code, seed, wide)


ONE_STEP = codes.one_step(assignments.cyclic(3, load=2))


@pytest.mark.slow("side by side-float64", "two parts, optimal-float64", "two parts-float64", "whole workers-float64")
@pytest.mark.parametrize("wide", some([True], [False]), ids=lambda wide: "float64" if wide else "float32")
@pytest.mark.parametrize(
    "code",
    [
        codes.clustered(ONE_STEP, num_clusters=2),
        codes.side_by_side(ONE_STEP, codes.uncoded(2, load=2)),
        codes.two_part(ONE_STEP, num_uncoded=1),
        codes.two_part(codes.optimal_decoding(assignments.cyclic(4, load=3)), num_uncoded=1),
        codes.whole_workers(codes.clustered(codes.one_step(assignments.repetition(4, load=2)), num_clusters=2)),
    ],
    ids=["clustered", "side by side", "two parts", "two parts, optimal", "whole workers"],
)
def test_parts_that_do_not_stay_exact_are_exact_together(code, wide):
    check(code, 0, wide)
    assert not code.stays_exact


@pytest.mark.slow
def test_the_earlier_part_has_gone_on_when_the_later_one_is_done():
    code = codes.clustered(ONE_STEP, num_clusters=2)
    # The first cluster is exact at 1, when all have one chunk, and at 3, when all have two; at 2 one has only one.
    finish = jnp.asarray([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0], [2.0, 4.0], [2.0, 4.0], [2.0, 4.0]])
    assert ONE_STEP.completion(finish[:3]) == 1.0
    assert ONE_STEP.completion(finish[3:]) == 2.0
    assert jax.jit(code.plan)(jnp.asarray([2, 2, 1, 1, 1, 1])).residual > 0.1
    assert jax.jit(code.completion)(finish) == 3.0


@pytest.mark.parametrize(
    "code",
    [codes.optimal_decoding(assignments.cyclic(4, load=3)), codes.one_step(assignments.cyclic(4, load=2))],
    ids=["optimal", "one step"],
)
def test_it_is_the_earliest_exact_time_where_later_ones_are_not_exact(code):
    """Against all moments, one after the other; of some rounds the sum is exact for a while only."""
    assert not code.stays_exact
    rng = np.random.default_rng(3)
    finish = np.cumsum(rng.choice([1.0, 2.0, 3.0], (60, *code.assignment.chunks.shape)), axis=2)
    finish[:30, 3] = np.inf
    moments = np.arange(1.0, 10.0)
    progress = (finish[:, None] <= moments[:, None, None]).sum(axis=3)  # [S, moments, W]
    residual = jax.jit(jax.vmap(jax.vmap(lambda done: code.plan(done).residual)))(jnp.asarray(progress))
    is_exact = np.asarray(residual) < 1e-4
    earliest = np.where(is_exact.any(axis=1), moments[is_exact.argmax(axis=1)], np.inf)
    times = jax.jit(jax.vmap(code.completion))(jnp.asarray(finish, jnp.float32))
    np.testing.assert_array_equal(times, earliest)
    assert (np.isfinite(earliest) & ~is_exact[:, -1]).any()


def test_codes_that_stay_exact_ask_for_no_plan():
    crc = codes.cyclic_repetition(3, num_stragglers=1, rng_key=KEY)
    for code in (codes.clustered(crc, num_clusters=2), codes.two_part(crc, num_uncoded=1), codes.side_by_side(crc)):
        assert code.stays_exact
        jaxpr = str(jax.make_jaxpr(code.completion)(jnp.ones(code.assignment.chunks.shape)))
        assert "svd" not in jaxpr
