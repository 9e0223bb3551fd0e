"""The verdict on a trace: who is slow, since when, whether it stays, and what it costs.

A cost is a share of the iterations. An iteration takes the longest time of computing, and the shortest of communicating
and waiting, which is that of a worker that waits for nobody.

Letters: T steps, W workers.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.description.decomposition import Decomposition
from gcjax.stragglers.traces.description.slowdown import seconds_without
from gcjax.stragglers.traces.description.spells import Spell
from gcjax.stragglers.traces.description.step_times import StepTimes

WARNING, CRITICAL = 0.1, 0.2
"""Costs from which on a verdict is a warning, or critical."""


class Verdict(NamedTuple):
    """Who is slow.

    Attributes:
      severity: "ok", "warning" (from 10 % of the iterations) or "critical" (from 20 %).
      kind: the first of these that is so. "persistent": a worker is slow up to its last step, or for half of the steps;
        "passing": workers were slow for a while, or single steps were, and that costs 10 % or more; "shared": all are
        slow at once, and that costs 10 % or more; "nobody".
      workers: who is slow, for `persistent` and `passing`, what costs most first; none if only single steps are.
      cost: the share of the iterations that would be saved: for workers if they were at the median of each step, for
        single steps if these did not pass it, for shared slowness if the medians did not pass their own median; for
        "nobody" what waiting for the slowest costs in all. If a worker is slow at the end, this is over the steps in
        which it, or another one of these, is slow; else over all steps.
      cost_of_computing: the same as a share of the time of computing alone.
    """

    severity: str
    kind: str
    workers: tuple[int, ...]
    cost: float
    cost_of_computing: float


def verdict(times: StepTimes, spells: Sequence[Spell], parts: Decomposition) -> Verdict:
    """Who is slow, and what it costs.

    Args:
      times: of the trace.
      spells: of all workers.
      parts: of the time that is lost.
    """
    persistent = _persistent_workers(spells, len(times.steps))
    if persistent:
        return _of_workers("persistent", persistent, times, spells)
    workers = _by_excess(spells)
    if workers and _is_much(_saved(times, workers), times):
        return _of_workers("passing", workers, times, spells)
    if _is_much(parts.passing * parts.seconds, times):
        return _verdict("passing", (), parts.passing * parts.seconds, times)
    if _is_much(parts.shared * parts.seconds, times):
        return _verdict("shared", (), parts.shared * parts.seconds, times)
    return _verdict("nobody", (), float((times.slowest - times.median).sum()), times)._replace(severity="ok")


def _of_workers(kind: str, workers: Sequence[int], times: StepTimes, spells: Sequence[Spell]) -> Verdict:
    """The verdict that these workers are slow."""
    own_spells = [spell for spell in spells if spell.worker in set(workers)]
    if any(spell.to_end for spell in own_spells):
        is_slow = np.zeros(len(times.steps), bool)
        for spell in own_spells:
            is_slow |= (times.steps >= spell.first) & (times.steps <= spell.last)
        times = times.part(is_slow)
    return _verdict(kind, tuple(workers), _saved(times, workers), times)


def _verdict(kind: str, workers: tuple[int, ...], saved: float, times: StepTimes) -> Verdict:
    """The verdict, if so many seconds would be saved."""
    cost = _cost(saved, times)
    severity = "critical" if cost >= CRITICAL else "warning" if cost >= WARNING else "ok"
    computing = float(times.slowest.sum())
    return Verdict(severity, kind, workers, cost, saved / computing if computing > 0 else 0.0)


def _persistent_workers(spells: Sequence[Spell], num_steps: int) -> list[int]:
    """Workers that are slow up to their last step, or for half of all steps, what costs most first."""
    slow_at_end = {spell.worker for spell in spells if spell.to_end}
    slow_steps: Counter[int] = Counter()
    for spell in spells:
        slow_steps[spell.worker] += spell.num_steps
    return [worker for worker in _by_excess(spells) if worker in slow_at_end or 2 * slow_steps[worker] >= num_steps]


def _by_excess(spells: Sequence[Spell]) -> list[int]:
    """The workers with spells, the one with the most excess over the median in its spells first."""
    excess: dict[int, float] = {}
    for spell in spells:
        excess[spell.worker] = excess.get(spell.worker, 0.0) + (spell.ratio - 1) * spell.num_steps
    return sorted(excess, key=lambda worker: (-excess[worker], worker))


def _saved(times: StepTimes, workers: Sequence[int]) -> float:
    """The seconds that would be saved if these workers were at the median."""
    return float(times.slowest.sum()) - seconds_without(times, workers)


def _is_much(saved: float, times: StepTimes) -> bool:
    """Whether so many seconds are worth a warning; not if they are NaN."""
    return _cost(saved, times) >= WARNING


def _cost(saved: float, times: StepTimes) -> float:
    """Seconds as a share of the iterations."""
    iterations = float((times.slowest + times.communication).sum())
    return saved / iterations if iterations > 0 else 0.0
