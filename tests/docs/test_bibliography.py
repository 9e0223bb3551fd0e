"""Every paper that a table of schemes or a law names is in the bibliography, with authors, a title and a year."""

import re

from gcjax import registry
from gcjax.algebra import laws
from tests.docs.pages import PAGES
from tests.paper import text_rules

ENTRIES = re.findall(r"^- \*\*(.+?)\.\*\* (.*?)(?=^- |^#|\Z)", PAGES["docs/bibliography.md"].read_text(), re.S | re.M)


def short(paper):
    """The short name of a paper, without what of it is meant."""
    return re.match(r".* (?:19|20)\d\d", paper)[0]


def named_papers():
    entries = [entry for kind in registry.kinds().values() for name, entry in kind.entries.items()]
    return {short(paper) for paper in [entry.paper for entry in entries] + [law.source for law in laws.LAWS] if paper}


def test_every_paper_is_there():
    assert len(named_papers()) > 30
    assert named_papers() <= {name for name, _ in ENTRIES}


def test_no_entry_is_there_twice_or_without_a_scheme():
    names = [name for name, _ in ENTRIES]
    assert len(names) == len(set(names))
    assert set(names) <= named_papers()


def test_every_entry_has_a_title_which_is_there_as_bibtex_and_its_year():
    titles_as_bibtex = text_rules.titles(PAGES["README.md"].parent / "paper" / "references.bib").values()
    for name, text in ENTRIES:
        titles = re.findall(r"\*([A-Z0-9][^*]+?)\.\*", text)
        assert titles and {text_rules.letters(title) for title in titles} <= set(titles_as_bibtex), name
        year = name[-4:]
        assert year in text or re.search(rf"arXiv {year[2:]}\d\d\.", text), f"{name}: {text}"
