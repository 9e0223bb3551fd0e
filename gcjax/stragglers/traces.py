"""Measured times: a file format for them, and a straggler model that replays them.

The format is a CSV file with a header and the columns `worker`, `unit` (both counted from 0) and `seconds`, a row for
each unit of work of each worker; `inf` is a failed worker, an empty cell a unit that was not measured. The live runtime
writes such files, one unit for each chunk of each round (`gcjax.engine.live`).

Letters: T units of work, W workers.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from gcjax import _checks
from gcjax.comparable import comparable
from gcjax.stragglers.base import StragglerModel

_OURS = ("worker", "unit", "seconds")
_ALIBABA = ("worker", "time", "batch_time_norm")


class _State(NamedTuple):
    seconds: jax.Array
    unit: jax.Array


@comparable
def replay(*, trace: str | Path | np.ndarray | jax.Array) -> StragglerModel:
    """Measured times, again in their order.

    Worker w's n-th unit takes `trace[n % T, w]`: after the last row the trace begins anew. No randomness is left, so
    every key gives the same durations. A unit that was not measured takes as long as the worker's last measured unit
    before it, or the first one if there is none before.

    Args:
      trace: float[T, W] seconds, NaN where not measured, inf for a failed worker; or a file for `read_trace`.

    Raises:
      ValueError: if the trace is not of this form, or a worker has no measured unit, or not W workers are asked for.
    """
    seconds = read_trace(trace) if isinstance(trace, (str, Path)) else trace
    if not _checks.is_traced(seconds):
        seconds = _filled(_checked(seconds))

    def init(rng_key: jax.Array, num_workers: int) -> _State:
        del rng_key
        if num_workers != seconds.shape[1]:
            raise ValueError(
                f"a trace is replayed with as many workers as it has; it has {seconds.shape[1]}, asked for are "
                f"{num_workers}. Pass num_workers={seconds.shape[1]}, or columns of the array from read_trace."
            )
        return _State(jnp.asarray(seconds, jnp.result_type(float)), jnp.zeros((), jnp.int32))

    return StragglerModel(init, _next)


def write_trace(path: str | Path, seconds: Any) -> None:
    """Writes measured times; `read_trace` gives the same bits back.

    Args:
      path: the file, which is overwritten.
      seconds: float[T, W], NaN where not measured, inf for a failed worker.

    Raises:
      ValueError: if the array is not of this form.
    """
    seconds = _checked(seconds)
    unit, worker = np.indices(seconds.shape)
    values = pa.array(seconds.astype(np.float64).ravel(), mask=np.isnan(seconds).ravel())
    csv.write_csv(pa.table(dict(zip(_OURS, (worker.ravel(), unit.ravel(), values), strict=True))), path)


def read_trace(path: str | Path) -> np.ndarray:
    """Reads measured times.

    Two layouts are known: the one that `write_trace` writes, and the public one of jobs of the Alibaba Cluster Trace
    Program, with the columns `worker`, `time` (a training step; the recorded steps in order become the units) and
    `batch_time_norm`. The latter has only ratios, so they are divided by their median: a typical unit takes a second.

    Args:
      path: a CSV file.

    Returns:
      float64[T, W] seconds, NaN for units without a time; workers in the order of their numbers.

    Raises:
      ValueError: if there is no such file, or it has neither layout, or says two times for one unit.
    """
    try:
        table = csv.read_csv(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"A trace must be a CSV file that can be read; got {path}: {error}") from None
    for names in (_OURS, _ALIBABA):
        if set(names) <= set(table.column_names):
            columns = [_numbers(path, name, table[name]) for name in names]
            return _in_ours(path, *columns) if names is _OURS else _in_alibaba(path, *columns)
    raise ValueError(
        f"A trace must have the columns {', '.join(_OURS)}, or {', '.join(_ALIBABA)}; {path} has "
        f"{', '.join(map(repr, table.column_names))}."
    )


def _in_ours(path: str | Path, worker: np.ndarray, unit: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    for name, values in (("worker", worker), ("unit", unit)):
        if not ((values >= 0) & (values == np.round(values))).all():
            raise ValueError(f"the column {name} of a trace must hold whole numbers from 0; {path} does not.")
    return _checked(_table(path, worker.astype(np.int64), unit.astype(np.int64), seconds))


def _in_alibaba(path: str | Path, worker: np.ndarray, step: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    workers, steps = (np.unique(values, return_inverse=True)[1] for values in (worker, step))
    return _checked(_table(path, workers, steps, ratio / np.nanmedian(ratio)))


def _table(path: str | Path, worker: np.ndarray, unit: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """float64[T, W] from rows in any order."""
    if not len(worker):
        raise ValueError(f"A trace must have rows; {path} has none.")
    table = np.full((unit.max() + 1, worker.max() + 1), np.nan)
    rows, counts = np.unique(np.stack([unit, worker]), axis=1, return_counts=True)
    if counts.max() > 1:
        unit, worker = rows[:, counts.argmax()]
        raise ValueError(
            f"A trace must have one row a unit of a worker; {path} has several for unit {unit}, worker {worker}."
        )
    table[unit, worker] = seconds
    return table


def _numbers(path: str | Path, name: str, column: pa.ChunkedArray) -> np.ndarray:
    """A column as float64, NaN for empty cells."""
    try:
        return column.cast(pa.float64()).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"the column {name} of a trace must hold numbers; that of {path} does not.") from None


def _checked(seconds: Any) -> np.ndarray:
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


def _filled(seconds: np.ndarray) -> np.ndarray:
    """Without NaN: the last measured unit before, or else the first."""
    measured = ~np.isnan(seconds)
    if not measured.any(axis=0).all():
        worker = np.flatnonzero(~measured.any(axis=0))[0]
        raise ValueError(
            f"to be replayed, a trace must have a measured unit of every worker; worker {worker} has none. Leave its "
            "column out, or write inf for a failed worker."
        )
    units = np.arange(len(seconds))[:, None]
    last = np.maximum.accumulate(np.where(measured, units, -1), axis=0)
    return np.take_along_axis(seconds, np.where(last < 0, measured.argmax(axis=0), last), axis=0)


def _next(state: _State, rng_key: jax.Array) -> tuple[jax.Array, _State]:
    del rng_key
    num_units = jnp.asarray(state.seconds.shape[0], jnp.int32)
    return state.seconds[state.unit], state._replace(unit=(state.unit + 1) % num_units)
