"""The marked tables of a Markdown page: `<!-- table NAME: COMMAND -->` stands on the line before each."""

import math
import re
from pathlib import Path

Table = dict[tuple[str, str], str]
"""(label of the row, head of the column) -> the text of the cell."""

MARK = re.compile(r"<!-- table ([\w ]+): (.+) -->\n((?:\|.*\n?)+)")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table(text: str, num_labels: int = 1) -> Table:
    """A table whose first columns are the label of a row; of columns with one head, the first counts."""
    heads, _, *rows = map(cells, text.strip().splitlines())
    labels = {" | ".join(row[:num_labels]) for row in rows}
    assert len(labels) == len(rows), "two rows have the same label"
    return {
        (" | ".join(row[:num_labels]), head): cell
        for row in rows
        for head, cell in zip(heads[num_labels:][::-1], row[num_labels:][::-1], strict=True)
    }


def marked(page: Path) -> dict[str, tuple[str, str]]:
    """Name -> command and text of each marked table."""
    return {name: (command, text) for name, command, text in MARK.findall(page.read_text())}


def agrees(text: str, value: float | str) -> bool:
    """Whether a cell says a value, to the last digit that it shows."""
    if isinstance(value, str):
        return text == value
    if text in ("exact", "never"):
        return abs(value) < 1e-3 if text == "exact" else not math.isfinite(value)
    number = re.match(r"[+-]?(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?", text)
    if number is None:
        return False
    unit = 10.0 ** (int(number[3] or 0) - len(number[2] or ""))
    if "." not in number[0]:  # 150 with three digits, 20 with one: at most the zeros at the end are not said
        unit *= 10 ** (len(number[1]) - len(number[1].rstrip("0") or "0"))
    return abs(float(number[0]) - value) <= 0.51 * unit
