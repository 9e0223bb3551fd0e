"""The Python blocks of the README and of the page on the algebra run, one after the other, in one session each."""

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gcjax
from gcjax import analysis, cli

ROOT = Path(__file__).parent.parent
README, ALGEBRA, OWN = ROOT / "README.md", ROOT / "docs" / "algebra.md", ROOT / "docs" / "your_own_scheme.md"
SMALLEST = ROOT / "configs" / "smallest.gin"


def session_of(page: Path) -> dict[str, Any]:
    session: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(block, page.name, "exec"), session)
    return session


@pytest.fixture
def trained_once(monkeypatch):
    """Only the first call of `engine.run` trains; for the others the arguments are bound, and its result returned."""
    run, signature, results = gcjax.engine.run, inspect.signature(gcjax.engine.run), []

    def once(*args, **kwargs):
        signature.bind(*args, **kwargs)
        if not results:
            results.append(run(*args, **kwargs))
        return results[0]

    monkeypatch.setattr(gcjax.engine, "run", once)


def test_code_blocks_can_be_called(capsys, trained_once):
    run_blocks(capsys)


@pytest.mark.slow
def test_code_blocks_run(capsys):
    session = run_blocks(capsys)
    assert float(session["run"].trajectory.metrics["accuracy"][-1]) > 0.8


def run_blocks(capsys):
    session = session_of(README)
    printed = capsys.readouterr().out
    assert printed.startswith("True") and "steps keep to ssp(20 workers, staleness 3)" in printed
    assert session["runs"].trajectory.metrics["accuracy"].shape[0] == 4
    return session


def test_page_on_the_algebra_says_what_its_blocks_print(capsys):
    session_of(ALGEBRA)
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == ["It refines."] * 2 and printed[2].startswith("The specification has no such trace")
    assert printed[8:11] == ["It refines."] * 3
    said = ALGEBRA.read_text().splitlines()
    shown = [*printed[2:8], *(f"# {line}" for line in printed[11:15]), f"# {printed[15]}"]
    assert [line for line in shown if not any(text.endswith(line) for text in said)] == []
    assert printed[16] == "It refines." and printed[17:] == printed[2:8]


COMMANDS = re.findall(r"```\n\$ gcjax (.*?)\n(.*?)\n```", ALGEBRA.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_page_on_the_algebra_shows_all_that_a_command_prints(capsys, command, shown):
    assert cli.main(command.split()) == (1 if "fails" in shown else 0)
    assert [line.rstrip() for line in capsys.readouterr().out.rstrip().splitlines()] == shown.splitlines()


def test_every_specification_is_in_the_table():
    from gcjax.specifications import SPECIFICATIONS

    rows = [line for line in ALGEBRA.read_text().splitlines() if line.startswith("| `")]
    names = set(re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in rows)))
    assert set(SPECIFICATIONS) <= names


def test_the_smallest_config_is_one():
    assert "`configs/smallest.gin` is one of eleven lines" in README.read_text()
    assert len([line for line in SMALLEST.read_text().splitlines() if "=" in line]) == 11
    assert cli.main(["check", "--schedule", str(SMALLEST)]) == 0


@pytest.mark.slow
def test_the_smallest_config_runs_and_reaches_its_target(tmp_path):
    assert cli.main(["run", str(SMALLEST), "--out", str(tmp_path / "out")]) == 0
    results = analysis.load(tmp_path / "out")
    assert all(np.isfinite(analysis.reach_times(results, scheme)).all() for scheme in results.schemes)


SHAPE = r"\b(?:bool|float\d*|u?int\d*)\[([^\[\]\"=\n]*)\]|(?<!\w)\[(\w+(?:, \w+)+)\]"


def letters_of_shapes():
    """The capital letters in shapes such as `float[T, W]` or `[T, W]`, each with the files that use it."""
    files_of: dict[str, set[str]] = {}
    for file in (ROOT / "gcjax").rglob("*.py"):
        for typed, untyped in re.findall(SHAPE, file.read_text()):
            for letter in re.findall(r"(?<![\w'])[A-Z](?!\w)", typed + untyped):
                files_of.setdefault(letter, set()).add(file.name)
    return files_of


def test_every_letter_of_a_shape_is_in_the_table_once():
    rows = re.findall(r"^\| ([A-Za-z]) \| ", README.read_text(), flags=re.MULTILINE)
    assert len(rows) == len(set(rows))
    files_of = letters_of_shapes()
    capitals = {letter for letter in rows if letter.isupper()}
    assert {letter: files for letter, files in files_of.items() if letter not in capitals} == {}
    assert {letter for letter in capitals if letter not in files_of} == set()


@pytest.mark.parametrize("page", [README, ALGEBRA, OWN], ids=lambda page: page.name)
def test_figures_and_files_it_names_exist(page):
    text = page.read_text()
    for path in re.findall(r"\]\(([^):#]+)\)", text):
        assert (page.parent / path).exists(), path
    for path in re.findall(r"`((?:gcjax|tests|configs)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path
