"""What `gcjax trace describe --json` prints."""

from typing import Any

from gcjax.stragglers import Description


def of_description(description: Description) -> dict[str, Any]:
    """A description as an object; workers are their names, shares are in [0, 1], times are seconds."""
    names, verdict = description.workers, description.verdict
    return {
        "verdict": {
            "sentence": description.sentence,
            **verdict._asdict(),
            "workers": [names[worker] for worker in verdict.workers],
        },
        "first_step": description.steps[0],
        "last_step": description.steps[1],
        "num_steps": description.num_steps,
        "num_workers": len(names),
        "is_relative": description.is_relative,
        "statistics": _statistics(description),
        "slowdown": _slowdown(description),
        "decomposition": description.decomposition._asdict(),
        "communication": None if description.communication is None else description.communication._asdict(),
        "workers": _workers(description),
        "spells": [_named(spell, names) for spell in description.spells],
        "changes": [_named(change, names) for change in description.changes],
        "slow_steps": [slow._asdict() for slow in description.slow_steps],
        "failures": [{"worker": names[worker], "step": step} for worker, step in description.failures],
        "reading": {
            **_named_reading(description),
            "sentences": description.reading_sentences,
        },
    }


def _statistics(description: Description) -> dict[str, Any]:
    """The statistics of all workers together."""
    values = description.statistics._asdict()
    tail, slowest = values.pop("tail"), values.pop("slowest_over_median")
    common = {name: value for name, value in values.items() if not name.startswith("worker_")}
    return {
        **common,
        "tail": dict(zip(("p95", "p99", "max"), tail, strict=True)),
        "slowest_over_median": dict(zip(("median", "p95"), slowest, strict=True)),
    }


def _slowdown(description: Description) -> dict[str, Any]:
    """What-if, without the numbers of each worker."""
    slowdown = description.slowdown
    return {
        "seconds": slowdown.seconds,
        "ideal_seconds": slowdown.ideal_seconds,
        "total": slowdown.total,
        "slowest": [description.workers[worker] for worker in slowdown.slowest],
        "explained": slowdown.explained,
    }


def _workers(description: Description) -> list[dict[str, Any]]:
    """The numbers of each worker."""
    statistics, slowdown = description.statistics, description.slowdown
    columns = zip(
        description.workers,
        statistics.worker_median.tolist(),
        statistics.worker_slow_probability.tolist(),
        slowdown.without.tolist(),
        slowdown.alone.tolist(),
        strict=True,
    )
    heads = ("worker", "median", "slow_probability", "slowdown_without", "slowdown_alone")
    return [dict(zip(heads, row, strict=True)) for row in columns]


def _named(event: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """A spell or a change with the name of its worker; null for all workers together."""
    return {**event._asdict(), "worker": None if event.worker is None else names[event.worker]}


def _named_reading(description: Description) -> dict[str, Any]:
    """What the reader did, with names of workers."""
    reading = description.reading
    joined, left = ([description.workers[worker] for worker in group] for group in (reading.joined, reading.left))
    return {**reading._asdict(), "joined": joined, "left": left}
