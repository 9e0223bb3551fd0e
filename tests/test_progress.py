"""What is said of a run that is not watched on a terminal."""

import re

import pytest

from gcjax import progress


def report(shown):
    for step in range(10):
        shown.update("ASP", step / 20, f"loss {step}")
    shown.show("a table")
    for step in range(10):
        shown.update("BSP", 0.5 + step / 20)


def test_a_line_for_each_thing_that_is_done(capsys):
    with progress.bar() as shown:
        report(shown)
        said = capsys.readouterr()
        assert re.fullmatch(r"ASP: done in \d+\.\d s \(50% of all\)\n", said.err)
        assert said.out.strip() == "a table"
    assert re.fullmatch(r"BSP: done in \d+\.\d s \(100% of all\)\n", capsys.readouterr().err)


def test_what_ends_with_an_error_is_not_said_to_be_done(capsys):
    with pytest.raises(RuntimeError), progress.bar() as shown:
        shown.update("ASP", 0.0)
        raise RuntimeError
    assert capsys.readouterr().err == ""


def test_nothing_is_said_by_an_experiment_that_reports_nothing(capsys):
    with progress.bar():
        pass
    said = capsys.readouterr()
    assert said.out == said.err == ""


def test_silence(capsys):
    report(progress.silent())
    said = capsys.readouterr()
    assert said.out == said.err == ""
