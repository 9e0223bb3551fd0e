"""Resampled replays: blocks that keep slow spells, permutations that do not, and units of another size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import stragglers
from gcjax.stragglers.base import _sample_units
from gcjax.testing import check_straggler_model
from tests.stragglers.test_traces import numbered, places

KEY = jax.random.key(3)


def sample(model, num_units, num_workers, key=KEY):
    return np.asarray(stragglers.sample_durations(model, key, num_units, num_workers))


def test_blocks_are_runs_of_rows_at_random_places_shared_by_all_recorded_workers():
    model = stragglers.replay(trace=numbered(50, 3), order="blocks", block_size=7)
    firsts = []
    for seed in range(30):
        worker, unit = places(sample(model, 70, 3, jax.random.key(seed)))
        assert (worker == np.arange(3)).all() and (unit == unit[:, :1]).all()
        blocks = unit[:, 0].reshape(10, 7)
        np.testing.assert_array_equal(blocks, (blocks[:, :1] + np.arange(7)) % 50)
        firsts.append(blocks[:, 0])
    counts = np.bincount(np.concatenate(firsts), minlength=50)  # 6 each on average
    assert (counts > 0).all() and counts.max() < 20
    assert len(set(map(bytes, firsts))) == 30


def test_drawn_workers_have_blocks_of_their_own():
    model = stragglers.replay(trace=numbered(50, 3), order="blocks", block_size=5, workers="drawn")
    worker, unit = places(sample(model, 40, 8))
    assert (worker == worker[0]).all() and np.bincount(worker[0]).tolist() in ([3, 3, 2], [3, 2, 3], [2, 3, 3])
    blocks = unit.reshape(8, 5, 8)
    np.testing.assert_array_equal(blocks, (blocks[:, :1] + np.arange(5)[:, None]) % 50)
    assert all(len(set(firsts)) > 4 for firsts in blocks[:, 0])


def test_drawn_workers_that_start_together_stay_together():
    """What happened to several at the same time still does, with more workers than were recorded."""
    settings = {"order": "blocks", "block_size": 5, "workers": "drawn", "start": "recorded"}
    worker, unit = places(sample(stragglers.replay(trace=numbered(50, 3), **settings), 40, 8))
    assert (worker == worker[0]).all() and (unit == unit[:, :1]).all() and len(set(worker[0])) == 3
    assert len(set(unit[::5, 0].tolist())) > 4


def test_the_first_block_begins_where_the_start_says():
    model = stragglers.replay(trace=numbered(50, 3), order="blocks", block_size=5, start="recorded")
    first_rows = {seed: places(sample(model, 10, 3, jax.random.key(seed)))[1] for seed in range(8)}
    assert all((unit[:5, 0] == np.arange(5)).all() for unit in first_rows.values())
    assert len({int(unit[5, 0]) for unit in first_rows.values()}) > 4


@pytest.mark.parametrize(("num_units", "block_size"), [(1, 1), (2, 2), (4, 2), (5, 3), (49, 7), (50, 8)])
def test_a_block_is_the_square_root_of_the_trace_unless_it_is_given(num_units, block_size):
    by_default = stragglers.replay(trace=numbered(num_units, 2), order="blocks")
    given = stragglers.replay(trace=numbered(num_units, 2), order="blocks", block_size=block_size)
    np.testing.assert_array_equal(sample(by_default, 60, 2), sample(given, 60, 2))


def test_a_permutation_has_every_row_once_for_all_workers_and_begins_anew():
    model = stragglers.replay(trace=numbered(50, 3), order="permuted")
    worker, unit = places(sample(model, 100, 3))
    assert (worker == np.arange(3)).all() and (unit == unit[:, :1]).all()
    np.testing.assert_array_equal(np.sort(unit[:50, 0]), np.arange(50))
    np.testing.assert_array_equal(unit[50:], unit[:50])
    assert (unit[:50, 0] != (unit[0, 0] + np.arange(50)) % 50).sum() > 30
    other = places(sample(model, 50, 3, jax.random.key(0)))[1]
    assert (other != unit[:50]).any()


def test_drawn_workers_are_permuted_each_from_a_place_of_its_own():
    unit = places(sample(stragglers.replay(trace=numbered(50, 3), order="permuted", workers="drawn"), 50, 8))[1]
    np.testing.assert_array_equal(np.sort(unit, axis=0), np.tile(np.arange(50)[:, None], 8))
    assert len(set(unit[0].tolist())) > 4


def test_a_slow_spell_outlives_blocks_and_not_a_permutation():
    """P(slow | slow before), of a trace in which spells are 20 units long."""
    seconds = np.where(np.arange(400)[:, None] // 20 % 4 == np.arange(4), 5.0, 1.0).astype(np.float32)

    def persistence(order, **sizes):
        slow = sample(stragglers.replay(trace=seconds, order=order, **sizes), 4000, 4) > 2
        return slow[1:][slow[:-1]].mean()

    assert persistence("recorded") > 0.9 and persistence("blocks", block_size=100) > 0.9
    assert abs(persistence("permuted") - 0.25) < 0.07
    assert abs(persistence("blocks", block_size=1) - 0.25) < 0.05


@pytest.mark.filterwarnings("ignore:In a trace that is replayed")
def test_units_of_another_size():
    """Steps of 4 chunks were measured; a unit is a chunk, and takes a hundredth of a second besides."""
    seconds = np.array([[1.0, 2.0], [np.inf, np.nan]], np.float32)
    model = stragglers.replay(trace=seconds, start="recorded", intercept=0.01, slope=1 / 4)
    np.testing.assert_allclose(sample(model, 2, 2), [[0.26, 0.51], [np.inf, 0.51]])
    model = stragglers.replay(trace=seconds, start="recorded", intercept=(0.0, 1.0), slope=(3.0, 1.0))
    np.testing.assert_allclose(sample(model, 2, 2), [[3, 3], [np.inf, 3]])


RESAMPLED = [("blocks", "recorded"), ("blocks", "drawn"), ("permuted", "recorded"), ("permuted", "drawn")]


@pytest.mark.slow
@pytest.mark.parametrize(("order", "workers"), RESAMPLED)
def test_the_contract_of_models(order, workers):
    model = stragglers.replay(trace=numbered(9, 4), order=order, workers=workers)
    check_straggler_model(model, num_workers=4, quick=True)


@pytest.mark.slow("blocks-drawn", "blocks-recorded")
@pytest.mark.parametrize(("order", "workers"), RESAMPLED)
def test_a_batch_of_keys_is_the_loop(order, workers):
    model = stragglers.replay(trace=numbered(9, 4), order=order, workers=workers)
    keys = jax.random.split(KEY, 3)
    together = jax.jit(jax.vmap(lambda key: stragglers.sample_durations(model, key, 20, 4)))(keys)
    np.testing.assert_array_equal(together, jnp.stack([sample(model, 20, 4, key) for key in keys]))
    assert len(set(map(bytes, np.asarray(together)))) == 3


def test_other_values_compile_nothing_and_equal_models_are_equal():
    def model(**changes):
        settings = {"order": "blocks", "block_size": 3, "intercept": 0.5, "slope": 2.0}
        return stragglers.replay(trace=numbered(9, 4), **{**settings, **changes})

    assert model() == model() and model(slope=3.0) != model()
    sample(model(), 20, 4)
    before = _sample_units._cache_size()
    sample(model(block_size=4, intercept=0.0, slope=1.5), 20, 4)
    assert _sample_units._cache_size() == before
    slopes = jnp.array([1.0, 2.0])
    together = jax.vmap(lambda x: stragglers.sample_durations(model(slope=x), KEY, 5, 4))(slopes)
    np.testing.assert_array_equal(together[1], sample(model(), 5, 4))


def test_bad_arguments_are_refused():
    for wrong, match in {
        "order='shuffled'": "order must be one of .*got 'shuffled'",
        "order='blocks', block_size=0": "block_size must be a whole number between 1 and 9; got 0",
        "order='blocks', block_size=10": "between 1 and 9; got 10",
        "block_size=3": "block_size is for order=\"blocks\"; got block_size=3 and order='recorded'",
        "intercept=-1.0": "intercept must be at least 0 and finite; got -1",
        "slope=0.0": "slope must be above 0 and finite; got 0",
    }.items():
        with pytest.raises(ValueError, match=match):
            stragglers.replay(trace=numbered(9, 4), **eval(f"dict({wrong})"))
    with pytest.raises(ValueError, match="slope must be one number or one a worker"):
        sample(stragglers.replay(trace=numbered(9, 4), slope=(1.0, 2.0)), 2, 4)
    with pytest.raises(ValueError, match="since simulations are in single precision; got 1e-40 to 1e"):
        stragglers.replay(trace=np.array([[1e-40, 1.0], [1e15, 2.0]]))


def test_double_precision_takes_any_times(x64):
    trace = np.array([[1e-40, 1.0], [1e39, 2.0]])
    assert sample(stragglers.replay(trace=trace, start="recorded"), 2, 2).tolist() == trace.tolist()


@pytest.mark.parametrize("slope", [1e30, 1e-50])
def test_scaled_times_must_be_in_single_precision(slope):
    with pytest.raises(ValueError, match="since simulations are in single precision"):
        stragglers.replay(trace=np.full((2, 1), 1e10), slope=slope)
