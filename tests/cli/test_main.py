"""The command line: runs as subprocesses; what only answers, in this one."""

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from gcjax import __version__, cli, registry
from gcjax.cli import internal_errors

ROOT = Path(__file__).parents[2]
CONFIG = """
run.experiment = @compare
compare.schemes = {'ASP': @asp(), 'partial': @coded()}
coded.code = @partial()
partial.assignment = @cyclic()
cyclic.num_workers = 4
cyclic.load = 2
compare.study = @study()
study.task = @digits()
digits.num_chunks = 4
digits.hidden = (8,)
compare.stragglers = @exponential()
study.optimizer = @sgd()
sgd.learning_rate = 0.3
study.num_workers = 4
study.num_units = 60
study.num_seeds = 2
study.target = 0.3
"""


def gcjax(*arguments, cwd=ROOT):
    environment = {**os.environ, "COLUMNS": "180", "XLA_FLAGS": "", "PYTHONWARNINGS": "error::UserWarning:gcjax"}
    command = [sys.executable, "-m", "gcjax", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture
def here(capsys, monkeypatch):
    """A command in this process, which spares importing everything again."""
    monkeypatch.chdir(ROOT)

    def run(*arguments):
        try:
            status = cli.main([str(argument) for argument in arguments])
        except SystemExit as end:  # of the parser
            status = end.code
        said = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, status, said.out, said.err)

    return run


def refused(done):
    """What a command says that ends with status 2, without a traceback."""
    assert done.returncode == 2, done
    assert done.stderr.startswith("gcjax: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("configs") / "small.gin"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def finished(config):
    out, said, errors = config.parent / "out", io.StringIO(), io.StringIO()
    arguments = ["run", str(config), "--set", "study.target = 0.25", "--out", str(out)]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("error", category=UserWarning, module="gcjax")
        patch.chdir(ROOT)
        patch.setenv("COLUMNS", "180")
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            status = cli.main(arguments)
    return out, subprocess.CompletedProcess(arguments, status, said.getvalue(), errors.getvalue())


def test_run_writes_a_folder_and_prints_the_table(finished):
    out, done = finished
    assert done.returncode == 0, done.stderr
    assert "partial" in done.stdout
    assert f"Written to {out}" in done.stdout
    assert (out / "summary.md").is_file()
    assert "target = 0.25" in (out / "operative.gin").read_text()


def test_run_is_quiet_when_nobody_watches(finished):
    _, done = finished
    assert "\x1b" not in done.stdout
    assert "%|" not in done.stdout
    assert re.fullmatch(r"ASP: done in .* s \(50% of all\)\npartial: done in .* s \(100% of all\)\n", done.stderr)


@pytest.mark.slow
def test_a_run_in_a_process_of_its_own_says_and_writes_the_same(finished, config, tmp_path):
    (_, here), out = finished, tmp_path / "out"
    done = gcjax("run", config, "--set", "study.target = 0.25", "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace(str(out), str(finished[0])) == here.stdout
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["ASP", "partial"]
    assert {path.name for path in out.iterdir()} == {path.name for path in finished[0].iterdir()}


def test_report_rebuilds_the_summary_and_figures(finished, here):
    out, run = finished
    before = {name: (out / name).read_bytes() for name in ("summary.md", "timeline.png", "loss_vs_time.png")}
    for name in before:
        (out / name).unlink()
    done = here("report", out)
    assert done.returncode == 0, done.stderr
    assert {name: (out / name).read_bytes() for name in before} == before
    before_training, _, printed = run.stdout.partition("now the schemes are trained")
    assert "timeline.png shows the first rounds" in before_training
    assert done.stdout.strip() == printed.rpartition("Written to")[0].strip()


def test_run_refuses_a_folder_that_is_not_empty(finished, config, here):
    out, _ = finished
    assert "must be new or empty" in refused(here("run", config, "--out", out))


def test_run_refuses_bad_config(config, tmp_path, here):
    run = ("run", config, "--out", tmp_path, "--set")
    assert "small.gin" in refused(here("run", config.parent / "smal.gin", "--out", tmp_path / "a"))
    assert "Did you mean learning_rate" in refused(here(*run, "sgd.learning_rat = 1"))
    assert "between 0 and 1; got 2" in refused(here(*run, "study.target = 2.0"))


@pytest.mark.parametrize("binding", ["ssp.staleness = 'x'", "study.target = 2.0", "study.target = None"])
def test_a_refused_run_leaves_no_folder(config, tmp_path, here, monkeypatch, binding):
    scheme = "compare.schemes = {'SSP': @ssp()}"
    refuse = ("run", config, "--set", scheme, "--set", "ssp.staleness = 1", "--set", binding)
    refused(here(*refuse, "--out", tmp_path / "new" / "out"))
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    refused(here(*refuse, "--out", tmp_path / "empty"))
    assert list((tmp_path / "empty").iterdir()) == []  # it is not the command's
    monkeypatch.setattr("gcjax.cli.run_folders._RUNS", tmp_path / "runs")
    refused(here(*refuse))
    assert not (tmp_path / "runs").exists()


def test_report_shows_the_tables_of_a_study(tmp_path, here):
    (tmp_path / "summary.md").write_text("# Codes\n\n| Code | Load |\n| --- | ---: |\n| FRC | 4 |\n")
    done = here("report", tmp_path)
    assert done.returncode == 0 and "FRC" in done.stdout


def test_report_takes_the_folder_of_a_training_step_of_ones_own(tmp_path, here):
    small = ("num_steps = 2", "width = 4", "depth = 0", "code = @uncoded()", "optimizer = @sgd()")
    bindings = ["uncoded.num_workers = 2", "sgd.learning_rate = 0.1", *(f"transformer.{b}" for b in small)]
    sets = [part for binding in bindings for part in ("--set", binding)]
    ran = here("run", "configs/transformer.gin", *sets, "--out", tmp_path / "out")
    assert ran.returncode == 0, ran.stderr
    done = here("report", tmp_path / "out")
    assert done.returncode == 0 and f"2 steps: {ran.stdout.splitlines()[0]}" in done.stdout
    assert "transformer.num_steps = 2" in (tmp_path / "out" / "operative.gin").read_text()


def test_report_refuses_other_folders(tmp_path, here):
    assert "gcjax run" in refused(here("report", tmp_path))


def test_list_shows_every_name(here):
    done = here("list")
    assert done.returncode == 0
    for kind in registry.own_kinds().values():
        for name, entry in kind.entries.items():
            assert name in done.stdout
            assert entry.summary in done.stdout
            assert entry.paper in done.stdout


def test_list_of_one_kind(here):
    done = here("list", "protocol")
    assert "ssp" in done.stdout
    assert "cyclic" not in done.stdout
    assert "Did you mean protocol" in refused(here("list", "protocl"))


def test_help_names_the_commands(here):
    done = here("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("run", "list", "report"))
    assert here().returncode == 2


@pytest.mark.slow
def test_a_progress_bar_shows_on_a_terminal(config, tmp_path):
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "gcjax", "run", str(config), "--out", str(tmp_path / "out")]
    command += ["--set", "compare.schemes = {'BSP': @bsp()}"]
    environment = {**os.environ, "TERM": "xterm", "XLA_FLAGS": ""}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=follower, stderr=follower) as process:
        os.close(follower)
        shown = b""
        while chunk := _read(leader):
            shown += chunk
        assert process.wait(timeout=300) == 0
    text = shown.decode()
    assert "BSP" in text
    assert "%" in text
    assert "0:00" in text


def _read(leader):
    try:
        return os.read(leader, 65536)
    except OSError:  # the other side has gone
        return b""


def test_it_says_its_version(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"gcjax {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (["run", "a.gin", "--bogus"], "usage: gcjax run "),
        (["algebra", "laws", "--bogus"], "usage: gcjax algebra laws "),
        (["doctor", "one", "two"], "usage: gcjax doctor "),
        (["--bogus", "doctor"], "usage: gcjax [-h]"),
    ],
)
def test_a_bad_option_shows_the_usage_of_its_command(here, arguments, usage):
    done = here(*arguments)
    assert done.returncode == 2 and done.stderr.startswith(usage)
    assert f"{usage.split(' [')[0].removeprefix('usage: ').strip()}: error: unrecognized arguments: " in done.stderr


def test_a_note_on_a_function_of_somebody_is_printed_and_those_of_jax_are_not():
    error = TypeError("dot_general requires equal shapes")
    for note in (
        "For simplicity, JAX has removed its internal frames",
        "This was raised in ready of a Rule, for (View).",
    ):
        error.add_note(note)
    lines = internal_errors.lines(error).splitlines()
    assert lines[1] == "  This was raised in ready of a Rule, for (View)." and "For simplicity" not in "".join(lines)
