"""A grid of settings in one process."""

import contextlib
import io
import json
import shlex
import shutil
import signal

import numpy as np
import pyarrow.parquet as pq
import pytest

from gcjax import analysis, cli, interrupts, saved_progress
from gcjax.analysis import seal
from gcjax.cli import grid, sweep_folders
from tests.cli.test_main import CONFIG

pytestmark = pytest.mark.usefixtures("without_drawing")


def test_combinations_in_order():
    assert grid.combinations(["ssp.staleness=0, 3", "s/digits.hidden=(8,), (8, 4)"]) == [
        ("ssp.staleness = 0", "s/digits.hidden = (8,)"),
        ("ssp.staleness = 0", "s/digits.hidden = (8, 4)"),
        ("ssp.staleness = 3", "s/digits.hidden = (8,)"),
        ("ssp.staleness = 3", "s/digits.hidden = (8, 4)"),
    ]
    assert grid.combinations(["a.text='x,(y', 'z'"]) == [("a.text = 'x,(y'",), ("a.text = 'z'",)]


@pytest.mark.parametrize("text", ["ssp.staleness", "=1,2", "ssp.staleness=", "ssp.staleness=1,,2", "a.b=1,"])
def test_what_is_no_axis_is_refused(text):
    with pytest.raises(ValueError, match="--over needs PARAMETER=VALUE"):
        grid.combinations([text])


def test_a_parameter_twice_is_refused():
    with pytest.raises(ValueError, match="each parameter once; got a.b twice"):
        grid.combinations(["a.b=1", "a.b=2"])


@pytest.mark.parametrize(
    ("over", "match"),
    [
        ("ssp.staleness=3,4,3", "each value of ssp.staleness once; got 3 and 3"),
        ("sgd.learning_rate=0.1,@a,0.10", "each value of sgd.learning_rate once; got 0.1 and 0.10"),
        ("study.target={[]: 1},{[]: 1}", r"each value of study.target once; got \{\[\]: 1\} and"),
        ("study.target=@a,@b,@a", "each value of study.target once; got @a and @a"),
        (f"a.b=1,'{'x' * 300}'", "200 bytes"),
    ],
)
def test_combinations_that_cannot_have_folders_are_refused(over, match):
    with pytest.raises(ValueError, match=match):
        grid._check_folder_names([grid.folder_name(combination) for combination in grid.combinations([over])])


def test_a_misspelt_parameter_is_refused_before_anything_runs(tmp_path, capsys):
    config = tmp_path / "small.gin"
    config.write_text(CONFIG)
    out = tmp_path / "out"
    assert cli.main(["sweep", str(config), "--over", "sgd.learning_rat=0.1,0.2", "--out", str(out)]) == 2
    assert "learning_rate" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ("cyclic.load=2,9", "cyclic.load = 9: load must be"),
        ("study.num_seeds=1,0", "study.num_seeds = 0: num_seeds must be"),
        ("study.num_seeds=1,2 cyclic.load=2,9", "study.num_seeds = 1, cyclic.load = 9: load must be"),
    ],
)
def test_a_later_value_that_a_factory_refuses_is_refused_before_anything_runs(over, said, tmp_path, capsys):
    config, out = tmp_path / "small.gin", tmp_path / "out"
    of_macro = CONFIG.replace("run.experiment = @compare", "run.experiment = %chosen\nchosen = @compare")
    assert of_macro != CONFIG
    for text in (CONFIG, of_macro):
        config.write_text(text)
        over_arguments = [argument for values in over.split() for argument in ("--over", values)]
        assert cli.main(["sweep", str(config), *over_arguments, "--out", str(out)]) == 2
        assert said in capsys.readouterr().err
        assert not out.exists()


def test_a_first_value_that_the_experiment_refuses_leaves_nothing(tmp_path, capsys):
    config, out = tmp_path / "small.gin", tmp_path / "out"
    config.write_text(CONFIG)
    assert cli.main(["sweep", str(config), "--over", "compare.timeline_seconds=0.0,4.0", "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "compare.timeline_seconds = 0.0: timeline_seconds must be" in error and "Traceback" not in error
    assert not out.exists()


@pytest.mark.slow
def test_a_later_value_that_is_refused_leaves_what_was_done(tmp_path, capsys):
    config, out = tmp_path / "small.gin", tmp_path / "out"
    config.write_text(CONFIG)
    assert cli.main(["sweep", str(config), "--over", "compare.timeline_seconds=4.0,0.0", "--out", str(out)]) == 2
    assert "compare.timeline_seconds = 0.0: timeline_seconds must be" in capsys.readouterr().err
    assert sweep_folders.is_begun(out)
    assert [path.name for path in out.iterdir() if path.is_dir() and path.name != "checkpoints"] == [
        "compare.timeline_seconds=4.0"
    ]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The arguments of a sweep without its folder, the folder in which it is done, and beside it what `--json` said."""
    config, out = tmp_path_factory.mktemp("sweep") / "small.gin", tmp_path_factory.mktemp("done")
    config.write_text(CONFIG.replace("{'ASP': @asp(), 'partial': @coded()}", "{'ASP': @asp()}"))
    over = ["--over", "study.target=0.2,0.999999"]  # the second is never reached, which is a result, too
    command = ["sweep", str(config), *over, "--set", "study.checkpoint_every = 1000"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert cli.main([*command, "--out", str(out), "--json"]) == 0
    out.with_suffix(".json").write_text(printed.getvalue())
    return command, out


def test_one_table_of_all_settings(swept):
    _, out = swept
    table = pq.read_table(out / "sweep.parquet").to_pydict()
    assert table["study.target"] == [0.2, 0.2, 0.999999, 0.999999]
    assert table["seed"] == [0, 1, 0, 1]
    assert np.isfinite(table["time_to_target"]).tolist() == [True, True, False, False]
    single = analysis.load(out / grid.folder_name(("study.target = 0.2",)))
    assert table["time_to_target"][:2] == analysis.reach_times(single, "ASP").tolist()
    rows = (out / "summary.md").read_text().splitlines()
    assert "| Time to the target (s) | Final value |" in (out / "summary.md").read_text()
    assert [row.split(" | ")[:2] for row in rows if row.startswith("| 0.")] == [["| 0.2", "ASP"], ["| 0.999999", "ASP"]]


def test_a_sweep_is_loaded_and_reported(swept, capsys):
    _, out = swept
    sweep = analysis.load_sweep(out)
    assert sweep.parameters == ("study.target",)
    assert [each.values for each in sweep.combinations] == [("0.2",), ("0.999999",)]
    single = analysis.load(out / sweep.combinations[0].folder)
    assert analysis.reach_times(sweep.combinations[0].results, "ASP").tolist() == (
        analysis.reach_times(single, "ASP").tolist()
    )
    with pytest.raises(ValueError, match="It is of a sweep: gcjax.analysis.load_sweep reads it"):
        analysis.load(out)
    with pytest.raises(
        ValueError, match="has no sweep.parquet. Go on with .* gcjax.analysis.load reads the folder of a run"
    ):
        analysis.load_sweep(out / sweep.combinations[0].folder)
    page = (out / "summary.md").read_text()
    (out / "summary.md").unlink()
    assert cli.main(["report", str(out)]) == 0
    assert (out / "summary.md").read_text() == page and "0.999999" in capsys.readouterr().out


def test_the_numbers_of_a_sweep_as_json(swept, capsys):
    _, out = swept
    assert cli.main(["report", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert json.loads(out.with_suffix(".json").read_text()) == {**report, "command": "sweep"}
    assert report["schemes"] == [] and report["tables"][0][0]["Scheme"] == "ASP"
    reached, missed = report["combinations"]
    assert (reached["folder"], reached["values"]) == ("study.target=0.2", {"study.target": 0.2})
    assert missed["schemes"][0]["time_to_target"] == [None, None]
    cli.main(["report", str(out / reached["folder"]), "--json"])
    assert json.loads(capsys.readouterr().out)["schemes"] == reached["schemes"]


def test_the_table_of_a_sweep_as_csv(swept, capsys):
    assert cli.main(["report", str(swept[1]), "--csv"]) == 0
    heads, *lines = capsys.readouterr().out.splitlines()
    assert heads.startswith('"study.target","scheme","metric","target","seeds","seeds_at_target",')
    assert [line.split(",")[:6] for line in lines] == [
        ["0.2", '"ASP"', '"accuracy"', "0.2", "2", "2"],
        ["0.999999", '"ASP"', '"accuracy"', "0.999999", "2", "0"],
    ]


def test_no_table_is_written_over_a_file_of_a_combination_or_over_another_table(swept, tmp_path, capsys):
    out = shutil.copytree(swept[1], tmp_path / "sweep")
    metrics = out / "study.target=0.2" / "metrics.parquet"
    assert cli.main(["report", str(out), "--csv", str(metrics)]) == 2
    assert "--csv must be a new file or an empty one" in capsys.readouterr().err
    assert cli.main(["report", str(out), "--csv", str(out / "table"), "--latex", str(out / "." / "table")]) == 2
    assert "each table must have a file of its own" in capsys.readouterr().err
    assert analysis.load_sweep(out).parameters == ("study.target",)


def test_a_sweep_of_an_earlier_version_has_its_table(swept, tmp_path, capsys):
    old = shutil.copytree(swept[1], tmp_path / "old")
    (old / "run.json").unlink()
    seal.add_missing_digests(old)
    assert cli.main(["report", str(old)]) == 0 and "0.999999" in capsys.readouterr().out
    assert cli.main(["report", str(old), "--against", "ASP"]) == 2
    assert "or a sweep of an earlier version" in capsys.readouterr().err
    with pytest.raises(ValueError, match="reads its combinations one by one"):
        analysis.load_sweep(old)


def test_a_changed_file_of_a_sweep_is_refused(swept, tmp_path, capsys):
    changed = shutil.copytree(swept[1], tmp_path / "changed")
    (changed / "study.target=0.2" / "metrics.parquet").write_bytes(b"")
    assert cli.main(["report", str(changed)]) == 2
    assert "metrics.parquet has changed since it was written" in capsys.readouterr().err


def test_combinations_that_have_changed_places_are_refused(swept, tmp_path, capsys):
    out = shutil.copytree(swept[1], tmp_path / "changed")
    first, second = (out / grid.folder_name((f"study.target = {value}",)) for value in ("0.2", "0.999999"))
    assert cli.main(["report", str(first), "--html"]) == 0  # which makes files anew
    assert analysis.load_sweep(out).parameters == ("study.target",)
    first.rename(out / "third")
    second.rename(first)
    (out / "third").rename(second)
    assert cli.main(["report", str(out)]) == 2
    assert "holds another run than the sweep has written there" in capsys.readouterr().err


def test_a_metric_that_a_combination_does_not_have_is_missing_there():
    accuracy = {"seed": np.arange(2), "accuracy": np.array([0.5, 0.6])}
    distance = {"seed": np.arange(1), "distance": np.array([0.1])}
    tables = grid._with_same_columns([accuracy, distance])
    joined = analysis.concatenate_tables(tables)
    np.testing.assert_array_equal(joined["accuracy"], [0.5, 0.6, np.nan])
    np.testing.assert_array_equal(joined["distance"], [np.nan, np.nan, 0.1])


class Ended(BaseException):
    """The end of a process, with its last word."""


@pytest.fixture
def signalled(monkeypatch):
    """A list of the runs that begin; the second gets a signal, and the end of the process is an error."""
    begun, count, init = [], iter(range(100)), saved_progress.SavedProgress.__init__

    def work(self, label, *rest):
        init(self, label, *rest)
        begun.append(label)
        if next(count) == 1:
            interrupts._signal_state.received_signal = signal.SIGTERM

    def end(number):
        interrupts._signal_state.received_signal = None
        raise Ended(interrupts._signal_state.make_advice())

    monkeypatch.setattr(saved_progress.SavedProgress, "__init__", work)
    monkeypatch.setattr(interrupts._signal_state, "received_signal", None)
    monkeypatch.setattr(interrupts, "_end_process", end)
    return begun


@pytest.mark.slow
def test_a_signal_saves_a_checkpoint_and_the_sweep_goes_on_from_it(swept, signalled, tmp_path, capsys):
    """There would be no checkpoint before the end of the second combination."""
    (command, whole), out = swept, tmp_path / "out"
    with pytest.raises(Ended) as ended:
        cli.main([*command, "--out", str(out)])
    lost, kept, going_on = str(ended.value).removeprefix("; ").split("; ")
    percent = int(lost.removeprefix("a checkpoint was written at ").removesuffix("% of ASP, so nothing is lost"))
    assert 0 < percent < 100 and kept == "combinations that are done are kept"
    assert not (out / "sweep.parquet").exists() and len(signalled) == 2
    program, *again = shlex.split(going_on.removeprefix("go on with: "))
    assert (program, again) == ("gcjax", [*command[:4], *command[4:], "--resume", "--out", str(out)])
    folder = out / grid.folder_name(("study.target = 0.999999",))
    steps = [int(step.name) for step in (folder / "checkpoints" / "ASP").iterdir() if step.name.isdigit()]
    assert len(steps) == 1 and steps[0] > 0
    assert cli.main(["sweep", *again[1:3], "study.target=0.2,0.3", *again[4:]]) == 2
    said = capsys.readouterr().err
    assert "belongs to another sweep" in said and "-study.target=0.2,0.999999\n+study.target=0.2,0.3" in said
    assert cli.main(again) == 0, capsys.readouterr()
    assert len(signalled) == 3  # the first combination was not run again
    assert pq.read_table(out / "sweep.parquet").equals(pq.read_table(whole / "sweep.parquet"))
    assert not (out / "checkpoints").exists() and not (folder / "checkpoints").exists()
    assert cli.main(again) == 2 and "is finished, so there is nothing to resume" in capsys.readouterr().err


def _begun_again(swept, folder):
    """A copy of the sweep that lacks its table, as after an end in the second combination, and the command to go on."""
    command, whole = swept
    out = shutil.copytree(whole, folder)
    for name in ("sweep.parquet", "summary.md", "run.json"):
        (out / name).unlink()
    path, over, bindings = command[1], [command[3]], [command[5]]
    sweep_folders.write_or_check_identity(out, grid._sweep_identity(path, bindings, over, grid.combinations(over)[0]))
    return out, [*command, "--resume", "--out", str(out)]


def test_a_finished_run_is_taken_for_a_combination_only_if_it_is_of_its_config(swept, tmp_path, capsys):
    out, again = _begun_again(swept, tmp_path / "out")
    first, second = (out / grid.folder_name((f"study.target = {value}",)) for value in ("0.2", "0.999999"))
    of_second = (second / "run.json").read_bytes()
    shutil.rmtree(second)
    shutil.copytree(first, second)
    assert cli.main(again) == 2
    said = capsys.readouterr().err
    assert f"the run in {second} is of another config" in said and "Move it elsewhere" in said
    assert not (out / "sweep.parquet").exists()
    shutil.copytree(swept[1] / second.name, second, dirs_exist_ok=True)
    assert cli.main(again) == 0, capsys.readouterr()
    assert (second / "run.json").read_bytes() == of_second  # it was not run again
    assert pq.read_table(out / "sweep.parquet").equals(pq.read_table(swept[1] / "sweep.parquet"))


def test_a_finished_run_that_does_not_say_of_which_config_it_is_is_not_taken(swept, tmp_path, capsys):
    out, again = _begun_again(swept, tmp_path / "out")
    folder = out / grid.folder_name(("study.target = 0.2",))
    facts = seal.run_facts(folder)
    del facts["config_sha256"]
    seal.write(folder, facts)
    assert cli.main(again) == 2 and "or of an earlier version" in capsys.readouterr().err


def test_a_plain_run_is_taken_for_the_combination_of_its_config(swept, tmp_path):
    command, out = swept
    plain = tmp_path / "plain"
    bindings = ["--set", "study.target = 0.2", *command[4:]]
    assert cli.main(["run", command[1], *bindings, "--out", str(plain)]) == 0
    digest = seal.run_facts(out / grid.folder_name(("study.target = 0.2",)))["config_sha256"]
    assert seal.run_facts(plain)["config_sha256"] == digest


def test_a_run_is_not_gone_on_with_as_a_sweep(tmp_path):
    (tmp_path / "checkpoints" / "ASP").mkdir(parents=True)
    with pytest.raises(ValueError, match="must be that of a sweep"):
        sweep_folders.write_or_check_identity(tmp_path, "a = 1")
