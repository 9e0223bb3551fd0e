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
    of_worker = itertools.groupby(levels, lambda level: level.worker)
    return [spell for worker, group in of_worker if worker is not None for spell in _spells(worker, list(group), steps)]


def _spells(worker: int, levels: Sequence[Level], steps: np.ndarray) -> list[Spell]:
    """The spells of a worker: its slow levels, where those that follow one another are one."""
    runs = itertools.groupby(levels, lambda level: level.is_slow and level.ratio >= SLOW_LEVEL)
    parts = [list(run) for is_slow, run in runs if is_slow]
    return [
        _spell(worker, part, steps)._replace(from_start=part[0] is levels[0], to_end=part[-1] is levels[-1])
        for part in parts
    ]


def _spell(worker: int, levels: Sequence[Level], steps: np.ndarray) -> Spell:
    """The spell of these levels."""
    peak = max(levels, key=lambda level: level.ratio)
    lengths = [level.last + 1 - level.first for level in levels]
    return Spell(
        worker=worker,
        first=int(steps[levels[0].first]),
        last=int(steps[levels[-1].last]),
        num_steps=levels[-1].last + 1 - levels[0].first,
        ratio=float(np.average([level.ratio for level in levels], weights=lengths)),
        peak=peak.ratio,
        peak_step=int(steps[peak.first]),
        from_start=False,
        to_end=False,
    )
