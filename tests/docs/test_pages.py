"""What the pages say of other files is so, and what the page on the algebra shows is what its blocks print."""

import itertools
import re

import gin
import numpy as np
import pytest

from gcjax import analysis, cli, specifications
from tests.docs import pages
from tests.docs.pages import PAGES, ROOT

ALGEBRA = PAGES["docs/algebra.md"]
COMMANDS = re.findall(r"```\n\$ gcjax (.*?)\n(.*?)\n```", ALGEBRA.read_text(), flags=re.DOTALL)
SMALLEST = ROOT / "configs" / "smallest.gin"
SHAPE = r"\b(?:bool|float\d*|u?int\d*)\[([^\[\]\"=\n]*)\]|(?<!\w)\[(\w+(?:, \w+)+)\]"
TREES = "gcjax|tests|configs|experiments|benchmarks|docs"


def anchors(page):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    heads = re.findall(r"^#+ (.*)$", pages.prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_links_lead_somewhere(page):
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", pages.prose(page)):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_files_that_are_named_exist(page):
    for path in re.findall(rf"(?<![\w/])((?:{TREES})/[\w/.]+\.(?:py|gin|md|json))\b", page.read_text()):
        assert (ROOT / path).exists(), path


def test_every_page_is_in_the_table_of_contents():
    listed = {
        f"docs/{line.strip()}.md"
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", PAGES["docs/index.md"].read_text(), flags=re.DOTALL)
        for line in tree.splitlines()
        if line and not line.startswith(":")
    }
    assert listed - {"docs/reference/index.md"} == set(PAGES) - {"README.md", "CONTRIBUTING.md", "docs/index.md"}


def test_the_readme_leads_to_the_start_of_everything_and_is_short():
    text = PAGES["README.md"].read_text()
    assert len(text.splitlines()) <= 125
    linked = set(re.findall(r"\]\((docs/[^)#]+\.md)", text))
    elsewhere = {"README.md", "CONTRIBUTING.md", "docs/index.md", "docs/contributing.md", "docs/changes.md"}
    theory = {name for name in PAGES if "theory" in name} | {"docs/algebra_laws.md"}
    assert set(PAGES) - elsewhere - theory <= linked


OF_DOCS = [name for name in PAGES if name.startswith("docs/")]


@pytest.mark.parametrize("name", OF_DOCS)
def test_pages_of_the_docs_link_to_each_other_only(name):
    """What lies elsewhere is not on the site."""
    links = re.findall(r"\]\(([^)#\s:]+\.md)", pages.prose(PAGES[name]))
    assert [link for link in links if pages.DOCS not in (PAGES[name].parent / link).resolve().parents] == []


@pytest.mark.parametrize("name", OF_DOCS)
def test_headings_go_down_by_one_level(name):
    levels = [len(marks) for marks in re.findall(r"^(#+) ", pages.prose(PAGES[name]), flags=re.MULTILINE)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_blocks_of_the_readme_do_not_scroll_sideways():
    columns = 90  # in the pages' font, in a window of 1200 pixels
    blocks = pages.FENCE.findall(PAGES["README.md"].read_text())
    assert len(blocks) == 3
    assert [line for block in blocks for line in block.splitlines() if len(line) > columns] == []


def test_page_on_the_algebra_says_what_its_blocks_print(capsys):
    pages.run(ALGEBRA)
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == ["It refines."] * 2 and printed[2].startswith("The specification has no such trace")
    assert printed[8:11] == ["It refines."] * 3
    said = ALGEBRA.read_text().splitlines()
    shown = [*printed[2:8], *(f"# {line}" for line in printed[11:15]), f"# {printed[15]}"]
    assert [line for line in shown if not any(text.endswith(line) for text in said)] == []
    assert printed[16] == "It refines." and printed[17:] == printed[2:8]


def test_every_specification_is_in_the_table():
    rows = [line for line in ALGEBRA.read_text().splitlines() if line.startswith("| `")]
    names = set(re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in rows)))
    assert set(specifications.TABLE) <= names


def test_the_config_of_the_tutorial_is_whole(tmp_path, capsys):
    text = re.search(
        r"^```\n(run\.experiment = .*?)^```", PAGES["docs/tutorial.md"].read_text(), re.DOTALL | re.MULTILINE
    )
    (tmp_path / "mine.gin").write_text(text[1])
    assert cli.main(["check", "--schedule", str(tmp_path / "mine.gin")]) == 0
    gin.clear_config()
    assert "SSP(3)" in capsys.readouterr().out


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_page_on_the_algebra_shows_all_that_a_command_prints(capsys, monkeypatch, command, shown):
    monkeypatch.setenv("COLUMNS", "180")  # as on a wide terminal
    assert cli.main(command.split()) == (1 if "fails" in shown else 0)
    assert [line.rstrip() for line in capsys.readouterr().out.rstrip().splitlines()] == shown.splitlines()


@pytest.mark.slow
def test_the_smallest_config_is_one():
    assert "`configs/smallest.gin` is one of eleven lines" in PAGES["docs/running/command_line.md"].read_text()
    assert len([line for line in SMALLEST.read_text().splitlines() if "=" in line]) == 11
    assert cli.main(["check", "--schedule", str(SMALLEST)]) == 0


@pytest.mark.slow
def test_the_smallest_config_runs_and_reaches_its_target(tmp_path):
    assert cli.main(["run", str(SMALLEST), "--out", str(tmp_path / "out")]) == 0
    results = analysis.load(tmp_path / "out")
    assert all(np.isfinite(analysis.reach_times(results, scheme)).all() for scheme in results.schemes)


def letters_of_shapes():
    """The capital letters in shapes such as `float[T, W]` or `[T, W]`, each with the files that use it."""
    files_of: dict[str, set[str]] = {}
    for file in (ROOT / "gcjax").rglob("*.py"):
        for typed, untyped in re.findall(SHAPE, file.read_text()):
            for letter in re.findall(r"(?<![\w'])[A-Z](?!\w)", typed + untyped):
                files_of.setdefault(letter, set()).add(file.name)
    return files_of


def test_every_letter_of_a_shape_is_in_the_table_once():
    rows = re.findall(r"^\| ([A-Za-z]) \| ", PAGES["docs/glossary.md"].read_text(), flags=re.MULTILINE)
    assert len(rows) == len(set(rows))
    files_of = letters_of_shapes()
    capitals = {letter for letter in rows if letter.isupper()}
    assert {letter: files for letter, files in files_of.items() if letter not in capitals} == {}
    assert {letter for letter in capitals if letter not in files_of} == set()
