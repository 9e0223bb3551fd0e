"""One-step and optimal decoding, two parts, several messages, clusters, and when their rounds end."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes
from gcjax.codes import assignments, diagnostics
from tests.codes.helpers import KEY, completion


def matrix(assignment, progress=None):
    """float[W, N]: which chunks are in the sum of a worker."""
    rows = np.zeros((assignment.num_workers, assignment.num_chunks))
    for w, chunks in enumerate(assignment.chunks):
        rows[w, chunks[chunks >= 0][: None if progress is None else progress[w]]] = 1
    return rows


def every_progress(code):
    return np.array(list(itertools.product(*(range(load + 1) for load in code.assignment.loads))), np.int32)


@pytest.mark.parametrize("max_iterations", [None, 40])
def test_optimal_decoding_is_least_squares_at_every_progress(x64, max_iterations):
    code = codes.optimal_decoding(assignments.cyclic(4, load=3), max_iterations=max_iterations)
    progress = every_progress(code)
    codings = jax.jit(jax.vmap(code.plan))(progress)
    for done, found in zip(progress, codings.residual, strict=True):
        rows = matrix(code.assignment, done)
        weights = np.linalg.lstsq(rows.T, np.ones(4), rcond=1e-9)[0]
        np.testing.assert_allclose(found, np.linalg.norm(rows.T @ weights - 1), atol=1e-7)


def test_iterative_decoding_at_2000_workers_agrees_with_a_sparse_solver(x64):
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import lsqr

    assignment = assignments.random_regular(2000, load=8, rng_key=KEY)
    progress = np.where(np.random.default_rng(0).random(2000) < 0.2, 0, 8).astype(np.int32)
    coding = jax.jit(codes.optimal_decoding(assignment).plan)(progress)
    rows = csr_matrix((np.repeat(progress > 0, 8) * 1.0, assignment.chunks.ravel(), np.arange(0, 16001, 8)))
    expected = lsqr(rows.T, np.ones(2000), atol=1e-12, btol=1e-12, iter_lim=4000)[3]
    np.testing.assert_allclose(coding.residual, expected, rtol=1e-6)


def test_one_step_weighs_by_the_chunks_in_the_sums():
    code = codes.one_step(assignments.cyclic(4, load=2))
    np.testing.assert_allclose(
        jax.jit(code.plan)(jnp.asarray([2, 1, 0, 2])).decode[:, 0, 0], [0.8, 0.8, 0, 0.8], rtol=1e-6
    )
    whole = codes.whole_workers(codes.one_step(assignments.cyclic(4, load=2)))
    np.testing.assert_allclose(jax.jit(whole.plan)(jnp.asarray([2, 1, 0, 2])).decode[:, 0, 0], [1, 0, 0, 1], rtol=1e-6)
    assert whole.only_whole_loads and not code.only_whole_loads


def test_expander_stays_below_its_bound(x64):
    code = codes.expander(12, load=4, rng_key=KEY)
    plan = jax.jit(jax.vmap(code.plan))
    for s in (1, 2, 3):
        masks = np.array([np.isin(np.arange(12), left) for left in itertools.combinations(range(12), s)])
        worst = plan(np.where(masks, 0, 4).astype(np.int32)).residual.max()
        assert (
            0.3 * diagnostics.expander_bound(code.assignment, s)
            < worst
            <= diagnostics.expander_bound(code.assignment, s)
        )
    np.testing.assert_allclose(jax.jit(code.plan)(jnp.full(12, 4)).decode[:, 0, 0], 0.25, rtol=1e-12)


def test_two_parts_need_everybody_once_and_then_only_the_code():
    code = codes.two_part(codes.cyclic_repetition(4, num_stragglers=1, rng_key=KEY), num_uncoded=2)
    assert code.num_messages == 2 and code.assignment.num_chunks == 12 and code.assignment.load == 4
    time, plan = completion(code), jax.jit(code.plan)
    slow_by_two = jnp.asarray([1.0, 1.0, 1.0, 2.0])  # P / (P - s - 1) = 4 / 2
    np.testing.assert_allclose(time(slow_by_two), 4.0)
    np.testing.assert_allclose(time(jnp.asarray([1.0, 1.0, 1.0, 3.0])), 6.0)
    assert plan(jnp.asarray([4, 4, 4, 2])).residual < 1e-5
    np.testing.assert_allclose(plan(jnp.asarray([4, 4, 4, 1])).residual, 1.0, rtol=1e-5)
    np.testing.assert_array_equal(code.sent(jnp.asarray([0, 1, 3, 4])).sum(axis=1), [0, 1, 1, 2])


def test_coded_messages_end_a_round_at_the_first_level_that_suffices():
    code = codes.coded_multi_message(6, levels=(1, 3), rng_key=KEY)
    time = completion(code)
    np.testing.assert_allclose(time(jnp.asarray([1, 1, 1, 1, 1, 1.5])), 1.5)
    np.testing.assert_allclose(time(jnp.asarray([1, 1, 1, 1, jnp.inf, jnp.inf])), 3.0)
    assert np.isinf(time(jnp.asarray([1, 1, 1, jnp.inf, jnp.inf, jnp.inf])))


def test_clusters_tolerate_stragglers_each():
    code = codes.clustered(codes.cyclic_repetition(3, num_stragglers=1, rng_key=KEY), num_clusters=2)
    np.testing.assert_allclose(completion(code)(jnp.asarray([1, jnp.inf, 2, 1, 1, jnp.inf])), 4.0)
    assert code.only_whole_loads and code.assignment.num_chunks == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: codes.two_part(codes.uncoded(3), num_uncoded=0), "num_uncoded must be a whole number at least 1"),
        (lambda: codes.coded_multi_message(5, levels=(3, 1), rng_key=KEY), "increase"),
        (lambda: codes.coded_multi_message(5, levels=(6,), rng_key=KEY), "between 1 and 5; got 6"),
        (lambda: codes.clustered(codes.uncoded(3), num_clusters=0), "num_clusters"),
        (lambda: diagnostics.expander_bound(assignments.cyclic(5, load=3), 1), "regular undirected graph"),
        (lambda: diagnostics.expander_bound(assignments.cyclic(5, load=5), 5), "between 0 and 4; got 5"),
        (lambda: codes.optimal_decoding(assignments.cyclic(5, load=3), max_iterations=0), "at least 1; got 0"),
        (lambda: codes.fixed_code(assignments.cyclic(5, load=3), np.ones((5, 2))), r"W=5 and K=3; got shape \(5, 2\)"),
        (lambda: codes.fixed_code(assignments.cyclic(2, load=1), np.full((2, 1), np.nan)), "finite; got 2"),
        (
            lambda: codes.fixed_code(
                assignments.cyclic(2, load=1), np.ones((2, 1)), num_chunks_needed=np.zeros((2, 1), int)
            ),
            "entry 0",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_whole_workers_ignore_partial_work():
    code = codes.partial(assignments.cyclic(4, load=2))
    whole = codes.whole_workers(code)
    done, rounded = jnp.asarray([1, 2, 0, 1]), jnp.asarray([0, 2, 0, 0])
    for found, expected in zip(jax.jit(whole.plan)(done), jax.jit(code.plan)(rounded), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(whole.sent(done)[:, 0], [False, True, False, False])
    time, whole_time = completion(code), completion(whole)
    seconds = jnp.asarray([1.0, 2.0, 3.0, 10.0])
    assert time(seconds) == 6.0 and whole_time(seconds) == 6.0
    seconds = jnp.asarray([1.0, 2.0, 5.0, 6.0])  # chunk 3: worker 2 at 10 or 3 at 6; whole: worker 2 at 10
    assert time(seconds) == 6.0 and whole_time(seconds) == 10.0
