"""Condition numbers against their definition, and what they say about measured errors."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes
from gcjax.codes import assignments, diagnostics
from gcjax.codes.diagnostics.rounding import straggler_masks
from gcjax.codes.least_squares import message_matrix
from tests.codes.helpers import KEY, without

CRC = codes.cyclic_repetition(8, num_stragglers=2, rng_key=KEY)


def test_condition_number_is_that_of_the_dense_matrices(x64):
    code = codes.partial(assignments.cyclic(6, load=4), num_blocks=2, rng_key=KEY)
    coding = jax.jit(code.plan)(without(code, (1, 4)))
    encode = np.asarray(message_matrix(code.assignment, coding.encode))
    decode = np.asarray(coding.decode).reshape(-1, 2).T
    expected = np.linalg.norm(np.abs(decode) @ np.abs(encode)) / np.linalg.norm(decode @ encode)
    assert expected > 1.5
    np.testing.assert_allclose(diagnostics.condition_number(code.assignment, coding), expected, rtol=1e-12)


def test_it_does_not_change_when_messages_are_scaled(x64):
    coding = jax.jit(CRC.plan)(without(CRC, (1, 2)))
    scale = jnp.asarray(np.random.default_rng(0).uniform(0.1, 10, 8))
    scaled = coding._replace(
        encode=coding.encode * scale[:, None, None, None], decode=coding.decode / scale[:, None, None]
    )
    numbers = [diagnostics.condition_number(CRC.assignment, c) for c in (coding, scaled)]
    np.testing.assert_allclose(*numbers, rtol=1e-12)
    assert numbers[0] > 1.5


def test_codes_that_only_add_have_one_and_no_message_has_zero():
    frc = codes.fractional_repetition(6, num_stragglers=2)
    found = diagnostics.conditioning(frc, num_stragglers=2, rng_key=KEY)
    assert (
        found.worst_condition_number == found.median_condition_number == 1.0
        and found.are_all_masks
        and found.num_masks == 15
    )
    assert diagnostics.condition_number(frc.assignment, jax.jit(frc.plan)(jnp.zeros(6, jnp.int32))) == 0


def test_worst_and_typical_are_those_of_all_masks(x64):
    plan = jax.jit(CRC.plan)
    numbers = [
        float(diagnostics.condition_number(CRC.assignment, plan(without(CRC, mask))))
        for mask in itertools.combinations(range(8), 2)
    ]
    found = diagnostics.conditioning(CRC, num_stragglers=2, rng_key=KEY)
    np.testing.assert_allclose(
        [found.worst_condition_number, found.median_condition_number], [max(numbers), np.median(numbers)], rtol=1e-9
    )


def test_errors_are_of_the_size_that_the_condition_number_says():
    for code in (CRC, codes.partial(assignments.cyclic(8, load=3))):
        found = diagnostics.conditioning(code, num_stragglers=2, rng_key=KEY)
        for name, eps in (("float64", 2.0**-53), ("float32", 2.0**-24), ("bfloat16", 2.0**-8)):
            assert 0.01 * eps < found.errors[name] < 30 * found.worst_condition_number * eps


def test_masks_are_all_or_runs_and_random_ones():
    masks, exhaustive = straggler_masks(6, 2, max_masks=15, rng_key=KEY)
    assert exhaustive and len(np.unique(masks, axis=0)) == 15 and (masks.sum(axis=1) == 2).all()
    masks, exhaustive = straggler_masks(20, 3, max_masks=50, rng_key=KEY)
    assert not exhaustive and masks.shape == (50, 20) and (masks.sum(axis=1) == 3).all()
    assert masks[0, :3].all() and masks[19, [19, 0, 1]].all()
    masks, _ = straggler_masks(1000, 2, max_masks=16, rng_key=KEY)
    neighbours = (masks & np.roll(masks, 1, axis=1)).any(axis=1)
    assert neighbours[:8].all() and not neighbours[8:].all() and masks[4, [500, 501]].all()
    masks, _ = straggler_masks(6, 2, max_masks=1, rng_key=KEY)
    assert masks.tolist() == [[True, True, False, False, False, False]]
    masks, exhaustive = straggler_masks(4, 0, max_masks=5, rng_key=KEY)
    assert exhaustive and masks.shape == (1, 4) and not masks.any()


@pytest.mark.slow
def test_many_workers_are_planned_one_by_one_and_measured_alike():
    """More than are planned at once, so no plan computes what it does not need."""
    found = diagnostics.conditioning(
        codes.cyclic_mds(80, num_stragglers=3), num_stragglers=3, rng_key=KEY, max_masks=16
    )
    assert found.errors["float64"] < 1e-10 and found.worst_condition_number * 1e-9 < found.errors["float32"] < 1e-1


def test_bad_input():
    with pytest.raises(ValueError, match="num_stragglers must be a whole number between 0 and 8; got 9"):
        diagnostics.conditioning(CRC, num_stragglers=9, rng_key=KEY)
    with pytest.raises(ValueError, match="max_masks"):
        diagnostics.conditioning(CRC, num_stragglers=1, rng_key=jax.random.key(0), max_masks=0)
