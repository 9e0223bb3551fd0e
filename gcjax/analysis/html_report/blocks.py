"""What a page in HTML is made of. All text is escaped here, once."""

import base64
import html
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from gcjax import tables

_BOLD, _EMPHASIS = r"\*\*(.+?)\*\*", r"\*(.+?)\*"


class Section(NamedTuple):
    """A part of a page.

    Attributes:
      title: text.
      body: HTML, as the functions of this module return it.
      name: by which links and scripts find it; letters and dashes.
    """

    title: str
    body: str
    name: str


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of text; `kind` is a class of the style sheet."""
    return f"<p{_class_attribute(kind)}>{html.escape(text)}</p>"


def preformatted(text: str) -> str:
    """Text with its lines and spaces as they are."""
    return f'<pre tabindex="0">{html.escape(text)}</pre>'


def folded(summary: str, body: str) -> str:
    """HTML that is there when its summary, a text, is chosen."""
    return f"<details><summary>{html.escape(summary)}</summary>{body}</details>"


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, num_key_columns: int = 1, left_heads: Sequence[str] = ()
) -> str:
    """A table of text as HTML; wider ones than the screen are scrolled, and their first column stays.

    Args:
      heads: of the columns, not escaped yet.
      rows: of cells, likewise.
      num_key_columns: how many columns, the first ones, name the row; they are aligned to the left.
      left_heads: those of further columns aligned to the left, with text; all others, with numbers, are to the right.
    """
    is_left = [i < num_key_columns or head in left_heads for i, head in enumerate(heads)]
    head_row = _table_row("th", heads, is_left)
    body_rows = "".join(_table_row("td", row, is_left) for row in rows)
    return f'<div class="wide" tabindex="0"><table><thead>{head_row}</thead><tbody>{body_rows}</tbody></table></div>'


def image(file: Path) -> str:
    """A PNG as a part of the page."""
    content = base64.b64encode(file.read_bytes()).decode()
    return f'<img alt="{html.escape(file.stem)}" src="data:image/png;base64,{content}">'


def markdown(page: str) -> str:
    """A Markdown page of ours: headings, paragraphs, lists, tables; bold, emphasis, code."""
    blocks = itertools.groupby(page.splitlines(), _kind_of_line)
    return "".join(_block_html(kind, [line for line in lines if line.strip()]) for kind, lines in blocks)


def inline_html(text: str) -> str:
    """A line of Markdown as HTML: with code, bold and emphasis; the rest is escaped."""
    text_and_code = html.escape(text).split("`")  # text first, then code, and so on
    is_last_never_closed = len(text_and_code) % 2 == 0
    if is_last_never_closed:
        text_and_code[-2:] = ["`".join(text_and_code[-2:])]
    return "".join(
        f"<code>{part}</code>" if is_code else _with_bold_and_emphasis(part)
        for part, is_code in zip(text_and_code, itertools.cycle([False, True]), strict=False)
    )


def _with_bold_and_emphasis(escaped_text: str) -> str:
    """HTML of text in which asterisks make bold and emphasis."""
    for pattern, tag in ((_BOLD, "b"), (_EMPHASIS, "em")):
        escaped_text = re.sub(pattern, rf"<{tag}>\1</{tag}>", escaped_text)
    return escaped_text


def _class_attribute(kind: str) -> str:
    """The attribute of a class, if there is one."""
    return f' class="{kind}"' if kind else ""


def _table_row(tag: str, cells: Sequence[str], is_left: Sequence[bool]) -> str:
    """A row of a table as HTML; its first cell is a head (`th`) in any row, the others have the tag `th` or `td`.

    `is_left`: for each cell, whether it is aligned to the left.
    """
    tags = ["th" if column == 0 else tag for column in range(len(cells))]
    html_cells = [
        f"<{cell_tag}{_class_attribute('' if cell_is_left else 'number')}>{html.escape(str(cell))}</{cell_tag}>"
        for cell_tag, cell, cell_is_left in zip(tags, cells, is_left, strict=True)
    ]
    return f"<tr>{''.join(html_cells)}</tr>"


def _kind_of_line(line: str) -> str:
    """The kind of block that a line of Markdown is a part of, for `_block_html`."""
    if line.startswith("|"):
        return "table"
    if line.startswith("#"):
        return "heading"
    if line.startswith("- ") or line.startswith("  "):
        return "list"
    return "text" if line.strip() else "nothing"


def _block_html(kind: str, lines: list[str]) -> str:
    """Lines of Markdown that follow each other, all of one kind (`_kind_of_line`), as HTML."""
    if kind == "table":
        return _markdown_table_html(lines)
    if kind == "heading":
        return "".join(f"<h3>{inline_html(line.lstrip('# '))}</h3>" for line in lines)
    if kind == "list":
        items = [" ".join(item.split()) for item in re.split(r"^- ", "\n".join(lines), flags=re.MULTILINE)]
        return "<ul>" + "".join(f"<li>{inline_html(item)}</li>" for item in items if item) + "</ul>"
    return f"<p>{inline_html(' '.join(lines))}</p>" if lines else ""


def _markdown_table_html(lines: list[str]) -> str:
    """A table of Markdown as HTML; "" if it has no row."""
    heads, is_left, rows = tables.parsed_table(lines)
    plain_rows = [[tables.rich_text(cell).plain for cell in row] for row in rows]
    left_heads = [head for head, head_is_left in zip(heads, is_left, strict=False) if head_is_left]
    return table(heads, plain_rows, left_heads=left_heads) if rows else ""
