"""The columns of a table of measured times, as arrays."""

import numpy as np
import pyarrow as pa

from gcjax.stragglers.traces import base

_MAX_WHOLE = 2**53
"""Up to here every whole number is a float64."""


def names_and_indices(path: str, table: pa.Table, name: str) -> tuple[tuple[str, ...], np.ndarray]:
    """The different values of a column in order, as text, and int64[rows], which one each row has."""
    column = table[name].combine_chunks()
    if column.null_count:
        raise ValueError(f"the column {name} of a trace must have a worker in each row; that of {path} has not.")
    if pa.types.is_integer(column.type):
        values = column.to_numpy().astype(np.int64)
        numbers = base.distinct(values)
        return tuple(str(number) for number in numbers), np.searchsorted(numbers, values)
    try:
        encoded = column.cast(pa.string()).dictionary_encode()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"the column {name} of a trace must hold numbers or text; that of {path} does not.") from None
    order = np.argsort(encoded.dictionary.to_pylist())
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    workers = tuple(encoded.dictionary[int(position)].as_py() for position in order)
    return workers, rank[encoded.indices.to_numpy()]


def whole_numbers(path: str, table: pa.Table, name: str, *, minimum: int | None = None) -> np.ndarray:
    """A column as int64[rows]; raises `ValueError` if it holds anything else, or less than `minimum`."""
    column = table[name]
    is_whole = pa.types.is_integer(column.type) and not column.null_count
    values = column.to_numpy() if is_whole else floats(path, table, name)
    lowest = -_MAX_WHOLE if minimum is None else minimum
    is_in_range = values.min() >= lowest and values.max() <= _MAX_WHOLE  # NaN is not
    if not (is_in_range and (is_whole or (values == np.round(values)).all())):
        start = "" if minimum is None else f" from {minimum}"
        raise ValueError(f"the column {name} of a trace must hold whole numbers{start}; {path} does not.")
    return values.astype(np.int64, copy=False)


def floats(path: str, table: pa.Table, name: str) -> np.ndarray:
    """A column as float64[rows], NaN for empty cells."""
    try:
        return table[name].cast(pa.float64()).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"the column {name} of a trace must hold numbers; that of {path} does not.") from None
