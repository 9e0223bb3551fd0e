"""The rows of all processes, in a folder that they share: a CSV file for each, to which it appends now and then.

The file of a process is a trace that `gcjax.stragglers.read_trace` reads. A process that is killed has lost what it had
not appended yet; half a last line is left out.
"""

import contextlib
import fcntl
import itertools
import re
from pathlib import Path
from typing import TextIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from gcjax import locks
from gcjax.files import atomic_write, os_errors_as_value_error
from gcjax.stragglers.traces.base import Trace
from gcjax.stragglers.traces.files import write_trace
from gcjax.watching.joining import empty_rows, joined_trace
from gcjax.watching.timeline import COLUMNS

_NAMES = ("worker", *COLUMNS)
_STEP_COLUMN = _NAMES.index("unit")
_HEADER_LINE = ",".join(_NAMES) + "\n"
_NUMBERS = itertools.count()  # of the wrappers of this process
_WRITER_OF_FILE: dict[Path, int] = {}  # the number of the last one that has opened it
_LINE = re.compile(rb"\d{1,9},\d{1,18}(,(\d[-+.e\d]{0,30})?){5}\n")
_NUM_BEGINNING = 200
"""Bytes at the beginning of a file, the first row among them, by which a new file of the same name is told."""


class SharedFolder:
    """One process's view of the folder.

    Attributes:
      path: the folder.
      prefix: what the names of the files begin with.
      first_step: the number of the first step of this run; rows of earlier runs are in files of their own.
      is_shared: whether other processes see the rows: True.
    """

    is_shared = True

    def __init__(self, path: Path, prefix: str, first_step: int) -> None:
        """Makes the folder if there is none; files begin with `prefix` and `first_step`, that of this run.

        Raises:
          ValueError: if there cannot be such a folder.
        """
        self.path, self.prefix, self.first_step = path, prefix, first_step
        with os_errors_as_value_error("folder must be one", path):
            path.mkdir(parents=True, exist_ok=True)
        self._file: Path | None = None  # until `open`
        self._lock: TextIO | None = None
        self._number = next(_NUMBERS)
        self._read_positions: dict[Path, tuple[bytes, int]] = {}  # how a file began, and up to where it was read

    def open(self, worker: int) -> None:
        """Makes the file of this process, with nothing but its head; until `close` no other may write as this worker.

        A run from a step N > 0 takes the place of those from that step and from later ones: their files get other
        names, unless a process that still runs writes to them.

        Raises:
          ValueError: if the run begins with step 0, and there are files of another; if another process writes as this
            worker; if the folder cannot be written.
        """
        file = self.path / f"{self.prefix}.{self.first_step}.{worker}.csv"
        later_files = [other for other in self._files() if _first_step(other) > self.first_step]
        is_fresh = self.first_step == 0
        if is_fresh and (later_files or file.exists()):
            raise ValueError(
                f"A folder and a name are for one run and one wrapper; {[file, *later_files][-1]} is there already. "
                "Give another folder or name, or start=N to go on from step N."
            )
        with os_errors_as_value_error("folder must be one", file):
            self._lock = self._locked_file(worker)
            if self._lock is None:
                raise ValueError(
                    f"One process at a time writes as worker {worker} of '{self.prefix}' in {self.path}, and another "
                    "one does. Does the job that this one goes on from still run? Processes of one job are told apart "
                    "by jax.distributed.initialize()."
                )
            for other in [file, *later_files]:
                if not is_fresh and (_worker(other) == worker or self._is_free(_worker(other))):
                    with contextlib.suppress(FileNotFoundError):  # another process of this run may be faster
                        other.rename(other.with_suffix(".replaced"))
            with file.open("x" if is_fresh else "w") as stream:
                stream.write(_HEADER_LINE)
        self._file = file
        _WRITER_OF_FILE[file.resolve()] = self._number

    def _locked_file(self, worker: int) -> TextIO | None:
        """The file by which a process is known to write as this worker, locked until it is closed; None if one does.

        The lock is a record lock: it goes with the process, also if that has forked others, and a process gets its own
        again. Where the file system has none, nobody is told apart, and a warning says so.
        """
        stream = (self.path / f".{self.prefix}.{worker}.lock").open("a")
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in locks.HELD_ERRNOS:
                stream.close()
                return None
            try:
                locks.warn_of_missing_locks(error, self.path)
            except OSError:
                stream.close()
                raise
        return stream

    def _is_free(self, worker: int) -> bool:
        """Whether no other process writes as this worker, which is another one than that of this process."""
        lock = self._locked_file(worker)
        if lock is not None:
            lock.close()
        return lock is not None

    def append(self, rows: np.ndarray) -> None:
        """Appends float64[rows, 7] to the file of this process, at once; to 0.1 microseconds, empty cells for NaN.

        The columns are `_NAMES`; the first two, the worker and the number of the step, are whole numbers.

        Raises:
          ValueError: if another wrapper of this process has taken the place of this one, as when a cell of a notebook
            is run again.
        """
        rounded_rows = np.round(rows, 7)
        worker_and_step = [pa.array(rounded_rows[:, i].astype(np.int64)) for i in range(2)]
        columns = [*worker_and_step, *(pa.array(column, mask=np.isnan(column)) for column in rounded_rows.T[2:])]
        sink = pa.BufferOutputStream()
        csv.write_csv(pa.table(columns, names=_NAMES), sink, csv.WriteOptions(include_header=False))
        assert self._file is not None, "a process appends to its file once it is open"
        if _WRITER_OF_FILE[self._file.resolve()] != self._number:
            raise ValueError(
                f"A folder and a name are for one wrapper; another one writes {self._file} now, and this one no "
                "longer. Give each its own name."
            )
        self._file.parent.mkdir(parents=True, exist_ok=True)  # somebody may have removed it
        with self._file.open("ab") as stream:
            if not stream.tell():
                stream.write(_HEADER_LINE.encode())
            stream.write(sink.getvalue())

    def close(self) -> None:
        """Writes the trace of all processes; another process may write as this worker then."""
        if self._lock is not None:
            self._lock.close()
        if len(rows := self.all_rows()):
            with atomic_write(self.path / f"{self.prefix}.csv") as path:
                write_trace(path, _with_all_processes(joined_trace(rows)))

    def news(self) -> np.ndarray:
        """The rows that have come to the files of this run since the last call; damaged lines are left out."""
        return np.concatenate([empty_rows(), *(self._new_rows(file) for file in self._files(self.first_step))])

    def all_rows(self) -> np.ndarray:
        """float64[rows, 7]: of all runs, later ones last; steps that a later run measured again count there only."""
        rows = empty_rows()
        for first_step in sorted({_first_step(file) for file in self._files()}):
            rows_of_run = [_rows_of_lines(file.read_bytes()) for file in self._files(first_step)]
            rows_before = rows[rows[:, _STEP_COLUMN] < first_step]
            rows = np.concatenate([rows_before, *rows_of_run])
        return rows

    def _files(self, first_step: int | None = None) -> list[Path]:
        """The files of the run whose first step has this number, one of each process; of all runs if it is None."""
        start = r"\d+" if first_step is None else str(first_step)
        name = re.compile(rf"{re.escape(self.prefix)}\.{start}\.\d+\.csv")
        return sorted(file for file in self.path.glob("*.csv") if name.fullmatch(file.name))

    def _new_rows(self, file: Path) -> np.ndarray:
        """float64[rows, 7]: the whole lines after what was taken last time; all lines if the file is a new one.

        It is a new one if it is shorter than what was taken, or does not begin as it did then.
        """
        last_beginning, offset = self._read_positions.get(file, (b"", 0))  # bytes
        with file.open("rb") as stream:
            beginning = stream.read(_NUM_BEGINNING)
            is_same = stream.seek(0, 2) >= offset and beginning.startswith(last_beginning)
            offset = stream.seek(offset if is_same else 0)
            unread_bytes = stream.read()
        end_of_lines = unread_bytes.rfind(b"\n") + 1
        self._read_positions[file] = beginning, offset + end_of_lines
        return _rows_of_lines(unread_bytes[:end_of_lines])


def _first_step(file: Path) -> int:
    """The number of a run's first step, from the name of a file of the run: NAME.START.WORKER.csv."""
    return int(file.name.split(".")[-3])


def _worker(file: Path) -> int:
    """The number of the process that the file is of, from its name, as in `_first_step`."""
    return int(file.name.split(".")[-2])


def _rows_of_lines(csv_bytes: bytes) -> np.ndarray:
    """float64[rows, 7]: the lines that are whole and no head, and have numbers in all cells that are not empty."""
    csv_bytes = csv_bytes[: csv_bytes.rfind(b"\n") + 1].removeprefix(_HEADER_LINE.encode())
    if not csv_bytes:
        return empty_rows()
    try:
        rows = _table_of_lines(csv_bytes)
    except pa.ArrowInvalid:  # the end of a machine can leave anything in a file
        lines = [line for line in csv_bytes.splitlines(keepends=True) if _LINE.fullmatch(line)]
        rows = _table_of_lines(b"".join(lines)) if lines else empty_rows()
    # What is below 2**53 is whole in a float64.
    worker_and_unit = rows[:, :2]
    is_whole = (worker_and_unit >= 0) & (worker_and_unit == np.floor(worker_and_unit)) & (worker_and_unit < 2**53)
    return rows[is_whole.all(axis=1)]


def _table_of_lines(csv_bytes: bytes) -> np.ndarray:
    """float64[rows, 7] of lines without a head."""
    table = csv.read_csv(
        pa.py_buffer(csv_bytes),
        read_options=csv.ReadOptions(column_names=_NAMES, use_threads=False),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(_NAMES, pa.float64())),
    )
    return np.column_stack([table[name].to_numpy() for name in _NAMES])


def _with_all_processes(trace: Trace) -> Trace:
    """The trace with a column for each process up to the highest that has rows, as a file knows them by position."""
    worker_numbers = np.array(trace.workers, np.int64)

    def with_all_columns(seconds: np.ndarray) -> np.ndarray:
        """float64[T, processes], NaN for those without rows."""
        seconds_of_all = np.full((len(seconds), worker_numbers.max() + 1), np.nan)
        seconds_of_all[:, worker_numbers] = seconds
        return seconds_of_all

    communication = None if trace.communication is None else with_all_columns(trace.communication)
    names = tuple(map(str, range(worker_numbers.max() + 1)))
    return trace._replace(compute=with_all_columns(trace.compute), communication=communication, workers=names)
