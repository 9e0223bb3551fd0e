"""Decoding through the redundancy: exact at sizes where least squares drowns in rounding, or refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jax_core

from gcjax import codes
from gcjax.codes import redundancy, replication
from gcjax.codes.least_squares import message_matrix
from tests.codes.helpers import KEY, distance, without

EXACT = {
    "CRC": lambda n, s: codes.cyclic_repetition(n, num_stragglers=s, rng_key=KEY),
    "cyclic MDS": lambda n, s: codes.cyclic_mds(n, num_stragglers=s),
    "Ye-Abbe": lambda n, s: codes.communication_efficient(n, num_stragglers=s, num_blocks=2, rng_key=KEY),
}


def left(code, stragglers=()):
    """The residual of a plan, by the definition and in float64 from its coefficients."""
    coding = jax.jit(code.plan)(without(code, stragglers))
    true = distance(code, coding)
    np.testing.assert_allclose(coding.residual, true, rtol=0.5, atol=2e-4)
    return true


@pytest.mark.parametrize(
    ("name", "n", "s"),
    [
        *(("CRC", *size) for size in ((400, 2), (1000, 1), (1000, 2), (1000, 3))),
        *(("cyclic MDS", *size) for size in ((50, 10), (400, 10), (1000, 9), (1000, 10))),
    ],
)
def test_everybody_decodes_exactly_in_float32(name, n, s):
    assert left(EXACT[name](n, s)) < redundancy.MAX_RESIDUAL


@pytest.mark.parametrize(
    ("name", "n", "s", "bound"),
    [("CRC", 400, 2, 2e-2), ("CRC", 1000, 3, 0.3), ("cyclic MDS", 400, 10, 2e-2), ("cyclic MDS", 1000, 3, 1e-3)],
)
def test_stragglers_at_random_decode_in_float32_as_far_as_the_coefficients_go(name, n, s, bound):
    """Most masks are 100 times better; the worst of them are what rounding the coefficients leaves."""
    code, rng = EXACT[name](n, s), np.random.default_rng(0)
    found = [left(code, rng.choice(n, s, replace=False)) for _ in range(8)]
    assert max(found) < bound and np.median(found) < 0.1 * bound


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(("n", "s"), [(100, 3), (400, 10)])
def test_float64_decodes_every_random_set(name, n, s, x64):
    code, rng = EXACT[name](n, s), np.random.default_rng(1)
    for count in (0, 1, s // 2, s):
        assert left(code, rng.choice(n, count, replace=False)) < 1e-6


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(("n", "s"), [(6, 2), (7, 2), (6, 4)])
def test_the_weights_are_the_least_of_scaled_messages(name, n, s, x64):
    """With at most s stragglers; with more, the least-squares ones."""
    code = EXACT[name](n, s)
    plan = jax.jit(code.plan)
    for count in range(s + 2):
        for gone in itertools.islice(itertools.combinations(range(n), count), 0, None, 5):
            coding = plan(without(code, gone))
            rows = np.asarray(message_matrix(code.assignment, coding.encode))
            lengths = np.linalg.norm(rows, axis=1).clip(1e-300)
            unit = np.where(lengths[:, None] > 1e-9, rows / lengths[:, None], 0)
            target = np.tile(np.eye(code.num_blocks), (code.assignment.num_chunks, 1))
            least = np.linalg.pinv(unit.T, rcond=1e-10) @ target
            weights = np.asarray(coding.decode).reshape(len(rows), -1) * lengths[:, None]
            if count <= s:
                np.testing.assert_allclose(weights, least, atol=1e-8)
            best = np.linalg.norm(rows.T @ np.linalg.pinv(rows.T, rcond=1e-10) @ target - target)
            np.testing.assert_allclose(coding.residual, best, atol=1e-8)


def test_what_vanishes_vanishes():
    for name, (n, s) in itertools.product(EXACT, [(9, 2), (9, 3), (30, 4)]):
        code = EXACT[name](n, s)
        with jax.enable_x64(True):
            rows = np.asarray(message_matrix(code.assignment, jax.jit(code.plan)(code.assignment.loads).encode))
        assert np.linalg.matrix_rank(rows, tol=1e-9 * np.abs(rows).max()) == (n - s) * code.num_messages


def svd_sizes(jaxpr):
    """The matrices that a program decomposes whatever happens: none within a condition."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "svd":
            yield equation.invars[0].aval.shape
        elif equation.primitive.name != "cond":
            for inner in jax_core.jaxprs_in_params(equation.params):
                yield from svd_sizes(inner)


def test_a_plan_solves_a_system_of_the_size_of_the_stragglers_only():
    code = EXACT["CRC"](64, 3)
    assert list(svd_sizes(jax.make_jaxpr(code.plan)(code.assignment.loads).jaxpr)) == [(3, 3)]


def test_coefficients_that_leave_too_much_are_drawn_again(monkeypatch):
    first = replication.cyclic_coefficients(1000, 2, jax.random.key(1))
    kept = jax.jit(EXACT["CRC"](24, 2).plan)(jnp.full(24, 3, jnp.int32)).encode[:, 0, :, 0]
    np.testing.assert_allclose(kept, replication.cyclic_coefficients(24, 2, KEY), rtol=1e-6)
    make = lambda: codes.cyclic_repetition(1000, num_stragglers=2, rng_key=jax.random.key(1))  # noqa: E731
    encode = jax.jit(make().plan)(jnp.full(1000, 3, jnp.int32)).encode[:, 0, :, 0]
    assert np.abs(np.asarray(encode) - first).max() > 0.1
    monkeypatch.setattr(replication, "NUM_DRAWS", 1)
    with pytest.raises(ValueError, match="a cyclic repetition code must leave a residual of at most 0.001 when every"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: codes.cyclic_repetition(10_000, num_stragglers=2, rng_key=KEY),
        lambda: codes.communication_efficient(50, num_stragglers=2, num_blocks=2, generator="vandermonde"),
    ],
    ids=["CRC", "Ye-Abbe"],
)
def test_a_code_that_float32_cannot_hold_is_refused_and_float64_can(make):
    with pytest.raises(ValueError, match=r"at most 0.001 .* in float32 this one leaves .*jax_enable_x64"):
        make()
    with jax.enable_x64(True):
        make()


def test_the_zeros_of_complex_codes_lie_opposite_of_one():
    for n, s in ((12, 2), (13, 5), (50, 10)):
        code = codes.cyclic_mds(n, num_stragglers=s)
        coding = jax.jit(code.plan)(jnp.asarray(code.assignment.loads))
        assert code.num_blocks == 2
        assert codes.condition_number(code.assignment, coding) < 1.5
