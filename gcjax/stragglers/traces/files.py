"""Measured times in files: CSV, Parquet, or an array of NumPy.

A table has the columns `worker` (counted from 0), `unit` (any number) and `seconds`, a row for each unit of work of
each worker; `inf` is a failed worker, an empty cell a unit that was not measured; `communication`, if there is such a
column, what the worker communicated and waited besides. `write_trace` adds a column `rows`, the rows of the whole file,
so that a file of which the end is missing is known as such. The live runtime writes such files, one unit for each chunk
of each round (`gcjax.engine.live`).

Letters: T steps (or units of work), W workers.
"""

import contextlib
import gzip
import io
import os
import re
import tokenize
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from gcjax import _validate
from gcjax.stragglers.traces import base, layouts, several_files
from gcjax.stragglers.traces.base import Trace

_READ_OPTIONS = csv.ReadOptions(use_threads=False)  # with one thread, errors name the row


def write_trace(path: str | Path, trace: Any) -> None:
    """Writes measured times as a CSV file; `read_trace` gives the same bits back.

    Workers keep their names and their order; times that are ratios (`Trace.is_relative`) are written as seconds.

    Args:
      path: the file, which is overwritten.
      trace: a `Trace`, or float[T, W] seconds, NaN where not measured, inf for a failed worker.

    Raises:
      ValueError: if the array is not of this form, or two workers have one name, or one has an empty one.
    """
    if not isinstance(trace, Trace):
        trace = base.trace_of_array(trace)
    if len(set(trace.workers)) < len(trace.workers) or "" in trace.workers:
        raise ValueError(f"workers must have different names, none of them empty; got {trace.workers}.")
    step_index, worker_index = np.indices(trace.compute.shape)
    columns = {
        "worker": _names_in_file(trace.workers)[worker_index.ravel()],
        "unit": trace.steps[step_index.ravel()],
        "seconds": _with_empty_cells(trace.compute),
    }
    if trace.communication is not None:
        columns[layouts.COMMUNICATION] = _with_empty_cells(trace.communication)
    columns[layouts.ROWS] = np.full(trace.compute.size, trace.compute.size)
    csv.write_csv(pa.table(columns), Path(path).expanduser())


def _names_in_file(workers: tuple[str, ...]) -> np.ndarray:
    """int64[W], if all names are whole numbers from 0 on as these are usually written, or else objects [W], texts."""
    if all(re.fullmatch(r"0|[1-9]\d{0,14}", name, re.ASCII) for name in workers):
        return np.array([int(name) for name in workers])
    return np.array(workers, object)


def _with_empty_cells(seconds: np.ndarray) -> pa.Array:
    """The array, row by row, with an empty cell for each NaN."""
    return pa.array(seconds.ravel(), mask=np.isnan(seconds).ravel())


def read_trace(
    path: str | Path | Sequence[str | Path], *, columns: Mapping[str, str] | None = None, scale: float = 1.0
) -> Trace:
    """Reads measured times; what kind of file it is, is seen from how it begins.

    One whose name ends in .parquet or .npy must begin as such a file does.

    Four layouts of a table, CSV or Parquet, are known:

    - that of `write_trace`, where workers may be text. With the column `rows` their names and order are those of the
      file; where it is missing, as in any other table;
    - a job of the Alibaba Cluster Trace Program: `worker`, `time` (a training step) and `batch_time_norm`. It has only
      ratios, so they are divided by their median: a typical step takes a second;
    - operations of a job, as ByteDance's: `dp_rank`, `stage`, `step`, `optype`, `duration`. A worker is a data-parallel
      rank. What it sends, receives, reduces and gathers is communication, all else computing; of both the seconds of
      a step are summed, and their mean over the pipeline stages that it has there is taken. Nothing tells a step that
      was done again: its operations are added up;
    - a column for each worker, named 0 to W-1, or with a word for workers before each number (`w0`, `rank_0`), with a
      row for each unit; and maybe one named step, or the index that pandas writes, with the numbers of the steps.

    Any other table can be read by the names of its columns. What is missing or there twice is dealt with as
    `Trace.reading` says, and counted there: the later row counts for a cell that has two, a step that no row has gets
    no row, and a cell without a row is NaN. Cells of a CSV file are separated by commas or, where its head has none, by
    semicolons, tabs or bars.

    Args:
      path: a CSV or Parquet file, or an array float[T, W] or int[T, W] in a .npy file. Or several tables, such as one
        of each worker: in the layout of `write_trace`, or with `columns`; of a step of a worker the last one that has
        a time counts.
      columns: the names of the columns that hold "worker" (numbers or text), "step" (whole numbers), "compute", and
        "communication" if there is one; for a table of a layout that is not known. Instead of "compute" there may be
        "start" and "end": numbers, or dates with times, of which the difference is in seconds. An array has no names.
        Of several files "worker" may be left out: each is then of the worker that it is named after.
      scale: seconds in a unit of the file's times, for example 1e-3 where it has milliseconds.

    Returns:
      Workers in the order of their numbers, or of their names (host-9 before host-10), if the file is none of
      `write_trace`; steps in that of theirs.

    Raises:
      ValueError: if there is no such file, or a part of it is missing, or it has none of the layouts, or leaves out
        more than 99 of 100 cells, or its array is of another form; or if several files cannot be one trace.

    Warns:
      UserWarning: if the last line of a CSV file without the column `rows` does not end: it may have been cut.
    """
    _validate.single_number("scale", scale, above=True, finite=True)
    if isinstance(path, (str, Path)):
        return _trace_of_file(Path(path).expanduser(), columns, scale)
    paths = [Path(file).expanduser() for file in path]
    has_worker_column = columns is None or "worker" in columns
    names = [None] * len(paths) if has_worker_column else several_files.workers_of_files(paths)
    traces = [_trace_of_file(file, columns, scale, worker=name) for file, name in zip(paths, names, strict=True)]
    return several_files.one_trace(paths, traces)


def _trace_of_file(path: Path, columns: Mapping[str, str] | None, scale: float, *, worker: str | None = None) -> Trace:
    """The trace in one file, as `read_trace` says; all of `worker`, if that is not None."""
    with errors_name_file(path):
        return _read(path, columns, scale, worker)


def as_trace(trace: str | Path | Trace | np.ndarray) -> Trace:
    """The trace itself, or that in a file, or of an array float[T, W] of seconds; errors as of `read_trace`."""
    if isinstance(trace, Trace):
        return trace
    return read_trace(trace) if isinstance(trace, (str, Path)) else base.trace_of_array(trace)


@contextlib.contextmanager
def errors_name_file(path: str | Path) -> Iterator[None]:
    """Within this block, a `ValueError` about the trace in a file begins with its path if it does not name it.

    A path that is a word alone may be a word of the error, and stands before it in any case.
    """
    try:
        yield
    except ValueError as error:
        if str(path) in str(error) and not str(path).isalpha():
            raise
        raise ValueError(f"{path}: {error}") from error


def _read(path: Path, columns: Mapping[str, str] | None, scale: float, worker: str | None) -> Trace:
    """As `_trace_of_file`, with errors that may not name the file."""
    with _damage_as_value_error(path):
        with open(path, "rb") as file:
            can_seek = file.seekable()
            data = file.read(len(_PARQUET) if can_seek else -1)  # a pipe can be read once
        is_read_in_parts = can_seek and data == _PARQUET
        if can_seek and not is_read_in_parts:
            data = pa.input_stream(os.fspath(path)).read()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        if not data:
            raise ValueError("it is empty")
        if data.startswith(_OTHERS):
            raise ValueError("it is an Arrow or a zip file (.feather, .npz, .xlsx); save it as one of these")
        if not data.startswith(_BEGIN_OF_SUFFIX.get(path.suffix.lower(), b"")):
            raise ValueError(f"it does not begin as a {path.suffix} file does; it is damaged, or of another kind")
        is_array, is_parquet = data.startswith(_NUMPY), data.startswith(_PARQUET)
        if is_array:
            array = _with_fractions(np.load(io.BytesIO(data), allow_pickle=False))
        elif is_parquet:
            source = parquet.ParquetFile(
                os.fspath(path) if is_read_in_parts else pa.BufferReader(data), page_checksum_verification=True
            )
        else:
            table = _table_of_csv(data, columns)
            names = table.column_names  # refuses text that is not UTF-8
    if is_array:
        if columns is not None:
            raise ValueError(f"columns must name those of a table; {path} is an array, whose columns are the workers.")
        return _scaled_trace(base.trace_of_array(array, layout="NumPy"), scale)
    if is_parquet:
        with source:
            layout = _layout(path, source.schema_arrow, source.metadata.num_rows, columns, scale, worker)
            trace = layout.trace_of_parts(str(path), _table_parts(path, source, layout.columns))
    else:
        if layouts.ROWS not in names:
            _warn_if_cut(path, data)
        layout = _layout(path, table.schema, table.num_rows, columns, scale, worker)
        trace = layout.trace_of_parts(str(path), [table.select(layout.columns)])
    return _scaled_trace(trace, scale)


def _table_of_csv(data: bytes, columns: Mapping[str, str] | None) -> pa.Table:
    """The table of a CSV file. Names of workers stay text if they are not whole numbers as these are usually written.

    So 01, 1.10 and 1e2 do, and are other workers than 1, 1.1 and 100. In the layout of gcjax other numbers are wrong,
    and are left to be refused, unless two of them would be one worker; in a file of `write_trace` all names are as they
    stand there. `columns` as in `read_trace`.
    """
    parse_options = csv.ParseOptions(delimiter=_separator(data), newlines_in_values=True)
    table = csv.read_csv(pa.BufferReader(data), _READ_OPTIONS, parse_options)
    name = layouts.worker_column(table.column_names, columns)
    is_of_write_trace = columns is None and layouts.ROWS in table.column_names
    if name is None or pa.types.is_string(table[name].type) or (table[name].null_count and not is_of_write_trace):
        return table
    as_text = csv.ConvertOptions(column_types={name: pa.string()}, include_columns=[name])
    texts = csv.read_csv(pa.BufferReader(data), _READ_OPTIONS, parse_options, as_text)[name]
    if is_of_write_trace:
        return table.set_column(table.column_names.index(name), name, texts)
    texts = pc.utf8_trim_whitespace(texts)
    names = pc.unique(texts).to_pylist()
    if _are_usual_numbers(names):
        return table
    would_be_one = len(names) > len(pc.unique(table[name]))
    if columns is None and not would_be_one and not all(map(str.isdecimal, names)):
        return table
    return table.set_column(table.column_names.index(name), name, texts)


def _separator(data: bytes) -> str:
    """What separates the columns of a CSV file, by its first line: a comma if it has one, or no other separator."""
    head = re.split(rb"[\r\n]", data, maxsplit=1)[0]
    return next((separator for separator in ",;\t|" if separator.encode() in head), ",")


def _are_usual_numbers(texts: list[str]) -> bool:
    """Whether all texts are whole numbers, as they are usually written, and no two of them the same number."""
    return all(map(_WHOLE_NUMBER.fullmatch, texts)) and len({float(text) for text in texts}) == len(texts)


_WHOLE_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.0*)?")  # so long that each is a float64


def _with_fractions(array: np.ndarray) -> np.ndarray:
    """An array of whole numbers, as clocks give, as one of floats; any other as it is."""
    return array.astype(np.float64) if array.dtype.kind in "iu" else array


def _layout(
    path: Path, schema: pa.Schema, num_rows: int, columns: Mapping[str, str] | None, scale: float, worker: str | None
) -> layouts.Layout:
    """The layout of a table with these columns; a `ValueError` if it has none, or no rows, or takes no `scale`."""
    layout = layouts.layout(str(path), schema.names, columns, worker)
    layouts.check_scale(str(path), schema, columns, scale)
    if not num_rows:
        raise ValueError(f"A trace must have rows; {path} has none.")
    return layout


def _table_parts(path: str | Path, file: parquet.ParquetFile, columns: list[str]) -> Iterator[pa.Table]:
    """Some columns of a Parquet file, `_ROWS_AT_A_TIME` rows a table; a `ValueError` if not all rows are there."""
    num_rows = 0
    with _damage_as_value_error(path):
        for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=columns):
            num_rows += batch.num_rows
            yield pa.Table.from_batches([batch])
        if num_rows != file.metadata.num_rows:
            raise ValueError(f"it has {num_rows} rows and says {file.metadata.num_rows}")


@contextlib.contextmanager
def _damage_as_value_error(path: str | Path) -> Iterator[None]:
    """Within this block, errors of the libraries that read files become a `ValueError`: the file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"There is no file {path}. A trace must be a CSV, Parquet or .npy file.") from None
    except _DAMAGE as error:
        problem = _NOT_PRINTED.sub("\N{REPLACEMENT CHARACTER}", str(error))
        raise ValueError(
            f"A trace must be a CSV, Parquet or .npy file that can be read; got {path}: {problem}"
        ) from None


_NOT_PRINTED = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PARQUET = b"PAR1"
_NUMPY = b"\x93NUMPY"
_BEGIN_OF_SUFFIX = {".parquet": _PARQUET, ".npy": _NUMPY}
_GZIP = b"\x1f\x8b"
_OTHERS = b"ARROW1", b"PK\x03\x04"
_ROWS_AT_A_TIME = 2**17


def _scaled_trace(trace: Trace, scale: float) -> Trace:
    """The trace with its times multiplied by `scale`."""
    if scale == 1:
        return trace
    communication = None if trace.communication is None else trace.communication * scale
    return trace._replace(compute=trace.compute * scale, communication=communication)


_DAMAGE = (
    OSError, EOFError, MemoryError, ValueError, SyntaxError, tokenize.TokenError, TypeError, RecursionError, zlib.error,
    pa.ArrowException,
)  # fmt: skip
"""What libraries raise for a damaged file: NumPy reads a header as Python."""


def _warn_if_cut(path: str | Path, csv_bytes: bytes) -> None:
    """Warns if the last line of a CSV file, `csv_bytes`, does not end: the file may have been cut there."""
    if not csv_bytes.endswith((b"\n", b"\r")):
        lines = csv_bytes.splitlines()
        last_line = lines[-1].decode(errors="replace")
        warnings.warn(
            f"The last line of {path} does not end with a line break: line {len(lines)}, {last_line!r}. If the file "
            "was cut, its last number is too short, and rows are missing.",
            stacklevel=3,
        )
