"""The results of the benchmarks: a JSON file for each machine, and one page with the tables of all."""

import datetime
import json
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

import gcjax
from benchmarks.timing import Row
from gcjax import analysis, files, tables
from gcjax._cores import num_cores

FOLDER = Path(__file__).parent / "results"
HEADS = ["benchmark", "figure", "aim", "met", "compared with", "note"]

_INTRODUCTION = """# Results of the benchmarks

Written by `make bench`; `python -m benchmarks NAME` replaces the figures of one benchmark. Ratios are of two things
that take turns in one process, the median of several repetitions, or of several processes where a note says so. "A over
B" above 1 says that A is so many times as fast, or as expensive where the aim is an upper limit. Other work on the same
machine makes figures noisy."""


def machine() -> str:
    """The kind of this machine: its accelerator or processor, and its cores. No name that tells whose it is."""
    device = jax.devices()[0]
    kind = analysis.environment()["processor"] if device.platform == "cpu" else device.device_kind
    return f"{kind}, {num_cores()} cores"


def save(folder: Path, machine: str, benchmark: str, rows: Sequence[Row], *, order: Sequence[str]) -> None:
    """Puts the rows of one benchmark, with date and versions, into the file of a machine, in place of older ones.

    Args:
      folder: of the results; made if it is not there.
      machine: its kind; names the file.
      benchmark: whose rows these are.
      rows: the figures.
      order: of all benchmarks in the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_file_name(machine)}.json"
    benchmarks = json.loads(path.read_text())["benchmarks"] if path.exists() else {}
    benchmarks[benchmark] = {**_date_and_versions(), "rows": [row._asdict() for row in rows]}
    content = {"machine": machine, "benchmarks": {name: benchmarks[name] for name in order if name in benchmarks}}
    files.write_text(path, json.dumps(content, indent=1) + "\n")


def write_page(folder: Path) -> None:
    """Writes `README.md` of the folder: a table for each machine, and first the figures that compare with others."""
    contents = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    files.write_text(folder / "README.md", "\n\n".join([_INTRODUCTION, *map(_section, contents)]) + "\n")


def row_cells(row: Row) -> list[str]:
    """The cells of a row, under `HEADS`."""
    return [row.what.strip(), row.value, row.target, "yes" if row.met else "MISSED", row.peer, row.note]


def _section(content: dict[str, Any]) -> str:
    """The part of the page about one machine: the comparisons with peers, then all other figures."""
    date_lines: list[str] = []
    lines_with_peer: list[list[str]] = []
    lines_without_peer: list[list[str]] = []
    for name, benchmark in content["benchmarks"].items():
        versions = ", ".join(f"{library} {benchmark[library]}" for library in ("gcjax", "jax", "python"))
        date_lines.append(f"- `{name}`: {benchmark['date']}, {versions}")
        for row in (Row(**fields) for fields in benchmark["rows"]):
            (lines_with_peer if row.peer else lines_without_peer).append(row_cells(row))
    paragraphs = [f"## {content['machine']}"]
    if lines_with_peer:
        paragraphs += ["### Compared with others", tables.markdown_table(HEADS, lines_with_peer, left_heads=HEADS[2:])]
    if lines_without_peer:
        heads, *lines = (_without_peer_column(cells) for cells in [HEADS, *lines_without_peer])
        paragraphs += ["### By itself", tables.markdown_table(heads, lines, left_heads=heads[2:])]
    return "\n\n".join([*paragraphs, "When measured:", "\n".join(date_lines)])


def _without_peer_column(cells: Sequence[str]) -> list[str]:
    """The cells of a line without the one that names what it is compared with."""
    peer_column = HEADS.index("compared with")
    return [*cells[:peer_column], *cells[peer_column + 1 :]]


def _date_and_versions() -> dict[str, str]:
    """The date (UTC) and the versions that figures depend on."""
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    return {"date": date, "gcjax": gcjax.__version__, "jax": jax.__version__, "python": platform.python_version()}


def _file_name(machine: str) -> str:
    """The kind of a machine as the stem of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")
