"""The bits of each worker: against all allocations, and against the variance of the codes that they are for."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes, compression
from gcjax.codes import assignments

LATE = (0.1, 0.3, 0.25, 0.7)


def precision_sum(bits, late, noise):
    """The sum of (1 - p) / (p + noise)."""
    rows = np.broadcast_to(noise, (len(late), np.shape(noise)[-1]))
    return sum((1 - p) / (p + row[b]) for p, row, b in zip(late, rows, bits, strict=True))


def all_allocations(num_bits, num_workers, most_bits):
    return [b for b in itertools.product(range(most_bits + 1), repeat=num_workers) if sum(b) <= num_bits]


def random_noise(rng, shape):
    """Falling with the bits, at random places steeply; now and then a worker without bits is not silent."""
    noise = np.sort(10.0 ** rng.uniform(-3, 2, size=shape), axis=-1)[..., ::-1].copy()
    noise[..., 0] = np.where(rng.random() < 0.5, np.inf, noise[..., 0])
    return noise


@pytest.mark.parametrize("seed", range(12))
def test_no_other_allocation_is_better(seed):
    rng = np.random.default_rng(seed)
    num_workers, most_bits = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    late = rng.uniform(0.02, 0.95, size=num_workers)
    noise = random_noise(rng, (most_bits + 1,) if seed % 2 else (num_workers, most_bits + 1))
    for num_bits in range(num_workers * most_bits + 2):
        bits = codes.bit_allocation(num_bits, straggler_probabilities=late, noise=noise)
        assert bits.sum() <= num_bits and bits.min() >= 0 and bits.max() <= most_bits
        best = max(precision_sum(other, late, noise) for other in all_allocations(num_bits, num_workers, most_bits))
        np.testing.assert_allclose(precision_sum(bits, late, noise), best, rtol=1e-12)


def test_one_bit_after_the_other_is_not_enough():
    """With much noise the second bit helps more than the first: whoever begins would get all it can use."""
    noise, late = codes.quantisation_noise(6, scale=10.0), (0.1, 0.1, 0.1, 0.1)
    greedy = [0] * 4
    for _ in range(8):
        gains = [
            precision_sum([b + (i == w) for i, b in enumerate(greedy)], late, noise) if greedy[w] < 6 else 0
            for w in range(4)
        ]
        greedy[int(np.argmax(gains))] += 1
    bits = codes.bit_allocation(8, straggler_probabilities=late, noise=noise)
    assert greedy == [6, 2, 0, 0] and bits.tolist() == [4, 4, 0, 0]
    assert precision_sum(bits, late, noise) > 1.3 * precision_sum(greedy, late, noise)


def variance(assignment, bits, noise, aligned):
    """Of the estimate, by the weights of the code; for gradients of length one, all alike or uncorrelated."""
    late = np.array(LATE)
    code = codes.unbiased(assignment, straggler_probabilities=LATE, message_noise=noise[list(bits)], aligned=aligned)
    shares = np.asarray(code.plan(assignment.loads).encode)[:, 0, :, 0] * (1 - late)[:, None]
    lengths = shares.sum(axis=1) ** 2 if aligned else (shares**2).sum(axis=1)
    sends = lengths > 0
    return float((lengths[sends] * ((late + noise[list(bits)]) / (1 - late))[sends]).sum())


def test_the_variance_of_the_code_is_the_least(x64):
    """Of all allocations with which somebody still sends each chunk, where gradients are all alike."""
    assignment, noise = assignments.cyclic(4, load=3), codes.quantisation_noise(4, scale=6.0)
    bits = codes.bit_allocation(6, straggler_probabilities=LATE, noise=noise)
    variances = {}
    for other in all_allocations(6, 4, 4):
        if sum(b > 0 for b in other) >= 2:  # each chunk has three holders
            variances[other] = variance(assignment, other, noise, aligned=True)
            np.testing.assert_allclose(variances[other], 16 / precision_sum(other, LATE, noise), rtol=1e-9)
    assert len(variances) > 100
    np.testing.assert_allclose(variances[tuple(bits.tolist())], min(variances.values()), rtol=1e-12)


@pytest.mark.parametrize("aligned", [False, True])
def test_who_sends_nothing_is_as_if_left_out(aligned, x64):
    whole, rest = assignments.cyclic(4, load=3), assignments.cyclic(4, load=3).chunks[[0, 2, 3]]
    noise = np.array([0.5, np.inf, 1.0, 2.0])
    with_silent = codes.unbiased(whole, straggler_probabilities=LATE, message_noise=noise, aligned=aligned)
    without = codes.unbiased(
        codes.Assignment(rest, 4),
        straggler_probabilities=[LATE[w] for w in (0, 2, 3)],
        message_noise=noise[[0, 2, 3]],
        aligned=aligned,
    )
    encode = np.asarray(with_silent.plan(whole.loads).encode)[:, 0, :, 0]
    np.testing.assert_allclose(encode[[0, 2, 3]], np.asarray(without.plan([3] * 3).encode)[:, 0, :, 0], atol=1e-12)
    assert (encode[1] == 0).all()
    assert with_silent.sent(whole.loads)[:, 0].tolist() == [True, False, True, True]


def test_a_chunk_that_nobody_sends_is_an_error():
    with pytest.raises(ValueError, match="nobody who sends anything holds chunk 1"):
        codes.unbiased(assignments.cyclic(3, load=1), straggler_probabilities=0.1, message_noise=(1, np.inf, 1))


def test_bits_that_do_not_help_are_not_given():
    noise = (np.inf, 1.0, 0.5, 0.5)
    assert codes.bit_allocation(9, straggler_probabilities=(0.2, 0.2), noise=noise).tolist() == [2, 2]
    assert codes.bit_allocation(0, straggler_probabilities=(0.2, 0.2), noise=noise).tolist() == [0, 0]
    assert codes.bit_allocation(1, straggler_probabilities=(0.2, 0.2), noise=noise).tolist() == [1, 0]


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_quantised_messages_are_not_noisier(bits):
    """The noise of QSGD, over many draws, of a message whose numbers lie between the levels."""
    quantised, message = compression.qsgd(levels=2**bits - 1, bucket_size=8), jnp.linspace(0.6, 1.4, 8)
    estimates = jax.vmap(lambda key: quantised.compress(message, (), key)[0])(jax.random.split(jax.random.key(1), 4000))
    noise = np.mean(np.sum((np.asarray(estimates) - np.asarray(message)) ** 2, axis=1)) / float(message @ message)
    bound = codes.quantisation_noise(bits, scale=2.0)[bits]
    assert 0.3 * bound < noise <= 1.05 * bound
    assert quantised.num_bytes(message) == 4 + bits + 1  # a norm, and of 8 numbers so many bits and a sign each


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_bits": -1}, "num_bits must be"),
        ({"straggler_probabilities": 0.1}, r"must be float\[W\], one a worker; got shape \(\)"),
        ({"straggler_probabilities": (0.1, 1.0)}, "below 1, or a worker never sends; got 1"),
        ({"straggler_probabilities": (0.1, 0.0)}, "above 0; got 0 for worker 1"),
        ({"noise": (1.0, 2.0)}, "noise must fall with the bits"),
        ({"noise": (1.0, -2.0)}, "noise must be at least 0"),
        ({"noise": np.ones((3, 2))}, r"float\[2, B \+ 1\], one row a worker; got shape \(3, 2\)"),
        ({"noise": ()}, r"noise must be float\[B \+ 1\]"),
    ],
)
def test_bad_input(change, message):
    arguments = {"num_bits": 3, "straggler_probabilities": (0.1, 0.2), "noise": (np.inf, 1.0, 0.2)}
    with pytest.raises(ValueError, match=message):
        codes.bit_allocation(**{**arguments, **change})


@pytest.mark.parametrize(("max_bits", "scale"), [(0, 1.0), (2, 0.0), (2, np.inf)])
def test_noise_of_no_bits(max_bits, scale):
    with pytest.raises(ValueError, match=r"max_bits|scale"):
        codes.quantisation_noise(max_bits, scale=scale)
