"""The earliest of many times, kept by blocks, against the plain argmin."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax.protocols.simulation import earliest

SIZES = (1, 2, 3, 31, 32, 33, 37, 49, 50, 64, 65, 100, 101, 130)


def changed(times, index, time):
    """The earliest of blocks of the times before, after one of them has changed; the times; and the first."""
    kept = earliest.earliest_of_blocks(times)
    times = times.at[index].set(time)
    kept = earliest.with_changed_time(kept, times, index)
    return kept, times, earliest.index_of_earliest(kept, times)


def check(kept, times, first):
    times = np.asarray(times)
    assert int(first) == np.argmin(times), times.tolist()  # the lowest of several
    np.testing.assert_array_equal(kept, earliest.earliest_of_blocks(jnp.asarray(times)))
    assert float(np.min(kept)) == times.min()


@pytest.mark.parametrize("num_times", SIZES)
def test_blocks_have_every_time_once(num_times):
    size = earliest.block_size(num_times)
    times = np.random.default_rng(num_times).permutation(num_times).astype(np.float32)
    expected = [min(times[i : i + size]) for i in range(0, num_times, size)]
    np.testing.assert_array_equal(earliest.earliest_of_blocks(jnp.asarray(times)), expected)
    assert size * size < 2 * num_times + 3 * size or num_times <= 32  # about the root


@pytest.mark.parametrize("num_times", SIZES)
def test_the_first_of_the_earliest(num_times):
    """With many ties, and times that never come; the blocks are kept from change to change."""
    draw = np.random.default_rng(num_times)
    times = jnp.asarray(draw.choice([0.0, 1.0, 2.0, np.inf], num_times).astype(np.float32))
    step = jax.jit(
        lambda kept, times, index: (
            earliest.with_changed_time(kept, times, index),
            earliest.index_of_earliest(earliest.with_changed_time(kept, times, index), times),
        )
    )
    kept = earliest.earliest_of_blocks(times)
    for index in [0, num_times - 1, *draw.integers(num_times, size=40)]:
        times = times.at[index].set(float(draw.choice([0.0, 1.0, 2.0, 3.0, np.inf])))
        kept, first = step(kept, times, jnp.int32(index))
        check(kept, times, first)


@pytest.mark.slow("1")
@pytest.mark.parametrize("num_times", [1, 2, 3, 4])
def test_all_times_of_few(num_times, monkeypatch):
    """Every choice of three times, in blocks of two also where so few would be one block."""
    monkeypatch.setattr(earliest, "_MAX_SINGLE_BLOCK", 1)
    compiled = jax.jit(lambda *arguments: changed(*arguments))  # a program of its own
    for times in itertools.product([0.0, 1.0, np.inf], repeat=num_times):
        for index in range(num_times):
            kept, after, first = compiled(np.array(times, np.float32), np.int32(index), np.float32(1.0))
            check(kept, after, first)


@pytest.mark.slow
def test_nobody_ever():
    """Where no time ever comes, the first is number 0, as of argmin."""
    for num_times in SIZES:
        times = jnp.full(num_times, jnp.inf)
        kept = earliest.earliest_of_blocks(times)
        check(kept, times, earliest.index_of_earliest(kept, times))


def test_runs_under_vmap():
    draw = np.random.default_rng(0)
    times = jnp.asarray(draw.choice([0.0, 1.0, 2.0, np.inf], (16, 50)))
    index, time = jnp.asarray(draw.integers(50, size=16), jnp.int32), jnp.asarray(draw.choice([0.0, 3.0], 16))
    for kept, after, first in zip(*jax.jit(jax.vmap(changed))(times, index, time), strict=True):
        check(kept, after, first)
