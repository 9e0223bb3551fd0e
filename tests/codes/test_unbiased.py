"""Unbiased codes: the mean over all masks, and the least variance, against enumeration and a numerical optimiser."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import minimize

from gcjax import codes, compression, engine, protocols, tasks
from gcjax.codes import assignments
from gcjax.testing import check_code

UNEVEN = assignments.from_matrix([[1, 1, 0, 0], [1, 0, 1, 1], [0, 1, 1, 0], [0, 0, 1, 1]])
TWO_PIECES = assignments.from_matrix([[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1]])
CASES = {
    "uneven": (UNEVEN, (0.1, 0.5, 0.3, 0.8)),
    "all alike": (assignments.cyclic(5, load=3), 0.25),
    "two pieces": (TWO_PIECES, (0.3, 0.6, 0.2, 0.7, 0.1)),
    "one holder": (codes.uncoded(3, load=2).assignment, (0.1, 0.4, 0.9)),
    "somebody without chunks": (codes.Assignment(np.array([[0, 1], [-1, -1], [1, -1]], np.int32), 2), 0.4),
}


def coefficients_by_mask(code):
    """All masks, and float64[masks, N]: the coefficient of every chunk in the estimate, by the definition."""
    a = code.assignment
    masks = np.array(list(itertools.product((False, True), repeat=a.num_workers)))
    codings = jax.jit(jax.vmap(code.plan))(np.where(masks, a.loads, 0).astype(np.int32))
    coefficients = np.zeros((len(masks), a.num_chunks))
    for w, k in zip(*np.nonzero(a.chunks >= 0), strict=True):
        coefficients[:, a.chunks[w, k]] += np.asarray(codings.decode[:, w, 0, 0] * codings.encode[:, w, 0, k, 0])
    return masks, coefficients


def chances(masks, lateness):
    """float64[masks]: how likely each mask is."""
    lateness = np.broadcast_to(lateness, masks.shape[1:])
    return np.where(masks, 1 - lateness, lateness).prod(axis=1)


def variance(coefficients, chance, aligned):
    """Of the estimate, for uncorrelated gradients of length one, or all alike: by enumeration."""
    error = coefficients - 1
    return chance @ (error.sum(axis=1) ** 2 if aligned else (error**2).sum(axis=1))


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_mean_over_all_masks_is_the_sum(x64, name, aligned):
    assignment, lateness = CASES[name]
    code = codes.unbiased(assignment, straggler_probabilities=lateness, aligned=aligned)
    masks, coefficients = coefficients_by_mask(code)
    np.testing.assert_allclose(chances(masks, lateness) @ coefficients, 1, rtol=1e-12)


def noise_variance(assignment, shares, masks, chance, noise, aligned):
    """Of the estimates of messages: over masks, `noise[w]` times the squared length of what worker w has sent.

    `shares[w, c]` is what w sends of chunk c; gradients are uncorrelated and of length one, or all alike.
    """
    squared_lengths = shares.sum(axis=1) ** 2 if aligned else (shares**2).sum(axis=1)
    return chance @ (masks * (noise * squared_lengths)).sum(axis=1)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize(
    ("name", "noise"), [("uneven", 0.0), ("two pieces", 0.0), ("uneven", np.array([0.5, 0.0, 2.0, 0.1]))]
)
def test_no_other_unbiased_weights_vary_less(x64, name, noise, aligned):
    """Sequential quadratic programming over all weights, with the variance by enumeration of the masks."""
    assignment, lateness = CASES[name]
    code = codes.unbiased(assignment, straggler_probabilities=lateness, message_noise=noise, aligned=aligned)
    masks, coefficients = coefficients_by_mask(code)
    chance = chances(masks, lateness)
    pairs = [(w, c) for w, row in enumerate(assignment.chunks) for c in row if c >= 0]
    effect = np.zeros((len(masks), assignment.num_chunks, len(pairs)))  # of each weight on the coefficients
    for i, (w, c) in enumerate(pairs):
        effect[:, c, i] = masks[:, w]

    def whole_variance(x):
        sent = np.zeros((assignment.num_workers, assignment.num_chunks))
        for (w, c), weight in zip(pairs, x, strict=True):
            sent[w, c] = weight
        return variance(effect @ x, chance, aligned) + noise_variance(assignment, sent, masks, chance, noise, aligned)

    def weights_of(code):
        encode = np.asarray(code.plan(assignment.loads).encode)[:, 0, :, 0]
        return np.array([encode[w, list(assignment.chunks[w]).index(c)] for w, c in pairs])

    own = weights_of(code)
    np.testing.assert_allclose(effect @ own, coefficients, atol=1e-12)
    best = minimize(
        whole_variance,
        np.random.default_rng(0).normal(size=len(pairs)),
        constraints={"type": "eq", "fun": lambda x: chance @ (effect @ x) - 1},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert best.success
    np.testing.assert_allclose(whole_variance(own), best.fun, rtol=1e-6)
    other = codes.unbiased(assignment, straggler_probabilities=lateness, message_noise=noise, aligned=not aligned)
    assert whole_variance(weights_of(other)) > 1.01 * best.fun
    if np.any(noise):
        plain = codes.unbiased(assignment, straggler_probabilities=lateness, aligned=aligned)
        assert whole_variance(weights_of(plain)) > 1.01 * best.fun


def test_noise_that_all_have_alike_changes_nothing(x64):
    """With one probability for all, too; and the more noise one has, the less it contributes."""
    progress = [3] * 5
    cyclic = assignments.cyclic(5, load=3)
    plain = codes.unbiased(cyclic, straggler_probabilities=0.25).plan(progress).encode
    alike = codes.unbiased(cyclic, straggler_probabilities=0.25, message_noise=2.0).plan(progress).encode
    np.testing.assert_allclose(alike, plain, rtol=1e-12)
    noisy = codes.unbiased(cyclic, straggler_probabilities=0.25, message_noise=(3.0, 1, 1, 1, 1)).plan(progress).encode
    assert (noisy[0] < 0.6 * plain[0]).all() and (noisy[1:] >= 0.99 * plain[1:]).all()


@pytest.mark.parametrize("aligned", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_compressed_messages_keep_the_mean_and_have_the_variance(x64, aligned):
    """Runs of one commit under every mask: 3 workers, half of the numbers at random places, so that ω is 1."""
    assignment, late = assignments.cyclic(3, load=2), np.array([0.2, 0.5, 0.4])
    code = codes.unbiased(assignment, straggler_probabilities=late, message_noise=1.0, aligned=aligned)
    task = tasks.linear_regression(num_chunks=3, num_examples=30, num_features=4, batch_size=None, local_data=True)
    half = compression.random_k(share=0.5, shared=False)
    start = jnp.linspace(-1.0, 1.0, 4)
    protocol = protocols.coded(code, stop=codes.stopping.deadline(2.5))
    masks = np.array(list(itertools.product((False, True), repeat=3))[1:])  # without anybody nothing is applied

    def estimate(is_present, key):
        durations = jnp.where(is_present, 1.0, 9.0)[None] * jnp.ones((2, 1))
        run = engine.run(task, protocol, optax.sgd(1.0), durations, rng_key=key, params=start, compression=half)
        return 3 * (start - run.params)

    estimates = np.asarray(
        jax.jit(jax.vmap(jax.vmap(estimate, (None, 0)), (0, None)))(masks, jax.random.split(jax.random.key(0), 400))
    )
    batches = [task.chunk_batch(task.data, jax.random.key(0), jnp.int32(c), jnp.int32(0)) for c in range(3)]
    gradients = np.array([jax.grad(task.loss)(start, batch, None) for batch in batches])
    exact, chance = gradients.sum(axis=0), chances(masks, late)
    mean = chance @ estimates.mean(axis=1)
    standard_error = np.sqrt(chance**2 @ estimates.var(axis=1) / estimates.shape[1])
    assert (np.abs(mean - exact) < 5 * standard_error).all()
    encode = np.asarray(code.plan(assignment.loads).encode)[:, 0, :, 0] * (1 - late)[:, None]
    sent = [encode[w] @ gradients[assignment.chunks[w]] for w in range(3)]
    expected = sum((p + 1) / (1 - p) * (z**2).sum() for p, z in zip(late, sent, strict=True))
    nobody = late.prod() * (exact**2).sum()
    found = chance @ ((estimates - exact) ** 2).sum(axis=2).mean(axis=1) + nobody
    np.testing.assert_allclose(found, expected, rtol=0.05)


def test_aligned_shares_spread_as_evenly_as_they_may(x64):
    """Among all weights with the least variance for gradients that are alike: by the null space of both conditions."""
    code = codes.unbiased(UNEVEN, straggler_probabilities=(0.1, 0.5, 0.3, 0.8), aligned=True)
    late = np.array([0.1, 0.5, 0.3, 0.8])
    full = np.asarray(code.plan(UNEVEN.loads).encode)[:, 0, :, 0] * (1 - late)[:, None]
    pairs = [(w, k) for w, row in enumerate(UNEVEN.chunks) for k in range((row >= 0).sum())]
    sums = np.zeros((8, len(pairs)))  # of the shares of each worker, and of each chunk
    for i, (w, k) in enumerate(pairs):
        sums[w, i] = sums[4 + UNEVEN.chunks[w, k], i] = 1
    shares = np.array([full[pair] for pair in pairs])
    precision = (1 - late) / late
    np.testing.assert_allclose(sums @ shares, [*(4 * precision / precision.sum()), 1, 1, 1, 1], rtol=1e-12)
    gradient = 2 * shares / np.array([precision[w] for w, _ in pairs])
    multipliers = np.linalg.lstsq(sums.T, gradient, rcond=None)[0]
    np.testing.assert_allclose(sums.T @ multipliers, gradient, atol=1e-12)


@pytest.mark.slow
def test_workers_that_are_never_late_do_what_they_can(x64):
    assignment = assignments.from_matrix([[1, 1, 1, 0], [0, 0, 1, 1]])
    code = codes.unbiased(assignment, straggler_probabilities=(0, 0, 0.5, 0.5))
    np.testing.assert_allclose(code.plan(assignment.loads).encode[:, 0, :, 0], [[0.5, 0], [0.5, 0], [0, 1], [1, 0]])
    exact = codes.unbiased(assignments.cyclic(4, load=2), straggler_probabilities=0)
    check_code(exact, tolerated=0)


def test_the_contract():
    check_code(codes.unbiased(UNEVEN, straggler_probabilities=(0.1, 0.5, 0.3, 0.8)))
    check_code(codes.unbiased(TWO_PIECES, straggler_probabilities=0.5, aligned=True), quick=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"straggler_probabilities": (0.1, 0.2)}, r"one number or float\[4\].*got shape \(2,\)"),
        (
            {"straggler_probabilities": 0.1, "message_noise": (1.0, 2.0)},
            r"message_noise must be one number or float\[4\]",
        ),
        ({"straggler_probabilities": 0.1, "message_noise": -1.0}, "message_noise must be at least 0"),
        ({"straggler_probabilities": 1}, "below 1, or a worker never sends; got 1"),
        ({"straggler_probabilities": (0.1, 0.2, 0.3, -0.1)}, "straggler_probabilities must be at least 0"),
        ({"straggler_probabilities": (0.1, 0.0, 0.3, 0.1), "aligned": True}, "above 0; got 0 for worker 1"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        codes.unbiased(UNEVEN, **arguments)


def test_a_chunk_that_nobody_holds_is_refused():
    with pytest.raises(ValueError, match="nobody holds chunk 2"):
        codes.unbiased(codes.Assignment(np.array([[0, 1]], np.int32), 3), straggler_probabilities=0.1)
