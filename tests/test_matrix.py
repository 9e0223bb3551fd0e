"""The matrix of what is supported: it has every config, tests the lower bounds that are promised, and can fail."""

import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from gcjax.cli import shipped
from tests.matrix import __main__ as matrix
from tests.matrix import cells, configs, environments


def test_every_config_is_run_or_skipped_with_a_reason():
    assert {*configs.BINDINGS, *configs.SKIPPED} == set(shipped.configs())
    assert not set(configs.BINDINGS) & set(configs.SKIPPED) and all(configs.SKIPPED.values())


def test_the_oldest_versions_are_the_lower_bounds():
    project = tomllib.loads((environments.ROOT / "pyproject.toml").read_text())["project"]
    bounds = {Requirement(text).name: str(Requirement(text).specifier) for text in project["dependencies"]}
    lines = (environments.ROOT / environments.OLDEST).read_text().split()
    oldest = {Requirement(line).name: Requirement(line).specifier for line in lines}
    assert set(oldest) == set(bounds)
    for name, versions in oldest.items():
        (version,) = (each.version for each in versions)
        assert bounds[name].startswith(">=") and Version(version) == Version(bounds[name].removeprefix(">=")), name


@pytest.fixture
def run(monkeypatch, capsys):
    """The matrix with these outcomes instead of tests: its status, and its table."""
    places = [
        environments.Environment("pinned", Path(sys.executable)),
        environments.Environment("newest", None, "there is no such Python on this machine"),
    ]
    monkeypatch.setattr(matrix, "environments", lambda text: places)
    monkeypatch.setenv("COLUMNS", "180")

    def run(tests, configs):
        monkeypatch.setattr(matrix, "run_tests", lambda python, setting: tests)
        monkeypatch.setattr(matrix, "run_configs", lambda python: configs)
        monkeypatch.setattr(sys, "argv", ["matrix"])
        return matrix.main(), capsys.readouterr().out

    return run


@pytest.mark.slow
def test_a_cell_that_fails_is_shown_and_ends_with_status_1(run):
    good, bad = cells.Outcome(True, "7 passed"), cells.Outcome(False, "1 of 3 run", "codes: no luck")
    status, printed = run(good, good)
    assert status == 0 and "FAILED" not in printed
    assert "there is no such Python on this machine" in printed and "skipped" in printed
    assert "Config live is skipped: " in printed
    status, printed = run(good, bad)
    assert status == 1 and "FAILED: 1 of 3 run" in printed and "pinned, configs:\ncodes: no luck" in printed


@pytest.mark.slow
def test_tests_that_fail_and_a_subset_that_is_not_there_fail_the_cell(tmp_path, monkeypatch):
    test = tmp_path / "test_it.py"
    monkeypatch.setattr(cells, "QUICK", (str(test),))
    for body, passed, text in (
        ("import os\ndef test_it():\n    assert os.environ['JAX_ENABLE_X64'] == '1'\n", True, "1 passed"),
        ("def test_it():\n    assert False\n", False, "1 failed"),
        ("", False, "no tests ran"),
    ):
        test.write_text(body)
        outcome = cells.run_tests(Path(sys.executable), "float64")
        assert (outcome.passed, outcome.text) == (passed, text)


def test_a_python_that_is_not_there_is_none():
    assert environments.interpreter("3.99") is None
    this = "{}.{}".format(*sys.version_info[:2])
    assert environments.interpreter(this) is not None
    assert environments.installed("none", None, []).problem == "there is no such Python on this machine"
