"""Tables in LaTeX."""

from collections.abc import Sequence

_ESCAPES = {
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "\n": " ",
}


def escape(text: str) -> str:
    """Plain text for LaTeX."""
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


def tabular(columns: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, above: Sequence[str] = ()) -> str:
    """A table with rules of `booktabs`; the cells are LaTeX already.

    Args:
      columns: the specification of the columns.
      heads: a cell each.
      rows: of cells.
      above: lines of LaTeX above the heads, for heads over several columns.

    Raises:
      ValueError: if a row has another number of cells than there are heads.
    """
    for row in rows:
        if len(row) != len(heads):
            raise ValueError(f"a row must have {len(heads)} cells; got {list(row)}.")
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *above, _line(heads), r"\midrule"]
    return "\n".join([*lines, *map(_line, rows), r"\bottomrule", r"\end{tabular}", ""])


def _line(cells: Sequence[str]) -> str:
    """A row of a table."""
    line = " & ".join(cells) + r" \\"
    is_argument_of_line_before = line.startswith(("[", "*"))
    return "{}" + line if is_argument_of_line_before else line
