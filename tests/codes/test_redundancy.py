"""Decoding through the redundancy: exact at sizes where least squares drowns in rounding, or refused."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jax_core

from gcjax import codes, engine
from gcjax.codes import diagnostics, redundancy, replication
from gcjax.codes.least_squares import message_matrix
from tests.codes.helpers import KEY, distance, without
from tests.parameters import one_in, some

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


@pytest.mark.slow("CRC-1000-3", "cyclic MDS-1000-10")
@pytest.mark.parametrize(
    ("name", "n", "s"),
    [
        *some([("CRC", 400, 2), ("CRC", 1000, 3)], [("CRC", 1000, s) for s in (1, 2)]),
        *some([("cyclic MDS", 50, 10), ("cyclic MDS", 1000, 10)], [("cyclic MDS", 400, 10), ("cyclic MDS", 1000, 9)]),
    ],
)
def test_everybody_decodes_exactly_in_float32(name, n, s):
    assert left(EXACT[name](n, s)) < redundancy.MAX_RESIDUAL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n", "s", "bound"),
    [("cyclic MDS", 400, 10, 2e-2), ("cyclic MDS", 1000, 3, 1e-3)],
)
def test_stragglers_at_random_decode_in_float32_as_far_as_the_coefficients_go(name, n, s, bound):
    """Most masks are 100 times better; the worst of them are what rounding the coefficients leaves."""
    code, rng = EXACT[name](n, s), np.random.default_rng(0)
    found = [left(code, rng.choice(n, s, replace=False)) for _ in range(8)]
    assert max(found) < bound and np.median(found) < 0.1 * bound


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "s"), [(40, 3), (400, 2), (1000, 1), *(pytest.param(1000, s, marks=pytest.mark.slow) for s in (2, 3))]
)
def test_cyclic_repetition_decodes_neighbours_and_200_random_sets_in_float32(n, s):
    code = EXACT["CRC"](n, s)
    residuals = jax.jit(lambda masks: jax.lax.map(lambda mask: code.plan(mask).residual, masks))
    there = np.ones((n + 200, n), bool)
    runs, rng = (np.arange(n)[:, None] + np.arange(s)) % n, np.random.default_rng(0)
    drawn = np.array([rng.choice(n, s, replace=False) for _ in range(200)])
    np.put_along_axis(there, np.concatenate([runs, drawn]), False, axis=1)
    found = np.asarray(residuals(there))
    assert found[:n].max() < 2e-5 and np.median(found[n:]) < 1e-5
    chance = 0.99 if s == 3 else 1  # of all sets of three, one in a thousand leaves more, whatever the matrix
    assert np.quantile(found[n:], chance) < redundancy.MAX_RESIDUAL
    assert left(code, drawn[found[n:].argmax()]) < 2 * found[n:].max()


def test_conjugate_gradients_go_on_where_messages_are_ill_conditioned():
    """The least residual of these three is 0.004; two steps for each message would leave 0.07."""
    code = codes.communication_efficient(600, num_stragglers=2, num_blocks=1, rng_key=jax.random.key(0))
    assert left(code, np.random.default_rng(3).choice(600, 3, replace=False)) < 0.04


@pytest.mark.slow
def test_cyclic_repetition_decodes_every_pair_of_sixty_in_float32():
    code = EXACT["CRC"](60, 2)
    with jax.enable_x64(True):
        coefficients = np.asarray(code.plan(code.assignment.loads).encode)
    known = redundancy.sparse_redundancy(code.assignment, coefficients[:, 0, :, 0], 2)
    pairs = np.array(list(itertools.combinations(range(60), 2)))
    gone = np.zeros((len(pairs), 60), bool)
    np.put_along_axis(gone, pairs, True, axis=1)
    found = redundancy.straggler_residuals(coefficients, code.assignment, known, gone)
    assert found.max() < 2e-4
    for worst in np.argsort(found)[-3:]:
        assert 0.2 < left(code, pairs[worst]) / found[worst] < 5  # what is predicted is what a plan leaves


@pytest.mark.slow
@pytest.mark.parametrize("s", one_in(3, [2, 1, 3]))
def test_more_stragglers_than_tolerated_leave_the_least_residual_in_float32(s):
    """Beyond 512 workers, so by conjugate gradients."""
    n, rng = 600, np.random.default_rng(2)
    code = EXACT["CRC"](n, s)
    for gone in (np.arange(s + 1), rng.choice(n, s + 1, replace=False), rng.choice(n, 50, replace=False)):
        true = left(code, gone)
        with jax.enable_x64(True):
            rows = np.asarray(message_matrix(code.assignment, code.plan(without(code, gone)).encode)).T
        there = np.delete(rows, gone, axis=1)
        least = np.linalg.norm(there @ np.linalg.lstsq(there, np.ones(n))[0] - 1)
        np.testing.assert_allclose(true, least, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(("n", "s"), one_in(2, [(100, 3), (400, 10)]))
def test_float64_decodes_every_random_set(name, n, s, x64):
    code, rng = EXACT[name](n, s), np.random.default_rng(1)
    for count in (0, 1, s // 2, s):
        assert left(code, rng.choice(n, count, replace=False)) < 1e-6


@pytest.mark.slow("6-4-CRC", "7-2-CRC", "7-2-Ye-Abbe")
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(("n", "s"), some([(7, 2), (6, 4)], [(6, 2)]))
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


@pytest.mark.parametrize(("n", "s"), some([(9, 3)], [(9, 2), (30, 4)]))
def test_what_vanishes_vanishes(n, s):
    for name in EXACT:
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


def coefficients_of(code):
    return np.asarray(jax.jit(code.plan)(jnp.asarray(code.assignment.loads)).encode[:, 0, :, 0])


def test_coefficients_that_leave_too_much_are_drawn_again(monkeypatch):
    make = lambda: EXACT["CRC"](40, 2)  # noqa: E731
    first = replication.cyclic_coefficients(40, 2, KEY)
    np.testing.assert_allclose(coefficients_of(make()), first, rtol=1e-6)
    residuals = iter([0.5, 0.5, 0.0])
    monkeypatch.setattr(replication, "straggler_residuals", lambda *_: np.array([next(residuals)]))
    assert np.abs(coefficients_of(make()) - first).max() > 0.1
    assert not list(residuals)


def test_a_code_that_stays_inexact_is_told_where_it_is_made():
    with pytest.warns(
        engine.InexactWarning, match=r"of 100 workers .* with the sets of 40 stragglers .* in float32"
    ) as told:
        code = EXACT["CRC"](100, 40)
    assert told[0].filename == __file__
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        EXACT["CRC"](100, 40)
    assert code.assignment.load == 41


def test_the_draw_that_leaves_least_is_kept(monkeypatch):
    residuals = iter([0.5, 0.2, 0.4, 0.3])
    monkeypatch.setattr(replication, "straggler_residuals", lambda *_: np.array([next(residuals)]))
    with pytest.warns(engine.InexactWarning, match=r"up to 0\.2 "):
        EXACT["CRC"](40, 2)


@pytest.mark.slow
def test_thousands_of_workers_decode_in_float32():
    code = EXACT["CRC"](4000, 2)
    assert jax.jit(code.plan)(without(code, (7, 2000))).residual < 1e-4


@pytest.mark.parametrize(
    "make",
    [
        lambda: codes.communication_efficient(50, num_stragglers=2, num_blocks=2, generator="vandermonde"),
    ],
    ids=["Ye-Abbe"],
)
def test_a_code_that_float32_cannot_hold_is_refused_and_float64_can(make):
    with pytest.raises(ValueError, match=r"at most 0.001 .* in float32 this one leaves .*jax_enable_x64"):
        make()
    with jax.enable_x64(True):
        make()


@pytest.mark.slow
def test_the_zeros_of_complex_codes_lie_opposite_of_one():
    for n, s in ((12, 2), (13, 5), (50, 10)):
        code = codes.cyclic_mds(n, num_stragglers=s)
        coding = jax.jit(code.plan)(jnp.asarray(code.assignment.loads))
        assert code.num_blocks == 2
        assert diagnostics.condition_number(code.assignment, coding) < 1.5
