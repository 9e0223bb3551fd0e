"""Measured times: what is written is read, both layouts are understood, and a replay is the trace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols, stragglers

KEY = jax.random.key(3)
NAN, INF = np.nan, np.inf


def replayed(trace, num_units, num_workers=None):
    num_workers = num_workers or np.shape(trace)[1]
    return np.asarray(stragglers.sample_durations(stragglers.replay(trace=trace), KEY, num_units, num_workers))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_trace_is_read_as_it_was_written(tmp_path, dtype):
    seconds = np.random.default_rng(0).exponential(size=(7, 3)).astype(dtype)
    seconds[2, 1], seconds[5:, 2], seconds[6] = INF, NAN, NAN
    stragglers.write_trace(tmp_path / "trace.csv", seconds)
    read = stragglers.read_trace(tmp_path / "trace.csv")
    assert read.dtype == np.float64
    np.testing.assert_array_equal(read.astype(dtype), seconds)
    lines = (tmp_path / "trace.csv").read_text().replace('"', "").splitlines()
    assert lines[0] == "worker,unit,seconds" and lines[-1] == "2,6,"


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


def test_the_public_layout_of_alibaba(tmp_path):
    """Steps are recorded every so often; ratios become multiples of their median; rows come in any order."""
    rows = ["0,7,50,11,600", "1,2,50,1,100", "2,7,50,1,200", "3,2,50,11,", "4,2,50,25,300", "5,7,50,25,900"]
    (tmp_path / "job.csv").write_text("\n".join([",worker,gpu,time,batch_time_norm", *rows]) + "\n")
    seconds = stragglers.read_trace(tmp_path / "job.csv")
    np.testing.assert_allclose(seconds * 300, [[100, 200], [NAN, 600], [300, 900]])
    np.testing.assert_allclose(replayed(tmp_path / "job.csv", 3, 2) * 300, [[100, 200], [100, 600], [300, 900]])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("worker,seconds\n0,1\n", "columns worker, unit, seconds, or worker, time, batch_time_norm; .*'worker'"),
        ("worker,unit,seconds\n", "must have rows"),
        ("worker,unit,seconds\n0,0,1\n0,0,2\n", "several for unit 0, worker 0"),
        ("worker,unit,seconds\n0,0,1\n0,1,-2\n", "seconds >= 0.*got -2 for unit 1 of worker 0"),
        ("worker,unit,seconds\n-1,0,1\n", "column worker of a trace must hold whole numbers"),
        ("worker,unit,seconds\n0,0.5,1\n", "column unit of a trace must hold whole numbers"),
        ("worker,unit,seconds\n0,,1\n", "column unit of a trace must hold whole numbers"),
        ("worker,unit,seconds\n0,0,fast\n", "column seconds of a trace must hold numbers"),
        ("", "can be read"),
    ],
)
def test_a_file_that_is_not_a_trace_is_refused(tmp_path, text, match):
    (tmp_path / "trace.csv").write_text(text)
    with pytest.raises(ValueError, match=match):
        stragglers.read_trace(tmp_path / "trace.csv")


def test_bad_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="can be read; got .*nowhere"):
        stragglers.replay(trace=tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match=r"float\[T, W\].*got float64\[3\]"):
        stragglers.replay(trace=np.ones(3))
    with pytest.raises(ValueError, match="measured unit of every worker; worker 1 has none"):
        stragglers.replay(trace=np.array([[1.0, NAN]]))
    with pytest.raises(ValueError, match="it has 2, asked for are 3"):
        replayed(np.ones((4, 2)), 4, 3)
    with pytest.raises(ValueError, match="got int64"):
        stragglers.write_trace(tmp_path / "t.csv", np.ones((2, 2), int))
