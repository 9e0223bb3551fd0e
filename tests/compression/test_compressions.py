"""Every compression against its definition in NumPy, and what is said of it: linear, unbiased, a contraction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import compression as C
from tests.compression.compressions import ALL, BY_WORKER, CONTRACTIONS, LEVELS, PLAIN

KEY = jax.random.key(5)


def message(seed=0, dtype=None):
    """A matrix, a vector and a number: 45 numbers."""
    rng = np.random.default_rng(seed)
    tree = {"matrix": rng.normal(size=(8, 4)), "vector": rng.normal(size=12), "number": rng.normal()}
    return jax.tree.map(lambda x: jnp.asarray(x, dtype or jnp.result_type(float)), tree)


def flat(tree):
    return np.asarray(jax.flatten_util.ravel_pytree(tree)[0])


def estimate(compression, x, key=KEY):
    return compression.compress(x, compression.init(KEY, x), key)[0]


def test_every_entry_of_the_table_has_an_instance():
    assert {name.split()[0] for name in PLAIN} | {"error_feedback"} == set(C.TABLE)


def test_top_k_keeps_the_largest(x64):
    x = flat(message())
    kept = np.argsort(-np.abs(x))[:9]  # a fifth of 45
    wanted = np.zeros_like(x)
    wanted[kept] = x[kept]
    compression = C.top_k(share=0.2)
    np.testing.assert_array_equal(flat(estimate(compression, message())), wanted)
    assert compression.num_bytes(message()) == 9 * (8 + 4)


@pytest.mark.parametrize("rescale", [True, False])
def test_random_k_keeps_some(rescale, x64):
    compression, x = C.random_k(share=0.2, rescale=rescale), flat(message())
    found = flat(estimate(compression, message()))
    kept = found != 0
    assert kept.sum() == 9
    np.testing.assert_allclose(found[kept], x[kept] * (45 / 9 if rescale else 1), rtol=1e-15)
    assert compression.num_bytes(message()) == 9 * 8
    assert (flat(estimate(compression, message(), jax.random.key(6))) != found).any()


def test_int8_is_rounding_to_a_scale_of_each_block(x64):
    x = flat(message())
    blocks = np.pad(x, (0, 3)).reshape(6, 8)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / 127
    wanted = (np.round(blocks / scale) * scale).ravel()[:45]
    np.testing.assert_allclose(flat(estimate(PLAIN["int8"], message())), wanted, rtol=1e-14)
    assert PLAIN["int8"].num_bytes(message()) == 45 + 6 * 8


def test_float4_is_rounding_to_powers_of_two_of_the_largest_of_each_block(x64):
    x = flat(message())
    values = np.array([0.0, *(2.0**e for e in range(-6, 1))])
    blocks = np.pad(x, (0, 3)).reshape(6, 8)
    scale = np.abs(blocks).max(axis=1, keepdims=True)
    nearest = np.abs(np.abs(blocks / scale)[..., None] - values).argmin(axis=-1)
    wanted = (np.sign(blocks) * values[nearest] * scale).ravel()[:45]
    np.testing.assert_allclose(flat(estimate(PLAIN["float4"], message())), wanted, rtol=1e-14)
    assert len(set(nearest.ravel()[:45])) > 5
    assert PLAIN["float4"].num_bytes(message()) == 23 + 6 * 8
    np.testing.assert_array_equal(estimate(C.float4(), jnp.zeros(3)), np.zeros(3))


def test_sign_has_the_mean_magnitude_of_each_array(x64):
    for x, found in zip(*map(jax.tree.leaves, (message(), estimate(C.sign(), message()))), strict=True):
        x = np.asarray(x)
        np.testing.assert_allclose(found, np.where(x >= 0, 1, -1) * np.abs(x).mean(), rtol=1e-14)
    assert C.sign().num_bytes(message()) == (4 + 8) + (1 + 8) + (2 + 8)  # matrix, number, vector


def test_qsgd_rounds_to_neighbouring_levels(x64):
    x, found = flat(message()), flat(estimate(PLAIN["qsgd"], message()))
    norm = np.repeat(np.linalg.norm(np.pad(x, (0, 3)).reshape(3, 16), axis=1), 16)[:45]
    level, found_level = np.abs(x) / norm, np.abs(found) / norm
    np.testing.assert_allclose(found_level, found_level.round(), atol=1e-12)
    assert (np.abs(found_level - level) < 1).all()
    assert (np.sign(found)[found != 0] == np.sign(x)[found != 0]).all()
    assert PLAIN["qsgd"].num_bytes(message()) == 3 * 8 + -(-45 * 2 // 8)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_qsgd_with_the_levels_of_each_worker(dtype):
    """The bits of the compression that has this worker's levels for all; zeros, and no bytes, without levels."""
    x, found_bytes = message(dtype=dtype), BY_WORKER.num_bytes(message(dtype=dtype))
    assert BY_WORKER.num_workers == 4 and not BY_WORKER.is_contraction
    for worker, levels in enumerate(LEVELS):
        found, _ = BY_WORKER.compress(x, BY_WORKER.init(KEY, x, worker), KEY)
        if levels == 0:
            assert not flat(found).any() and found_bytes[worker] == 0
            continue
        own = C.qsgd(levels=levels, bucket_size=16)
        np.testing.assert_array_equal(flat(found), flat(estimate(own, x)))
        assert found_bytes[worker] == own.num_bytes(x)
    assert C.qsgd(levels=np.array([2, 3])) == C.qsgd(levels=np.array([2, 3])) != C.qsgd(levels=np.array([3, 2]))


def test_error_feedback_with_the_levels_of_each_worker(x64):
    compression = C.error_feedback(C.qsgd(levels=(5, 40), bucket_size=16))
    for worker, levels in enumerate((5, 40)):
        own = C.error_feedback(C.qsgd(levels=levels, bucket_size=16))
        state, own_state = compression.init(KEY, message(), worker), own.init(KEY, message())
        for step in range(3):
            found, state = compression.compress(message(step), state, KEY)
            wanted, own_state = own.compress(message(step), own_state, KEY)
            np.testing.assert_array_equal(flat(found), flat(wanted))
    np.testing.assert_array_equal(compression.num_bytes(message())[1], own.num_bytes(message()))


@pytest.mark.slow("qsgd")
@pytest.mark.parametrize("name", ["qsgd", "qsgd of many levels", "random_k"])
def test_unbiased(name, x64):
    """The mean of many estimates is the message, up to six standard errors."""
    x, keys = message(), jax.random.split(KEY, 4000)
    estimates = jax.vmap(lambda key: jax.flatten_util.ravel_pytree(estimate(PLAIN[name], x, key))[0])(keys)
    standard_error = np.asarray(estimates.std(axis=0)) / np.sqrt(len(keys))
    assert (np.abs(np.asarray(estimates.mean(axis=0)) - flat(x)) <= 6 * standard_error + 1e-12).all()


def test_random_k_is_unbiased_over_all_sets_of_places(x64):
    """Two of four places: the six sets are about as frequent, and each place is in half of them."""
    x = jnp.asarray([1.0, 2.0, 3.0, 4.0])
    estimates = np.asarray(jax.vmap(lambda key: estimate(C.random_k(share=0.5), x, key))(jax.random.split(KEY, 3000)))
    sets, counts = np.unique(estimates, axis=0, return_counts=True)
    assert len(sets) == 6
    assert counts.min() > 400
    np.testing.assert_allclose(sets.mean(axis=0), x)


def test_powersgd_is_exact_for_a_matrix_of_its_rank(x64):
    rng = np.random.default_rng(1)
    x = {
        "matrix": jnp.asarray(rng.normal(size=(9, 2)) @ rng.normal(size=(2, 7))),
        "vector": jnp.asarray(rng.normal(size=7)),
    }
    found = estimate(C.powersgd(rank=2), x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), found, x)
    assert np.abs(flat(estimate(C.powersgd(rank=1), x)) - flat(x)).max() > 0.1
    assert C.powersgd(rank=2).num_bytes(x) == ((9 + 7) * 2 + 7) * 8


def test_powersgd_comes_to_the_best_matrix_of_its_rank(x64):
    """With the same message again and again it is power iteration: the warm start."""
    matrix = jnp.asarray(np.random.default_rng(2).normal(size=(8, 6)))
    left, values, right = np.linalg.svd(matrix)
    best = values[0] * np.outer(left[:, 0], right[0])
    compression = C.powersgd(rank=1)
    state = compression.init(KEY, matrix)
    distances = []
    for _ in range(200):
        found, state = compression.compress(matrix, state, KEY)
        distances.append(np.abs(found - best).max())
    assert distances[0] > 0.01
    assert distances[-1] < 1e-9


def test_powersgd_sends_small_matrices_and_tensors(x64):
    tensor = {"small": jnp.ones((2, 2)), "kernel": jnp.ones((3, 3, 4, 5))}
    assert C.powersgd(rank=1).num_bytes(tensor) == (4 + 36 + 5) * 8
    np.testing.assert_allclose(estimate(C.powersgd(rank=1), tensor)["kernel"], tensor["kernel"], rtol=1e-12)


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_what_was_sent_and_what_is_left_add_up(name, x64):
    compression = C.error_feedback(CONTRACTIONS[name])
    state, sent, total = compression.init(KEY, message()), 0.0, 0.0
    for step in range(12):
        x = message(step)
        received, state = compression.compress(x, state, jax.random.fold_in(KEY, step))
        sent, total = sent + flat(received), total + flat(x)
        np.testing.assert_allclose(sent + flat(state.residual), total, atol=1e-12)
    assert np.abs(flat(state.residual)).max() > 1e-3


@pytest.mark.slow("powersgd", "qsgd")
@pytest.mark.parametrize("name", PLAIN)
def test_contractions_and_no_others(name, x64):
    """The mean over keys of the squared loss, of messages that are hard in several ways."""
    compression, keys = PLAIN[name], jax.random.split(KEY, 200)
    worst = 0.0
    for x in (message(), jax.tree.map(jnp.ones_like, message()), jax.tree.map(lambda x: x**9, message())):
        estimates = jax.vmap(lambda key, x=x: jax.flatten_util.ravel_pytree(estimate(compression, x, key))[0])(keys)
        losses = ((np.asarray(estimates) - flat(x)) ** 2).sum(axis=1)
        worst = max(worst, losses.mean() / (flat(x) ** 2).sum())
    assert (worst < 1) == compression.is_contraction, worst


@pytest.mark.parametrize("name", PLAIN)
def test_random_places_are_linear_and_no_others(name, x64):
    compression, x, y = PLAIN[name], message(1), message(2)
    combined = estimate(compression, jax.tree.map(lambda a, b: 2.5 * a - b, x, y))
    difference = flat(combined) - (2.5 * flat(estimate(compression, x)) - flat(estimate(compression, y)))
    assert (np.abs(difference).max() < 1e-12) == name.startswith("random_k")


@pytest.mark.slow("bfloat16-int8")
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_types_shapes_and_zeros(name, dtype):
    compression, x = ALL[name], message(dtype=dtype)
    state = compression.init(KEY, x)
    found, after = compression.compress(x, state, KEY)
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype), tree) for tree in (x, found, state, after)]
    assert shapes[0] == shapes[1]
    assert shapes[2] == shapes[3]
    zero = jax.tree.map(jnp.zeros_like, x)
    for _ in range(2):
        found, state = compression.compress(zero, state, KEY)
        assert (flat(found) == 0).all()
    found, _ = compression.compress(x, state, KEY)  # and it goes on after zeros
    assert (flat(found) != 0).any()


@pytest.mark.parametrize("name", ALL)
def test_fewer_bytes_by_shapes_alone(name):
    shapes = jax.eval_shape(message)
    assert 0 < ALL[name].num_bytes(shapes) < 45 * 4
    assert isinstance(ALL[name].num_bytes(shapes), int)


def test_equal_factories_make_equal_compressions():
    assert C.error_feedback(C.top_k(share=0.1)) == C.error_feedback(C.top_k(share=0.1))
    assert C.qsgd(levels=2) != C.qsgd(levels=3)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: C.top_k(share=0.0), "share must be above 0 and at most 1; got 0"),
        (lambda: C.random_k(share=1.5), "share must be above 0 and at most 1; got 1.5"),
        (lambda: C.top_k(share=(0.1, 0.2)), "share must be one number"),
        (lambda: C.qsgd(levels=0), "levels must be a whole number at least 1; got 0"),
        (lambda: C.qsgd(levels=(1, -1)), "levels of each worker must be a whole number at least 0; got -1"),
        (lambda: C.qsgd(levels=(1, 1.5)), "levels of each worker must be a whole number at least 0; got 1"),
        (lambda: C.qsgd(levels=(0, 0)), "levels must be above 0 for some worker"),
        (lambda: C.qsgd(levels=()), r"one whole number, or int\[W\]"),
        (lambda: C.qsgd(levels=np.ones((2, 2), int)), r"one whole number, or int\[W\]"),
        (lambda: C.qsgd(levels=None), "levels must be a whole number at least 1; got None"),
        (
            lambda: C.error_feedback(C.qsgd(levels=(90, 0), bucket_size=4)),
            "loses less than the message.*on all workers",
        ),
        (lambda: C.qsgd(levels=1, bucket_size=0), "bucket_size must be a whole number at least 1"),
        (lambda: C.float4(block_size=0), "block_size must be a whole number at least 1; got 0"),
        (lambda: C.int8(block_size=2.5), "block_size must be a whole number at least 1; got 2.5"),
        (lambda: C.powersgd(rank=0), "rank must be a whole number at least 1; got 0"),
        (lambda: C.error_feedback(C.sign), "compression must be a Compression.*Was the factory called"),
        (lambda: C.error_feedback(C.random_k(share=0.1)), r"can lose more. Take random_k\(..., rescale=False\)"),
        (lambda: C.error_feedback(C.qsgd(levels=1, bucket_size=4)), "loses less than the message"),
        (lambda: C.error_feedback(C.error_feedback(C.sign())), "loses less than the message"),
    ],
)
def test_bad_input(make, match):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize("sent_before", ["zeros", "other columns"])
def test_powersgd_goes_on_after_a_message_of_which_nothing_is_left(sent_before, x64):
    """Then the factor of that message has nothing to do with the next one, whose first rows are zero besides."""
    rows = np.arange(16)[:, None]
    after = jnp.asarray(np.where(rows < 2, 0.0, rows) * np.r_[0.0, 0.0, 0.0, np.arange(1.0, 6.0)])
    before = jnp.zeros((16, 8)) if sent_before == "zeros" else jnp.zeros((16, 8)).at[5, 1].set(2.0)
    compression = C.error_feedback(C.powersgd(rank=1))
    state = compression.init(KEY, before)
    total = jnp.zeros((16, 8))
    for number, sent in enumerate([before, after, after, after]):
        received, state = compression.compress(sent, state, jax.random.fold_in(KEY, number))
        total = total + received
    np.testing.assert_allclose(total, before + 3 * after, atol=1e-9)


@pytest.mark.slow("bfloat16-1.0", "float16-0.001")
@pytest.mark.parametrize(("dtype", "scale"), [(jnp.bfloat16, 1.0), (jnp.float16, 1e-3), (jnp.float16, 300.0)])
def test_narrow_numbers_are_compressed_in_float32(dtype, scale):
    """Along the message, the mean estimate of QSGD has its length; int8 and signs are nearly as in float32."""
    sent = (jax.random.normal(KEY, (512,)) * scale).astype(dtype)
    wide = sent.astype(jnp.float32)
    estimates = jax.vmap(lambda key: C.qsgd(levels=1).compress(sent, (), key)[0])(jax.random.split(KEY, 4000))
    assert estimates.dtype == dtype
    length = float(estimates.astype(jnp.float32).mean(axis=0) @ wide / (wide @ wide))
    assert length == pytest.approx(1.0, abs=0.02)
    for compression in (C.int8(), C.sign()):
        received, in_float32 = (compression.compress(x, (), KEY)[0] for x in (sent, wide))
        np.testing.assert_allclose(received.astype(jnp.float32), in_float32, rtol=0.01)


@pytest.mark.parametrize("name", ["top_k", "random_k", "qsgd", "int8"])
def test_of_nothing_nothing_is_sent(name):
    nothing = jnp.zeros(0)
    assert PLAIN[name].compress(nothing, (), KEY)[0].shape == (0,) and PLAIN[name].num_bytes(nothing) == 0


@pytest.mark.slow("powersgd")
@pytest.mark.parametrize("name", ["top_k", "random_k", "qsgd", "int8", "sign", "powersgd"])
def test_what_is_no_float_is_refused(name):
    whole_numbers = jnp.ones((8, 8), jnp.int32)
    with pytest.raises(ValueError, match=r"must be of floats; got int32"):
        PLAIN[name].compress(whole_numbers, PLAIN[name].init(KEY, jnp.ones((8, 8))), KEY)


@pytest.mark.parametrize("name", ["top_k", "random_k", "qsgd", "int8", "sign"])
def test_whole_numbers_beside_floats_are_refused(name):
    message = {"counts": jnp.arange(3), "weights": jnp.ones(2)}
    with pytest.raises(ValueError, match=r"must be of floats; got int32\[3\]"):
        PLAIN[name].compress(message, (), KEY)


@pytest.mark.parametrize("exponent", [-120, -100, 100, 120])
def test_qsgd_of_very_small_and_large_numbers_is_that_of_others_scaled(exponent):
    message = jax.random.normal(KEY, (100,))
    compress = lambda message: C.qsgd(levels=5, bucket_size=32).compress(message, (), KEY)[0]  # noqa: E731
    np.testing.assert_array_equal(compress(jnp.ldexp(message, exponent)), jnp.ldexp(compress(message), exponent))


def test_what_is_kept_in_error_feedback_is_not_rounded_to_a_short_type():
    """In bfloat16 a residual that has grown to 256 times a message would grow no more."""
    compression = C.error_feedback(C.top_k(share=0.5))
    message, key = jnp.array([1.0, 2.0**-10], jnp.bfloat16), jax.random.key(0)

    def send(carry, _):
        state, sent = carry
        estimate, state = compression.compress(message, state, key)
        return (state, sent + estimate.astype(jnp.float32)), None

    first = compression.init(key, message), jnp.zeros(2, jnp.float32)
    (state, sent), _ = jax.lax.scan(send, first, length=4096)
    np.testing.assert_array_equal(sent + state.residual, [4096.0, 4.0])


@pytest.mark.parametrize("size", [1e-30, 1e19, 1e37])
def test_powersgd_does_the_same_with_large_and_small_messages(size):
    compression, matrix = C.powersgd(rank=2), jax.random.normal(KEY, (12, 9))
    state = scaled_state = compression.init(KEY, matrix)
    for number in range(4):
        key = jax.random.fold_in(KEY, number)
        expected, state = compression.compress(matrix, state, key)
        large_or_small, scaled_state = compression.compress(size * matrix, scaled_state, key)
        np.testing.assert_allclose(large_or_small / size, expected, rtol=2e-3, atol=1e-4)


def test_float4_keeps_the_largest_numbers_there_are():
    message = jnp.array([3e38, -3e38, 1.6e38, 0.0], jnp.float32)
    kept = jax.jit(lambda m: C.float4().compress(m, (), KEY)[0])(message)
    np.testing.assert_allclose(kept, [3e38, -3e38, 1.5e38, 0.0], rtol=1e-6)


def test_each_number_has_the_bytes_of_its_own_type():
    mixed = {"kernel": jnp.ones((50, 40), jnp.bfloat16), "scale": jnp.ones((), jnp.float32)}  # 2001 numbers, 4004 bytes
    assert C.random_k(share=1.0).num_bytes(mixed) == 4004
    assert C.random_k(share=0.5).num_bytes(mixed) == 2001  # 1000 numbers of 2.001 bytes
    assert C.top_k(share=0.5).num_bytes(mixed) == 2001 + 4000
    assert C.qsgd(levels=(1, 0), bucket_size=3000).num_bytes(mixed).tolist() == [3 + 501, 0]  # rounded up


def test_error_feedback_keeps_what_is_beyond_the_range_of_a_type():
    feedback, message = C.error_feedback(C.top_k(share=0.4)), jnp.array([60000.0, 50000.0, 1.0], jnp.float16)
    state, largest = feedback.init(KEY, message), float(jnp.finfo(jnp.float16).max)
    sent = np.zeros(3)
    for round in range(6):
        estimate, state = feedback.compress(message if round < 3 else 0 * message, state, KEY)
        assert jnp.isfinite(estimate).all() and abs(estimate).max() <= largest
        sent += np.asarray(estimate, float)
    np.testing.assert_allclose(sent + np.asarray(state.residual, float), 3 * np.asarray(message, float), rtol=1e-6)
    broken = feedback.compress(jnp.array([jnp.inf, 0.0, 0.0], jnp.float16), state, KEY)[0]
    assert not jnp.isfinite(broken).all()  # a message that is not finite is not hidden


@pytest.mark.parametrize("compression", [C.qsgd(levels=1), C.random_k(share=0.5)], ids=["qsgd", "random_k"])
def test_estimates_beyond_the_range_of_a_type_are_its_largest_number(compression):
    message = jnp.array([6e4, 6e4, -6e4, 6e4], jnp.float16)
    estimate = compression.compress(message, (), KEY)[0]
    sent = estimate[estimate != 0]
    assert sent.size and (abs(sent) == jnp.finfo(jnp.float16).max).all()
    assert not jnp.isfinite(compression.compress(message * jnp.inf, (), KEY)[0]).all()


def test_error_feedback_of_estimates_beyond_the_range_of_a_type_keeps_the_rest():
    feedback, message = C.error_feedback(C.qsgd(levels=3, bucket_size=8)), jnp.full(8, 6.5e4, jnp.float16)
    state, sent = feedback.init(KEY, message), np.zeros(8)
    for number in range(6):
        estimate, state = feedback.compress(message, state, jax.random.fold_in(KEY, number))
        sent += np.asarray(estimate, float)
    np.testing.assert_allclose(sent + np.asarray(state.residual, float), 6 * np.asarray(message, float), rtol=1e-6)
