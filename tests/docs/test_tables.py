"""The tables of the pages are those of a run: a few cells of some in any run of the tests, all of them with --slow.

A table that comes from an experiment stands after `<!-- table NAME: COMMAND -->`; NAME is a key of `recomputed.CELLS`,
`recomputed.WHOLE`, or both. `none` is a table that is not computed anew here: somebody has to look at it.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from experiments.partial_stragglers import published
from experiments.partial_stragglers.simulate import SCHEMES
from tests.docs import recomputed
from tests.docs.tables import agrees, marked, table
from tests.parameters import some

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("code_comparisons", "protocol_comparisons", "groups")]
LONG = ["codes", "conditioning", "groups"]
LABELS = {"adaptive": 2, "conditioning": 4, "orders": 2, "cyclic": 2}
"""How many columns name a row, where it is not one."""
RECOMPUTED = {"conditioning": re.compile(r" \| (16|32) \| "), "worker busy": re.compile("H1")}
"""The rows that a whole table is computed for, where all of them would take ten minutes or more."""
ROUNDING = ("float64", "float32", "bfloat16")
"""Columns that measure rounding errors."""
SET_BY_ROUNDING = {(f"Reed-Solomon{kind} | 32 | 2 | 1", "worst") for kind in ("", ", complex")}
SET_BY_ROUNDING |= {("heterogeneous | 32 | 2 | 1", "Condition")}
"""Cells as inexact as those: singular values of the first codes lie at the limit below which they count as 0, and of
the last one another machine shows another digit."""


def named(name):
    """The command and the cells of a marked table."""
    command, text = next(tables[name] for tables in map(marked, PAGES) if name in tables)
    return command, table(text, LABELS.get(name, 1))


def wrong(said, cells):
    """The cells that say something else than what was computed."""
    return {where: (said[where], value) for where, value in cells.items() if not same(where, said[where], value)}


def same(where, text, value):
    """Whether both are the same; rounding errors are another machine's within a factor of 10."""
    is_rounding = where[1] in ROUNDING or where in SET_BY_ROUNDING
    return 0.1 < float(text) / float(value) < 10 if is_rounding else agrees(text, value)


@pytest.mark.slow("cyclic", "orders", "reproduction")
@pytest.mark.parametrize("name", some([name for name in recomputed.CELLS if name not in LONG], LONG))
def test_cells_are_those_of_a_run(name):
    _, said = named(name)
    cells = recomputed.CELLS[name]()
    assert cells
    assert wrong(said, cells) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", recomputed.WHOLE)
def test_whole_tables_are_those_of_a_run(name, tmp_path):
    _, said = named(name)
    cells = recomputed.WHOLE[name](tmp_path)
    rows = RECOMPUTED.get(name, re.compile(""))
    said = {where: text for where, text in said.items() if rows.search(where[0])}
    assert said and set(said) <= set(cells)
    assert wrong(said, {where: cells[where] for where in said}) == {}


def test_every_table_with_numbers_is_marked():
    for page in PAGES:
        text = page.read_text()
        unmarked = re.sub(r"<!-- table [\w ]+: .+ -->\n(?:\|.*\n?)+", "", text)
        rows = [line for line in unmarked.splitlines() if re.match(r"\|.*\| *[±+-]?\d[\d.,%e± -]* *\|", line)]
        assert rows == [], page.name


def test_every_mark_is_known_and_its_command_names_a_config():
    for page in PAGES:
        marks = marked(page)
        assert set(marks) - {"none"} <= {*recomputed.CELLS, *recomputed.WHOLE}
        for command, _ in marks.values():
            for path in re.findall(r"configs/[\w/]+\.gin", command):
                assert (ROOT / path).exists(), path


def test_published_figures_in_the_table_are_those_of_the_module():
    _, said = named("reproduction")
    for (what, head), text in said.items():
        if head == "published":
            blocks, scheme, deadline = re.match(r".*, L=(\d), (.*?)(?:, deadline (\d+))?$", what).groups()
            where = ("G1", int(blocks), scheme)
            value = published.error(*where, float(deadline)) if deadline else published.completion(*where)
            assert scheme in SCHEMES and agrees(text, value), what


@pytest.mark.parametrize(
    ("text", "value", "same"),
    [
        ("6.11", 6.114, True), ("6.11", 6.12, False), ("1.15e+04", 11_504.0, True), ("1.15e+04", 11_600.0, False),
        ("exact", 1e-7, True), ("exact", 0.01, False), ("never", np.nan, True), ("never", 3.0, False),
        ("2e+01", 24.0, True), ("10", 10.4, True), ("150", 158.0, False), ("-0.8", -0.83, True), ("18", "18", True),
        ("exact", np.nan, False), ("3.5", np.nan, False), ("yes", 1.0, False),
    ],
)  # fmt: skip
def test_agreement_is_to_the_last_digit(text, value, same):
    assert agrees(text, value) == same


def test_a_wrong_digit_is_seen():
    text = "| Code | Load |\n| --- | ---: |\n| FRC | 4 |\n"
    assert wrong(table(text), {("FRC", "Load"): 4.0}) == {}
    assert wrong(table(text.replace("4", "5")), {("FRC", "Load"): 4.0}) == {("FRC", "Load"): ("5", 4.0)}
