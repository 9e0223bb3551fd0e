"""IS-GC against brute force: the largest sets of workers without a common chunk, for every mask."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes
from gcjax.testing import check_code
from tests.codes.helpers import completion
from tests.parameters import some

SIZES, FURTHER = [(6, 2), (7, 3), (8, 8)], [(1, 1), (4, 2), (5, 2), (6, 3), (7, 1), (8, 3), (9, 2), (9, 4), (10, 3)]


def sets_without_conflict(assignment):
    """Tuples of workers of which no two share a chunk; all of them."""
    held = [set(chunks.tolist()) for chunks in assignment.chunks]
    sets = [()]
    for workers in sets:
        first = workers[-1] + 1 if workers else 0
        for worker in range(first, len(held)):
            if all(held[worker].isdisjoint(held[other]) for other in workers):
                sets.append((*workers, worker))
    return sets


def every_mask(code):
    masks = np.array(list(itertools.product((False, True), repeat=code.assignment.num_workers)))
    codings = jax.jit(jax.vmap(code.plan))(np.where(masks, code.assignment.loads, 0).astype(np.int32))
    return masks, np.asarray(codings.decode)[:, :, 0, 0], np.asarray(codings.residual)


@pytest.mark.parametrize(("num_workers", "load"), some(SIZES, FURTHER))
def test_cyclic_placement_takes_a_largest_set_for_every_mask(x64, num_workers, load):
    code = codes.independent_set(num_workers, load=load)
    sets = sets_without_conflict(code.assignment)
    for mask, weights, residual in zip(*every_mask(code), strict=True):
        largest = max(len(s) for s in sets if mask[list(s)].all())
        members = tuple(np.flatnonzero(weights).tolist())
        assert len(members) == largest and members in sets and mask[list(members)].all()
        np.testing.assert_allclose(weights[list(members)], num_workers / (load * max(largest, 1)), rtol=1e-12)
        counted = load * largest
        squared = counted * (num_workers / counted - 1) ** 2 + num_workers - counted if counted else num_workers
        np.testing.assert_allclose(residual**2, squared, atol=1e-9)


@pytest.mark.parametrize(("num_workers", "load"), some([(7, 3)], [(5, 2), (6, 2), (9, 4)]))
def test_the_average_is_over_starting_points_whose_sets_are_largest(x64, num_workers, load):
    """By walking around the circle in plain Python; and it turns with the workers, so that no chunk is preferred."""
    masks, decode, _ = every_mask(codes.independent_set(num_workers, load=load, average=True))
    for mask, weights in zip(masks, decode, strict=True):
        sets = []
        for start in np.flatnonzero(mask):
            members = [start]
            for step in range(1, num_workers):
                worker = (start + step) % num_workers
                far = step - (members[-1] - start) % num_workers >= load and num_workers - step >= load
                members += [worker] if mask[worker] and far else []
            sets.append(members)
        most = max(map(len, sets), default=0)
        expected = np.zeros(num_workers)
        for members in sets:
            if len(members) == most:
                expected[members] += num_workers / (load * most) / sum(len(s) == most for s in sets)
        np.testing.assert_allclose(weights, expected, rtol=1e-12)
    full = decode[-1]
    np.testing.assert_allclose(full, full[0], rtol=1e-12)


def test_any_number_of_stragglers_leaves_the_mean_over_masks_alike_for_all_chunks(x64):
    """With the average, and as many sets of each size as there are: every chunk has the coefficient 1 on average."""
    code = codes.independent_set(7, load=3, average=True)
    masks, decode, _ = every_mask(code)
    for num_late in range(7):
        weights = decode[masks.sum(axis=1) == 7 - num_late].mean(axis=0)
        coefficients = [weights[(c - np.arange(3)) % 7].sum() for c in range(7)]
        np.testing.assert_allclose(coefficients, 1, rtol=1e-12)


@pytest.mark.parametrize(("num_workers", "load"), some([(6, 3)], [(4, 2), (6, 2), (6, 1), (8, 4)]))
def test_fractional_placement_takes_one_of_each_group_for_every_mask(x64, num_workers, load):
    code = codes.independent_set(num_workers, load=load, placement="fractional")
    sets = sets_without_conflict(code.assignment)
    for mask, weights, _ in zip(*every_mask(code), strict=True):
        largest = max(len(s) for s in sets if mask[list(s)].all())
        members = tuple(np.flatnonzero(weights).tolist())
        assert len(members) == largest and members in sets and mask[list(members)].all()
        np.testing.assert_allclose(weights[list(members)], num_workers / (load * max(largest, 1)), rtol=1e-12)


@pytest.mark.slow("arguments0", "arguments1")
@pytest.mark.parametrize(
    "arguments", [{"load": 2}, {"load": 3, "average": True}, {"load": 2, "placement": "fractional"}]
)
def test_the_contract(arguments):
    check_code(codes.independent_set(6, **arguments), tolerated=1 if "placement" in arguments else None, quick=True)


def test_times_of_exact_sums():
    seconds = np.array([1.0, 9.0, 2.0, 3.0, 1.0, 5.0])
    assert completion(codes.independent_set(6, load=2))(seconds) == 4.0  # workers 0, 2, 4
    assert completion(codes.independent_set(6, load=2, placement="fractional"))(seconds) == 4.0
    assert np.isinf(completion(codes.independent_set(5, load=2))(seconds[:5]))  # two workers have four of five chunks


def test_a_thousand_workers_take_as_many_as_a_dynamic_program():
    """Interval scheduling on the line from each of the first starts, by plain Python."""
    num_workers, load = 1000, 7
    there = np.random.default_rng(0).random(num_workers) < 0.3
    code = codes.independent_set(num_workers, load=load)
    members = np.flatnonzero(np.asarray(jax.jit(code.plan)(there).decode)[:, 0, 0])
    most = 0
    for start in np.flatnonzero(there)[:load]:
        count, last = 0, start - load
        for position in range(start, start + num_workers - load + 1):
            if there[position % num_workers] and position >= last + load:
                count, last = count + 1, position
        most = max(most, count)
    assert len(members) == most and there[members].all()
    gaps = np.diff([*members, members[0] + num_workers])
    assert gaps.min() >= load


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"load": 5}, "load must be a whole number between 1 and 4"),
        ({"load": 3, "placement": "fractional"}, "a load that divides the workers; got load=3, num_workers=4"),
        ({"load": 2, "placement": "cycle"}, "'cyclic', 'fractional'; got 'cycle'. Did you mean 'cyclic'"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        codes.independent_set(4, **arguments)


@pytest.mark.slow("5-2", "6-4")
@pytest.mark.parametrize(("num_workers", "load"), [(6, 4), (5, 2), (6, 3)])
def test_the_mean_of_sets_is_exact_where_all_have_finished(num_workers, load):
    code = codes.independent_set(num_workers, load=load, average=True)
    assert code.plan(jnp.full(num_workers, load)).residual < 1e-6
    assert codes.completion_time(code, jnp.ones(num_workers)) == load
