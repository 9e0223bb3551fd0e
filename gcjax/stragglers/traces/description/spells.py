"""Spells: for how long which worker is slow.

A worker is slow in a stretch of steps in which its level (see `levels`) is 1.1 times the median of the step or more,
and more than chance explains.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gcjax.stragglers.traces.description.levels import Level

SLOW_LEVEL = 1.1
"""A worker is slow whose level is so many times the median of the step."""


class Spell(NamedTuple):
    """Steps in which a worker is slow all the time.

    Attributes:
      worker: its number.
      first: the number of the first step.
      last: that of the last step.
      num_steps: of the trace, from the first to the last.
      ratio: the mean over these steps of its level.
      peak: its largest level in them.
      peak_step: the number of the first step of that level.
      from_start: whether it is slow from its first step on.
      to_end: whether it is slow up to its last step.
    """

    worker: int
    first: int
    last: int
    num_steps: int
    ratio: float
    peak: float
    peak_step: int
    from_start: bool
    to_end: bool


def spells(levels: Sequence[Level], steps: np.ndarray) -> list[Spell]:
    """The spells of all workers.

    Args:
      levels: of all workers, one worker after the other, each in the order of steps.
      steps: int64[T], the numbers of the steps.
    """
    levels_by_worker = itertools.groupby(levels, lambda level: level.worker)
    all_spells: list[Spell] = []
    for worker, worker_levels in levels_by_worker:
        if worker is not None:
            all_spells += _spells_of_worker(worker, list(worker_levels), steps)
    return all_spells


def _spells_of_worker(worker: int, levels: Sequence[Level], steps: np.ndarray) -> list[Spell]:
    """The spells of a worker: its slow levels, where those that follow one another are one."""
    runs_of_one_kind = itertools.groupby(levels, lambda level: level.is_slow and level.ratio >= SLOW_LEVEL)
    slow_runs = [list(run) for is_slow, run in runs_of_one_kind if is_slow]
    first_level, last_level = levels[0], levels[-1]
    return [
        _spell_of_levels(worker, run, steps)._replace(from_start=run[0] is first_level, to_end=run[-1] is last_level)
        for run in slow_runs
    ]


def _spell_of_levels(worker: int, levels: Sequence[Level], steps: np.ndarray) -> Spell:
    """The spell of these levels."""
    peak_level = max(levels, key=lambda level: level.ratio)
    num_steps_of_level = [level.last + 1 - level.first for level in levels]
    first_index, last_index = levels[0].first, levels[-1].last
    return Spell(
        worker=worker,
        first=int(steps[first_index]),
        last=int(steps[last_index]),
        num_steps=last_index + 1 - first_index,
        ratio=float(np.average([level.ratio for level in levels], weights=num_steps_of_level)),
        peak=peak_level.ratio,
        peak_step=int(steps[peak_level.first]),
        from_start=False,
        to_end=False,
    )
