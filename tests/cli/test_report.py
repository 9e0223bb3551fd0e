"""`gcjax report` with `--timeline` and `--html`: the files of a small run, and what is refused."""

import errno
import json
import os
import shutil

import pytest

from gcjax import analysis, cli, locks
from tests.analysis.results import W, results

pytestmark = pytest.mark.usefixtures("without_drawing")


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    """The folder of a comparison made by hand."""
    out = tmp_path_factory.mktemp("run")
    (out / "operative.gin").write_text("study.target = 0.9 # <b>\n")
    analysis.save(results(failed=[1]), out)
    analysis.write_report(results(failed=[1]), out)
    return out


@pytest.fixture
def folder(by_hand, tmp_path):
    """A copy of it."""
    return shutil.copytree(by_hand, tmp_path / "run")


def report(folder, *options):
    return cli.main(["report", str(folder), *map(str, options)])


def processes(path):
    events = json.loads(path.read_text())["traceEvents"]
    return {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}, events


@pytest.mark.slow
def test_a_timeline_has_a_process_for_each_scheme(folder, tmp_path, capsys):
    path = tmp_path / "timeline.json"
    assert report(folder, "--timeline", path) == 0
    names, events = processes(path)
    assert list(names) == ["BSP", "ASP", "FRC"]
    assert {e["name"] for e in events if e["ph"] == "C"} == {"largest staleness", "mean staleness", "loss"}
    first_seed = analysis.load(folder).seeds("ASP")[0]
    losses = [e["args"]["value"] for e in events if e["name"] == "loss" and e["pid"] == names["ASP"]]
    assert losses == pytest.approx(first_seed["train_loss"][first_seed["time"] <= 8].tolist())
    assert sum(e["ph"] == "s" for e in events) == sum(e["ph"] == "f" for e in events) > 0
    assert f"all {W} workers, from 0 to 8 s: BSP, ASP, FRC" in capsys.readouterr().out
    analysis.load(folder)  # nothing of the run has changed


def test_a_part_of_a_timeline(folder, tmp_path):
    path = tmp_path / "timeline.json"
    assert report(folder, "--timeline", path, "--scheme", "ASP", "--window", "1:3.5", "--workers", "2") == 0
    names, events = processes(path)
    threads = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(names) == ["ASP"] and threads == {"server", "worker 0", "worker 2"}
    assert {1e6, 3.5e6} == {f(e["ts"] + e["dur"] * (f is max) for e in events if e["ph"] == "X") for f in (min, max)}


def test_a_folder_without_commits_has_a_timeline_without_arrows(folder, tmp_path):
    found = analysis.load(folder)._replace(commits=None)
    old = tmp_path / "old"
    old.mkdir()
    analysis.save(found, old)
    assert report(old, "--timeline", tmp_path / "timeline.json") == 0
    _, events = processes(tmp_path / "timeline.json")
    assert not any(e["ph"] in "sf" for e in events) and "no commits.parquet" in (tmp_path / "timeline.json").read_text()


@pytest.mark.slow(
    "options1---window is for a timeline",
    "options2-suffix .json or .pftrace",
    "options3-Did you mean 'BSP'",
    "options4-window must be from one second to a later one",
    "options5-workers must be a whole number",
)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--scheme", "BSP"], "--scheme is for a timeline. Add --timeline FILE"),
        (["--window", "0:2"], "--window is for a timeline"),
        (["--timeline", "x.csv"], "suffix .json or .pftrace"),
        (["--timeline", "x.json", "--scheme", "BPS"], "Did you mean 'BSP'"),
        (["--timeline", "x.json", "--window", "9:8"], "window must be from one second to a later one"),
        (["--timeline", "x.json", "--workers", "0"], "workers must be a whole number"),
    ],
)
def test_what_is_refused(folder, tmp_path, monkeypatch, capsys, options, said):
    monkeypatch.chdir(tmp_path)
    assert report(folder, *options) == 2
    output, error = capsys.readouterr()
    assert error.startswith("gcjax: ") and said in error and not (tmp_path / "x.json").exists()
    assert not output  # the table is printed if all is well


@pytest.mark.parametrize(("option", "name"), [("--timeline", "run.json"), ("--html", "metrics.parquet")])
def test_files_of_the_run_are_not_written_over(folder, monkeypatch, capsys, option, name):
    monkeypatch.chdir(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert report(folder, option, name) == 2
    assert f"{name} is a file of the run" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.slow
def test_the_page_of_the_folder_may_be_named(folder):
    for _ in range(2):
        assert report(folder, "--html", folder / "report.html") == 0
    assert "report.html" in json.loads((folder / "run.json").read_text())["files"]


@pytest.mark.slow("--timeline", "--latex")
@pytest.mark.parametrize("option", ["--timeline", "--html", "--csv", "--latex"])
def test_a_file_that_cannot_be_written_or_has_content_is_left_alone(folder, tmp_path, capsys, option):
    assert report(folder, option, tmp_path / "nowhere" / "file.json") == 2
    assert f"{option} must be a file in a folder that exists" in capsys.readouterr().err
    (tmp_path / "file.json").write_text("notes")
    assert report(folder, option, tmp_path / "file.json") == 2
    output, error = capsys.readouterr()
    assert f"{option} must be a new file or an empty one" in error and not output
    assert (tmp_path / "file.json").read_text() == "notes"


@pytest.mark.slow("0:", "a:b")
@pytest.mark.parametrize("window", ["3", "a:b", "0:"])
def test_a_window_that_is_none(folder, capsys, window):
    with pytest.raises(SystemExit):
        report(folder, "--timeline", "x.json", "--window", window)
    assert f"as in 0:12.5; got {window!r}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_page_in_the_folder_belongs_to_the_run(folder, capsys):
    assert report(folder, "--html") == 0
    assert "Page written to" in capsys.readouterr().out.replace("\n", " ")
    page = (folder / "report.html").read_text()
    assert "report.html" in json.loads((folder / "run.json").read_text())["files"]
    assert "study.target = 0.9 # &lt;b&gt;" in page
    assert report(folder, "--html") == 0 and (folder / "report.html").read_text() == page
    (folder / "report.html").write_text(page + " ")
    assert report(folder) == 2 and "'gcjax report' makes it anew" in capsys.readouterr().err
    (folder / "report.html").unlink()
    assert report(folder, "--html") == 0


def test_a_page_elsewhere_changes_nothing_in_the_folder(folder, tmp_path):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert report(folder, "--html", tmp_path / "page.html") == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_has_a_table_and_a_page_elsewhere(
    folder, tmp_path, capsys, monkeypatch, number
):
    def refuse(file):
        raise OSError(number, os.strerror(number), str(file))

    monkeypatch.setattr(locks, "_descriptor_with_lock", refuse)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert report(folder, "--html", tmp_path / "page.html") == 0
    out, err = capsys.readouterr()
    assert "BSP" in out and err == (
        f"gcjax: warning: {folder} cannot be written ({os.strerror(number)}); its summary and its figures stay as they "
        "are.\n"
    )
    assert report(folder, "--html") == 2
    assert f"must be one that can be written; {folder} cannot: {os.strerror(number)}" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_full_disk_is_no_folder_that_cannot_be_written(folder, capsys, monkeypatch):
    def refuse(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))

    monkeypatch.setattr(locks, "_descriptor_with_lock", refuse)
    assert report(folder) == 2 and "There is no space left" in capsys.readouterr().err


def test_a_folder_that_is_no_comparison_has_a_page(tmp_path):
    (tmp_path / "summary.md").write_text("# A study\n\nSome words.\n\n| a | b |\n|---|---:|\n| x <i> | 1 |\n")
    (tmp_path / "run.json").write_text(json.dumps({"verdict": "All is well & done.", "device": "cpu"}))
    assert report(tmp_path, "--html") == 0
    page = (tmp_path / "report.html").read_text()
    assert "<h1>A study: " in page and '<p id="verdict">All is well &amp; done.</p>' in page
    assert "x &lt;i&gt;" in page and "<td>cpu</td>" in page


def test_against_a_scheme_the_differences_are_from_it(folder, capsys):
    assert report(folder, "--against", "ASP") == 0
    assert "Later than ASP, seed by seed" in capsys.readouterr().out
    page = (folder / "summary.md").read_text()
    assert "## Later than ASP, seed by seed" in page and analysis.load(folder).schemes == ["BSP", "ASP", "FRC"]
    assert report(folder, "--against", "ASP", "--json") == 0
    _, differences = json.loads(capsys.readouterr().out)["tables"]
    assert {row["Scheme"] for row in differences} == {"BSP", "FRC"}


def test_against_what_is_no_scheme(folder, tmp_path, capsys):
    before = (folder / "summary.md").read_bytes()
    assert report(folder, "--against", "AS") == 2
    output, error = capsys.readouterr()
    assert "against must be one of 'ASP', 'BSP', 'FRC'; got 'AS'. Did you mean 'ASP'?" in error and not output
    assert (folder / "summary.md").read_bytes() == before
    (tmp_path / "summary.md").write_text("# A study\n")
    assert report(tmp_path, "--against", "ASP") == 2
    assert "--against is for comparisons and sweeps; got the folder" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["csv", "latex", "curves"])
def test_a_table_is_all_that_is_on_stdout_or_in_a_file(folder, tmp_path, capsys, name):
    assert report(folder, f"--{name}", "--against", "ASP") == 0
    output, error = capsys.readouterr()
    assert output.startswith(
        {"csv": '"scheme","metric",', "latex": r"\begin{tabular}", "curves": '"scheme","seed",'}[name]
    )
    assert "Later than ASP" in error and "Later than ASP" not in output
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert report(folder, f"--{name}", tmp_path / "table", "--against", "ASP") == 0
    assert (tmp_path / "table").read_text() == output
    assert "Table written to" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--csv", "--latex"], "got --csv and --latex. Name a file, as in --csv table.csv."),
        (["--latex", "--json"], "got --latex and --json. Name a file, as in --latex table.tex."),
        (["--csv", "--against", "AS"], "Did you mean 'ASP'?"),
        (["--csv", "nowhere/table.csv"], "must be a file in a folder that exists"),
    ],
)
def test_tables_that_are_refused(folder, tmp_path, monkeypatch, capsys, options, said):
    monkeypatch.chdir(tmp_path)
    assert report(folder, *options) == 2
    assert said in capsys.readouterr().err


def test_a_table_is_of_a_comparison_or_a_sweep(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert report(folder, "--csv", "metrics.parquet") == 2
    assert "metrics.parquet is a file of the run" in capsys.readouterr().err
    (tmp_path / "summary.md").write_text("# A study\n")
    assert report(tmp_path, "--latex") == 2
    output, error = capsys.readouterr()
    assert "--latex is for comparisons and sweeps" in error and not output
