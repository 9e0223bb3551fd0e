"""One trace of several files: one of each worker, or of each part of a job."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from gcjax.stragglers.traces import base
from gcjax.stragglers.traces.base import Trace
from gcjax.stragglers.traces.table_columns import names_and_indices

_LAYOUTS = "gcjax", "named columns"
"""Layouts that name each worker; in the others their numbers begin anew in each file, or times are no seconds."""


def workers_of_files(paths: Sequence[Path]) -> list[str]:
    """A worker for each file, by its name without endings; by its whole path with them, if two have one name.

    Raises:
      ValueError: if a file is there twice.
    """
    names = [Path(path.name.removesuffix(".gz")).stem for path in paths]
    if len(set(names)) == len(names):
        return names
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ValueError(f"The files of a trace must be different ones; {twice} is there twice.")
    return [str(path) for path in paths]


def one_trace(paths: Sequence[Path], traces: Sequence[Trace]) -> Trace:
    """The trace of all files; of a step of a worker the last one that has a time counts.

    Raises:
      ValueError: if there is no file, or one has another layout.
    """
    if not traces:
        raise ValueError("A trace must have files; got none.")
    for path, trace in zip(paths, traces, strict=True):
        if trace.reading.layout not in _LAYOUTS:
            raise ValueError(
                f"Several files must be tables as write_trace writes them, or read with columns= (--columns); {path} "
                f"has the layout {trace.reading.layout}. Put them together first."
            )
    names = [name for trace in traces for name in trace.workers]
    workers, worker_of_name = names_and_indices("", pa.table({"worker": names}), "worker")
    columns_of_files = np.split(worker_of_name, np.cumsum([len(trace.workers) for trace in traces])[:-1])
    rows = [_measured_rows(trace, columns) for trace, columns in zip(traces, columns_of_files, strict=True)]
    worker, step, compute, communication = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    trace = base.trace_of_rows(
        " and ".join(dict.fromkeys(trace.reading.layout for trace in traces)),
        worker,
        step,
        compute,
        None if all(trace.communication is None for trace in traces) else communication,
        workers=workers,
        num_rows=sum(trace.reading.num_rows for trace in traces),
    )
    num_duplicates = trace.reading.num_duplicates + sum(trace.reading.num_duplicates for trace in traces)
    return trace._replace(reading=trace.reading._replace(num_duplicates=num_duplicates))


def _measured_rows(trace: Trace, workers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A row for each cell that has a time: worker, step, seconds of computing and of communicating, NaN if not known.

    `workers int64[W]` says which worker of all files each one is.
    """
    communication = np.full_like(trace.compute, np.nan) if trace.communication is None else trace.communication
    is_measured = ~(np.isnan(trace.compute) & np.isnan(communication))
    step_index, worker_index = is_measured.nonzero()
    return workers[worker_index], trace.steps[step_index], trace.compute[is_measured], communication[is_measured]
