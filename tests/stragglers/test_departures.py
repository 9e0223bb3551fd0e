"""Workers without times up to the end of a trace are named: in words, by a replay, and on the command line."""

import warnings

import gin
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import cli, register, stragglers
from gcjax.stragglers.traces.departures import departures, sentence_on

NAN, INF = np.nan, np.inf
LEAVES = np.array([[1.0, 2.0], [1.0, NAN], [1.0, 3.0], [1.0, NAN], [1.0, NAN]])  # worker 1 after row 2
NAMES = ("ape", "bee")


def test_who_leaves_is_known_with_the_first_step_without_a_time():
    assert departures(LEAVES, np.arange(10, 60, 10), NAMES) == (("bee", 40),)
    assert departures(LEAVES[:, ::-1], np.arange(5), NAMES) == (("ape", 3),)


def test_gaps_failures_and_workers_that_were_never_there_are_no_departures():
    columns = [[NAN, 1.0, NAN, 1.0], [1.0, INF, NAN, NAN], [NAN] * 4, [1.0, 1.0, INF, INF]]
    assert departures(np.array(columns).T, np.arange(4), ("a", "b", "c", "d")) == ()


def test_steps_at_the_end_in_which_nobody_has_a_time_do_not_count():
    nobody = np.full((2, 2), NAN)
    assert departures(np.append(LEAVES[:3], nobody, axis=0), np.arange(5), NAMES) == ()
    assert departures(np.append(LEAVES, nobody, axis=0), np.arange(7), NAMES) == (("bee", 3),)
    assert departures(nobody, np.arange(2), NAMES) == ()


def test_those_that_leave_first_come_first_and_four_are_named():
    seconds = np.where(np.arange(9)[:, None] < [8, 9, 3, 7, 6, 5, 4], 1.0, NAN)
    gone = departures(seconds, np.arange(9), tuple("abcdefg"))
    assert gone == (("c", 3), ("g", 4), ("f", 5), ("e", 6), ("d", 7), ("a", 8))
    assert sentence_on(gone) == (
        "workers c (from step 3 on), g (from step 4 on), f (from step 5 on), e (from step 6 on) and 2 more have no "
        "times up to the end: they count as at their last ones."
    )
    assert sentence_on(gone[:2]).startswith("workers c (from step 3 on) and g (from step 4 on) have no times")
    assert sentence_on(gone[:1]) == "worker c has no times from step 3 on: it counts as at its last one."


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_a_replay_warns_of_departures(tmp_path, kind):
    with pytest.warns(
        UserWarning, match="^In a trace that is replayed worker 1 has no times from step 3 on: it counts"
    ):
        stragglers.replay(trace=kind(LEAVES))
    stragglers.write_trace(tmp_path / "left.csv", LEAVES)
    with pytest.warns(UserWarning, match=r"^In .*left\.csv worker 1 has no times from step 3 on"):
        model = stragglers.replay(trace=tmp_path / "left.csv", start="recorded")
    durations = stragglers.sample_durations(model, jax.random.key(0), 5, 2)
    assert durations[:, 1].tolist() == [2, 2, 3, 3, 3]


def test_a_replay_of_a_whole_trace_or_one_with_failures_is_quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stragglers.replay(trace=LEAVES[:3])
        stragglers.replay(trace=np.where(np.isnan(LEAVES), INF, LEAVES))
        jax.eval_shape(lambda seconds: stragglers.replay(trace=seconds).init(jax.random.key(0), 2), jnp.ones((3, 2)))


@register("experiment")
def two_replays(models: tuple, *, number: int = 0, out, progress):
    """An experiment that only makes its straggler models."""


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_run_and_a_sweep_say_it_once_in_a_line(tmp_path, capsys, command):
    stragglers.write_trace(tmp_path / "left.csv", LEAVES)
    lines = ["run.experiment = @two_replays", "two_replays.models = (@replay(), @replay())"]
    (tmp_path / "two.gin").write_text("\n".join([*lines, f"replay.trace = '{tmp_path / 'left.csv'}'"]))
    over = ["--over", "two_replays.number=1,2"] if command == "sweep" else []
    shown_before = warnings.showwarning
    sentence = "worker 1 has no times from step 3 on: it counts as at its last one."
    for out in ("out", "again"):  # also by the second command of a process
        cli.main([command, str(tmp_path / "two.gin"), *over, "--out", str(tmp_path / out)])
        gin.clear_config()
        err = capsys.readouterr().err
        assert err.count(f"gcjax: warning: In {tmp_path / 'left.csv'} {sentence}\n") == err.count("worker 1") == 1
    assert warnings.showwarning is shown_before
