"""Tables of the runs with a parameter server, for the manuscript and for the documentation."""

import math
import re
from collections.abc import Callable
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from experiments.paper.macros import fixed
from gcjax import files, tables, tex

Row = dict[str, Any]
"""A run: a row of the experiment's results."""

NONE = "--"
"""A dash, for what there is none of."""
HEADS = ("Scheme", "Commits", "Time", "Pred.", r"Error (\%)", "Kept", "Replay")
COLUMNS = r"l@{\ \,}" + r"r@{\ \,}" * 4 + r"c@{\ \,}r"
PAGE = "running/parameter_server.md"
"""The page of the documentation that has the table."""

_BLOCK = re.compile(r"(?P<begin><!-- table live: .+ -->\n).*?(?=<!-- end live -->)", re.DOTALL)


def run_rows(folder: Path) -> list[Row]:
    """The rows of the results."""
    rows: list[Row] = files.read_table(folder / "results.parquet").to_pylist()
    return rows


def names(rows: list[Row], column: str) -> list[str]:
    """The values of a column, each once, in order."""
    return list(dict.fromkeys(row[column] for row in rows))


def or_none(text_of: Callable[[float], str], value: float) -> str:
    """A number as text, or a dash if there is none."""
    return text_of(value) if math.isfinite(value) else NONE


def tex_table(rows: list[Row]) -> str:
    """The LaTeX table of all runs: a block for each scenario, below its name, in two halves side by side."""
    empty_line = [""] * len(HEADS)
    blocks = []
    for scenario in names(rows, "scenario"):
        title_line = [rf"\emph{{{tex.escape(scenario)}}}", *empty_line[1:]]
        blocks.append([title_line, *(_cells(row) for row in rows if row["scenario"] == scenario)])
    num_blocks_of_left_half = -(-len(blocks) // 2)
    left_lines = list(chain.from_iterable(blocks[:num_blocks_of_left_half]))
    right_lines = list(chain.from_iterable(blocks[num_blocks_of_left_half:]))
    lines = [
        [*left_cells, *right_cells]
        for left_cells, right_cells in zip_longest(left_lines, right_lines, fillvalue=empty_line)
    ]
    return tex.tabular(f"@{{}}{COLUMNS}@{{\\quad}}{COLUMNS}@{{}}", HEADS * 2, lines)


def _cells(row: Row) -> list[str]:
    """The cells of a run, in LaTeX: measured and predicted seconds to the target, errors, promise, replay.

    A dash for seconds that are inf (not reached) or NaN (not predicted). The error is that of predicted times of
    commits against measured ones, in percent, mean ± standard deviation. Replay: a relative difference of parameters.
    """
    time_cells = [or_none(lambda seconds: f"{seconds:.2f}", row[name]) for name in ("reach", "predicted")]
    percent_spread = rf"\pm{100 * row['error_std']:.1f}"
    error_cell = or_none(lambda mean_error: rf"${100 * mean_error:+.1f}{percent_spread}$", row["error_mean"])
    kept_cell = {"kept": "yes", "broken": "no"}.get(row["promise"], NONE)
    short_difference = f"{row['replay_difference']:.0e}".replace("e-0", "e-").replace("0e+00", "0")
    return [tex.escape(row["scheme"]), fixed(row["num_commits"]), *time_cells, error_cell, kept_cell, short_difference]


def page_table(folder: Path, provenance: dict[str, Any]) -> str:
    """The same runs for the documentation: a row a scheme, a column a scenario; where they come from is below.

    Args:
      folder: of the run.
      provenance: its provenance.
    """
    rows = run_rows(folder)
    row_of_run = {(row["scheme"], row["scenario"]): row for row in rows}
    scenarios = names(rows, "scenario")
    lines = [
        [scheme, *(_page_cell(row_of_run.get((scheme, scenario))) for scenario in scenarios)]
        for scheme in names(rows, "scheme")
    ]
    loads = [row["load"] for row in rows]
    source = (
        f"Measured on {provenance['date'][:10]} on {provenance['cores']} cores ({provenance['processor']}), gcjax "
        f"{provenance['versions']['gcjax']} at {provenance['commit']}, JAX {provenance['versions']['jax']}; "
        f"{min(loads):.1f} to {max(loads):.1f} processes wanted a core. One run each."
    )
    return f"{tables.markdown_table(['scheme', *scenarios], lines)}\n\n{source}"


def _page_cell(row: Row | None) -> str:
    """Measured and predicted seconds to the target, a dash for each that is not there; "-" if there is no such run."""
    if row is None:
        return "-"
    measured_text, predicted_text = (
        f"{row[name]:.2f}" if math.isfinite(row[name]) else "-" for name in ("reach", "predicted")
    )
    return f"{measured_text} ({predicted_text})"


def write_page(folder: Path, provenance: dict[str, Any], docs: Path) -> None:
    """Puts the table into the page, in place of what stands between its marks.

    Args:
      folder: of the run.
      provenance: its provenance.
      docs: the folder of the documentation.

    Raises:
      ValueError: if the page has no such marks.
    """
    page_text = (docs / PAGE).read_text()
    table = page_table(folder, provenance)
    page_with_table, num_blocks = _BLOCK.subn(lambda block: f"{block['begin']}{table}\n", page_text)
    if num_blocks != 1:
        raise ValueError(
            f"{PAGE} must have '<!-- table live: COMMAND -->' and '<!-- end live -->' once; it has them {num_blocks} "
            "times."
        )
    files.write_text(docs / PAGE, page_with_table)
