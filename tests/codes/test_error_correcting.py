"""The code that finds wrong messages: every set of wrong and missing workers at small sizes, and its limits."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes, protocols

WIDTH = 7


def attacks(rng, right):
    """name -> what a worker sends instead of `right [2, width]`."""
    return {
        "reversed": -right,
        "huge": np.full_like(right, 1e8),
        "one number": right + np.eye(*right.shape),
        "slightly": right * (1 + 1e-2 * rng.normal(size=right.shape)),
        "infinite": np.full_like(right, np.inf),
        "not a number": np.where(np.eye(*right.shape) > 0, np.nan, right),
    }


def round_of(code, missing, rng):
    """The coding of a round without some workers, all messages, and the sum of the gradients [L, width]."""
    load, num_workers = code.assignment.load, code.assignment.num_workers
    progress = np.full(num_workers, load)
    progress[list(missing)] = rng.integers(0, load, len(missing))
    coding = jax.jit(code.plan)(jnp.asarray(progress, jnp.int32))
    gradients = rng.normal(size=(code.assignment.num_chunks, 2, WIDTH))
    messages = np.einsum("wmkl,wkld->wmd", np.asarray(coding.encode), gradients[np.asarray(code.assignment.chunks)])
    return coding, messages, gradients.sum(axis=0)


def decoded(decode, messages):
    used = (decode != 0).any(axis=(1, 2))
    return np.einsum("wml,wmd->ld", decode, np.where(used[:, None, None], messages, 0))


@pytest.mark.slow("6-2-0")
@pytest.mark.parametrize(
    ("num_workers", "num_wrong", "num_stragglers"),
    [
        (3, 1, 0), (5, 1, 2), (6, 2, 0), pytest.param(7, 2, 1, marks=pytest.mark.slow),
        pytest.param(9, 1, 3, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_any_so_many_wrong_messages_are_found(num_workers, num_wrong, num_stragglers, x64):
    code = codes.error_correcting(num_workers, num_wrong=num_wrong, num_stragglers=num_stragglers)
    compare, rng = jax.jit(code.weights_from_messages), np.random.default_rng(0)
    everybody = range(num_workers)
    for missing in itertools.chain(*(itertools.combinations(everybody, k) for k in range(num_stragglers + 1))):
        coding, right, total = round_of(code, missing, rng)
        arrived = [worker for worker in everybody if worker not in missing]
        for wrong in itertools.chain(*(itertools.combinations(arrived, k) for k in range(num_wrong + 1))):
            name = list(attacks(rng, right[0]))[rng.integers(6)]
            sent = right.copy()
            for worker in wrong:
                sent[worker] = attacks(rng, right[worker])[name]
            decode = np.asarray(compare(jnp.asarray(sent), coding))
            assert not decode[list(wrong)].any(), (missing, wrong, name)
            np.testing.assert_allclose(
                decoded(decode, sent), total, rtol=1e-9, atol=1e-9, err_msg=f"{missing} {wrong} {name}"
            )


@pytest.mark.slow("huge-slightly-reversed", "reversed-reversed-reversed")
@pytest.mark.parametrize(
    "names", [["reversed"] * 3, ["huge", "slightly", "reversed"], ["huge", "slightly", "infinite"]], ids="-".join
)
def test_in_float32_with_many_workers(names):
    code = codes.error_correcting(23, num_wrong=3, num_stragglers=2)
    rng, compare = np.random.default_rng(1), jax.jit(code.weights_from_messages)
    for _ in range(5):
        missing, *wrong = rng.permutation(23)[:4].tolist()
        coding, right, total = round_of(code, [missing], rng)
        sent = right.astype(np.float32)
        for worker, name in zip(wrong, names, strict=True):
            sent[worker] = attacks(rng, right[worker])[name]
        decode = np.asarray(compare(jnp.asarray(sent), coding))
        assert decode.dtype == np.float32
        np.testing.assert_allclose(decoded(decode, sent), total, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_with_short_floats_what_is_far_from_right_is_found(dtype):
    code = codes.error_correcting(7, num_wrong=2, num_stragglers=0)
    coding, right, total = round_of(code, [], np.random.default_rng(3))
    sent = np.array(jnp.asarray(right, dtype).astype(jnp.float32))
    sent[2], sent[5] = -3 * sent[2], 50.0
    decode = np.asarray(jax.jit(code.weights_from_messages)(jnp.asarray(sent, dtype), coding))
    assert not decode[[2, 5]].any()
    np.testing.assert_allclose(decoded(decode, sent), total, atol=0.1)


@pytest.mark.parametrize("gradients", ["usual", "tiny", "all zero", "all but one zero"])
def test_wrong_messages_of_any_size_are_found(gradients):
    """Squares of these sizes are no numbers of 32 bits; of right messages most may be 0, or all."""
    code = codes.error_correcting(12, num_wrong=2, num_stragglers=1)
    coding, right, _ = round_of(code, [7], np.random.default_rng(4))
    if gradients == "all but one zero":
        right *= (np.asarray(code.assignment.chunks) == 3).any(axis=1)[:, None, None]
    right = (right * {"tiny": 1e-25, "all zero": 0.0}.get(gradients, 1.0)).astype(np.float32)
    compare = jax.jit(code.weights_from_messages)
    for value in (1e-3, 1e10, 1e19, 1e25, 3e38):
        sent = right.copy()
        sent[4], sent[9] = value, -value / 3
        decode = np.asarray(compare(jnp.asarray(sent), coding))
        assert decode.any() and not decode[[4, 7, 9]].any(), value
    if gradients in ("usual", "tiny"):  # wrong ones about as large as right ones
        sent = right.copy()
        sent[4], sent[9] = -right[4], 2 * right[9]
        assert not np.asarray(compare(jnp.asarray(sent), coding))[[4, 7, 9]].any()


def test_one_more_is_too_many(x64):
    code = codes.error_correcting(6, num_wrong=1, num_stragglers=1)
    coding, sent, total = round_of(code, [], np.random.default_rng(2))
    sent[1], sent[4] = sent[0] * 2, sent[2] + 3
    decode = np.asarray(jax.jit(code.weights_from_messages)(jnp.asarray(sent), coding))
    assert np.abs(decoded(decode, sent) - total).max() > 0.1


def test_with_fewer_than_needed_nothing_is_decoded():
    code = codes.error_correcting(6, num_wrong=1, num_stragglers=1)
    coding = code.plan(jnp.asarray([4, 4, 4, 4, 0, 0]))
    assert not coding.decode.any() and coding.residual > 1
    coding = code.plan(jnp.asarray([4, 4, 4, 4, 0, 4]))
    assert coding.residual < 1e-5
    finish = jnp.broadcast_to(jnp.asarray([5.0, 1.0, 2.0, 4.0, 3.0, 9.0])[:, None], (6, 4))
    assert code.completion(finish) == 5.0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"num_wrong": 2, "num_stragglers": 1}, "below num_workers, 5; got 5"),
        ({"num_wrong": -1, "num_stragglers": 0}, "num_wrong"),
        ({"num_wrong": 1, "num_stragglers": 0.5}, "num_stragglers"),
    ],
)
def test_bad_input(arguments, match):
    with pytest.raises(ValueError, match=match):
        codes.error_correcting(5, **arguments)


SMALL, LARGER = (
    codes.error_correcting(3, num_wrong=1, num_stragglers=0),
    codes.error_correcting(5, num_wrong=2, num_stragglers=0),
)


@pytest.mark.slow("side by side")
@pytest.mark.parametrize(
    ("code", "wrong"),
    [(codes.clustered(SMALL, num_clusters=2), (1, 5)), (codes.side_by_side(SMALL, LARGER), (0, 4, 6))],
    ids=["clustered", "side by side"],
)
def test_codes_that_are_made_of_such_codes_find_wrong_messages_too(code, wrong, x64):
    rng, chunks = np.random.default_rng(5), np.asarray(code.assignment.chunks)
    coding = code.plan(jnp.asarray(code.assignment.loads))
    gradients = rng.normal(size=(code.assignment.num_chunks, 2, WIDTH))
    sent = np.einsum("wmkl,wkld->wmd", np.asarray(coding.encode), gradients[chunks])  # encode is 0 where chunks are -1
    sent[list(wrong)] = 1e3
    decode = np.asarray(jax.jit(code.weights_from_messages)(jnp.asarray(sent), coding))
    assert not decode[list(wrong)].any()
    np.testing.assert_allclose(decoded(decode, sent), gradients.sum(axis=0), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_parts_that_look_at_no_messages_keep_their_plan(x64):
    plain = codes.partial(codes.assignments.cyclic(3, load=2), num_blocks=2, rng_key=jax.random.key(0))
    code = codes.side_by_side(plain, SMALL)
    coding = code.plan(jnp.asarray(code.assignment.loads))
    decode = code.weights_from_messages(jnp.zeros((6, code.num_messages, WIDTH)), coding)
    np.testing.assert_array_equal(decode[:3], coding.decode[:3])
    assert codes.side_by_side(plain, plain).weights_from_messages is None


@pytest.mark.parametrize(
    "make",
    [
        lambda code: codes.two_part(code, num_uncoded=1),
        lambda code: codes.tree_code(code, num_layers=2),
        codes.alternatives,
        lambda code: protocols.adaptive_coded({"majority": code}),
    ],
    ids=["two_part", "tree_code", "alternatives", "adaptive_coded"],
)
def test_codes_that_would_forget_to_look_at_messages_are_refused(make):
    with pytest.raises(ValueError, match="decodes by its plan; got one that looks at the messages"):
        make(codes.majority(3, num_wrong=1, num_stragglers=0))
