"""The type of traces: what a job was measured to take.

Letters: T steps (or units of work), W workers.
"""

from typing import Any, NamedTuple

import numpy as np

from gcjax.wording import counted

MAX_CELLS_PER_ROW = 100
"""At most so many cells of the array for each row of a file: a wrong number must not ask for all of the memory."""


LEAST_SECONDS, MOST_SECONDS = 1e-12, 1e12


class Reading(NamedTuple):
    """What was read, and what was done about what is not there or is there twice.

    Attributes:
      layout: the name of the layout of the file.
      num_rows: rows read.
      num_duplicates: times of a step and worker that a later row has replaced: a worker that goes on from a checkpoint
        measures some steps again.
      num_gaps: cells without a time between a worker's first and its last; they are NaN.
      num_missing_steps: numbers between the first and the last step that no row has; they get no row of the trace.
      workers_joined_late: workers, by number, whose first time is later than the first step.
      workers_left_early: workers whose last time is before the last step.
      num_incomplete: cells of a table of operations that have rows of some pipeline stages, and not of all.
    """

    layout: str
    num_rows: int
    num_duplicates: int
    num_gaps: int
    num_missing_steps: int
    workers_joined_late: tuple[int, ...]
    workers_left_early: tuple[int, ...]
    num_incomplete: int = 0


class Trace(NamedTuple):
    """What a job was measured to take.

    Attributes:
      compute: float64[T, W] seconds that a step took a worker; NaN where not measured, inf from which on it failed.
      communication: float64[T, W] seconds that it communicated and waited for others, or None if that is not known.
      steps: int64[T], the numbers of the steps as recorded, increasing.
      workers: the names of the workers, W of them.
      is_relative: whether times are only known up to a factor; the median of the whole file is then 1.
      reading: what the reader did.
    """

    compute: np.ndarray
    communication: np.ndarray | None
    steps: np.ndarray
    workers: tuple[str, ...]
    is_relative: bool
    reading: Reading

    def between(self, first: int | None = None, end: int | None = None) -> "Trace":
        """The trace of its steps from one number on, and before another, as a slice has them; None: no limit.

        What `reading` counts of rows stays that of the whole file; gaps and who has joined or left are of these steps.
        A worker without a time in them is still one of the trace.

        Args:
          first: the number of the first step, as recorded.
          end: the number of the first step after them.

        Raises:
          ValueError: if the trace has no such step.
        """
        is_between = np.ones(len(self.steps), bool)
        if first is not None:
            is_between &= self.steps >= first
        if end is not None:
            is_between &= self.steps < end
        if not is_between.any():
            wanted = f"{'' if first is None else first}:{'' if end is None else end}"
            raise ValueError(
                f"the trace has no steps {wanted} (from the first number on, and before the second); its steps are "
                f"{self.steps[0]} to {self.steps[-1]}."
            )
        compute, steps = self.compute[is_between], self.steps[is_between]
        reading = _reading(
            compute,
            self.reading.layout,
            num_rows=self.reading.num_rows,
            num_duplicates=self.reading.num_duplicates,
            num_missing_steps=int(steps[-1] - steps[0] + 1 - len(steps)),
        )
        return self._replace(
            compute=compute,
            communication=None if self.communication is None else self.communication[is_between],
            steps=steps,
            reading=reading._replace(num_incomplete=self.reading.num_incomplete),
        )


def trace_of_array(compute: Any, communication: Any = None, *, layout: str = "array") -> Trace:
    """The trace of measured times, with numbers from 0 for steps and workers.

    Args:
      compute: float[T, W] seconds, NaN where not measured, inf for a failed worker.
      communication: float[T, W] seconds, NaN where not measured; or None.
      layout: the form of the input in words, which `Trace.reading` repeats.

    Raises:
      ValueError: if an array is not of this form.
    """
    compute = trace_array(compute).astype(np.float64)
    if communication is not None:
        communication = trace_array(communication).astype(np.float64)
        if communication.shape != compute.shape:
            raise ValueError(
                f"compute and communication must have one shape; got {compute.shape} and {communication.shape}."
            )
    num_steps, num_workers = compute.shape
    worker_names = tuple(str(worker) for worker in range(num_workers))
    reading = _reading(compute, layout, num_rows=num_steps, num_duplicates=0, num_missing_steps=0)
    steps = np.arange(num_steps)
    return Trace(compute, communication, steps, worker_names, is_relative=False, reading=reading)


def trace_of_rows(
    layout: str,
    worker: np.ndarray,
    step: np.ndarray,
    compute: np.ndarray,
    communication: np.ndarray | None = None,
    *,
    workers: tuple[str, ...],
    is_relative: bool = False,
    num_rows: int | None = None,
) -> Trace:
    """The trace of a table with a row for a step of a worker, in any order.

    The last row for a cell counts. A step that no row has gets no row of the trace.

    Args:
      layout: the form of the input in words, which `Trace.reading` repeats.
      worker: int64[rows], the index of the row's worker in `workers`.
      step: int64[rows], any numbers.
      compute: float64[rows] seconds.
      communication: float64[rows] seconds, or None.
      workers: the names, W of them; each has a row.
      is_relative: as in `Trace`.
      num_rows: of the file, if several of these rows were one there.

    Raises:
      ValueError: if less than one in 100 of the cells has a row, or a time is negative.
    """
    steps = distinct(step)
    num_cells = len(steps) * len(workers)
    if num_cells > MAX_CELLS_PER_ROW * len(step):
        raise ValueError(
            f"a trace must have a row for at least one in {MAX_CELLS_PER_ROW} of the steps of its workers; there are "
            f"{len(steps)} steps and {len(workers)} workers, but {len(step)} rows. Is a number wrong?"
        )
    cell_of_row = np.searchsorted(steps, step) * len(workers) + worker  # int64[rows]
    has_row = np.zeros(num_cells, bool)
    has_row[cell_of_row] = True

    def by_step_and_worker(seconds_of_row: np.ndarray) -> np.ndarray:
        """float64[T, W] of float64[rows]: NaN where there is no row; of several rows for a cell the last one counts."""
        seconds = np.full(num_cells, np.nan)
        seconds[cell_of_row] = seconds_of_row
        return trace_array(seconds.reshape(len(steps), len(workers)))

    compute_table = by_step_and_worker(compute)
    communication_table = None if communication is None else by_step_and_worker(communication)
    reading = _reading(
        compute_table,
        layout,
        num_rows=num_rows or len(step),
        num_duplicates=len(step) - int(has_row.sum()),
        num_missing_steps=int(steps[-1] - steps[0] + 1 - len(steps)),
    )
    return Trace(compute_table, communication_table, steps, workers, is_relative, reading)


def distinct(values: np.ndarray) -> np.ndarray:
    """The different values of an array of integers, in order; in a time linear in the array where they lie close.

    They do if their range is below four times their number.
    """
    lowest, highest = int(values.min()), int(values.max())
    is_sparse = highest - lowest >= 4 * len(values)
    if is_sparse:
        return np.unique(values)
    is_present = np.zeros(highest - lowest + 1, bool)
    is_present[values - lowest] = True
    return np.flatnonzero(is_present) + lowest


def trace_array(seconds: Any) -> np.ndarray:
    """The array as float[T, W] of seconds >= 0, inf, or NaN; raises `ValueError` if it is no such array."""
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


def _reading(
    compute: np.ndarray, layout: str, *, num_rows: int, num_duplicates: int, num_missing_steps: int
) -> Reading:
    """What a reader says of times float64[T, W], NaN where not measured; it knows these counts.

    A worker without a time has no gaps, has not joined late and not left early.
    """
    is_measured = ~np.isnan(compute)
    num_steps, has_time = len(compute), is_measured.any(axis=0)
    # int64[W], rows; those of a worker without a time are out of order, so that it has 0 steps between.
    first_measured = np.where(has_time, is_measured.argmax(axis=0), num_steps)
    last_measured = np.where(has_time, num_steps - 1 - is_measured[::-1].argmax(axis=0), -1)
    num_steps_between = (last_measured - first_measured + 1).clip(0)  # int64[W], the first and the last among them
    num_gaps = int(num_steps_between.sum() - is_measured.sum())
    return Reading(
        layout=layout,
        num_rows=num_rows,
        num_duplicates=num_duplicates,
        num_gaps=num_gaps,
        num_missing_steps=num_missing_steps,
        workers_joined_late=tuple(np.flatnonzero((first_measured > 0) & has_time).tolist()),
        workers_left_early=tuple(np.flatnonzero((last_measured < num_steps - 1) & has_time).tolist()),
    )


def check_single_precision(seconds: np.ndarray) -> None:
    """Raises `ValueError` if there are times above 0 that are too long or short for what computes in float32."""
    times = seconds[np.isfinite(seconds) & (seconds > 0)]
    if times.size and not (times.min() >= LEAST_SECONDS and times.max() <= MOST_SECONDS):
        raise ValueError(
            f"times to simulate must be 0, or {LEAST_SECONDS:g} to {MOST_SECONDS:g} s, since simulations are in single "
            f"precision; got {times.min():g} to {times.max():g} s. Are they in another unit? Give scale= (--scale)."
        )


def sentence_on_missing_steps(num_missing_steps: int) -> str:
    """That steps count as consecutive where so many numbers between the first and the last have no row."""
    numbers = counted(num_missing_steps, "number")
    return f"Without a row, between the first and the last step: {numbers}; steps count as consecutive."
