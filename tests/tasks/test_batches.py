"""Batches are drawn uniformly and independently."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gcjax.tasks.base import Batch
from gcjax.tasks.batches import draw_indices, sampling
from gcjax.tasks.chunks import Data, split

KEY = jax.random.key(2)


def draws(count, num=32, num_keys=2000, key=KEY):
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(num_keys))
    return np.asarray(jax.vmap(lambda k: draw_indices(k, num, jnp.asarray(count)))(keys))


@given(count=st.integers(1, 3000), seed=st.integers(0, 1000))
def test_indices_are_uniform(count, seed):
    indices = draws(count, key=jax.random.key(seed))
    assert indices.min() >= 0 and indices.max() < count
    bins = min(count, 20)
    edges = np.arange(bins + 1) * count / bins
    observed = np.histogram(indices, np.ceil(edges) - 0.5)[0]
    expected = np.diff(np.ceil(edges)) / count * indices.size
    assert count == 1 or stats.chisquare(observed, expected).pvalue > 1e-6


@pytest.mark.slow("2")
@pytest.mark.parametrize("count", [2, 4, 5])
def test_indices_of_a_batch_are_independent(count):
    indices = draws(count, num=6, num_keys=20000)
    for i in range(6):
        for j in range(i):
            table = np.histogram2d(indices[:, i], indices[:, j], bins=count)[0]
            assert stats.chisquare(table.ravel()).pvalue > 1e-6


@pytest.mark.slow("2")
@pytest.mark.parametrize("count", [2, 4, 5])
def test_indices_of_successive_keys_are_independent(count):
    indices = draws(count, num=1, num_keys=50000)[:, 0]
    table = np.histogram2d(indices[1:], indices[:-1], bins=count)[0]
    assert stats.chisquare(table.ravel()).pvalue > 1e-6


def test_raw_keys_draw_the_same():
    typed = draw_indices(KEY, 8, jnp.asarray(100))
    np.testing.assert_array_equal(draw_indices(jax.random.key_data(KEY), 8, jnp.asarray(100)), typed)


@given(n=st.integers(1, 60), share=st.floats(0.0, 1.0))
def test_chunks_are_contiguous_and_as_equal_as_possible(n, share):
    num_chunks = 1 + int(share * (n - 1))
    train = split(np.arange(n)[:, None], np.arange(n), num_chunks)
    counts, starts = np.asarray(train.sizes), np.asarray(train.first_rows)
    np.testing.assert_array_equal(starts, np.r_[0, np.cumsum(counts)[:-1]])
    assert counts.sum() == n and counts.max() - counts.min() <= 1
    assert len(train.inputs) == starts[-1] + counts.max()
    np.testing.assert_allclose(train.relative_sizes, counts * num_chunks / n, rtol=1e-6)


@pytest.mark.parametrize("local_data", [False, True])
def test_a_batch_draws_its_targets_with_its_inputs(local_data):
    n, num_chunks = 23, 5
    data = Data(split(np.arange(n)[:, None] * 1.0, np.arange(n), num_chunks), None)
    seen = np.zeros((num_chunks, n), int)
    draw = jax.jit(sampling(n, num_chunks, 4, local_data).unit_batch)
    for unit in range(60):
        for worker in range(num_chunks):
            batch = draw(data, KEY, worker, unit)
            np.testing.assert_array_equal(batch.inputs[:, 0], batch.targets)
            np.add.at(seen, (worker, np.asarray(batch.targets)), 1)
    own = np.repeat(np.arange(num_chunks), data.train.sizes) == np.arange(num_chunks)[:, None]
    np.testing.assert_array_equal(seen > 0, own if local_data else np.ones_like(own))


def test_the_weights_make_the_drawn_loss_unbiased(x64):
    """Mean over chunks and rounds of the drawn chunk means = mean over all examples, for unequal chunks."""
    n, num_chunks = 7, 3
    values = np.arange(n) ** 2.0
    data = Data(split(values[:, None], values, num_chunks), None)
    draw = sampling(n, num_chunks, 16, local_data=True).chunk_batch

    def loss(chunk, round):
        batch: Batch = draw(data, KEY, chunk, round)
        return batch.mean(batch.targets)

    rounds = jnp.arange(5000)
    losses = jax.vmap(lambda c: jax.vmap(lambda r: loss(c, r))(rounds))(jnp.arange(num_chunks))
    assert abs(losses.mean() - values.mean()) < 0.05


@pytest.mark.slow("False")
@pytest.mark.parametrize("local_data", [False, True])
def test_each_unit_and_each_chunk_of_a_round_has_a_key_of_its_own_for_augmentation(local_data):
    def keys(inputs, rng_key):
        return jnp.broadcast_to(jax.random.key_data(rng_key), (len(inputs), 2))

    data = Data(split(np.zeros((12, 1)), np.arange(12), 4), None)
    draws = sampling(12, 4, 2, local_data, keys)
    first, second = (x.ravel() for x in jnp.mgrid[:4, :3])
    for draw in (draws.unit_batch, draws.chunk_batch):
        seen = jax.vmap(draw, (None, None, 0, 0))(data, KEY, first, second).inputs[:, 0]
        drawn_with = jax.vmap(lambda i, j: jax.random.fold_in(jax.random.fold_in(KEY, i), j))(first, second)
        everything = np.concatenate([seen, jax.random.key_data(drawn_with)])
        assert len(np.unique(everything, axis=0)) == 24


@pytest.mark.parametrize(
    ("inputs", "targets"), [(None, np.arange(3)), (np.arange(3), None), (5, 5), ([1, 2], [1, 2, 3])]
)
def test_as_many_targets_as_inputs_are_split(inputs, targets):
    with pytest.raises(ValueError, match="there must be as many targets as inputs; got shapes"):
        split(inputs, targets, 1)
