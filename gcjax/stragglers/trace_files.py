"""Measured times in files: CSV, Parquet, or an array of NumPy.

A table has the columns `worker`, `unit` (both counted from 0) and `seconds`, a row for each unit of work of each
worker; `inf` is a failed worker, an empty cell a unit that was not measured. `write_trace` adds a column `rows`, the
rows of the whole file, so that a file of which the end is missing is known as such. The live runtime writes such
files, one unit for each chunk of each round (`gcjax.engine.live`).

Letters: T units of work, W workers.
"""

import io
import os
import tokenize
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

_COLUMNS = ("worker", "unit", "seconds")
_ROWS_COLUMN = "rows"
_ALIBABA_COLUMNS = ("worker", "time", "batch_time_norm")
_READ_OPTIONS = csv.ReadOptions(use_threads=False)  # with one thread, errors name the row
_MAX_CELLS_PER_ROW = 100
"""At most so many cells of the array for each row of the file: a wrong number must not ask for all of the memory."""


def write_trace(path: str | Path, seconds: Any) -> None:
    """Writes measured times as a CSV file; `read_trace` gives the same bits back.

    Args:
      path: the file, which is overwritten.
      seconds: float[T, W], NaN where not measured, inf for a failed worker.

    Raises:
      ValueError: if the array is not of this form.
    """
    seconds = trace_array(seconds)
    unit, worker = np.indices(seconds.shape)
    values = pa.array(seconds.astype(np.float64).ravel(), mask=np.isnan(seconds).ravel())
    columns = (worker.ravel(), unit.ravel(), values, np.full(seconds.size, seconds.size))
    csv.write_csv(pa.table(dict(zip((*_COLUMNS, _ROWS_COLUMN), columns, strict=True))), path)


def read_trace(path: str | Path) -> np.ndarray:
    """Reads measured times; what kind of file it is, is seen from how it begins.

    Three layouts of a table, CSV or Parquet, are known: the one that `write_trace` writes, where `rows` may be missing;
    the public one of jobs of the Alibaba Cluster Trace Program, with the columns `worker`, `time` (a training step; the
    recorded steps in order become the units) and `batch_time_norm`; and a column for each worker, named 0 to W-1, with
    a row for each unit. The second has only ratios, so they are divided by their median: a typical unit takes a second.

    Args:
      path: a CSV or Parquet file, or an array float[T, W] in a .npy file.

    Returns:
      float64[T, W] seconds, NaN for units without a time; workers in the order of their numbers.

    Raises:
      ValueError: if there is no such file, or a part of it is missing, or it has none of the layouts, or says two times
        for one unit, or leaves out more than 99 of 100 units, or its array is of another form.

    Warns:
      UserWarning: if the last line of a CSV file without the column `rows` does not end: it may have been cut.
    """
    try:
        data = pa.input_stream(os.fspath(path)).read()
        if data.startswith(b"\x93NUMPY"):
            return trace_array(np.load(io.BytesIO(data), allow_pickle=False)).astype(np.float64)
        is_table = data.startswith(b"PAR1")
        source = pa.BufferReader(data)
        table = parquet.ParquetFile(source).read() if is_table else csv.read_csv(source, _READ_OPTIONS)
    except _DAMAGE as error:
        raise ValueError(f"A trace must be a CSV, Parquet or .npy file that can be read; got {path}: {error}") from None
    if not is_table and _ROWS_COLUMN not in table.column_names:
        _warn_if_cut(path, data)
    return _from_table(path, table)


_DAMAGE = (OSError, EOFError, MemoryError, ValueError, SyntaxError, tokenize.TokenError, TypeError, RecursionError)
"""What libraries raise for a damaged file: NumPy reads a header as Python; `pa.ArrowInvalid` is a `ValueError`."""


def trace_array(seconds: Any) -> np.ndarray:
    """The array as float[T, W] of seconds >= 0, inf, or NaN."""
    array = np.asarray(seconds)
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind != "f":
        raise ValueError(f"a trace must be float[T, W] with T, W >= 1; got {array.dtype}{list(array.shape)}.")
    if (array < 0).any():
        unit, worker = np.argwhere(array < 0)[0]
        raise ValueError(
            f"a trace must hold seconds >= 0, inf for a failed worker, NaN for no measurement; got "
            f"{array[unit, worker]:g} for unit {unit} of worker {worker}."
        )
    return array


def _from_table(path: str | Path, table: pa.Table) -> np.ndarray:
    """float64[T, W] from a table in one of the three layouts."""
    names = table.column_names
    if len(set(names)) < len(names):
        raise ValueError(f"the columns of a trace must have different names; {path} has {_quoted_names(names)}.")
    if not table.num_rows:
        raise ValueError(f"A trace must have rows; {path} has none.")
    if set(_COLUMNS) <= set(names):
        if _ROWS_COLUMN in names:
            _check_row_count(path, _float_column(path, table, _ROWS_COLUMN))
        return _from_own_table(path, *(_float_column(path, table, name) for name in _COLUMNS))
    if set(_ALIBABA_COLUMNS) <= set(names):
        return _from_alibaba_table(path, *(_float_column(path, table, name) for name in _ALIBABA_COLUMNS))
    workers = [str(worker) for worker in range(len(names))]
    if names and set(names) == set(workers):
        return trace_array(np.stack([_float_column(path, table, name) for name in workers], axis=1))
    raise ValueError(
        f"A trace must have the columns {', '.join(_COLUMNS)}, or {', '.join(_ALIBABA_COLUMNS)}, or one for "
        f"each worker with the names 0 to W-1; {path} has {_quoted_names(names)}. Of anything else make an array "
        "float[T, W] of seconds: replay takes it as it is, and write_trace saves it."
    )


def _from_own_table(path: str | Path, worker: np.ndarray, unit: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """float64[T, W] from the columns of a table that `write_trace` wrote."""
    for name, values in (("worker", worker), ("unit", unit)):
        if not ((values >= 0) & (values == np.round(values))).all():
            raise ValueError(f"the column {name} of a trace must hold whole numbers from 0; {path} does not.")
    return trace_array(_durations_from_rows(path, worker, unit, seconds))


def _from_alibaba_table(path: str | Path, worker: np.ndarray, step: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """float64[T, W] from a job of the Alibaba trace, with units for its steps and the median ratio as a second."""
    workers, steps = (np.unique(values, return_inverse=True)[1] for values in (worker, step))
    return trace_array(_durations_from_rows(path, workers, steps, ratio / np.nanmedian(ratio)))


def _durations_from_rows(path: str | Path, worker: np.ndarray, unit: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """float64[T, W] from rows `(worker, unit, seconds)` in any order, NaN where there is no row."""
    if (float(unit.max()) + 1) * (float(worker.max()) + 1) > _MAX_CELLS_PER_ROW * len(worker):
        raise ValueError(
            f"A trace must have a row for at least one in {_MAX_CELLS_PER_ROW} of the units of its workers, whose "
            f"numbers count from 0; {path} goes up to worker {worker.max():.0f} and unit {unit.max():.0f}, but has "
            f"{len(worker)} rows. Is a number wrong? Otherwise number the workers and units anew, without gaps."
        )
    unit, worker = unit.astype(np.int64), worker.astype(np.int64)
    durations = np.full((unit.max() + 1, worker.max() + 1), np.nan)
    cells, counts = np.unique(np.stack([unit, worker]), axis=1, return_counts=True)
    if counts.max() > 1:
        unit, worker = cells[:, counts.argmax()]
        raise ValueError(
            f"A trace must have one row a unit of a worker; {path} has several for unit {unit}, worker {worker}."
        )
    durations[unit, worker] = seconds
    return durations


def _float_column(path: str | Path, table: pa.Table, name: str) -> np.ndarray:
    """A column as float64, NaN for empty cells."""
    try:
        return table[name].cast(pa.float64()).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"the column {name} of a trace must hold numbers; that of {path} does not.") from None


def _check_row_count(path: str | Path, row_counts: np.ndarray) -> None:
    """Raises `ValueError` unless every row says how many rows there are."""
    wrong_counts = row_counts[row_counts != len(row_counts)]  # NaN differs from everything
    if wrong_counts.size:
        raise ValueError(
            f"the column rows of a trace must hold the number of rows of the file; {path} has {len(row_counts)} rows "
            f"and says {wrong_counts[0]:.0f}. Part of it is missing; if rows were left out on purpose, leave out the "
            "column too."
        )


def _warn_if_cut(path: str | Path, data: bytes) -> None:
    """Warns if the last line of a CSV file does not end."""
    if not data.endswith((b"\n", b"\r")):
        lines = data.splitlines()
        last_line = lines[-1].decode(errors="replace")
        warnings.warn(
            f"The last line of {path} does not end with a line break: line {len(lines)}, {last_line!r}. If the file "
            "was cut, its last number is too short, and rows are missing.",
            stacklevel=3,
        )


def _quoted_names(names: list[str]) -> str:
    """The names with quotes, separated by commas."""
    return ", ".join(map(repr, names))
