"""What `gcjax trace describe --json` prints."""

from typing import Any

from gcjax.stragglers import Description
from gcjax.stragglers.traces.description.base import Change
from gcjax.stragglers.traces.description.spells import Spell


def whole_description_json(description: Description) -> dict[str, Any]:
    """A description as an object; workers are their names, shares are in [0, 1], times are seconds."""
    worker_names, verdict = description.workers, description.verdict
    first_step, last_step = description.steps
    return {
        "verdict": {
            "sentence": description.sentence,
            **verdict._asdict(),
            "workers": [worker_names[worker] for worker in verdict.workers],
            "other_workers": [worker_names[worker] for worker in verdict.other_workers],
        },
        "caution": description.caution,
        "first_step": first_step,
        "last_step": last_step,
        "num_steps": description.num_steps,
        "num_workers": len(worker_names),
        "is_relative": description.is_relative,
        "statistics": _statistics_json(description),
        "slowdown": _slowdown_json(description),
        "decomposition": description.decomposition._asdict(),
        "communication": description.communication and description.communication._asdict(),
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
    """The statistics of all workers together; tails and slowest times are over the median of their step."""
    statistics = description.statistics._asdict()
    of_all_workers = {name: value for name, value in statistics.items() if not name.startswith("worker_")}
    return {
        **of_all_workers,
        "tail_over_median": dict(zip(("p95", "p99", "max"), statistics["tail_over_median"], strict=True)),
        "slowest_over_median": dict(zip(("median", "p95"), statistics["slowest_over_median"], strict=True)),
    }


def _slowdown_json(description: Description) -> dict[str, Any]:
    """What the job takes, and would take with everybody at the median of each step; without the numbers of workers."""
    slowdown = description.slowdown
    of_all_workers = ("total_seconds", "ideal_seconds", "total_ratio", "share_of_slowest")
    return {
        **{name: getattr(slowdown, name) for name in of_all_workers},
        "slowest": [description.workers[worker] for worker in slowdown.slowest],
    }


def _workers_json(description: Description) -> list[dict[str, Any]]:
    """Each worker's name, median seconds, P(slow), and slowdowns of the job without its delays, and with only these."""
    statistics, slowdown = description.statistics, description.slowdown
    rows = zip(
        description.workers,
        statistics.worker_median.tolist(),
        statistics.worker_slow_probability.tolist(),
        slowdown.ratio_without_worker.tolist(),
        slowdown.ratio_of_worker_alone.tolist(),
        strict=True,
    )
    heads = ("worker", "median", "slow_probability", "ratio_without_worker", "ratio_of_worker_alone")
    return [dict(zip(heads, row, strict=True)) for row in rows]


def _with_worker_name(spell_or_change: Spell | Change, worker_names: tuple[str, ...]) -> dict[str, Any]:
    """A spell or a change with the name of its worker; null for all workers together."""
    worker = spell_or_change.worker
    return {**spell_or_change._asdict(), "worker": None if worker is None else worker_names[worker]}


def _reading_with_worker_names(description: Description) -> dict[str, Any]:
    """What the reader did, with names of workers."""
    reading = description.reading
    names_of_joined = [description.workers[worker] for worker in reading.workers_joined_late]
    names_of_left = [description.workers[worker] for worker in reading.workers_left_early]
    return {**reading._asdict(), "workers_joined_late": names_of_joined, "workers_left_early": names_of_left}
