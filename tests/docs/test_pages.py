"""What the pages say of other files is so, and what the page on the algebra shows is what its blocks print."""

import re

import gin
import pytest

from gcjax import cli
from gcjax.specifications import SPECIFICATIONS
from tests.docs import pages
from tests.docs.pages import PAGES, ROOT

ALGEBRA = PAGES["docs/algebra.md"]
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
    assert set(SPECIFICATIONS) <= names


def test_the_config_of_the_tutorial_is_whole(tmp_path, capsys):
    text = re.search(
        r"^```\n(run\.experiment = .*?)^```", PAGES["docs/tutorial.md"].read_text(), re.DOTALL | re.MULTILINE
    )
    (tmp_path / "mine.gin").write_text(text[1])
    assert cli.main(["check", "--schedule", str(tmp_path / "mine.gin")]) == 0
    gin.clear_config()
    assert "SSP(3)" in capsys.readouterr().out
