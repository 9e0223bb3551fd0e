"""Schedules that must have the same commits.

A commit must not depend on what is not known by then: units that have not ended, and how many units are sampled. And a
protocol's rule must make the commits of its schedule.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gcjax.protocols import Schedule
from gcjax.testing.contract import require
from gcjax.testing.schedules import ROUNDING

_CONTRIBUTION_FIELDS = ("worker", "unit", "work", "version", "weight")
_DECIMALS_OF_WEIGHT = 9


def check_future_units_do_not_matter(
    schedule_of_durations: Callable[[np.ndarray], Schedule], schedule: Schedule, durations: np.ndarray
) -> None:
    """Raises a `ContractError` if a commit changes when units take longer that have not ended when it happens.

    Tried at the commit in the middle, and at the last one; the same program serves all.

    Args:
      schedule_of_durations: from durations float[T, W] to a schedule of numpy arrays.
      schedule: that of `durations`.
      durations: float[T, W] seconds.
    """
    num_commits = int(np.isfinite(schedule.time).sum())
    random, num_workers = np.random.default_rng(0), durations.shape[1]
    for commit in sorted({num_commits // 2, num_commits - 1}) if num_commits else ():
        has_ended = schedule.compute_end <= schedule.time[commit] * (1 + ROUNDING)
        slowness = 4 * (1 + random.permutation(num_workers)) / num_workers  # who was fast may be slow from now on
        longer_durations = durations + np.where(has_ended, 0.0, slowness * random.exponential(size=durations.shape))
        rule = "a commit must be the same however long units take that have not ended by then"
        _require_same_commits(rule, schedule, schedule_of_durations(longer_durations), until=schedule.time[commit])


def check_further_units_do_not_matter(schedule: Schedule, schedule_of_more_units: Schedule, case: str) -> None:
    """Raises a `ContractError` if commits up to the horizon change when more units are sampled; `case` in words."""
    rule = "up to the horizon commits must be the same if more units are sampled"
    _require_same_commits(rule, schedule, schedule_of_more_units, until=schedule.horizon, case=case)


def check_rule_makes_commits(schedule: Schedule, schedule_of_rule: Schedule, case: str) -> None:
    """Raises a `ContractError` if the commits by a protocol's rule are not those of its schedule; `case` in words."""
    rule = "a schedule must have the commits that the protocol's rule makes in the event queue, all the same"
    _require_same_commits(rule, schedule, schedule_of_rule, until=schedule.horizon, case=case)


def _require_same_commits(rule: str, schedule: Schedule, other: Schedule, *, until: Any, case: str = "") -> None:
    """Raises a `ContractError` with the rule and the first commit up to `until` seconds that differs, if any does.

    Times and weights are the same up to rounding. At `until` itself one of the schedules may have fewer commits.
    """
    num_in_both, num_in_one = sorted(int(np.isfinite(x.time).sum()) for x in (schedule, other))
    for commit in range(num_in_one):
        times = [x.time[commit] for x in (schedule, other) if np.isfinite(x.time[commit : commit + 1]).any()]
        if commit < num_in_both and max(times) <= until:
            is_same_time = max(times) - min(times) <= ROUNDING * max(times)
            is_same = is_same_time and _contributions(schedule, commit) == _contributions(other, commit)
        else:
            is_same = min(times) >= until * (1 - ROUNDING)
        require(is_same, f"{rule}; commit {commit} at {min(times):g} s is not", case)


def _contributions(schedule: Schedule, commit: int) -> list[tuple[Any, ...]]:
    """The contributions to a commit, in the order of workers and units: tuples of `_CONTRIBUTION_FIELDS`."""
    is_contribution = schedule.worker[commit] >= 0
    fields = [
        np.round(np.asarray(getattr(schedule, name))[commit][is_contribution], _DECIMALS_OF_WEIGHT).tolist()
        for name in _CONTRIBUTION_FIELDS
    ]
    return sorted(zip(*fields, strict=True))
