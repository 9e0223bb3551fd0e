"""Supports, loads and coefficients of the codes built on MDS matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes
from gcjax.codes import assignments
from gcjax.codes.mds import chebyshev_generator, complex_as_real_blocks, round_robin
from tests.codes.helpers import KEY, completion


def full_encode(code):
    with jax.enable_x64(True):
        return np.asarray(jax.jit(code.plan)(jnp.asarray(code.assignment.loads)).encode)


@pytest.mark.slow("6-3")
@pytest.mark.parametrize(("n", "s"), [(6, 3), (7, 2), (8, 1), (5, 0)])
def test_real_cyclic_mds_is_a_circulant_that_vanishes_at_roots_of_unity_around_minus_one(n, s):
    code = codes.cyclic_mds(n, num_stragglers=s)
    encode = full_encode(code)[:, 0, :, 0]
    assert code.num_blocks == 1 and encode.shape == (n, s + 1)
    np.testing.assert_allclose(encode, np.tile(encode[0], (n, 1)), atol=1e-14)
    values = np.abs(np.fft.fft(np.pad(encode[0], (0, n - s - 1))))
    gone = np.flatnonzero(values < 1e-9)
    assert len(gone) == s and 0 not in gone and (s == 0 or np.isclose(gone.mean(), n / 2))
    assert (np.abs(encode) > 1e-3).all()


def test_equal_parity_takes_half_of_the_gradient_as_imaginary():
    code = codes.cyclic_mds(6, num_stragglers=2)
    assert code.num_blocks == code.num_messages == 2
    encode = full_encode(code)
    np.testing.assert_allclose(encode[:, 0, :, 0], encode[:, 1, :, 1])
    np.testing.assert_allclose(encode[:, 0, :, 1], -encode[:, 1, :, 0])
    product = complex_as_real_blocks(np.array([[1 + 2j]]))[0, :, 0] @ np.array([3.0, 4.0])
    np.testing.assert_allclose(product, [(1 + 2j) * (3 + 4j)][0].real * np.array([1, 0]) + np.array([0, 10.0]))


def test_cyclic_mds_can_end_before_n_minus_s_workers():
    code = codes.cyclic_mds(8, num_stragglers=1)  # 1 + x: every other worker is enough
    seconds = jnp.asarray([1.0, jnp.inf] * 4)
    np.testing.assert_allclose(completion(code)(seconds), 2.0)


@pytest.mark.parametrize(("n", "chunks", "s"), [(5, 7, 2), (6, 6, 1), (4, 9, 3), (8, 4, 3)])
def test_reed_solomon_masks_are_balanced(n, chunks, s):
    for points in ("chebyshev", "roots_of_unity"):
        code = codes.reed_solomon(n, num_chunks=chunks, num_stragglers=s, points=points)
        assert np.ptp(code.assignment.loads) <= 1
        np.testing.assert_array_equal(codes.holders(code.assignment).counts, s + 1)
        lengths = np.sqrt((full_encode(code) ** 2).sum(axis=(2, 3)))
        np.testing.assert_allclose(lengths, 1, rtol=1e-12)


def test_reed_solomon_of_many_workers_neither_overflows_nor_underflows():
    for points in ("chebyshev", "roots_of_unity"):
        encode = full_encode(codes.reed_solomon(900, num_chunks=400, num_stragglers=2, points=points))
        assert np.isfinite(encode).all() and (np.abs(encode).max(axis=(1, 2, 3)) > 0.1).all()


def test_communication_efficient_codes_send_a_fraction_and_hold_s_plus_l():
    code = codes.communication_efficient(8, num_stragglers=2, num_blocks=3, rng_key=KEY)
    assert (code.assignment.load, code.num_blocks, code.num_messages) == (5, 3, 1)
    generator = chebyshev_generator(6, 8)
    assert np.linalg.cond(generator) < 2  # rows of a discrete cosine transform
    np.testing.assert_allclose(generator[2], 2 * generator[1] ** 2 - 1, atol=1e-12)


def test_chunks_follow_speeds():
    assignment = assignments.proportional([1, 2, 3, 10], num_chunks=6, replication=2)
    np.testing.assert_array_equal(assignment.loads, [1, 2, 3, 6])  # the fastest holds all, the rest share
    np.testing.assert_array_equal(codes.holders(assignment).counts, 2)
    assignment = assignments.proportional([0, 1, 1, 2], num_chunks=100, replication=1)
    np.testing.assert_array_equal(assignment.loads, [0, 25, 25, 50])
    rounded = assignments.proportional(np.arange(1, 8), num_chunks=11, replication=3).loads
    assert rounded.sum() == 33 and np.abs(rounded - 33 * np.arange(1, 8) / 28).max() < 1


def test_heterogeneous_workers_take_about_as_long():
    speeds = np.array([1.0, 2.0, 2.0, 4.0, 5.0])
    code = codes.heterogeneous(speeds, num_chunks=70, num_stragglers=1, rng_key=KEY)
    times = code.assignment.loads / speeds
    assert times.max() / times.min() < 1.1
    equal = codes.reed_solomon(5, num_chunks=70, num_stragglers=1)
    at_speed = [float(completion(c)(jnp.asarray(1 / speeds))) for c in (code, equal)]
    assert at_speed[0] < 0.8 * at_speed[1]


def test_a_worker_too_slow_for_a_chunk_holds_nothing_and_is_not_waited_for():
    code = codes.heterogeneous([0.001, 1, 1, 1], num_chunks=6, num_stragglers=1, rng_key=KEY)
    assert code.assignment.loads[0] == 0
    np.testing.assert_allclose(completion(code)(jnp.asarray([jnp.inf, 1, 1, jnp.inf])), 4.0)


def test_round_robin_gives_every_chunk_as_many_holders():
    assignment = round_robin(4, np.array([3, 1, 4]))
    np.testing.assert_array_equal(assignment.chunks, [[0, 1, 2, -1], [3, -1, -1, -1], [0, 1, 2, 3]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: codes.cyclic_mds(4, num_stragglers=4), "between 0 and 3; got 4"),
        (lambda: codes.reed_solomon(6, num_chunks=1, num_stragglers=2), "num_chunks must be .* at least 2; got 1"),
        (lambda: codes.reed_solomon(6, num_chunks=6, num_stragglers=2, points="chebychev"), "Did you mean 'chebyshev'"),
        (
            lambda: codes.communication_efficient(5, num_stragglers=3, num_blocks=3, rng_key=KEY),
            "between 0 and 2; got 3",
        ),
        (lambda: codes.communication_efficient(5, num_stragglers=1, num_blocks=2), "needs rng_key"),
        (lambda: codes.heterogeneous([1, 0], num_chunks=3, num_stragglers=1, rng_key=KEY), "speeds must be above 0"),
        (lambda: assignments.proportional([1, 0], num_chunks=3, replication=2), "between 1 and 1; got 2"),
        (lambda: assignments.proportional([[1.0]], num_chunks=3, replication=1), r"speeds must be float\[W\]"),
        (lambda: assignments.proportional([1, np.nan], num_chunks=3, replication=1), "speeds must be at least 0"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_rounding_in_float32_does_not_hide_that_a_code_decodes():
    code = codes.cyclic_mds(32, num_stragglers=5)
    seconds = jnp.asarray(np.r_[np.linspace(1, 2, 27), np.full(5, np.inf)], jnp.float32)
    assert jax.jit(code.plan)(jnp.asarray(np.r_[np.full(27, 6), np.zeros(5)], jnp.int32)).residual > 1e-4
    np.testing.assert_allclose(completion(code)(seconds), 12.0, rtol=1e-6)
