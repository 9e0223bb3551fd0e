"""The manuscript states no number of its own, and everything that it refers to is there."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from experiments.paper import live_tables
from experiments.paper.macros import groups_of
from tests.docs.tables import marked, table
from tests.paper import text_rules

PAPER = Path(__file__).parents[2] / "paper"
GENERATED = PAPER / "generated"
SOURCES = (PAPER / "main.tex", *sorted((PAPER / "sections").glob("*.tex")))
TEXT = "\n\n".join(path.read_text() for path in SOURCES)
PROVENANCE = json.loads((GENERATED / "provenance.json").read_text())


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_text_states_no_number_of_its_own(path):
    assert text_rules.numbers(path.read_text()) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_text_is_latex_as_far_as_one_can_tell_without_it(path):
    text = path.read_text()
    assert text_rules.imbalance(text) == []
    assert text_rules.unknown_commands(text) == []
    assert text_rules.unescaped(text) == []
    assert text_rules.bare_macros(text) == []


def test_every_macro_that_is_used_is_defined_and_every_one_defined_is_used():
    names = {name for group in groups_of((GENERATED / "numbers.tex").read_text()).values() for name in group}
    assert text_rules.used_macros(TEXT) - names == set()
    assert names - text_rules.used_macros(TEXT) == set()


def test_every_citation_is_in_the_bibliography_and_every_entry_is_cited_or_of_a_scheme():
    cited, title_of_entry = set(text_rules.keys(TEXT, "cite[pt]?")), text_rules.titles(PAPER / "references.bib")
    assert cited <= set(title_of_entry)
    titles_of_schemes = text_rules.letters((PAPER.parent / "docs" / "bibliography.md").read_text())
    assert [key for key, title in title_of_entry.items() if key not in cited and title not in titles_of_schemes] == []


def test_every_file_is_there_and_every_generated_one_is_used():
    assert text_rules.missing_files(TEXT, PAPER) == []
    inputs = {f"{name}.tex".removeprefix("generated/") for name in text_rules.keys(TEXT, "input")}
    pictures = {f"{name}.pdf" for name in text_rules.keys(TEXT, "includegraphics")}
    names = {path.name for path in GENERATED.iterdir()}
    assert names - {"provenance.json"} == {name for name in inputs | pictures if "/" not in name}


def test_every_reference_has_a_label_and_every_label_a_reference():
    labels = text_rules.keys(TEXT, "label")
    assert len(labels) == len(set(labels))
    referred = set(text_rules.keys(TEXT, "ref|eqref"))
    assert referred - set(labels) == set()
    assert {label for label in labels if not label.startswith("sec:")} - referred == set()


def test_what_is_committed_comes_from_a_full_run_and_says_from_which():
    assert PROVENANCE["mode"] == "full"
    assert not (GENERATED / "numbers.tex").read_text().count("Quick mode")
    for facts in PROVENANCE["sources"].values():
        assert facts["mode"] == "full" and "-changed" not in facts["commit"]
        assert {"command", "seed", "date", "processor", "cores", "commit", "versions"} <= set(facts)
        assert {"gcjax", "jax", "python"} <= set(facts["versions"])
    names = {path.name for path in GENERATED.iterdir()} - {"provenance.json"}
    assert set(PROVENANCE["files"]) == names


def test_the_tables_and_numbers_say_where_they_come_from():
    for path in GENERATED.glob("table_*.tex"):
        head, *body = path.read_text().splitlines()
        assert re.match(r"% full mode; .+; seed \d+; gcjax .+, commit \w+; jax .+; Python .+; .+ UTC; .+", head)
        assert text_rules.imbalance("\n".join(body)) == []


def live_times_of_the_manuscript():
    """(scheme, scenario) -> measured and predicted seconds, in two halves side by side; -- is -."""
    times, scenarios = {}, ["", ""]
    for line in (GENERATED / "table_live.tex").read_text().splitlines():
        cells = [cell.strip().removesuffix(r"\\").strip() for cell in line.split("&")]
        for half in (0, 1) if len(cells) == 14 else ():
            scheme, _, measured, predicted, *_ = cells[7 * half : 7 * half + 7]
            if head := re.fullmatch(r"\\emph\{(.+)\}", scheme):
                scenarios[half] = head[1]
            elif scheme and scheme != "Scheme":
                times[scheme, scenarios[half]] = f"{measured} ({predicted})".replace("--", "-")
    return times


def test_the_page_on_the_parameter_server_has_the_runs_of_the_manuscript():
    page = PAPER.parent / "docs" / live_tables.PAGE
    command, text = marked(page)["live"]
    facts = PROVENANCE["sources"]["live"]
    times = live_times_of_the_manuscript()
    assert times and table(text) == times
    assert command == facts["command"] and f"Measured on {facts['date'][:10]} on {facts['cores']}" in page.read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("latexmk") is None, reason="needs LaTeX")
def test_it_can_be_typeset(tmp_path):
    command = ["latexmk", "-pdf", "-interaction=nonstopmode", "-halt-on-error", f"-outdir={tmp_path}", "main.tex"]
    done = subprocess.run(command, cwd=PAPER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    log = (tmp_path / "main.log").read_text(errors="replace")
    assert "undefined" not in log
    labels = (tmp_path / "main.aux").read_text(errors="replace")
    last_page_of_text = int(re.search(r"\\newlabel\{sec:references\}\{\{.*?\}\{(\d+)\}", labels)[1])
    assert last_page_of_text <= 12  # without the references
