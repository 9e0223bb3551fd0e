"""The verdict on a trace: who is slow, since when, whether it stays, and what it costs.

A cost is a share of the iterations. An iteration takes the longest time of computing, and the shortest of communicating
and waiting, which is that of a worker that waits for nobody.

Letters: T steps, W workers.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from gcjax.stragglers.traces.description.decomposition import Decomposition
from gcjax.stragglers.traces.description.slowdown import seconds_without_delays_of
from gcjax.stragglers.traces.description.spells import Spell, are_in_spells
from gcjax.stragglers.traces.description.step_times import StepTimes

WARNING, CRITICAL = 0.1, 0.2
"""Costs, as shares of the iterations, from which on a verdict is a warning, or critical."""


class Verdict(NamedTuple):
    """Who is slow.

    Attributes:
      severity: "ok", "warning" (from 10 % of the iterations) or "critical" (from 20 %).
      kind: the first of these that is so. "persistent": a worker is slow up to its last step (and has not left for
        longer than that since), or for half of the steps;
        "passing": workers were slow for a while, or single steps were, and that costs 10 % or more; "shared": all are
        slow at once, and that costs 10 % or more; "nobody".
      workers: who is slow, for "persistent" and "passing", what costs most first; none if only single steps are.
      cost: the share of the iterations that would be saved: for workers if they were at the median of each step, for
        single steps if these did not pass it, for shared slowness if the medians did not pass their own median; for
        "nobody" what waiting for the slowest costs in all. If a worker is slow at the end, this is over the steps in
        which it, or another one of these, is slow; else over all steps.
      cost_of_computing: the same as a share of the time of computing alone.
      other_workers: for "persistent", other workers that were slow for a while, if that costs 10 % or more; what costs
        most first.
      other_cost: the share of all iterations that would be saved besides if these were at the median, too; else 0.
    """

    severity: str
    kind: str
    workers: tuple[int, ...]
    cost: float
    cost_of_computing: float
    other_workers: tuple[int, ...] = ()
    other_cost: float = 0.0


def verdict(times: StepTimes, spells: Sequence[Spell], lost_time: Decomposition) -> Verdict:
    """Who is slow, and what it costs.

    Args:
      times: of the trace.
      spells: of all workers.
      lost_time: the seconds lost, and the shares of what loses them.
    """
    persistent_workers = _persistent_workers(spells, len(times.steps))
    if persistent_workers:
        verdict_on_persistent = _verdict_on_workers("persistent", persistent_workers, times, spells)
        return _with_other_workers(verdict_on_persistent, times, spells)
    workers_with_spells = _workers_most_delayed_first(spells)
    if workers_with_spells and _is_worth_a_warning(_seconds_saved(times, workers_with_spells), times):
        return _verdict_on_workers("passing", workers_with_spells, times, spells)
    passing_seconds = lost_time.passing_share * lost_time.lost_seconds
    shared_seconds = lost_time.shared_share * lost_time.lost_seconds
    if _is_worth_a_warning(passing_seconds, times):
        return _verdict_with_cost("passing", workers=(), saved_seconds=passing_seconds, times=times)
    if _is_worth_a_warning(shared_seconds, times):
        return _verdict_with_cost("shared", workers=(), saved_seconds=shared_seconds, times=times)
    waiting_seconds = float((times.step_longest - times.step_median).sum())
    verdict_on_nobody = _verdict_with_cost("nobody", workers=(), saved_seconds=waiting_seconds, times=times)
    return verdict_on_nobody._replace(severity="ok")


def _verdict_on_workers(kind: str, workers: Sequence[int], times: StepTimes, spells: Sequence[Spell]) -> Verdict:
    """The verdict that these workers are slow: "persistent" or "passing".

    It costs what would be saved if they were at the median: over the steps of their spells if one of these lasts to the
    end, else over all steps.
    """
    own_spells = [spell for spell in spells if spell.worker in set(workers)]
    if any(spell.is_slow_to_end for spell in own_spells):
        times = times.of_steps(are_in_spells(times.steps, own_spells))  # what counts is what it costs while it lasts
    return _verdict_with_cost(kind, tuple(workers), _seconds_saved(times, workers), times)


def _with_other_workers(verdict: Verdict, times: StepTimes, spells: Sequence[Spell]) -> Verdict:
    """A verdict on persistent workers, with those that were slow for a while, if that costs enough besides."""
    workers_with_spells = _workers_most_delayed_first(spells)
    other_workers = tuple(worker for worker in workers_with_spells if worker not in verdict.workers)
    saved_besides = _seconds_saved(times, workers_with_spells) - _seconds_saved(times, verdict.workers)
    if not other_workers or not _is_worth_a_warning(saved_besides, times):
        return verdict
    return verdict._replace(other_workers=other_workers, other_cost=_share_of_iterations(saved_besides, times))


def _verdict_with_cost(kind: str, workers: tuple[int, ...], saved_seconds: float, times: StepTimes) -> Verdict:
    """The verdict of this kind ("persistent", ...), whose cost is the share of `saved_seconds` in the steps."""
    cost = _share_of_iterations(saved_seconds, times)
    severity = "critical" if cost >= CRITICAL else "warning" if cost >= WARNING else "ok"
    computing_seconds = float(times.step_longest.sum())
    cost_of_computing = saved_seconds / computing_seconds if computing_seconds > 0 else 0.0
    return Verdict(severity, kind, workers, cost, cost_of_computing)


def _persistent_workers(spells: Sequence[Spell], num_steps: int) -> list[int]:
    """Workers that are slow up to their last step, or for half of all steps, what costs most first."""
    slow_at_end = {spell.worker for spell in spells if spell.is_slow_to_end}
    num_slow_steps: Counter[int] = Counter()
    for spell in spells:
        num_slow_steps[spell.worker] += spell.num_steps
    slow_half_the_time = {worker for worker, num_slow in num_slow_steps.items() if 2 * num_slow >= num_steps}
    return [worker for worker in _workers_most_delayed_first(spells) if worker in slow_at_end | slow_half_the_time]


def _workers_most_delayed_first(spells: Sequence[Spell]) -> list[int]:
    """The workers with spells, the one with the most excess over the median in its spells first.

    The excess is a count of medians: what the level of a spell is above 1, times its steps.
    """
    excess_of_worker: defaultdict[int, float] = defaultdict(float)
    for spell in spells:
        excess_of_worker[spell.worker] += (spell.mean_ratio - 1) * spell.num_steps
    return sorted(excess_of_worker, key=lambda worker: (-excess_of_worker[worker], worker))


def _seconds_saved(times: StepTimes, workers: Sequence[int]) -> float:
    """The seconds that would be saved if these workers were at the median."""
    return float(times.step_longest.sum()) - seconds_without_delays_of(times, workers)


def _is_worth_a_warning(saved_seconds: float, times: StepTimes) -> bool:
    """Whether so many seconds are worth a warning; not if they are NaN."""
    return _share_of_iterations(saved_seconds, times) >= WARNING


def _share_of_iterations(saved_seconds: float, times: StepTimes) -> float:
    """Seconds as a share of the iterations: each takes its longest time of computing, and shortest of communicating."""
    iterations = float((times.step_longest + times.step_communication).sum())
    return saved_seconds / iterations if iterations > 0 else 0.0
