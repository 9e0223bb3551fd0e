"""The layouts of tables of measured times.

Letters: T steps (or units of work), W workers.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gcjax.stragglers.traces import base, operations
from gcjax.stragglers.traces.base import Trace
from gcjax.stragglers.traces.table_columns import (
    elapsed,
    floats,
    names_and_indices,
    names_and_indices_of_numbers,
    whole_numbers,
)

ROWS = "rows"
"""The column that says how many rows the whole file has."""
COMMUNICATION = "communication"
_OWN = ("worker", "unit", "seconds")
_STEP_COLUMNS = ("step", "unit", "index", "", "Unnamed: 0", "__index_level_0__")
"""Names of the column with the numbers of steps, in a table with a column for each worker: the last ones of pandas."""
_ALIBABA = ("worker", "time", "batch_time_norm")


class Layout(NamedTuple):
    """How a table is read.

    Attributes:
      columns: the names of those of its columns that are needed.
      trace_of_parts: (path of the file for errors, parts of the table with these columns in the order of rows) -> the
        trace; raises `ValueError` if there are values that no trace has.
    """

    columns: list[str]
    trace_of_parts: Callable[[str, Iterable[pa.Table]], Trace]


def layout(path: str, names: list[str], columns: Mapping[str, str] | None, worker: str | None = None) -> Layout:
    """The layout of a table: which of its columns are read, and how they become a trace.

    Args:
      path: of the file, for errors.
      names: of all columns of the table.
      columns: the names of its columns, for a table of another layout; see `read_trace`.
      worker: whose rows all are, if `columns` name no column for that.

    Raises:
      ValueError: if it has none of the layouts.
    """
    if len(set(names)) < len(names):
        raise ValueError(f"the columns of a trace must have different names; {path} has {_quoted_names(names)}.")
    if columns is not None:
        _check_columns(path, names, columns, worker)
        distinct_columns = list(dict.fromkeys(columns.values()))
        return _layout_of_whole_table(distinct_columns, partial(_named_columns_trace, columns=columns, worker=worker))
    if set(_OWN) <= set(names):
        present_columns = [name for name in (*_OWN, COMMUNICATION, ROWS) if name in names]
        return _layout_of_whole_table(present_columns, _own_trace)
    if set(_ALIBABA) <= set(names):
        return _layout_of_whole_table(list(_ALIBABA), _alibaba_trace)
    if set(operations.COLUMNS) <= set(names):
        present_columns = [name for name in (*operations.COLUMNS, operations.STAGE) if name in names]
        return Layout(present_columns, operations.trace_of_operations)
    step_column = next((name for name in _STEP_COLUMNS if name in names), None)
    worker_columns = _columns_in_order_of_workers([name for name in names if name != step_column])
    if worker_columns:
        read = partial(_column_a_worker_trace, worker_columns=worker_columns, step_column=step_column)
        return _layout_of_whole_table(names, read)
    raise ValueError(
        f"A trace must have the columns {', '.join(_OWN)}, or {', '.join(_ALIBABA)}, or "
        f"{', '.join(operations.COLUMNS)}, or one for each worker with the names 0 to W-1, or w0 to w(W-1) with w or "
        f"worker, rank, node, host, ..., and beside these at most one named step; {path} has {_quoted_names(names)}. "
        "Of another table say which column is what: "
        'columns={"worker": ..., "step": ..., "compute": ...}, or --columns worker=...,step=...,compute=... If each '
        "column is a worker, name them 0 to W-1, or save them as an array [steps, workers] in a .npy file."
    )


def check_scale(path: str, schema: pa.Schema, columns: Mapping[str, str] | None, scale: float) -> None:
    """Raises `ValueError` if a `scale` other than 1 is given for times that are dates, which have no unit."""
    name = (columns or {}).get("start")
    if scale != 1 and name is not None and pa.types.is_timestamp(schema.field(name).type):
        raise ValueError(f"scale is for numbers; the column {name} of {path} has dates. Leave it out.")


def worker_column(names: list[str], columns: Mapping[str, str] | None) -> str | None:
    """The column of a table that says who the worker of a row is, where that may be text; None if there is none.

    Arguments as of `layout`.
    """
    if columns is not None:
        name = columns.get("worker", "")
        is_only_for_workers = list(columns.values()).count(name) == 1
        return name if is_only_for_workers and names.count(name) == 1 else None
    return _OWN[0] if set(_OWN) <= set(names) and len(set(names)) == len(names) else None


def _layout_of_whole_table(columns: list[str], trace_of_table: Callable[[str, pa.Table], Trace]) -> Layout:
    """A layout whose reader wants the whole table at once."""
    return Layout(columns, lambda path, parts: trace_of_table(path, pa.concat_tables(parts)))


_WORKER_NAME = re.compile(
    r"((?:(?:w|worker|rank|node|host|machine|gpu|device|process|replica)[ _-]*)?)\d+", re.IGNORECASE
)
"""The name of a column of a worker: a word for workers, which may be missing, and its number."""


def _columns_in_order_of_workers(names: list[str]) -> list[str]:
    """The columns of workers 0 to W-1, if they have all of these numbers, with the same word before them or none.

    Empty if the names are others.
    """
    first_name = _WORKER_NAME.fullmatch(names[0]) if names else None
    wanted_names = [f"{first_name[1]}{worker}" for worker in range(len(names))] if first_name else []
    return wanted_names if set(wanted_names) == set(names) else []


def _column_a_worker_trace(
    path: str, table: pa.Table, *, worker_columns: Sequence[str], step_column: str | None
) -> Trace:
    """The trace in a table with a column for each worker, in the order of their numbers, and maybe one for the steps.

    Without one (None) the rows are steps 0, 1, 2, ...
    """
    num_workers = len(worker_columns)
    names = tuple(str(worker) for worker in range(num_workers))
    seconds = np.stack([floats(path, table, name) for name in worker_columns], axis=1)  # [rows of the table, W]
    if step_column is None:
        return base.trace_of_array(seconds, layout="column a worker")
    # From here on a row is a cell of the table, row by row.
    step = np.repeat(whole_numbers(path, table, step_column), num_workers)
    worker = np.tile(np.arange(num_workers), len(seconds))
    return base.trace_of_rows("column a worker", worker, step, seconds.ravel(), workers=names, num_rows=len(seconds))


_NO_NAMES = pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null
"""Whether a type of a column can be no names of workers; text, also dictionary-encoded, and dates can."""


def _own_trace(path: str, table: pa.Table) -> Trace:
    """The trace in a table with the columns of `write_trace`: workers have numbers from 0 on, or names; units any.

    With the column `rows` it is a file of `write_trace`: any name is one, and workers are in the order of the rows.
    Raises `ValueError` if the column `rows`, where there is one, does not say how many there are, or a number is wrong.
    """
    is_of_write_trace = ROWS in table.column_names
    if is_of_write_trace:
        _check_row_count(path, floats(path, table, ROWS))
    unit = whole_numbers(path, table, "unit")
    worker_type = table["worker"].type
    if is_of_write_trace:
        worker_names, worker_index = names_and_indices(path, table, "worker", in_order_of_rows=True)
    elif any(is_type(worker_type) for is_type in _NO_NAMES):
        worker_names, worker_index = names_and_indices_of_numbers(whole_numbers(path, table, "worker", minimum=0))
    else:
        worker_names, worker_index = names_and_indices(path, table, "worker")
    communication = floats(path, table, COMMUNICATION) if COMMUNICATION in table.column_names else None
    return base.trace_of_rows(
        "gcjax", worker_index, unit, floats(path, table, "seconds"), communication, workers=worker_names
    )


def _alibaba_trace(path: str, table: pa.Table) -> Trace:
    """The trace of a job of the Alibaba trace: ratios of times (`batch_time_norm`), divided by their median.

    Raises `ValueError` if that is not above 0 and finite.
    """
    worker, step = (whole_numbers(path, table, name) for name in ("worker", "time"))
    relative_time = floats(path, table, "batch_time_norm")
    median = np.nanmedian(relative_time) if np.isfinite(relative_time).any() else np.nan
    if not 0 < median < np.inf:
        raise ValueError(
            f"the column batch_time_norm of a trace must have a positive, finite median; that of {path} has not."
        )
    worker_names, worker_index = names_and_indices_of_numbers(worker)
    compute = relative_time / median
    return base.trace_of_rows("Alibaba PAI", worker_index, step, compute, workers=worker_names, is_relative=True)


def _check_columns(path: str, names: list[str], columns: Mapping[str, str], worker: str | None) -> None:
    """Raises `ValueError` unless `columns` (what -> name) has all that is needed, and the table has these `names`."""
    fields = set(columns) - {COMMUNICATION} | ({"worker"} if worker is not None else set())
    if fields not in ({"worker", "step", "compute"}, {"worker", "step", "start", "end"}):
        raise ValueError(
            f"columns must name worker, step and compute (or start and end), and {COMMUNICATION} if there is one; of "
            f"several files, each of one worker, worker may be left out. Got {dict(columns)!r}."
        )
    for name in columns.values():
        if name not in names:
            raise ValueError(f"{path} has no column {name!r}, but {_quoted_names(names)}.")


def _named_columns_trace(path: str, table: pa.Table, *, columns: Mapping[str, str], worker: str | None) -> Trace:
    """The trace of a table by `columns`, what a column is -> its name, as `read_trace` says; or all of `worker`."""
    if worker is None:
        workers, worker_index = names_and_indices(path, table, columns["worker"])
    else:
        workers, worker_index = (worker,), np.zeros(len(table), np.int64)
    step = whole_numbers(path, table, columns["step"])
    if "compute" in columns:
        compute = floats(path, table, columns["compute"])
    else:
        compute = elapsed(path, table, columns["start"], columns["end"])
    communication = floats(path, table, columns[COMMUNICATION]) if COMMUNICATION in columns else None
    return base.trace_of_rows("named columns", worker_index, step, compute, communication, workers=workers)


def _check_row_count(path: str, row_counts: np.ndarray) -> None:
    """Raises `ValueError` unless every row says how many rows there are."""
    wrong_counts = row_counts[row_counts != len(row_counts)]  # NaN differs from everything
    if wrong_counts.size:
        raise ValueError(
            f"the column rows of a trace must hold the number of rows of the file; {path} has {len(row_counts)} rows "
            f"and says {wrong_counts[0]:.0f}. Part of it is missing; if rows were left out on purpose, leave out the "
            "column too."
        )


def _quoted_names(names: list[str]) -> str:
    """The names with quotes, separated by commas."""
    return ", ".join(map(repr, names))
