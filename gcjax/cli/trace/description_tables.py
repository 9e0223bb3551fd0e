"""What `gcjax trace describe` prints: the verdict, then tables of figures, of workers and of changes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.text import Text

from gcjax.stragglers import Description
from gcjax.tables import RichTable, rich_table
from gcjax.wording import counted

_MAX_ROWS = 20
"""Of the tables of workers and of changes; `--json` has all."""


def parts(description: Description) -> Iterator[Any]:
    """What is printed, one below the other."""
    yield Text(description.sentence, style="bold")
    yield Text("\n" + "\n".join(description.reading_sentences) + "\n")
    yield _figures(description)
    yield Text()
    yield _workers(description)
    if description.changes:
        yield Text()
        yield _changes(description)


def _figures(description: Description) -> RichTable:
    """The figures of all workers together."""
    first, last = description.steps
    num_steps, num_workers = counted(description.num_steps, "step"), counted(len(description.workers), "worker")
    title = f"{num_steps} ({first} to {last}) of {num_workers}"
    rows = [*_times(description), *_slow(description), *_lost(description), *_communication(description)]
    return rich_table(title, ["figure", "value"], [[name, value] for name, value in rows])


def _times(description: Description) -> Iterator[tuple[str, str]]:
    """Medians and tails."""
    statistics = description.statistics
    yield "median time", _seconds(statistics.median, description)
    yield "time over the step's median: 95 %, 99 %, largest", ", ".join(map(_number, statistics.tail))
    yield "slowest over the step's median: median, 95 %", ", ".join(map(_number, statistics.slowest_over_median))


def _slow(description: Description) -> Iterator[tuple[str, str]]:
    """Probabilities and correlations."""
    statistics = description.statistics
    yield "P(slow): over 1.5 times the step's median", _number(statistics.slow_probability)
    yield "P(slow | slow in the step before)", _number(statistics.slow_again_probability)
    if description.slow_steps:
        yield "steps in which even the fastest worker was slow", f"{len(description.slow_steps):,}"
    yield "correlation between workers", _number(statistics.correlation)
    yield "correlation of a worker with its step before", _number(statistics.serial_correlation)


def _lost(description: Description) -> Iterator[tuple[str, str]]:
    """The slowdown and its parts."""
    slowdown, lost = description.slowdown, description.decomposition
    names = ", ".join(description.workers[worker] for worker in slowdown.slowest[:4])
    more = len(slowdown.slowest) - 4
    names += f" and {more:,} more" if more > 0 else ""
    yield "slowdown S against everybody at the median", _number(slowdown.total)
    yield f"share that the slowest 3 % explain (worker {names})", _percent(slowdown.explained)
    yield (
        "time lost: persistent, shared, passing",
        f"{_percent(lost.persistent)}, {_percent(lost.shared)}, {_percent(lost.passing)}",
    )


def _communication(description: Description) -> Iterator[tuple[str, str]]:
    """What is communicated, if that is known."""
    communication = description.communication
    if communication is not None:
        yield "median time of communicating and waiting", _seconds(communication.median, description)
        yield (
            "its share of a worker's time, of an iteration without waiting",
            (f"{_percent(communication.share)}, {_percent(communication.least_share)}"),
        )


def _workers(description: Description) -> RichTable:
    """The workers, those first that would slow the job down most by themselves."""
    statistics, slowdown = description.statistics, description.slowdown
    order = np.argsort(-slowdown.alone, kind="stable")
    rows = [
        [
            description.workers[worker],
            _seconds(statistics.worker_median[worker], description),
            _number(statistics.worker_slow_probability[worker]),
            _number(slowdown.without[worker]),
            _number(slowdown.alone[worker]),
        ]
        for worker in order[:_MAX_ROWS]
    ]
    heads = ["worker", "median time", "P(slow)", "S if it were at the median", "S if all others were"]
    return rich_table("Workers", heads, rows, caption=_more(len(order)))


def _changes(description: Description) -> RichTable:
    """The changes, the largest of them, in the order of steps."""
    sizes = [abs(np.log(change.after / change.before)) for change in description.changes]
    largest = sorted(np.argsort(-np.array(sizes), kind="stable")[:_MAX_ROWS].tolist())
    rows = [
        [
            str(change.step),
            "all" if change.worker is None else description.workers[change.worker],
            _number(change.before),
            _number(change.after),
        ]
        for change in (description.changes[index] for index in largest)
    ]
    heads = ["from step", "worker", "times the median before", "after"]
    caption = _more(len(sizes), "The largest")
    return rich_table("Changes", heads, rows, keys=2, caption=caption)


def _more(number: int, which: str = "The slowest") -> str | None:
    """What is said below a table that is cut."""
    return f"{which} {_MAX_ROWS} of {number:,}; --json has all." if number > _MAX_ROWS else None


def _seconds(value: float, description: Description) -> str:
    """A time with its unit; there is none if times are known up to a factor only."""
    return _number(value) if description.is_relative or np.isnan(value) else f"{value:.4g} s"


def _number(value: float) -> str:
    """A number, or a dash where there is none."""
    return "-" if np.isnan(value) else f"{value:.3g}"


def _percent(value: float) -> str:
    """A share, or a dash where there is none."""
    return "-" if np.isnan(value) else f"{100 * value:.3g} %"
