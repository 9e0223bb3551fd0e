"""How many units fit a time, against counting them one by one."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax.protocols.simulation.turns import Work, _largest_fitting

work_of = jax.jit(Work.of)
NUMS_UNITS = (1, 2, 3, 4, 5, 15, 16, 17, 64)


def durations_of(num_units, num_workers=3):
    """Whole seconds, of which all sums are exact; units of no length, and one that never ends."""
    durations = np.random.default_rng(num_units).integers(0, 4, (num_units, num_workers)).astype(float)
    durations[num_units // 2, -1] = np.inf
    return durations


@pytest.mark.parametrize("num_units", NUMS_UNITS)
def test_seconds_of_the_first_units(num_units, x64):
    durations = durations_of(num_units)
    sums, work = (
        np.cumsum(np.vstack([np.zeros(3), durations, np.full(3, np.inf)]), axis=0),
        work_of(durations),
    )
    seconds = jax.jit(lambda counts: (work.seconds_of_first(counts), work.seconds(jnp.zeros_like(counts), counts)))
    for count in range(num_units + 2):
        for found in seconds(np.full(3, count, np.int32)):
            assert found.tolist() == sums[count].tolist()


@pytest.mark.parametrize("num_units", NUMS_UNITS)
def test_units_that_are_done(num_units, x64):
    durations = durations_of(num_units)
    work, firsts = work_of(durations), sorted({0, num_units // 3, num_units - 1})
    numbers = jax.jit(lambda *args: (work.num_done(*args), work.num_to_fill(*args), work.num_of_first_done(args[1])))
    for first, seconds in itertools.product(firsts, (0.0, 1.0, 2.5, 7.0, 1e9)):
        sums = np.cumsum(durations[first:], axis=0)
        is_done, is_short = np.isfinite(sums) & (sums <= seconds), np.isfinite(sums) & (sums < seconds)
        num_done, num_to_fill, num_of_first_done = numbers(np.full(3, first, np.int32), np.full(3, seconds))
        assert num_done.tolist() == is_done.sum(axis=0).tolist()
        assert num_to_fill.tolist() == (is_short.sum(axis=0) + 1).tolist()
        if first == 0:
            assert num_of_first_done.tolist() == is_done.sum(axis=0).tolist()


def test_of_one_worker(x64):
    durations = durations_of(16)
    work = work_of(durations)._replace(worker=jnp.array([1]))
    expected = (np.cumsum(durations[:, 1]) <= 7).sum()
    assert work.num_of_first_done(jnp.array([7.0])).tolist() == [expected]


def test_where_rounding_breaks_the_order_the_number_still_fits():
    is_fitting = jnp.array([True, True, True, True, True, False, True, False])  # of the numbers 0, ..., 7

    def fits(numbers):
        return is_fitting[numbers.clip(0, 7)] & (numbers <= 7)

    assert _largest_fitting(fits, 7, jnp.zeros(1, jnp.int32)).tolist() == [6]
