"""The pages of the docs, and the one way in which their Python is run.

All `python` blocks and `code-cell`s of a page are one session. A block that begins with the name of a file, as in
`# my_schemes/codes.py`, is a part of that file of the package `my_schemes`, too, which lies in the working directory.
"""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

PAGES = {
    str(page.relative_to(ROOT)): page
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
    if not {"_build", "reference"} & set(page.relative_to(ROOT).parts)
}
"""Name -> file of every page that somebody has written."""

PYTHON = re.compile(r"^```(?:python|\{code-cell\}[^\n]*)\n((?::\w+:.*\n)*)(.*?)^```", flags=re.DOTALL | re.MULTILINE)
FILE = re.compile(r"^```(?:python)?\n# ([\w/]+\.(?:py|gin))(?: \(continued\))?\n(.*?)^```", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", flags=re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[str]:
    """The text of each Python block, in order."""
    return [text for _, text in PYTHON.findall(page.read_text())]


def with_python() -> dict[str, Path]:
    """The pages that have any."""
    return {name: page for name, page in PAGES.items() if blocks(page)}


def run(page: Path) -> dict[str, Any]:
    """Runs the blocks one after the other; returns all names that there are at the end."""
    session: dict[str, Any] = {"__name__": f"page_{page.stem}"}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), session)
    return session


def own_files() -> dict[str, str]:
    """File name -> text, of the blocks of all pages that begin with their file's name."""
    texts: dict[str, str] = {}
    for page in PAGES.values():
        for name, text in FILE.findall(page.read_text()):
            texts[name] = texts[name] + "\n\n" + text if name in texts else text
    return texts


def prose(page: Path) -> str:
    """The text of a page without its blocks."""
    return FENCE.sub("", page.read_text())
