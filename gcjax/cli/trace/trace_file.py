"""The files of a trace on the command line, and how they are to be read."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gcjax.cli import internal_errors, json_output, warning_lines

if TYPE_CHECKING:
    from gcjax.stragglers import Trace


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds to the parser of a command the files, how they are to be read, `--json` and `--traceback`."""
    parser.add_argument(
        "files", metavar="FILE", nargs="+",
        help="measured times: CSV, Parquet, an array [steps, workers] in .npy, or the folder of gcjax.watch; several "
        "tables are one trace",
    )  # fmt: skip
    parser.add_argument(
        "--columns", metavar="NAMES", type=_column_of_field,
        help="which column of a table is what, e.g. worker=host,step=iteration,compute=ms (or start=begun,end=done); "
        "communication= if there is one; of several files, each of one worker, worker= may be left out. Without it the "
        "layouts that are known are tried",
    )  # fmt: skip
    parser.add_argument(
        "--name", metavar="NAME", default="step",
        help="of the watched step, where FILE is the folder of gcjax.watch (default: step)",
    )  # fmt: skip
    parser.add_argument(
        "--scale", metavar="SECONDS", type=float, default=1.0,
        help="seconds in a unit of the file's times, e.g. 1e-3 for milliseconds (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--steps", metavar="FIRST:END", type=_first_and_end,
        help="only the steps from FIRST on and before END, by their numbers, e.g. 100: to leave out a warm-up",
    )  # fmt: skip
    internal_errors.add_option(parser)
    json_output.add_option(parser)


def trace_of_options(options: argparse.Namespace) -> Trace:
    """The trace in the files that the options name, of the steps that they name.

    Raises:
      ValueError: if it cannot be read, or has none of these steps; see `gcjax.stragglers.Trace.between`.
    """
    trace = _whole_trace(options)
    return trace if options.steps is None else trace.between(*options.steps)


def _whole_trace(options: argparse.Namespace) -> Trace:
    """The trace in the files that the options name; a folder is one of `gcjax.watch`, and has no columns to name.

    Raises:
      ValueError: if it cannot be read, or is a folder and columns or their scale are named; see
        `gcjax.stragglers.read_trace` and `gcjax.watching.record`.
    """
    from gcjax.stragglers import read_trace

    first_file = options.files[0]
    if len(options.files) == 1 and Path(first_file).expanduser().is_dir():
        from gcjax.watching import record

        for name, is_given in (("--columns", options.columns is not None), ("--scale", options.scale != 1.0)):
            if is_given:
                raise ValueError(
                    f"{name} is for a file; {first_file} is a folder, as gcjax.watch writes it, whose columns are "
                    "known and whose times are in seconds. Leave it out, or give a file."
                )
        return record(first_file, name=options.name)
    if options.name != "step":
        raise ValueError(f"--name is for a folder of gcjax.watch; {first_file} is none. Leave it out.")
    with warning_lines.print_warnings():
        path = first_file if len(options.files) == 1 else options.files
        return read_trace(path, columns=options.columns, scale=options.scale)


def _first_and_end(text: str) -> tuple[int | None, int | None]:
    """The numbers FIRST and END of a text `FIRST:END`; None for one that is left out."""
    numbers = re.fullmatch(r"(\d*):(\d*)", text, re.ASCII)
    if numbers is None:
        raise argparse.ArgumentTypeError(
            f"must be like 100:2000, where one of the numbers may be left out; got {text!r}. Write the number of the "
            "first step, a colon, and the number of the first step that is left out again"
        )
    first, end = (int(number) if number else None for number in numbers.groups())
    return first, end


def _column_of_field(text: str) -> dict[str, str]:
    """Field of a trace -> the name of its column, from a text like `worker=host,step=iteration,compute=ms`."""
    fields_and_columns = [part.partition("=") for part in text.split(",")]
    if not all(field and equals_sign and column for field, equals_sign, column in fields_and_columns):
        raise argparse.ArgumentTypeError(
            f"must be like worker=host,step=iteration,compute=ms; got {text!r}. Write = between what it is and the "
            "column's name, and commas between the columns"
        )
    column_of_field = {field.strip(): column.strip() for field, _, column in fields_and_columns}
    if len(column_of_field) < len(fields_and_columns):
        raise argparse.ArgumentTypeError(f"must name one column for each field; got {text!r}, with a field twice")
    return column_of_field
