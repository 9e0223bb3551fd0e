"""A replay is the trace: the recorded times in their order, from somewhere, on as many workers as one likes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols, stragglers

KEY = jax.random.key(3)
NAN, INF = np.nan, np.inf


def replayed(trace, num_units, num_workers=None, *, key=KEY, start="recorded", workers="recorded"):
    model = stragglers.replay(trace=trace, start=start, workers=workers)
    return np.asarray(stragglers.sample_durations(model, key, num_units, num_workers or np.shape(trace)[1]))


def numbered(num_units, num_workers):
    """A trace in which every time says where it stands: 1 + worker + unit / 128."""
    return np.arange(num_workers)[None] + np.arange(num_units, dtype=np.float32)[:, None] / 128 + 1


def places(durations):
    """int[T, W]: the worker and the unit of the trace that each time of a replay of `numbered` comes from."""
    durations = np.asarray(durations)
    return np.floor(durations).astype(int) - 1, np.round(durations % 1 * 128).astype(int)


def test_a_file_replays_to_the_same_bits_as_the_array(tmp_path):
    seconds = np.asarray(stragglers.sample_durations(stragglers.exponential(), KEY, 9, 4))
    stragglers.write_trace(tmp_path / "trace.csv", seconds)
    for trace in (seconds, tmp_path / "trace.csv", str(tmp_path / "trace.csv")):
        np.testing.assert_array_equal(replayed(trace, 9, 4), seconds)


def test_a_replay_begins_anew_after_the_last_row():
    seconds = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, INF]], np.float32)
    np.testing.assert_array_equal(replayed(seconds, 7), np.tile(seconds, (3, 1))[:7])


def test_unmeasured_units_take_as_long_as_the_last_measured_one_before_or_else_the_first():
    seconds = np.array([[NAN, 1.0], [2.0, NAN], [NAN, NAN], [3.0, 4.0]])
    np.testing.assert_array_equal(replayed(seconds, 4), [[2, 1], [2, 1], [2, 1], [3, 4]])


def test_a_replay_is_simulated_like_any_durations():
    seconds = np.asarray(stragglers.sample_durations(stragglers.exponential(), KEY, 12, 4))
    again = jnp.asarray(replayed(seconds, 12))
    np.testing.assert_array_equal(protocols.bsp()(again).time, protocols.bsp()(jnp.asarray(seconds)).time)


def test_by_default_every_key_begins_at_a_row_of_its_own_for_all_workers():
    model = stragglers.replay(trace=numbered(50, 3))
    firsts = []
    for seed in range(200):
        worker, unit = places(stragglers.sample_durations(model, jax.random.key(seed), 60, 3))
        np.testing.assert_array_equal(worker, np.tile(np.arange(3), (60, 1)))
        np.testing.assert_array_equal(unit, np.tile((unit[0, 0] + np.arange(60))[:, None] % 50, 3))
        firsts.append(unit[0, 0])
    assert min(firsts) == 0 and max(firsts) == 49 and len(set(firsts)) > 40


def test_as_it_was_recorded_every_key_gives_the_same():
    trace = numbered(5, 3)
    for seed in range(3):
        np.testing.assert_array_equal(replayed(trace, 5, key=jax.random.key(seed)), trace)


@pytest.mark.parametrize("num_workers", [1, 7, 10, 24])
def test_drawn_workers_are_columns_each_as_often_as_any_other(num_workers):
    """Without replacement up to the workers of the trace; every worker from a row of its own."""
    drawn = []
    for seed in range(20):
        key = jax.random.key(seed)
        durations = replayed(numbered(50, 10), 60, num_workers, key=key, start="random", workers="drawn")
        worker, unit = places(durations)
        assert (worker == worker[0]).all()
        np.testing.assert_array_equal(unit, (unit[:1] + np.arange(60)[:, None]) % 50)
        counts = np.bincount(worker[0], minlength=10)
        assert counts.min() >= num_workers // 10 and counts.max() <= -(-num_workers // 10)
        drawn.append((worker[0], unit[0]))
    workers, firsts = (np.stack(x) for x in zip(*drawn, strict=True))
    assert len(set(map(bytes, workers))) > 5
    assert num_workers < 7 or all(len(set(row)) > num_workers / 2 for row in firsts)
    assert num_workers < 24 or (workers[:, :10] != workers[:, 10:20]).any(axis=1).all()


def test_drawn_workers_may_begin_at_the_first_row():
    worker, unit = places(replayed(numbered(5, 4), 5, 9, workers="drawn"))
    np.testing.assert_array_equal(unit, np.tile(np.arange(5)[:, None], 9))
    assert (worker[0] != np.arange(9) % 4).any()


def test_a_batch_of_keys_is_the_loop():
    trace = numbered(50, 4)
    model = stragglers.replay(trace=trace, workers="drawn")
    keys = jax.random.split(KEY, 5)
    together = jax.jit(jax.vmap(lambda key: stragglers.sample_durations(model, key, 8, 6)))(keys)
    alone = [stragglers.sample_durations(model, key, 8, 6) for key in keys]
    np.testing.assert_array_equal(together, jnp.stack(alone))
    assert len(set(map(bytes, np.asarray(together)))) == 5


def test_bad_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^There is no file .*nowhere\.csv\. A trace must be"):
        stragglers.replay(trace=tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match=r"float\[T, W\].*got float64\[3\]"):
        stragglers.replay(trace=np.ones(3))
    with pytest.raises(ValueError, match="measured unit of every worker; worker 1 has none"):
        stragglers.replay(trace=np.array([[1.0, NAN]]))
    with pytest.raises(
        ValueError, match="it has 2, asked for are 3. Give num_workers the value 2, or `workers` .* the value .drawn."
    ):
        replayed(np.ones((4, 2)), 4, 3)
    with pytest.raises(ValueError, match="start must be one of .*got 'recordet'. Did you mean 'recorded'"):
        stragglers.replay(trace=np.ones((4, 2)), start="recordet")
    with pytest.raises(ValueError, match="workers must be one of .*got 24"):
        stragglers.replay(trace=np.ones((4, 2)), workers=24)
