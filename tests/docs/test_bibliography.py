"""Every paper that a table of schemes or a law names is in the bibliography, with authors, a title and a year."""

import re

from gcjax import registry
from gcjax.algebra import laws
from tests.docs.pages import PAGES

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


def test_every_entry_has_a_title_and_its_year():
    for name, text in ENTRIES:
        assert re.search(r"\*[A-Z0-9].+?\.\*", text, re.S), name
        year = name[-4:]
        assert year in text or re.search(rf"arXiv {year[2:]}\d\d\.", text), f"{name}: {text}"
