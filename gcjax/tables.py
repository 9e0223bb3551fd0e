"""Tables of text cells: for the terminal, split where they are too wide for it, and for Markdown pages."""

import itertools
import re
from collections.abc import Collection, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderResult
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

LONGEST_LINE = 30
"""Cells up to so many characters are never broken, so that a number keeps its spread and its unit."""

_NARROWEST = 24  # the columns of longer cells, and what names a row is broken above it
_GAP = 3  # between two columns: a line, and a space on both sides

Cell = str | Text


class RichTable:
    """A table that rich can print at any width.

    What does not fit beside the first columns goes below them in further parts, each of which begins with the key
    columns again. Words of long cells wrap; nothing is ever cut off.
    """

    def __init__(
        self,
        title: str,
        heads: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        *,
        keys: int,
        left: Collection[str],
        caption: str | None,
    ) -> None:
        """As `rich_table`."""
        self.caption = caption
        self.title, self.heads, self.rows, self.keys = title, list(heads), [list(row) for row in rows], keys
        self.left = {i for i, head in enumerate(heads) if i < keys or head in left}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, style="italic")  # above the table, whose title would be broken at its own width
        for part in self.parts(options.max_width):
            if part != self.parts(options.max_width)[0]:
                yield Text()
            yield self._table(part, self._widths(part, options.max_width))
        if self.caption:
            yield Text(self.caption)

    def parts(self, width: int) -> list[list[int]]:
        """The columns of each part for a terminal of so many characters."""
        keys, parts = list(range(self.keys)), [list(range(self.keys))]
        for column in range(self.keys, len(self.heads)):
            if len(parts[-1]) > self.keys and self._min_width([*parts[-1], column]) > width:
                parts.append(list(keys))
            parts[-1].append(column)
        return parts

    def _min_width(self, part: Sequence[int]) -> int:
        return sum(self._min_column_width(column) for column in part) + _GAP * (len(part) - 1)

    def _min_column_width(self, column: int) -> int:
        """The least width at which no word, and no short cell, is broken."""
        words = max(map(cell_len, self.heads[column].split()), default=0)
        longest = _NARROWEST if column < self.keys else LONGEST_LINE
        return max([words, *(_line_width(line, longest) for line in self._lines(column))])

    def _lines(self, column: int) -> Iterator[str]:
        return itertools.chain.from_iterable(_rich(row[column]).plain.split("\n") for row in self.rows)

    def _widths(self, part: Sequence[int], width: int) -> list[int]:
        """What is left of the width goes to the columns that want most."""
        widths = [self._min_column_width(column) for column in part]
        wanted = [max(map(cell_len, [self.heads[column], *self._lines(column)])) for column in part]
        for _ in range(width - self._min_width(part)):
            neediest = max(range(len(part)), key=lambda i: wanted[i] - widths[i])
            widths[neediest] += int(wanted[neediest] > widths[neediest])
        return widths

    def _table(self, part: Sequence[int], widths: Sequence[int]) -> Table:
        table = Table(show_edge=False, pad_edge=False)
        for column, width in zip(part, widths, strict=True):
            justify: JustifyMethod = "left" if column in self.left else "right"
            table.add_column(Text(self.heads[column]), justify=justify, width=width, overflow="fold")
        for row in self.rows:
            table.add_row(*(_rich(row[column]) for column in part))
        return table


def rich_table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    keys: int = 1,
    left: Collection[str] = (),
    caption: str | None = None,
) -> RichTable:
    """A table for the terminal: columns of text to the left, numbers to the right.

    Args:
      title: above it.
      heads: of the columns; those that matter most first.
      rows: of cells; one between double asterisks is bold.
      keys: how many columns name the row. They are to the left, and in every part.
      left: the heads of the other columns of text.
      caption: below it.
    """
    return RichTable(title, heads, rows, keys=keys, left=left, caption=caption)


def markdown_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, keys: int = 1, left: Collection[str] = ()
) -> str:
    """For a Markdown page; arguments as in `rich_table`. A cell with a bar or several lines stays one cell."""
    rules = ["---" if i < keys or head in left else "---:" for i, head in enumerate(heads)]
    return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in [heads, rules, *rows])


def _escaped(cell: str) -> str:
    """A cell on one line, where a bar does not end it."""
    return " ".join(cell.splitlines()).replace("|", r"\|")


def rich_page(markdown: str) -> Group:
    """A Markdown page for the terminal, with tables as `rich_table` shows them."""
    blocks = itertools.groupby(markdown.splitlines(), lambda line: line.startswith("|"))
    return Group(*(_parsed(list(lines)) if table else Markdown("\n".join(lines)) for table, lines in blocks))


def _parsed(lines: Sequence[str]) -> RichTable:
    """A table from its lines in Markdown."""
    heads, rules, *rows = [_cells(line) for line in lines]
    left = [not rule.endswith(":") for rule in rules]
    keys = max(1, left.index(False)) if False in left else 1
    return rich_table(
        "", heads, rows, keys=keys, left=[head for head, is_text in zip(heads, left, strict=True) if is_text]
    )


def _cells(line: str) -> list[str]:
    """The cells of a line in Markdown, between bars that are not escaped."""
    inside = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", inside)]


def _rich(cell: Cell) -> Text:
    if isinstance(cell, Text):
        return cell
    bold = len(cell) > 4 and cell.startswith("**") and cell.endswith("**")
    return Text(cell[2:-2], style="bold") if bold else Text(cell)


def _line_width(line: str, longest: int) -> int:
    """The width that a line needs: its own if it is short, else that of its longest word."""
    if cell_len(line) <= longest:
        return cell_len(line)
    return max(_NARROWEST, *map(cell_len, line.split()))
