"""The tables that `gcjax report` writes as CSV or LaTeX if it is asked to, to a file or to stdout."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gcjax.cli import report_files

if TYPE_CHECKING:
    from gcjax.analysis import Results, Sweep

_TABLES = {
    "csv": "the main table of a comparison or sweep: numbers, with units in the names of the columns",
    "latex": "the main table of a comparison or sweep: in LaTeX, with rules of booktabs",
    "curves": "all evaluations of a comparison or sweep as CSV: the metrics of each seed over time",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of tables, and of what their differences are from, to the parser of `gcjax report`."""
    parser.add_argument(
        "--against", metavar="SCHEME",
        help="the scheme that the differences seed by seed are from (default: the best one); also prints them",
    )  # fmt: skip
    for name, description in _TABLES.items():
        parser.add_argument(
            f"--{name}", metavar="FILE", nargs="?", const="",
            help=f"write {description}; new or empty (default: to stdout, and all else to stderr)",
        )  # fmt: skip


def is_on_stdout(options: argparse.Namespace) -> bool:
    """Whether a table is to be the only thing on stdout."""
    return any(getattr(options, name) == "" for name in _TABLES)


def check(options: argparse.Namespace) -> None:
    """Raises a `ValueError` if two things are to be alone on stdout, or a file would be lost."""
    on_stdout = [f"--{name}" for name in _TABLES if getattr(options, name) == ""]
    on_stdout += ["--json"] if options.json else []
    if len(on_stdout) > 1:
        raise ValueError(f"only one of them can be on stdout; got {' and '.join(on_stdout)}. Name a file, as in "
                         f"{on_stdout[0]} table.{'tex' if on_stdout[0] == '--latex' else 'csv'}.")  # fmt: skip
    file_of_table = {name: getattr(options, name) for name in _TABLES if getattr(options, name)}
    files = list(file_of_table.values())
    if len({Path(file).resolve() for file in files}) < len(files):
        raise ValueError(f"each table must have a file of its own; got {files[0]} for all. Choose another name.")
    for name, file in file_of_table.items():
        report_files.check_new_file(f"--{name}", file, options.folder)


def texts(options: argparse.Namespace, content: Results | Sweep | None) -> dict[str, str]:
    """Option -> the table of a comparison or sweep as text, of those that are asked for.

    Raises:
      ValueError: if there is no scheme `options.against`, or schemes are asked for of another experiment (None).
    """
    if content is None:
        _check_asks_for_no_schemes(options)
        return {}
    from gcjax.analysis import exported_table, sweeps

    sweep = content if isinstance(content, sweeps.Sweep) else sweeps.of_comparison(content)
    make_text: dict[str, Callable[[Sweep], str]] = {
        "csv": partial(exported_table.csv, against=options.against),
        "latex": partial(exported_table.latex, against=options.against),
        "curves": exported_table.curves,
    }
    wanted = [name for name in _TABLES if getattr(options, name) is not None]
    return {name: make_text[name](sweep) for name in wanted}


def _check_asks_for_no_schemes(options: argparse.Namespace) -> None:
    """Raises a `ValueError` if something is asked for that the folder of another experiment has not."""
    for name in ("against", *_TABLES):
        if getattr(options, name) is not None:
            raise ValueError(
                f"--{name} is for comparisons and sweeps; got the folder {options.folder}, which is neither, or a "
                f"sweep of an earlier version. Leave --{name} out."
            )


def write(options: argparse.Namespace, text_of_table: Mapping[str, str]) -> None:
    """Writes the tables for which a file is named."""
    from gcjax import files, progress

    for name, text in text_of_table.items():
        file = getattr(options, name)
        if file:
            with files.os_errors_as_value_error("The file must be one", file, "Choose another one."):
                files.write_text(file, text)
            progress.console().print(f"Table written to {file}", markup=False, highlight=False)


def print_on_stdout(options: argparse.Namespace, text_of_table: Mapping[str, str]) -> None:
    """Prints the table for which no file is named."""
    for name, text in text_of_table.items():
        if getattr(options, name) == "":
            print(text, end="")
