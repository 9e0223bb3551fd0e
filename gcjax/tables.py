"""Tables of text cells: for the terminal, split where they are too wide for it, and for Markdown pages."""

import itertools
import re
from collections.abc import Collection, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderResult
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

MAX_UNBROKEN_WIDTH = 30
"""Cells up to so many characters are never broken, so that a number keeps its spread and its unit."""

_MIN_TEXT_WIDTH = 24  # of a column with longer cells; a key column's cells are broken if they are longer than this
_GAP = 3  # between two columns: a line, and a space on both sides

Cell = str | Text


class RichTable:
    """A table that rich can print at any width: columns of text to the left, numbers to the right.

    What does not fit beside the first columns goes below them in further parts, each of which begins with the key
    columns again. Words of long cells wrap; nothing is ever cut off.
    """

    def __init__(
        self,
        title: str,
        heads: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        *,
        num_key_columns: int = 1,
        left_heads: Collection[str] = (),
        caption: str | None = None,
    ) -> None:
        """A table of these cells.

        Args:
          title: above it.
          heads: of the columns; those that matter most first.
          rows: of cells; one between double asterisks is bold.
          num_key_columns: how many columns name the row. They are to the left, and in every part.
          left_heads: those of the other columns of text.
          caption: below it.
        """
        self.title, self.caption, self.num_key_columns = title, caption, num_key_columns
        self.heads, self.rows = list(heads), [list(row) for row in rows]
        self.left_columns = {
            column for column, head in enumerate(heads) if column < num_key_columns or head in left_heads
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What rich calls to print the table: its title, its parts one below the other, its caption."""
        if self.title:
            # Not the title of a rich table, which is broken at the table's width.
            yield Text(self.title, style="italic")
        for number_above, columns in enumerate(self.columns_of_parts(options.max_width)):
            if number_above > 0:
                yield Text()
            yield self._part_table(columns, self._column_widths(columns, options.max_width))
        if self.caption:
            yield Text(self.caption)

    def columns_of_parts(self, width: int) -> list[list[int]]:
        """The indices of the columns of each part, the key columns first in each, for a terminal of `width` characters.

        A table that is too wide is printed in parts, one below the other.
        """
        key_columns = range(self.num_key_columns)
        columns_of_parts = [list(key_columns)]
        for column in range(self.num_key_columns, len(self.heads)):
            has_more_than_keys = len(columns_of_parts[-1]) > self.num_key_columns
            if has_more_than_keys and self._min_width([*columns_of_parts[-1], column]) > width:
                columns_of_parts.append(list(key_columns))
            columns_of_parts[-1].append(column)
        return columns_of_parts

    def _min_width(self, columns: Sequence[int]) -> int:
        """The least width of a table of these columns, in characters."""
        return sum(self._min_column_width(column) for column in columns) + _GAP * (len(columns) - 1)

    def _min_column_width(self, column: int) -> int:
        """The least width of a column, in characters, at which no word, and no short cell, is broken."""
        longest_word_of_head = max(map(cell_len, self.heads[column].split()), default=0)
        max_unbroken_width = _MIN_TEXT_WIDTH if column < self.num_key_columns else MAX_UNBROKEN_WIDTH
        return max(
            [longest_word_of_head, *(_min_line_width(line, max_unbroken_width) for line in self._cell_lines(column))]
        )

    def _cell_lines(self, column: int) -> Iterator[str]:
        """The lines of all cells of a column."""
        return itertools.chain.from_iterable(rich_text(row[column]).plain.split("\n") for row in self.rows)

    def _column_widths(self, columns: Sequence[int], table_width: int) -> list[int]:
        """The width of each of some columns that are printed at a width together, all in characters.

        Each has its least width; what remains is given out character by character, to the column that lacks most.
        """
        widths = [self._min_column_width(column) for column in columns]
        full_widths = [max(map(cell_len, [self.heads[column], *self._cell_lines(column)])) for column in columns]
        num_characters_left = table_width - self._min_width(columns)
        for _ in range(num_characters_left):
            missing_widths = [full_width - width for full_width, width in zip(full_widths, widths, strict=True)]
            neediest = max(range(len(columns)), key=missing_widths.__getitem__)
            widths[neediest] += int(missing_widths[neediest] > 0)
        return widths

    def _part_table(self, columns: Sequence[int], widths: Sequence[int]) -> Table:
        """A table of rich with some of the columns, at these widths."""
        table = Table(show_edge=False, pad_edge=False)
        for column, width in zip(columns, widths, strict=True):
            justify: JustifyMethod = "left" if column in self.left_columns else "right"
            table.add_column(Text(self.heads[column]), justify=justify, width=width, overflow="fold")
        for row in self.rows:
            table.add_row(*(rich_text(row[column]) for column in columns))
        return table


def markdown_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    num_key_columns: int = 1,
    left_heads: Collection[str] = (),
) -> str:
    """A table for a Markdown page. A cell with a bar or several lines stays one cell.

    Args:
      heads: of the columns.
      rows: of cells.
      num_key_columns: how many columns name the row; they are to the left.
      left_heads: those of the other columns that are to the left; numbers are to the right.
    """
    alignment_rules = [
        "---" if column < num_key_columns or head in left_heads else "---:" for column, head in enumerate(heads)
    ]
    return "\n".join(f"| {' | '.join(map(_escaped_cell, line))} |" for line in [heads, alignment_rules, *rows])


def _escaped_cell(cell: str) -> str:
    """A cell on one line, where a bar does not end it."""
    return " ".join(cell.splitlines()).replace("|", r"\|")


def rich_page(markdown: str) -> Group:
    """A Markdown page for the terminal, each table a `RichTable`."""
    blocks = itertools.groupby(markdown.splitlines(), lambda line: line.startswith("|"))
    return Group(*(_table_of_lines(list(lines)) if table else Markdown("\n".join(lines)) for table, lines in blocks))


def rows_of_tables(markdown: str) -> list[list[dict[str, str]]]:
    """The rows of each table of a Markdown page: head of the column -> text of the cell, without what makes it bold.

    A head that is there again gets a number: "ours", "ours (2)".
    """
    blocks = itertools.groupby(markdown.splitlines(), lambda line: line.startswith("|"))
    return [_row_dicts(list(lines)) for table, lines in blocks if table]


def _row_dicts(lines: Sequence[str]) -> list[dict[str, str]]:
    """The rows of one table from its lines in Markdown."""
    heads, _, rows = parsed_table(lines)
    names = _distinct_names(heads)
    return [dict(zip(names, (rich_text(cell).plain for cell in row), strict=True)) for row in rows]


def _distinct_names(heads: Sequence[str]) -> list[str]:
    """The heads, where one that is there again has the first number behind it, from 2, that no other head has."""
    names: list[str] = []
    for head in heads:
        numbered_heads = (f"{head} ({number})" for number in itertools.count(2))
        is_again = head in names
        names.append(next(name for name in numbered_heads if name not in (*heads, *names)) if is_again else head)
    return names


def parsed_table(lines: Sequence[str]) -> tuple[list[str], list[bool], list[list[str]]]:
    """The heads of a table from its lines in Markdown, whether each column is to the left, and its rows of cells."""
    heads, alignment_rules, *rows = [_row_cells(line) for line in lines]
    return heads, [not rule.endswith(":") for rule in alignment_rules], rows


def _table_of_lines(lines: Sequence[str]) -> RichTable:
    """A table from its lines in Markdown; the columns of text before the first one of numbers name the rows."""
    heads, is_left, rows = parsed_table(lines)
    num_columns_before_first_number = is_left.index(False) if False in is_left else 0
    left_heads = [head for head, head_is_left in zip(heads, is_left, strict=True) if head_is_left]
    return RichTable("", heads, rows, num_key_columns=max(1, num_columns_before_first_number), left_heads=left_heads)


def _row_cells(line: str) -> list[str]:
    """The cells of a line in Markdown, between bars that are not escaped."""
    inside = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", inside)]


def rich_text(cell: Cell) -> Text:
    """A cell as rich prints it; text between double asterisks is bold."""
    if isinstance(cell, Text):
        return cell
    inside_of_asterisks = cell.removeprefix("**").removesuffix("**")
    is_bold = bool(inside_of_asterisks) and cell == f"**{inside_of_asterisks}**"
    return Text(inside_of_asterisks, style="bold") if is_bold else Text(cell)


def _min_line_width(line: str, max_unbroken_width: int) -> int:
    """The width that a line of a cell needs: its own up to `max_unbroken_width`, else that of its longest word.

    A line that is broken gets a column of some width at least, however short its words.
    """
    if cell_len(line) <= max_unbroken_width:
        return cell_len(line)
    return max(_MIN_TEXT_WIDTH, *map(cell_len, line.split()))
