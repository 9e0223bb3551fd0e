"""Tables of text cells, for the terminal and for Markdown pages."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text


def rich_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """For the terminal: the first column to the left, numbers to the right."""
    shown = Table(title=title, title_justify="left")
    for i, head in enumerate(heads):
        shown.add_column(head, justify="right" if i else "left", no_wrap=i == 0)
    for row in rows:
        shown.add_row(*map(Text, row))
    return shown


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """For a Markdown page."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
