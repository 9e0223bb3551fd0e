"""The description of a trace: its type, and the function that makes it.

Letters: T steps, W workers.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.base import Reading, Trace, trace_of_array
from gcjax.stragglers.traces.description import words
from gcjax.stragglers.traces.description.decomposition import Decomposition, decomposition
from gcjax.stragglers.traces.description.levels import Level, levels, shared_levels
from gcjax.stragglers.traces.description.slow_steps import SlowStep, slow_steps
from gcjax.stragglers.traces.description.slowdown import Slowdown, slowdown
from gcjax.stragglers.traces.description.spells import Spell, spells
from gcjax.stragglers.traces.description.statistics import Statistics, statistics
from gcjax.stragglers.traces.description.step_times import step_times
from gcjax.stragglers.traces.description.verdict import Verdict, verdict

_MOST_SECONDS = 1e150  # whose squares can still be added up


class Change(NamedTuple):
    """A step from which on a worker is slower or faster than it was.

    Attributes:
      worker: its number; None if the median of all workers changes.
      step: the number of the first step after the change.
      ratio_before: the median of the worker's times over their step's median, since its last change; for all workers
        the median of the steps' medians over that of all steps.
      ratio_after: the same up to its next change.
    """

    worker: int | None
    step: int
    ratio_before: float
    ratio_after: float


class Communication(NamedTuple):
    """What workers communicate and wait.

    Attributes:
      median: seconds, over all times.
      share_of_time: of communicating and waiting in the time of computing, communicating and waiting, over all workers.
      least_share_of_time: the same where in each step only the shortest time of communicating counts, that of a worker
        that waits for nobody, and the longest time of computing.
    """

    median: float
    share_of_time: float
    least_share_of_time: float


class Description(NamedTuple):
    """What a trace says.

    Attributes:
      sentence: the verdict in words.
      caution: empty, or that there are too few steps for a verdict on workers.
      verdict: who is slow, and what it costs.
      statistics: medians, tails, probabilities, correlations.
      slowdown: what the job would take if some workers were at the median.
      decomposition: what of the lost time is in slow spells, shared, passing.
      spells: from when to when who was slow.
      changes: of workers, and of all together, in the order of steps.
      slow_steps: single steps in which all workers are slow at once.
      communication: None if it is not known.
      failures: (number of the worker, number of the step from which on it failed).
      steps: the numbers of the first and of the last step.
      num_steps: T.
      workers: the names of the W workers.
      reading: what the reader did.
      reading_sentences: the same in words.
      is_relative: whether times are only known up to a factor.
    """

    sentence: str
    caution: str
    verdict: Verdict
    statistics: Statistics
    slowdown: Slowdown
    decomposition: Decomposition
    spells: tuple[Spell, ...]
    changes: tuple[Change, ...]
    slow_steps: tuple[SlowStep, ...]
    communication: Communication | None
    failures: tuple[tuple[int, int], ...]
    steps: tuple[int, int]
    num_steps: int
    workers: tuple[str, ...]
    reading: Reading
    reading_sentences: tuple[str, ...]
    is_relative: bool


def _check_can_be_added_up(trace: Trace) -> None:
    """Raises `ValueError` if a time is so long that sums and squares of such times are no numbers any more."""
    tables = [table for table in (trace.compute, trace.communication) if table is not None]
    longest = max((float(table.max(initial=0, where=np.isfinite(table))) for table in tables), default=0.0)
    if longest > _MOST_SECONDS:
        raise ValueError(
            f"times must be at most {_MOST_SECONDS:g} s; got {longest:g} s. Are they in another unit? Give scale= "
            "(--scale)."
        )


def describe(trace: Trace | np.ndarray) -> Description:
    """Who is slow in a trace, since when, whether it stays, what it costs; and the figures behind it.

    Cells that were not measured (NaN) and those of failed workers (inf) count nowhere but in `reading` and `failures`.

    Args:
      trace: as `read_trace` gives it; or float[T, W] seconds, NaN where not measured, inf for a failed worker.

    Raises:
      ValueError: if it has no finite time above 0, or one too long to be added up, or the array is not of this form.

    Example:
      >>> seconds = np.tile([1.0, 1.0, 1.0, 1.5], (50, 1))
      >>> gcjax.stragglers.describe(seconds).verdict.workers
      (3,)
    """
    if not isinstance(trace, Trace):
        trace = trace_of_array(trace)
    _check_can_be_added_up(trace)
    times = step_times(trace)
    worker_levels = levels(times)
    lost_time = decomposition(times, worker_levels)
    all_spells = spells(worker_levels, times.steps)
    trace_verdict = verdict(times, all_spells, lost_time)
    step_levels = shared_levels(times)
    steps_slow_for_all = slow_steps(times, step_levels)
    failures = _failures(trace)
    trace_slowdown = slowdown(times)
    return Description(
        sentence=words.sentence(
            trace_verdict,
            all_spells,
            steps_slow_for_all,
            failures,
            trace.workers,
            trace_slowdown,
            step_levels,
            times.steps,
        ),
        caution=words.caution(len(times.steps), len(trace.workers), trace.reading.layout),
        verdict=trace_verdict,
        statistics=statistics(times),
        slowdown=trace_slowdown,
        decomposition=lost_time,
        spells=tuple(all_spells),
        changes=_changes([*step_levels, *worker_levels], times.steps),
        slow_steps=steps_slow_for_all,
        communication=_communication(trace),
        failures=failures,
        steps=(int(trace.steps[0]), int(trace.steps[-1])),
        num_steps=len(trace.steps),
        workers=trace.workers,
        reading=trace.reading,
        reading_sentences=tuple(words.reading_sentences(trace, failures)),
        is_relative=trace.is_relative,
    )


def _changes(all_levels: Sequence[Level], steps: np.ndarray) -> tuple[Change, ...]:
    """The changes between one level and the next of each worker (or of all, worker None), in the order of steps.

    The levels of a worker follow one another in `all_levels`; `steps int64[T]` are the numbers of the rows.
    """
    changes = [
        Change(
            worker=level_after.worker,
            step=int(steps[level_after.first_row]),
            ratio_before=level_before.median_ratio,
            ratio_after=level_after.median_ratio,
        )
        for level_before, level_after in pairwise(all_levels)
        if level_before.worker == level_after.worker
    ]
    return tuple(sorted(changes, key=lambda change: change.step))


def _failures(trace: Trace) -> tuple[tuple[int, int], ...]:
    """(worker, number of the step) for each worker that failed: the first step that it did not end (inf)."""
    is_failed = np.isinf(trace.compute)
    failed_workers = np.flatnonzero(is_failed.any(axis=0))
    return tuple((int(worker), int(trace.steps[is_failed[:, worker].argmax()])) for worker in failed_workers)


def _communication(trace: Trace) -> Communication | None:
    """How long communicating takes, over the cells [T, W] where its time and that of computing are known.

    None if there are none. The least share takes the shortest time of communicating of a step: the rest is waiting.
    """
    if trace.communication is None:
        return None
    is_known = np.isfinite(trace.compute) & np.isfinite(trace.communication)
    if not is_known.any():
        return None
    compute, communication = trace.compute[is_known], trace.communication[is_known]
    is_known_step = is_known.any(axis=1)
    shortest_communication = np.where(is_known, trace.communication, np.inf).min(axis=1)[is_known_step].sum()
    longest_compute = np.where(is_known, trace.compute, 0).max(axis=1)[is_known_step].sum()
    return Communication(
        median=float(np.median(communication)),
        share_of_time=_share_of_communicating(communication.sum(), compute.sum()),
        least_share_of_time=_share_of_communicating(shortest_communication, longest_compute),
    )


def _share_of_communicating(communicating: float, computing: float) -> float:
    """The share of the seconds of communicating in those of both, NaN of nothing."""
    return float(communicating / (communicating + computing)) if communicating + computing > 0 else np.nan
