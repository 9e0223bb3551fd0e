"""The columns of a table of measured times, as arrays; what is wrong in one is said with its row.

Rows are counted from 1, without the head of a CSV file.
"""

import contextlib
import re
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gcjax.stragglers.traces import base

_MAX_WHOLE = 2**53
"""Up to here every whole number is a float64."""
_MAX_CHARACTERS = 40  # of a value, in an error


def names_and_indices(
    path: str, table: pa.Table, name: str, *, in_order_of_rows: bool = False
) -> tuple[tuple[str, ...], np.ndarray]:
    """The different values of the column of workers in order, as text, and int64[rows], which one each row has.

    If all are numbers, also as text, they are in the order of their size, else in that of `_sort_keys`; with
    `in_order_of_rows` in that in which rows have them first. Raises `ValueError` if a row has no value, or they are
    neither numbers nor text.
    """
    column = table[name].combine_chunks()
    is_missing = np.asarray(column.is_null(nan_is_null=True))
    if is_missing.any():
        _raise_no_worker(path, name, is_missing)
    if pa.types.is_signed_integer(column.type) and not in_order_of_rows:
        return names_and_indices_of_numbers(column.to_numpy().astype(np.int64))
    try:
        encoded = column.cast(pa.string()).dictionary_encode()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"the column {name} of a trace must hold numbers or text; that of {path} does not.") from None
    texts = encoded.dictionary.to_pylist()
    if "" in texts:  # an empty cell of a column of texts in a CSV file
        _raise_no_worker(path, name, encoded.indices.to_numpy() == texts.index(""))
    if in_order_of_rows:
        return tuple(texts), encoded.indices.to_numpy().astype(np.int64)
    keys = _sort_keys(texts)
    sorted_positions = sorted(range(len(texts)), key=keys.__getitem__)
    rank_of_text = np.argsort(sorted_positions)  # the inverse of the permutation
    return tuple(texts[position] for position in sorted_positions), rank_of_text[encoded.indices.to_numpy()]


def names_and_indices_of_numbers(worker: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """The different numbers int64[rows] of workers in order, as text, and int64[rows], which one each row has."""
    numbers = base.distinct(worker)
    return tuple(str(number) for number in numbers), np.searchsorted(numbers, worker)


def _raise_no_worker(path: str, name: str, has_none: np.ndarray) -> NoReturn:
    """Raises the `ValueError` that there is no worker in the first row where `has_none bool[rows]`."""
    raise ValueError(
        f"the column {name} of a trace must have a worker in each row; that of {path} has none in row "
        f"{int(has_none.argmax()) + 1}."
    )


def _sort_keys(texts: list[str]) -> list[tuple[Any, str]]:
    """By what texts are sorted: by their numbers if all are numbers, whole ones of any size, and then as text.

    If they are not, by what stands between the digits and by the numbers of these in turn: host-9 is before host-10.
    """
    for number_of in (int, float):
        with contextlib.suppress(ValueError):
            numbers = [number_of(text) for text in texts]
            if not any(number != number for number in numbers):  # NaN has no place in an order
                return list(zip(numbers, texts, strict=True))
    parts_of_texts = [_DIGITS.split(text) for text in texts]  # between digits, digits, between digits, ...
    return [
        ([int(part) if index % 2 else part for index, part in enumerate(parts)], text)
        for parts, text in zip(parts_of_texts, texts, strict=True)
    ]


_DIGITS = re.compile(r"([0-9]{1,1000})")  # not more of them than Python makes a number of


def whole_numbers(
    path: str, table: pa.Table, name: str, *, minimum: int | None = None, num_rows_before: int = 0
) -> np.ndarray:
    """A column as int64[rows]; raises `ValueError` if it holds anything else, or less than `minimum`.

    Args:
      path: of the file, for errors.
      table: the rows.
      name: of the column.
      minimum: the least number.
      num_rows_before: rows of the file before the table, for errors.
    """
    column = table[name]
    is_whole = pa.types.is_integer(column.type) and not column.null_count
    values = column.to_numpy() if is_whole else floats(path, table, name, num_rows_before=num_rows_before)
    lowest = -_MAX_WHOLE if minimum is None else minimum
    is_in_range = values.min() >= lowest and values.max() <= _MAX_WHOLE  # NaN is not
    if not (is_in_range and (is_whole or (values == np.round(values)).all())):
        from_minimum = "" if minimum is None else f" from {minimum}"
        is_allowed = (values >= lowest) & (values <= _MAX_WHOLE) & (values == np.round(values))
        row = int(np.flatnonzero(~is_allowed)[0])
        up_to = f" up to 2^53, {_MAX_WHOLE:.2g}" if abs(values[row]) > _MAX_WHOLE else ""
        _raise_wrong_cell(path, column, name, f"whole numbers{from_minimum}{up_to}", num_rows_before, row)
    return values.astype(np.int64, copy=False)


def floats(path: str, table: pa.Table, name: str, *, num_rows_before: int = 0) -> np.ndarray:
    """A column as float64[rows], NaN for empty cells; raises `ValueError`, with the row, if it holds anything else.

    `num_rows_before` are the rows of the file before the table, for errors.
    """
    column = table[name]
    if pa.types.is_boolean(column.type) and column.null_count < len(column):
        _raise_wrong_cell(path, column, name, "numbers", num_rows_before, int(np.argmax(column.is_valid())))
    try:
        return column.cast(pa.float64(), safe=not pa.types.is_integer(column.type)).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        row = next((row for row in range(len(column)) if not _is_number(column.slice(row, 1))), 0)
    _raise_wrong_cell(path, column, name, "numbers", num_rows_before, row)


def elapsed(path: str, table: pa.Table, start: str, end: str) -> np.ndarray:
    """float64[rows]: from the times of one column to those of another, NaN where one of them is missing.

    In the unit of the columns if these hold numbers, and in seconds if they hold dates with times. Raises `ValueError`,
    with the row, if they hold anything else, or an end is before its start.
    """
    starts, ends = table[start], table[end]
    if pa.types.is_timestamp(starts.type) and pa.types.is_timestamp(ends.type):
        nanoseconds = pc.subtract(ends, starts).cast(pa.duration("ns")).cast(pa.int64())
        differences = nanoseconds.cast(pa.float64(), safe=False).to_numpy() / 1e9
    elif pa.types.is_integer(starts.type) and pa.types.is_integer(ends.type):  # maybe of too many digits for a float64
        differences = (
            pc.subtract(ends.cast(pa.int64()), starts.cast(pa.int64())).cast(pa.float64(), safe=False).to_numpy()
        )
    else:
        differences = floats(path, table, end) - floats(path, table, start)
    is_before = differences < 0  # NaN is not
    if is_before.any():
        raise ValueError(
            f"the column {end} of a trace must not be before {start}; that of {path} is in row "
            f"{int(is_before.argmax()) + 1}."
        )
    return differences


def _is_number(cell: pa.ChunkedArray) -> bool:
    """Whether a column of one cell holds a number, or nothing."""
    try:
        cell.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _raise_wrong_cell(
    path: str, column: pa.ChunkedArray, name: str, rule: str, num_rows_before: int, row: int
) -> NoReturn:
    """Raises the `ValueError` that a cell is not what the rule says; `row` counts from 0, from the table's first on."""
    try:
        cell = column[row].as_py()
    except ValueError:  # nanoseconds that Python's own types cannot say
        cell = column[row].value
    cell_text = "nothing" if cell is None else repr(cell)
    shown_text = cell_text if len(cell_text) <= _MAX_CHARACTERS else f"{cell_text[:_MAX_CHARACTERS]}..."
    raise ValueError(
        f"the column {name} of a trace must hold {rule}; that of {path} has {shown_text} in row "
        f"{num_rows_before + row + 1}."
    )
