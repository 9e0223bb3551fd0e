"""The layout of tables of operations, which are summed part by part: so few of their rows are in memory at once.

Letters: T steps, W workers.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gcjax.stragglers.traces import base
from gcjax.stragglers.traces.base import Trace
from gcjax.stragglers.traces.table_columns import floats, whole_numbers

COLUMNS = ("dp_rank", "step", "optype", "duration")
STAGE = "stage"
"""A column that may be missing."""

_COMMUNICATING = (
    r"(?i)(^nccl|(send|recv|reduce|reduce[-_]?scatter|gather|broadcast|barrier|all[-_]?to[-_]?all)"
    r"([-_](start|done))?\s*$)"
)
"""Names of operations that communicate: they begin with nccl, or end so, maybe with start or done behind it.

Large letters are as small ones.
"""
_NUM_KINDS = 2
"""Of operations: computing, 0, and communicating, 1."""
_MAX_CELLS_PER_ROW = 4
"""Of a part: where there are more, the cells that have a row are found by sorting."""


class _Cells(NamedTuple):
    """The cells of some rows: a rank, a step and a pipeline stage each; some may have no row.

    Attributes:
      cell_of_row: int64[rows], the cell of each row.
      rank: int64[cells].
      step: int64[cells].
      stage: int64[cells].
    """

    cell_of_row: np.ndarray
    rank: np.ndarray
    step: np.ndarray
    stage: np.ndarray


class _CellSums(NamedTuple):
    """What operations take in each cell that has one.

    Attributes:
      rank: int64[cells].
      step: int64[cells].
      stage: int64[cells].
      seconds: float64[cells, 2], of computing and of communicating.
    """

    rank: np.ndarray
    step: np.ndarray
    stage: np.ndarray
    seconds: np.ndarray


def trace_of_operations(path: str, parts: Iterable[pa.Table]) -> Trace:
    """The trace of a table of operations: sums over those of a rank in a step, means over its pipeline stages.

    Args:
      path: of the file, for errors.
      parts: of the table, in the order of its rows; at least one has a row.

    Raises:
      ValueError: if it has values that no trace has.
    """
    num_rows, cell_sums_of_parts = 0, []
    for part in parts:
        cell_sums_of_parts.append(_cell_sums_of_part(path, part, num_rows_before=num_rows))
        num_rows += part.num_rows
    return _trace_of_cell_sums(path, _cell_sums_of_all_parts(cell_sums_of_parts), num_rows)


def _trace_of_cell_sums(path: str, sums: _CellSums, num_rows: int) -> Trace:
    """The trace of a file with `num_rows` operations, by their sums for each rank, step and stage.

    A worker is a rank. The seconds are means over the pipeline stages that a rank has in a step.
    """
    ranks, num_steps = base.distinct(sums.rank), len(base.distinct(sums.step))
    if num_steps * len(ranks) > base.MAX_CELLS_PER_ROW * num_rows:
        raise ValueError(f"{path} has {num_rows} operations, but {num_steps} steps of {len(ranks)} ranks.")
    worker_names = tuple(str(number) for number in ranks)
    with_count = np.column_stack([sums.seconds, np.ones(len(sums.rank))])
    whole_steps = _summed(sums.rank, sums.step, np.zeros_like(sums.stage), with_count)
    compute, communication, num_stages = whole_steps.seconds.T  # float64[rank and step] each
    compute, communication = compute / num_stages, communication / num_stages
    worker_index = np.searchsorted(ranks, whole_steps.rank)
    trace = base.trace_of_rows(
        "operations", worker_index, whole_steps.step, compute, communication, workers=worker_names
    )
    num_incomplete = int((num_stages < len(base.distinct(sums.stage))).sum())
    return trace._replace(reading=trace.reading._replace(num_rows=num_rows, num_incomplete=num_incomplete))


def _cell_sums_of_part(path: str, part: pa.Table, num_rows_before: int) -> _CellSums:
    """The sums over the operations of a part, which has a row, and so many rows of the file before it (for errors)."""
    rank, step = (whole_numbers(path, part, name, num_rows_before=num_rows_before) for name in ("dp_rank", "step"))
    stage = np.zeros_like(step)
    if STAGE in part.column_names:
        stage = whole_numbers(path, part, STAGE, num_rows_before=num_rows_before)
    durations = floats(path, part, "duration", num_rows_before=num_rows_before)
    if (durations < 0).any():
        row = int(np.argmax(durations < 0))
        raise ValueError(
            f"{path} must have durations of at least 0; row {num_rows_before + row + 1} has {durations[row]:g}."
        )
    cells = _cells(rank, step, stage)
    cell_and_kind = _NUM_KINDS * cells.cell_of_row + _is_communication(path, part)  # [rows], of a table [cells, 2]
    seconds = np.bincount(cell_and_kind, weights=durations, minlength=_NUM_KINDS * len(cells.rank))
    return _sums_of_cells_with_rows(cells, seconds.reshape(-1, _NUM_KINDS))


def _cell_sums_of_all_parts(cell_sums_of_parts: list[_CellSums]) -> _CellSums:
    """The sums over all parts, for each cell."""
    if len(cell_sums_of_parts) == 1:
        return cell_sums_of_parts[0]
    return _summed(*(np.concatenate(arrays) for arrays in zip(*cell_sums_of_parts, strict=True)))


def _summed(rank: np.ndarray, step: np.ndarray, stage: np.ndarray, seconds: np.ndarray) -> _CellSums:
    """The sums of the rows of each cell, whose seconds are float64[rows, 2], or more columns."""
    cells = _cells(rank, step, stage)
    num_cells = len(cells.rank)
    seconds_by_kind = [np.bincount(cells.cell_of_row, weights=of_kind, minlength=num_cells) for of_kind in seconds.T]
    return _sums_of_cells_with_rows(cells, np.stack(seconds_by_kind, axis=1))


def _sums_of_cells_with_rows(cells: _Cells, seconds: np.ndarray) -> _CellSums:
    """The sums float64[cells, 2] of the cells that have a row."""
    has_row = np.bincount(cells.cell_of_row, minlength=len(cells.rank)) > 0
    return _CellSums(cells.rank[has_row], cells.step[has_row], cells.stage[has_row], seconds[has_row])


def _cells(rank: np.ndarray, step: np.ndarray, stage: np.ndarray) -> _Cells:
    """The cells of rows int64[rows]: all of the numbers that there are, or those with a row if they are few."""
    (steps, step_index), (ranks, rank_index), (stages, stage_index) = map(_distinct_and_index, (step, rank, stage))
    cell_of_row = (step_index * len(ranks) + rank_index) * len(stages) + stage_index
    cells = np.arange(len(steps) * len(ranks) * len(stages))
    if len(cells) > _MAX_CELLS_PER_ROW * len(rank):
        cells, cell_of_row = np.unique(cell_of_row, return_inverse=True)
    step_and_rank, stage_of_cell = np.divmod(cells, len(stages))
    step_of_cell, rank_of_cell = np.divmod(step_and_rank, len(ranks))
    return _Cells(cell_of_row, ranks[rank_of_cell], steps[step_of_cell], stages[stage_of_cell])


def _distinct_and_index(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values of int64[rows] in order, and int64[rows], which one each row has."""
    distinct_values = base.distinct(values)
    if distinct_values[-1] - distinct_values[0] >= _MAX_CELLS_PER_ROW * len(values):
        return distinct_values, np.searchsorted(distinct_values, values)
    index_of_value = np.zeros(distinct_values[-1] - distinct_values[0] + 1, np.int64)
    index_of_value[distinct_values - distinct_values[0]] = np.arange(len(distinct_values))
    return distinct_values, index_of_value[values - distinct_values[0]]


def _is_communication(path: str, part: pa.Table) -> np.ndarray:
    """bool[rows]: whether the operation of a row communicates, by the end of its name (`optype`).

    Each different name is looked at once. Raises `ValueError` if the column does not hold names.
    """
    column = part["optype"].combine_chunks()
    if column.null_count:
        raise ValueError(
            f"the column optype of a trace must have a name in each row; that of {path} has {column.null_count} rows "
            "without one."
        )
    try:
        encoded = column if pa.types.is_dictionary(column.type) else column.cast(pa.string()).dictionary_encode()
        is_match = pc.match_substring_regex(encoded.dictionary, _COMMUNICATING)
        return is_match.take(encoded.indices).to_numpy(zero_copy_only=False).astype(bool)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError):
        raise ValueError(f"the column optype of a trace must hold names; that of {path} does not.") from None
