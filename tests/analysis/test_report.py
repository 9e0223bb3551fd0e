"""Tables, files and figures from results made by hand."""

import io
import json

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from gcjax import analysis, config, files
from gcjax.analysis import gantt, summary, table_cells
from gcjax.analysis.html_report import sections
from tests.analysis.results import S, W, results


def rows_by_name(found):
    return {row.scheme: row for row in summary.rows(found)}


def test_rows_say_who_reached_the_target_and_when():
    found = results()
    rows = summary.rows(found)
    times = [analysis.reach_times(found, row.scheme).mean() for row in rows]
    assert len(rows) == 3
    assert times == sorted(times)
    assert rows[0].time_to_target.startswith(f"{times[0]:.3g}"[:3])
    assert "±" in rows[0].time_to_target


def test_a_scheme_that_waits_for_a_failed_worker_never_reaches_the_target():
    rows = rows_by_name(results(failed=[0], value=0.999))
    assert rows["BSP"].time_to_target.startswith("never (stopped at t=")
    assert rows["ASP"].time_to_target.startswith("not reached by t=")
    never = table_cells.time_to_target_cell(
        np.array([np.inf]), end_times=np.zeros(1), is_stalled=[True], has_commits=False
    )
    assert never == "never (no commit)"
    assert rows["BSP"].chunks_per_worker.startswith("> ")


@pytest.mark.parametrize(
    ("distinct", "said"),
    [(1, "All 5 seeds had the same durations"), (3, "5 seeds had only 3 different durations"), (5, None), (None, None)],
)
def test_seeds_with_the_same_durations_are_said(distinct, said):
    found = results()
    found = found._replace(facts={**found.facts, "num_seeds": 5, "distinct_durations": distinct})
    console = Console(file=io.StringIO(), width=200)
    console.print(summary.table(found))
    for text in (summary.markdown(found), console.file.getvalue()):
        assert said in text if said else "durations" not in text


def test_workers_whose_work_is_lost_are_said():
    found = results()
    assert summary.unused_workers(found) is None
    found.facts["schemes"]["ASP"]["unused_workers"] = [0, 0, 0]
    assert "in no commit" not in summary.markdown(found)
    found.facts["schemes"]["ASP"]["unused_workers"] = [2, 0, 3]
    said = f"Of {W} workers some are in no commit, though they compute and do not fail: ASP 0 to 3."
    assert said in summary.markdown(found)


def test_it_is_said_when_runs_ended():
    found = results()
    alike = {name: np.ones(len(found.metrics["time"])) for name in ("time", "commit")}
    assert summary.end_times(found._replace(metrics={**found.metrics, **alike})) is None
    last_times, commits = ([seed[name][-1] for seed in found.seeds("ASP")] for name in ("time", "commit"))
    said = f"ASP at {min(last_times):.3g} to {max(last_times):.3g} s ({min(commits)} to {max(commits)} commits)"
    assert said in summary.markdown(found) and said in sections.results_section(found).body
    assert "take the seconds to a target" in summary.NOTES


def test_how_far_evaluations_are_apart_is_said():
    found = results()
    assert summary.evaluations_apart(found) is None and "num_evals" not in summary.markdown(found)
    every_third = {
        name: column[(found.metrics["scheme"] != "ASP") | (found.metrics["commit"] % 3 == 0)]
        for name, column in found.metrics.items()
    }
    seldom = found._replace(metrics=every_third)
    gap = np.concatenate([np.diff(seed["time"]) for seed in seldom.seeds("ASP")]).mean()
    said = f"On average: ASP 3 commits or {gap:.3g} s; the others are evaluated after every commit."
    assert said in summary.markdown(seldom)


def test_what_was_spent_is_counted_up_to_the_target():
    found = results()
    times = analysis.reach_times(found, "ASP")
    rows = [seed["chunks"][seed["time"] == t][0] for seed, t in zip(found.seeds("ASP"), times, strict=True)]
    assert rows_by_name(found)["ASP"].chunks_per_worker == table_cells.three_digits_cell(np.mean(rows))


def test_some_seeds():
    text = table_cells.time_to_target_cell(
        np.array([3.0, np.inf, 5.0]), np.array([9.0, 2.0, 9.0]), [False, True, False]
    )
    assert text == "4.00 ± 1.41 (2 of 3 seeds)"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (12.345, "12.3"), (999.6, "1 k"), (1.5e6, "1.5 M"), (2e15, "2e+03 T")]
)
def test_short_numbers(value, text):
    assert table_cells.three_digits_cell(value) == text


def test_names_in_brackets_are_shown_as_they_are():
    found = results()
    facts = {**found.facts, "schemes": {"[red]": found.facts["schemes"]["ASP"]}}
    metrics = {**found.metrics, "scheme": np.where(found.metrics["scheme"] == "ASP", "[red]", "other")}
    text = io.StringIO()
    Console(width=200, file=text).print(analysis.table(found._replace(metrics=metrics, facts=facts)))
    assert "[red]" in text.getvalue()


def test_best_value():
    value, scheme = analysis.best_value(results(final=0.5))
    assert value == pytest.approx(0.5)
    assert scheme in ("ASP", "BSP", "FRC")


def test_saved_results_come_back(tmp_path):
    found = results(failed=[1])
    analysis.save(found, tmp_path)
    loaded = analysis.load(tmp_path)
    assert loaded.schemes == found.schemes
    assert loaded.facts == {**json.loads(json.dumps(found.facts)), "config_sha256": config.digest()}
    for name, column in found.metrics.items():
        np.testing.assert_array_equal(loaded.metrics[name], column)
    for name, column in found.timeline.items():
        np.testing.assert_array_equal(loaded.timeline[name], column)
    assert len(loaded.seeds("BSP")) == S


@pytest.mark.slow
@pytest.mark.parametrize("failed", [(), (0,)])
def test_the_report_is_written(tmp_path, failed):
    analysis.write_report(results(failed=failed), tmp_path)
    for name in ("loss_vs_time.png", "timeline.png"):
        image = imread(tmp_path / name)
        assert image.shape[0] > 300
        assert image[..., :3].std() > 0.05  # something is drawn
    text = (tmp_path / "summary.md").read_text()
    first_table = text.split("\n\n")[1]
    assert first_table.count("| FRC |") == 1
    assert "virtual" in text


def test_all_states_of_a_worker_are_in_the_timeline():
    found = results(failed=[0]).timeline
    assert found["failed"].any()
    assert (~found["failed"] & ~np.isfinite(found["finish"])).any()
    assert (found["start"] < 8.0).all()


def test_a_folder_with_results_is_not_overwritten(tmp_path):
    (tmp_path / "old").write_text("results")
    with pytest.raises(ValueError, match=r"must be new or empty; .* Choose another one with --out\.$"):
        analysis.make_empty_folder(tmp_path)
    (tmp_path / analysis.CHECKPOINTS).mkdir()
    with pytest.raises(ValueError, match=r"with --out, or go on with what was begun there with --resume\.$"):
        analysis.make_empty_folder(tmp_path)
    with pytest.raises(ValueError, match="must be new or empty"):
        analysis.make_empty_folder(tmp_path / "old")
    assert analysis.make_empty_folder(tmp_path / "new" / "deep").is_dir()


def test_a_folder_without_results(tmp_path):
    with pytest.raises(ValueError, match=r"has no metrics.parquet"):
        analysis.load(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(ValueError, match="not ended: the same command with --resume goes on"):
        analysis.load(tmp_path)


def test_the_runs_and_sweeps_beneath_a_wrong_folder_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/a", "runs/a-sweep", "runs/a-sweep/rate=1", "mine/b", "mine/unfinished"):
        (tmp_path / folder).mkdir(parents=True)
        if "unfinished" not in folder:
            (tmp_path / folder / "run.json").touch()
    with pytest.raises(ValueError, match=r" Runs and sweeps here: mine/b, runs/a, runs/a-sweep\.$"):
        analysis.load("mine")
    with pytest.raises(ValueError, match=r" Runs and sweeps here: runs/a, runs/a-sweep\.$"):
        analysis.load("runs")


@pytest.mark.parametrize(
    ("metric", "value", "match"),
    [
        ("accuracy", 1.2, "between 0 and 1; got 1.2"),
        ("accuracy", float("nan"), "between 0 and 1; got nan"),
        ("loss", -1.0, "at least 0; got -1"),
        ("loss", float("inf"), "a finite number, at least 0; got inf"),
        ("loss", "a", "a finite number, at least 0; got 'a'"),
        ("accuracy", None, "between 0 and 1; got None"),
        ("acuracy", 0.9, "Did you mean 'accuracy'"),
    ],
)
def test_targets_that_cannot_be_reached(metric, value, match):
    with pytest.raises(ValueError, match=match):
        analysis.target(metric, value, ["accuracy", "loss"])


def test_accuracy_rises_and_loss_falls():
    assert analysis.target("accuracy", 1.0, ["accuracy"]).higher_is_better
    assert not analysis.target("loss", 0.0, ["loss"]).higher_is_better


@pytest.mark.slow("1")
@pytest.mark.parametrize("workers", [1, 2, 10, 60])
def test_the_workers_of_a_timeline_have_whole_numbers(workers, tmp_path, monkeypatch):
    found, drawn = results(), []
    monkeypatch.setattr(files, "write_figure", lambda path, figure: drawn.append(figure))
    gantt.timeline(found._replace(facts={**found.facts, "num_workers": workers}), tmp_path / "timeline.png")
    ticks = drawn[0].axes[0].get_yticks()
    assert len(ticks) >= 1 and (ticks == ticks.round()).all()
