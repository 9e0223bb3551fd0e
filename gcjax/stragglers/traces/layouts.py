"""The layouts of tables of measured times.

Letters: T steps (or units of work), W workers.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gcjax.stragglers.traces import base
from gcjax.stragglers.traces.base import Trace
from gcjax.stragglers.traces.table_columns import floats, names_and_indices, whole_numbers

ROWS = "rows"
"""The column that says how many rows the whole file has."""
COMMUNICATION = "communication"
_OWN = ("worker", "unit", "seconds")
_ALIBABA = ("worker", "time", "batch_time_norm")
_OPERATIONS = ("dp_rank", "step", "optype", "duration")
_COMMUNICATING = r"(send|recv|reduce|reduce-scatter|gather|broadcast|barrier)$"
"""How the names of operations end that communicate."""


def from_table(path: str, table: pa.Table, columns: Mapping[str, str] | None) -> Trace:
    """The trace in a table.

    Args:
      path: of the file, for errors.
      table: in one of the layouts.
      columns: the names of its columns, for a table of another layout; see `read_trace`.

    Raises:
      ValueError: if it has none of the layouts, or values that no trace has.
    """
    names = table.column_names
    if len(set(names)) < len(names):
        raise ValueError(f"the columns of a trace must have different names; {path} has {_quoted_names(names)}.")
    if not table.num_rows:
        raise ValueError(f"A trace must have rows; {path} has none.")
    if columns is not None:
        return _named_columns(path, table, columns)
    if set(_OWN) <= set(names):
        return _own(path, table)
    if set(_ALIBABA) <= set(names):
        return _alibaba(path, table)
    if set(_OPERATIONS) <= set(names):
        return _operations(path, table)
    workers = [str(worker) for worker in range(len(names))]
    if names and set(names) == set(workers):
        seconds = np.stack([floats(path, table, name) for name in workers], axis=1)
        return base.of_array(seconds, layout="column a worker")
    raise ValueError(
        f"A trace must have the columns {', '.join(_OWN)}, or {', '.join(_ALIBABA)}, or {', '.join(_OPERATIONS)}, or "
        f"one for each worker with the names 0 to W-1; {path} has {_quoted_names(names)}. Of another table say which "
        'column is what: columns={"worker": ..., "step": ..., "compute": ...}.'
    )


def _own(path: str, table: pa.Table) -> Trace:
    """The trace in a table that `write_trace` wrote: workers and units count from 0."""
    if ROWS in table.column_names:
        _check_row_count(path, floats(path, table, ROWS))
    worker, unit = (whole_numbers(path, table, name, minimum=0) for name in ("worker", "unit"))
    num_workers = int(worker.max()) + 1
    if num_workers > len(worker):
        raise ValueError(
            f"A trace must have a row for each worker, whose numbers count from 0; {path} goes up to worker "
            f"{num_workers - 1}, but has {len(worker)} rows. Is a number wrong? Otherwise number the workers anew."
        )
    names = tuple(str(number) for number in range(num_workers))
    communication = floats(path, table, COMMUNICATION) if COMMUNICATION in table.column_names else None
    return base.of_rows("gcjax", worker, unit, floats(path, table, "seconds"), communication, workers=names)


def _alibaba(path: str, table: pa.Table) -> Trace:
    """The trace of a job of the Alibaba trace: ratios, divided by their median."""
    worker, step = (whole_numbers(path, table, name) for name in ("worker", "time"))
    ratio = floats(path, table, "batch_time_norm")
    median = np.nanmedian(ratio) if np.isfinite(ratio).any() else np.nan
    if not median > 0:
        raise ValueError(f"the column batch_time_norm of a trace must have a positive median; that of {path} has not.")
    numbers = base.distinct(worker)
    names = tuple(str(number) for number in numbers)
    index = np.searchsorted(numbers, worker)
    return base.of_rows("Alibaba PAI", index, step, ratio / median, workers=names, is_relative=True)


def _operations(path: str, table: pa.Table) -> Trace:
    """The trace of a table of operations: sums over those of a rank in a step, means over its pipeline stages."""
    rank, step = (whole_numbers(path, table, name) for name in ("dp_rank", "step"))
    num_stages = 1
    if "stage" in table.column_names:
        num_stages = len(base.distinct(whole_numbers(path, table, "stage")))
    seconds = floats(path, table, "duration")
    ranks, steps = base.distinct(rank), base.distinct(step)
    cell = np.searchsorted(steps, step) * len(ranks) + np.searchsorted(ranks, rank)  # int64[rows]
    num_cells = len(steps) * len(ranks)
    if num_cells > base.MAX_CELLS_PER_ROW * len(cell):
        raise ValueError(f"{path} has {len(cell)} operations, but {len(steps)} steps of {len(ranks)} ranks.")
    has_row = np.bincount(cell, minlength=num_cells) > 0
    is_communication = _is_communication(path, table)
    totals = []
    for is_counted in (~is_communication, is_communication):
        total = np.bincount(cell, np.where(is_counted, seconds, 0), minlength=num_cells) / num_stages
        totals.append(np.where(has_row, total, np.nan)[has_row])
    used = np.flatnonzero(has_row)
    names = tuple(str(number) for number in ranks)
    trace = base.of_rows("operations", used % len(ranks), steps[used // len(ranks)], *totals, workers=names)
    return trace._replace(reading=trace.reading._replace(num_rows=len(cell)))


def _is_communication(path: str, table: pa.Table) -> np.ndarray:
    """bool[rows]: whether the operation of a row communicates, by the end of its name."""
    column = table["optype"].combine_chunks()
    try:
        encoded = column if pa.types.is_dictionary(column.type) else column.cast(pa.string()).dictionary_encode()
        is_match = pc.match_substring_regex(encoded.dictionary, _COMMUNICATING)
        return is_match.take(encoded.indices).to_numpy(zero_copy_only=False).astype(bool)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError):
        raise ValueError(f"the column optype of a trace must hold names; that of {path} does not.") from None


def _named_columns(path: str, table: pa.Table, columns: Mapping[str, str]) -> Trace:
    """The trace of a table whose columns have these names."""
    required, optional = {"worker", "step", "compute"}, {COMMUNICATION}
    if not required <= set(columns) <= required | optional:
        raise ValueError(
            f"columns must name worker, step and compute, and {COMMUNICATION} if there is one; got {dict(columns)!r}."
        )
    for name in columns.values():
        if name not in table.column_names:
            raise ValueError(f"{path} has no column {name!r}, but {_quoted_names(table.column_names)}.")
    workers, index = names_and_indices(path, table, columns["worker"])
    step = whole_numbers(path, table, columns["step"])
    compute = floats(path, table, columns["compute"])
    communication = floats(path, table, columns[COMMUNICATION]) if COMMUNICATION in columns else None
    return base.of_rows("named columns", index, step, compute, communication, workers=workers)


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
