"""What `gcjax trace describe` prints: the verdict, then tables of figures, of workers and of changes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.text import Text

from gcjax.stragglers import Description
from gcjax.tables import RichTable
from gcjax.wording import counted

_MAX_SLOWEST_NAMES = 4
_MAX_ROWS = 20
"""Of the tables of workers and of changes; `--json` has all."""


def printed_parts(description: Description) -> Iterator[Any]:
    """The texts and tables that are printed, one below the other."""
    yield Text(description.sentence, style="bold")
    if description.caution:
        yield Text(f"Caution: {description.caution}")
    yield Text("\n" + "\n".join(description.reading_sentences) + "\n")
    yield _statistics_table(description)
    yield Text()
    yield _workers_table(description)
    if description.changes:
        yield Text()
        yield _changes_table(description)


def _statistics_table(description: Description) -> RichTable:
    """The figures of all workers together."""
    first_step, last_step = description.steps
    num_steps, num_workers = counted(description.num_steps, "step"), counted(len(description.workers), "worker")
    title = f"{num_steps} ({first_step} to {last_step}) of {num_workers}"
    rows = [
        *_time_rows(description),
        *_slow_rows(description),
        *_lost_time_rows(description),
        *_communication_rows(description),
    ]
    return RichTable(title, ["figure", "value"], [[name, value] for name, value in rows])


def _time_rows(description: Description) -> Iterator[tuple[str, str]]:
    """(figure, value) in text, of medians and tails of the times."""
    statistics = description.statistics
    yield "median time", _seconds_text(statistics.median, description)
    yield "time over the step's median: 95 %, 99 %, largest", ", ".join(map(number_text, statistics.tail_over_median))
    yield "slowest over the step's median: median, 95 %", ", ".join(map(number_text, statistics.slowest_over_median))


def _slow_rows(description: Description) -> Iterator[tuple[str, str]]:
    """(figure, value) in text, of probabilities of slow units, and correlations."""
    statistics = description.statistics
    yield "P(slow): over 1.5 times the step's median", number_text(statistics.slow_probability)
    yield "P(slow | slow in the step before)", number_text(statistics.slow_again_probability)
    if description.slow_steps:
        yield "steps in which even the fastest worker was slow", f"{len(description.slow_steps):,}"
    yield "correlation between workers", number_text(statistics.correlation)
    yield "correlation of a worker with its step before", number_text(statistics.serial_correlation)


def _lost_time_rows(description: Description) -> Iterator[tuple[str, str]]:
    """(figure, value) in text, of the slowdown and the parts of the time lost."""
    slowdown, decomposition = description.slowdown, description.decomposition
    shown_names = ", ".join(description.workers[worker] for worker in slowdown.slowest[:_MAX_SLOWEST_NAMES])
    num_more = len(slowdown.slowest) - _MAX_SLOWEST_NAMES
    worker_names = f"{shown_names} and {num_more:,} more" if num_more > 0 else shown_names
    yield "slowdown S against everybody at the median", number_text(slowdown.total_ratio)
    yield f"share that the slowest 3 % explain (worker {worker_names})", _percent_text(slowdown.share_of_slowest)
    shares = decomposition.spell_share, decomposition.shared_share, decomposition.passing_share
    yield "time lost: in slow spells, shared, passing", ", ".join(map(_percent_text, shares))


def _communication_rows(description: Description) -> Iterator[tuple[str, str]]:
    """(figure, value) in text, of how long communicating takes, if that is known."""
    communication = description.communication
    if communication is not None:
        yield "median time of communicating and waiting", _seconds_text(communication.median, description)
        yield (
            "its share of a worker's time, of an iteration without waiting",
            (f"{_percent_text(communication.share_of_time)}, {_percent_text(communication.least_share_of_time)}"),
        )


def _workers_table(description: Description) -> RichTable:
    """The workers, those first that would slow the job down most by themselves; S is a slowdown of the job."""
    statistics, slowdown = description.statistics, description.slowdown
    slowest_first = np.argsort(-slowdown.ratio_of_worker_alone, kind="stable")
    rows = [
        [
            description.workers[worker],
            _seconds_text(statistics.worker_median[worker], description),
            number_text(statistics.worker_slow_probability[worker]),
            number_text(slowdown.ratio_without_worker[worker]),
            number_text(slowdown.ratio_of_worker_alone[worker]),
        ]
        for worker in slowest_first[:_MAX_ROWS]
    ]
    heads = ["worker", "median time", "P(slow)", "S if it were at the median", "S if all others were"]
    return RichTable("Workers", heads, rows, caption=_cut_note(len(slowest_first)))


def _changes_table(description: Description) -> RichTable:
    """The changes of workers' levels, `_MAX_ROWS` of the largest, in the order of steps; "all": of all together.

    Levels are times over the median, before and after; a change is as large as their ratio, up or down.
    """
    sizes = np.array([abs(np.log(change.ratio_after / change.ratio_before)) for change in description.changes])
    indices_of_largest = sorted(np.argsort(-sizes, kind="stable")[:_MAX_ROWS].tolist())
    largest_changes = [description.changes[index] for index in indices_of_largest]
    rows = [
        [
            str(change.step),
            "all" if change.worker is None else description.workers[change.worker],
            number_text(change.ratio_before),
            number_text(change.ratio_after),
        ]
        for change in largest_changes
    ]
    heads = ["from step", "worker", "times the median before", "after"]
    caption = _cut_note(len(sizes), which_rows="The largest")
    return RichTable("Changes", heads, rows, num_key_columns=2, caption=caption)


def _cut_note(num_rows: int, which_rows: str = "The slowest") -> str | None:
    """What is said below a table that is cut."""
    return f"{which_rows} {_MAX_ROWS} of {num_rows:,}; --json has all." if num_rows > _MAX_ROWS else None


def _seconds_text(value: float, description: Description) -> str:
    """A time with its unit; there is none if times are known up to a factor only."""
    return number_text(value) if description.is_relative or np.isnan(value) else f"{value:.4g} s"


def number_text(value: float) -> str:
    """A number, or a dash where there is none."""
    return "-" if np.isnan(value) else f"{value:.3g}"


def _percent_text(value: float) -> str:
    """A share, or a dash where there is none."""
    return "-" if np.isnan(value) else f"{100 * value:.3g} %"
