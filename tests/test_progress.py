"""What is said of a run that is not watched on a terminal."""

import re

import pytest

from gcjax import progress, tables


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


def test_the_last_line_comes_before_what_is_shown_then(capsys):
    with progress.bar() as shown:
        shown.update("ASP", 0.0)
        shown.update("ASP", 1.0)
        assert re.fullmatch(r"ASP: done in \d+\.\d s \(100% of all\)\n", capsys.readouterr().err)
        shown.update("ASP", 1.0)
    assert capsys.readouterr().err == ""


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


@pytest.mark.parametrize(("columns", "width"), [(None, 80), ("100", 100), ("0", 80), ("wide", 80)])
def test_tables_that_nobody_watches_have_the_width_of_a_page(monkeypatch, capsys, columns, width):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    words = "a sentence of some words that no line of a table has room for, and " * 4
    with progress.bar() as shown:
        shown.show(tables.RichTable("", ["Name", "What it is"], [["one", words]], left_heads=["What it is"]))
        lines = capsys.readouterr().out.splitlines()
    assert width - 9 < max(map(len, lines)) <= width
    assert " ".join(" ".join(line.split("│")[-1] for line in lines[2:]).split()) == words.strip()


def test_a_path_is_never_broken(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    with progress.bar() as shown:
        shown.show(f"Written to {'/folder' * 30}")
    assert capsys.readouterr().out == f"Written to {'/folder' * 30}\n"
