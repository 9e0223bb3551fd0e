"""What `gcjax trace describe --json` prints."""

from typing import Any

from gcjax.stragglers import Description


def whole_description_json(description: Description) -> dict[str, Any]:
    """A description as an object; workers are their names, shares are in [0, 1], times are seconds."""
    worker_names, verdict = description.workers, description.verdict
    first_step, last_step = description.steps
    return {
        "verdict": {
            "sentence": description.sentence,
            **verdict._asdict(),
            "workers": [worker_names[worker] for worker in verdict.workers],
        },
        "first_step": first_step,
        "last_step": last_step,
        "num_steps": description.num_steps,
        "num_workers": len(worker_names),
        "is_relative": description.is_relative,
        "statistics": _statistics_json(description),
        "slowdown": _slowdown_json(description),
        "decomposition": description.decomposition._asdict(),
        "communication": None if description.communication is None else description.communication._asdict(),
        "workers": _workers_json(description),
        "spells": [_with_worker_name(spell, worker_names) for spell in description.spells],
        "changes": [_with_worker_name(change, worker_names) for change in description.changes],
        "slow_steps": [slow._asdict() for slow in description.slow_steps],
        "failures": [{"worker": worker_names[worker], "step": step} for worker, step in description.failures],
        "reading": {
            **_reading_with_worker_names(description),
            "sentences": description.reading_sentences,
        },
    }


def _statistics_json(description: Description) -> dict[str, Any]:
    """The statistics of all workers together."""
    statistics = description.statistics._asdict()
    tail, slowest_over_median = statistics.pop("tail"), statistics.pop("slowest_over_median")
    of_all_workers = {name: value for name, value in statistics.items() if not name.startswith("worker_")}
    return {
        **of_all_workers,
        "tail": dict(zip(("p95", "p99", "max"), tail, strict=True)),
        "slowest_over_median": dict(zip(("median", "p95"), slowest_over_median, strict=True)),
    }


def _slowdown_json(description: Description) -> dict[str, Any]:
    """What-if, without the numbers of each worker."""
    slowdown = description.slowdown
    return {
        "seconds": slowdown.seconds,
        "ideal_seconds": slowdown.ideal_seconds,
        "total": slowdown.total,
        "slowest": [description.workers[worker] for worker in slowdown.slowest],
        "explained": slowdown.explained,
    }


def _workers_json(description: Description) -> list[dict[str, Any]]:
    """The numbers of each worker."""
    statistics, slowdown = description.statistics, description.slowdown
    rows = zip(
        description.workers,
        statistics.worker_median.tolist(),
        statistics.worker_slow_probability.tolist(),
        slowdown.without.tolist(),
        slowdown.alone.tolist(),
        strict=True,
    )
    heads = ("worker", "median", "slow_probability", "slowdown_without", "slowdown_alone")
    return [dict(zip(heads, row, strict=True)) for row in rows]


def _with_worker_name(spell_or_change: Any, worker_names: tuple[str, ...]) -> dict[str, Any]:
    """A spell or a change with the name of its worker; null for all workers together."""
    worker = spell_or_change.worker
    return {**spell_or_change._asdict(), "worker": None if worker is None else worker_names[worker]}


def _reading_with_worker_names(description: Description) -> dict[str, Any]:
    """What the reader did, with names of workers."""
    reading = description.reading
    names_of_joined = [description.workers[worker] for worker in reading.joined]
    names_of_left = [description.workers[worker] for worker in reading.left]
    return {**reading._asdict(), "joined": names_of_joined, "left": names_of_left}
