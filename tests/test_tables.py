"""Every table that is printed, at 80, 120 and 200 columns: no number is cut off or broken, and every row is named."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from experiments import codes, conditioning, live, worker_busy
from experiments.grouped import claims
from experiments.partial_stragglers import report
from gcjax import analysis, tables
from gcjax.algebra import laws
from gcjax.cli import check_schedules, check_specification
from gcjax.specifications import check
from tests.analysis.results import results

ROOT = Path(__file__).parent.parent
LONG = "a sentence of many words, of which each may stand on a line of its own, but whole"


def summary():
    found = results(failed=[0], value=0.999)
    return analysis.table(found)


def study_of_codes():
    models = ["nobody slow", "bursty", "one fails", "exponential"]
    one = codes.Measurement(
        "communication-efficient L=2", 3.0, 0.5, 0.123, 0.25, np.array([1.23, np.nan, 12.5, 3.0]), np.ones(4),
        np.array([0.0, 1.0, 0.25, 0.0]), 1.2e-3, 1.2e5, 3.4e7, 1e-3, 0.1,
    )  # fmt: skip
    return analysis.RichTable(
        "Codes", codes._heads(models), [codes._table_row(one), codes._table_row(one._replace(code="FRC"))]
    )


def study_of_protocols():
    heads = ["Scheme", *(f"{regime}, {cost}" for regime in ("mild", "bursty", "failing") for cost in ("free", "dear"))]
    return analysis.RichTable("Time", heads, [["eager WBSP", *["**123.4 ± 12.3**", "99.5 ± 1.1 *"] * 3]])


def study_of_worker_busy():
    claim = worker_busy.Claim("H1", "time that WBSP, eager, saves", "up to 60 %", "61 %", "± 2.0", "yes")
    line = worker_busy.Line("H1", "WBSP", "332 ± 53 (3 of 5 seeds)", "0.97 ± 0.01", "71 %", "22 %", "6 %", "18.3 (82)")
    return [worker_busy.claims_table([claim]), worker_busy.methods_table([line])]


def study_of_conditioning():
    row = conditioning.Row("Reed-Solomon, complex", 32, 4, 2, 1.2e3, 3.4e5, 1e-12, 1e-4, 0.3)
    heads = ["Relative error with ... digits", *map(str, range(2, 16))]
    curve = ["interpolation, degree 30", *["1e-05"] * 14]
    return [conditioning.table([row], safe=1e-2), analysis.RichTable("Interpolation", heads, [curve])]


def study_of_partial_stragglers():
    row = report.Row("200 workers, random 8-regular", 3, "original scheme", 24.0, 0.4714, 0.4513, 0.0013, 0.125, 1000)
    return report.table([row, row._replace(setting="4 workers")], "Mean error")


def study_of_groups():
    claim = claims.Claim(f"Few stragglers: {LONG}", "0.93 times the time, 0.12 points lost", "± 0.01, ± 0.1", True, "")
    return analysis.RichTable("Claims", claims.HEADS, claims.lines([claim]))


def live_deadlines():
    row = {"scheme": "uncoded", "scenario": "nobody slow", "round_seconds": 0.2, "longest_round": 2.21, "all_rounds": 9}
    row |= {"replayed_round": 0.2, "exact_rounds": 40, "num_rounds": 40, "train_loss": 0.1784, "accuracy": 0.961}
    return live.table([row, {**row, "scenario": "slow one changes"}])


def checks():
    good, bad = (check_specification.specification_of_arguments("ssp", ["--staleness", number]) for number in "31")
    eager = check_specification.specification_of_arguments("worker_busy_eager", [])
    return [
        table
        for specification in (good, bad, eager)
        for table in check_specification.result_tables(check(specification))
    ]


def schedules():
    rows = [["partial L=1", "bursty, dear", "12,345", f"keeps to it: {LONG}"], ["ASP", "", "", "promises nothing"]]
    return check_schedules.checks_table("Schedules of a config", rows)


def all_laws():
    return laws.table([laws.Result(law, law.kind) for law in laws.LAWS])


TABLES = {
    make.__name__: make
    for make in (
        summary, study_of_codes, study_of_protocols, study_of_worker_busy, study_of_conditioning,
        study_of_partial_stragglers, study_of_groups, live_deadlines, checks, schedules, all_laws,
    )
}  # fmt: skip


@pytest.fixture(scope="module", params=TABLES)
def shown(request):
    tables = TABLES[request.param]()
    return tables if isinstance(tables, list) else [tables]


def printed(renderable, width):
    file = io.StringIO()
    Console(file=file, width=width, force_terminal=True, color_system=None, legacy_windows=False).print(renderable)
    return file.getvalue()


def plain(cell):
    return tables.rich_text(cell).plain


def columns_of(text):
    """Each part of what was printed as the cells of its lines."""
    parts = [[]]
    for line in text.splitlines():
        if line.strip():
            parts[-1].append([cell.strip() for cell in re.split("[│┃]", line)])
        else:
            parts.append([])
    return [part for part in parts if any(len(line) > 1 for line in part)]


@pytest.mark.slow("checks-120", "checks-80", "summary-80")
@pytest.mark.parametrize("width", [80, 120, 200])
def test_nothing_is_cut_off_or_broken(shown, width):
    for table in shown:
        text = printed(table, width)
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= width
        cells = {cell for part in columns_of(text) for line in part for cell in line}
        words = {word for cell in cells for word in cell.split()}
        for row in table.rows:
            for i, line in [(i, line) for i, cell in enumerate(row) for line in plain(cell).split("\n")]:
                if len(line) <= (tables.MAX_UNBROKEN_WIDTH if i >= table.num_key_columns else 24):
                    assert line.strip() in cells, line
                assert set(line.split()) <= words
        assert {word for head in table.heads for word in head.split()} <= words


@pytest.mark.parametrize("width", [80, 120, 200])
def test_every_part_names_its_rows(shown, width):
    for table in shown:
        parts = table.columns_of_parts(width)
        assert sorted({column for part in parts for column in part}) == list(range(len(table.heads)))
        assert all(part[: table.num_key_columns] == list(range(table.num_key_columns)) for part in parts)
        text = printed(table, width)
        for row in table.rows:
            first = plain(row[0]).split("\n")[0].split(" ")[0]
            assert text.count(first) >= len(parts)


def test_a_table_that_fits_is_in_one_part():
    table = summary()
    assert len(table.columns_of_parts(180)) == 1 and len(table.columns_of_parts(80)) == 2
    assert table.columns_of_parts(80)[0][:3] == [0, 1, 2]  # the scheme, its time, its accuracy


def test_a_page_of_markdown_is_shown_with_whole_tables():
    heads, row = (
        ["Code", "workers", *(f"figure {i}" for i in range(12))],
        ["FRC", "17", *(f"{i} ± 0.01" for i in range(20, 32))],
    )
    page = f"# Codes\n\n{tables.markdown_table(heads, [['**CRC**', *row[1:]], row], num_key_columns=2)}\n\n- A note.\n"
    text = printed(tables.rich_page(page), 80)
    assert "…" not in text and "**" not in text and "A note." in text
    assert all(text.count(cell) == 2 for cell in row[2:])
    assert text.count("FRC") == text.count("CRC") == len(columns_of(text)) > 1
    assert text.count("17") == 2 * text.count("FRC")


def test_a_bar_in_a_cell_does_not_end_it():
    rows = [["a|b", "1 | 2"], ["c\\", "||"], ["d\ne", ""], ["|", "3"]]
    page = tables.markdown_table(["A", "B|C"], rows)
    assert page.splitlines()[0] == r"| A | B\|C |" and r"| a\|b | 1 \| 2 |" in page.splitlines()
    assert tables._row_cells(page.splitlines()[4]) == ["d e", ""]
    shown = tables._table_of_lines(page.splitlines())
    assert (shown.heads, shown.rows[:2], shown.rows[3]) == (["A", "B|C"], rows[:2], rows[3])


def test_columns_with_equal_heads_are_all_in_the_rows():
    page = tables.markdown_table(["a", "b", "b", "b (2)", "b"], [["1", "2", "3", "**4**", "5"]])
    assert tables.rows_of_tables(page) == [[{"a": "1", "b": "2", "b (3)": "3", "b (2)": "4", "b (4)": "5"}]]


def test_all_tables_are_made_in_one_place():
    """So that a new one is not cut off; the list of names has no numbers, and its sentences wrap."""
    users = [file for folder in ("gcjax", "experiments") for file in (ROOT / folder).rglob("*.py")]
    importing = {str(file.relative_to(ROOT)) for file in users if "rich.table" in file.read_text()}
    assert importing == {"gcjax/tables.py", "gcjax/cli/listing_tables.py"}
