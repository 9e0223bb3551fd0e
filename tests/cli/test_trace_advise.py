"""`gcjax trace advise FILE`, on a small file."""

import json
import re
import types
from pathlib import Path

import gin
import numpy as np
import pytest

from gcjax import advice, cli, stragglers
from gcjax.advice import page

CONFIG = """run.experiment = @compare
compare.schemes = {'BSP': @bsp(), 'none waits': @asp()}
compare.study = @study()
compare.stragglers = @exponential()
study.task = @linear_regression()
linear_regression.num_chunks = 4
linear_regression.num_examples = 16
linear_regression.num_features = 2
study.optimizer = @sgd()
sgd.learning_rate = 0.3
study.num_workers = 4
study.num_units = 40
study.num_seeds = 1
study.num_evals = 20
study.metric = 'suboptimality'
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The file of a job whose last worker takes twice as long, and a config with two schemes beside it."""
    seconds = np.ones((32, 4))
    seconds[:, 3] = 2.0
    stragglers.write_trace(tmp_path / "job.csv", seconds)
    (tmp_path / "schemes.gin").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    yield
    gin.clear_config()


def advise(*arguments):
    return cli.main(["trace", "advise", "job.csv", "--no-cache", "--bootstraps", "20", *arguments])


def shares(errors):
    """(what is done, the percentage of all that is done then) of each line of the progress."""
    return [(label, int(share)) for label, share in re.findall(r"^(.*): done in .* s \((\d+)% of all\)$", errors, re.M)]


def test_the_schemes_of_a_config_are_compared(job, capsys):
    assert advise("--config", "schemes.gin", "--bytes", "100") == 0
    printed, errors = capsys.readouterr()
    first_line, progress_lines = errors.split("\n", 1)
    assert first_line == "Compiling the schemes: two to four minutes for all that gcjax has, on two slow cores."
    assert shares(progress_lines) == [("compiling", 60), ("simulating", 100)]
    assert re.sub(r"\w+: done in .* s \(\d+% of all\)\n", "", progress_lines) == ""
    assert "Stragglers cost 50 % [50, 50] of BSP's time." in printed
    assert "none waits 86 % [86, 86] (stale)" in printed and "needs your task with a target" in printed
    assert "Nothing was trained: the study of schemes.gin has no target." in printed and "study.target = ..." in printed
    assert "\n\n32 steps of 4 workers, 20 bootstraps of blocks of 8 steps" in printed and "100 B" in printed


@pytest.mark.parametrize("name", ["SSP [s=3]", "SSP [/x]"])
def test_names_with_brackets_are_printed_as_they_are(job, capsys, monkeypatch, name):
    """As the verdict, one of the notes, and a row of the table; what would advise takes long."""
    monkeypatch.setattr(advice, "advise", lambda *_, **__: types.SimpleNamespace(verdict=f"{name} wins."))
    monkeypatch.setattr(page, "heads", lambda _: ["Scheme"])
    monkeypatch.setattr(page, "table_rows", lambda _: [[f"**{name}**"], [f"{name} 2"]])
    monkeypatch.setattr(page, "notes", lambda _: [f"Left out: {name}: why"])
    assert advise("--config", "schemes.gin") == 0
    printed = capsys.readouterr().out.splitlines()
    assert {f"{name} wins.", f"Left out: {name}: why"} <= set(printed)
    assert [line.strip() for line in printed].count(f"{name} 2") == 1


def test_with_a_target_its_task_is_trained_and_json_says_so(job, capsys):
    bindings = ("--set", "study.target = 0.001", "--set", "study.num_seeds = 2")
    assert advise("--config", "schemes.gin", *bindings, "--json") == 0
    printed, errors = capsys.readouterr()
    result = json.loads(printed)
    assert shares(errors) == [("compiling", 18), ("simulating", 30), ("training none waits", 65), ("training BSP", 100)]
    assert "Then BSP and the fastest of each kind of gradient are trained." in errors.splitlines()[0]
    assert "come in another order." in " ".join(errors.split()) and "mean ± standard deviation over the seeds" in errors
    assert result["command"] == "trace advise" and result["target"] == "suboptimality <= 0.001"
    assert [Path(file).suffix for file in result["files"]] == [".csv"]
    rows = {row["name"]: row for row in result["schemes"]}
    assert rows["none waits"]["won_back"]["value"] == pytest.approx(6 / 7, abs=0.01)  # 4 / 3.5 s instead of 2 s
    assert 0 < rows["none waits"]["seconds_to_target"][0] < rows["BSP"]["seconds_to_target"][0]
    assert result["cost_of_halves"] == [0.5, 0.5]
    first, later = rows["none waits"]["to_target"], rows["BSP"]["to_target"]
    assert later["seconds_later"] == pytest.approx(later["mean"] - first["mean"]) and first["seconds_later"] is None
    page = (Path(__file__).parents[2] / "docs" / "running" / "scripts.md").read_text()
    section = page.split("### `trace advise`")[1].split("\n## ")[0]
    assert [name for name in ("to_target", *later, *later["times_as_long"]) if f"`{name}`" not in section] == []


def test_the_first_line_says_how_long_it_may_take_before_anything_is_computed(job, capsys, monkeypatch):
    monkeypatch.setattr("gcjax.cli.cached_programs.use_cache_folder", lambda: None)

    def check_line(*_, progress, **__):
        assert capsys.readouterr().err == ""  # a trace that is refused is so before
        progress.update("compiling", 0.0)
        line = "Compiling the schemes whose programs are not kept from before: two to four minutes for all"
        assert capsys.readouterr().err.startswith(line)
        progress.update("simulating", 0.6)
        assert "Compiling" not in capsys.readouterr().err
        raise ValueError("that is all")

    monkeypatch.setattr(advice, "advise", check_line)
    assert cli.main(["trace", "advise", "job.csv"]) == 2


def test_mistakes_are_said_in_words(job, capsys):
    assert cli.main(["trace", "advise", "nowhere.csv"]) == 2
    assert "nowhere.csv" in capsys.readouterr().err
    assert advise("--config", "schemes.gin", "--block", "0") == 2
    errors = capsys.readouterr().err
    assert "block_steps must be a whole number between 1 and 8; got 0" in errors and "Compiling" not in errors
    assert advise("--config", "schemes.gin", "--set", "study.target = 0.001", "--set", "study.num_workers = 5") == 2
    assert "workers of the trace, 4; got 5" in capsys.readouterr().err


def test_only_the_fastest_are_printed_if_asked(job, capsys, monkeypatch):
    result = types.SimpleNamespace(verdict="The first wins.", left_out={"third": "why"})
    monkeypatch.setattr(advice, "advise", lambda *_, **__: result)
    monkeypatch.setattr(page, "heads", lambda _: ["Scheme"])
    monkeypatch.setattr(page, "table_rows", lambda _: [["first"], ["second"]])
    monkeypatch.setattr(page, "notes", lambda _: ["A note.", "Left out: third: why"])
    assert advise("--top", "1") == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "first" in lines and "second" not in lines and "A note." in lines
    assert lines[-1] == "Not shown: 1 slower scheme; why 1 scheme cannot be compared."
    assert advise("--top", "0") == 2
    assert "--top must be at least 1; got 0" in capsys.readouterr().err


def test_a_figure_is_drawn_of_the_schemes_that_are_shown(job, capsys):
    assert advise("--config", "schemes.gin", "--figure", "won.svg", "--top", "1") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Figure written to won.svg"
    drawn = Path("won.svg").read_text()
    assert "<!-- none waits -->" in drawn and "Stragglers cost 50 % [50, 50]" in drawn
    assert "86 % [86, 86]" in drawn and "0.0 % [0.0, 0.0]" not in drawn


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("won.xyz", "--figure must end in .png, .pdf or .svg; got won.xyz."),
        ("none/won.png", "--figure must be a file in a folder that exists; "),
        ("folder.png", "--figure must be a file; folder.png is a folder."),
        ("w" * 300 + ".png", "--figure must be a file that can be written; www"),
        ("there.png", "--figure must be a new file or an empty one; there.png has content. Choose another one."),
    ],
)
def test_a_figure_that_cannot_be_written_is_refused_before_anything_is_read(job, capsys, monkeypatch, file, problem):
    monkeypatch.setattr("gcjax.cli.trace.trace_file.trace_of_options", lambda _: pytest.fail("read"))
    Path("folder.png").mkdir()
    Path("there.png").write_text("mine")
    assert advise("--figure", file) == 2
    assert problem in capsys.readouterr().err and Path("there.png").read_text() == "mine"


def test_a_figure_that_cannot_be_written_in_the_end_is_said_after_the_table(job, capsys):
    longest_name = "w" * 251 + ".png"  # a file has another one while it is written, which is longer
    assert advise("--config", "schemes.gin", "--figure", longest_name) == 2
    printed, errors = capsys.readouterr()
    assert "Stragglers cost 50 %" in printed and "--figure must be a file that can be written" in errors


def test_bindings_need_a_config(job, capsys):
    assert advise("--set", "study.num_workers = 5") == 2
    assert "--set is for a config" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "problem"), [(0.0, "worker 1 all take 0 s"), (1e300, "got 1 to 1e+300 s"), (1e-300, "1e-300 to 1 s")]
)
def test_times_that_cannot_be_simulated_are_refused(job, capsys, seconds, problem):
    trace = np.ones((32, 4))
    trace[:, 1] = seconds
    stragglers.write_trace("job.csv", trace)
    assert advise("--config", "schemes.gin") == 2
    assert problem in capsys.readouterr().err


def test_a_regret_is_not_broken(job, capsys):
    Path("schemes.gin").write_text(CONFIG.replace("'BSP': @bsp()", "'BSP': @bsp(), 'nor this': @worker_busy()"))
    assert advise("--config", "schemes.gin") == 0
    rows = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()]
    first = next(index for index, row in enumerate(rows) if "indistinguishable," in row)
    assert rows[first + 1][rows[first].index("indistinguishable,")] == "0.0 % [0.0, 0.0]"
