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
      from_start: whether it is slow from its first step on.
      to_end: whether it is slow up to its last step.
    """

    worker: int
    first: int
    last: int
    num_steps: int
    ratio: float
    from_start: bool
    to_end: bool


def spells(levels: Sequence[Level], steps: np.ndarray) -> list[Spell]:
    """The spells of all workers.

    Args:
      levels: of all workers, one worker after the other, each in the order of steps.
      steps: int64[T], the numbers of the steps.
    """
    of_worker = itertools.groupby(levels, lambda level: level.worker)
    return [spell for worker, group in of_worker for spell in _spells(int(worker or 0), list(group), steps)]


def _spells(worker: int, levels: Sequence[Level], steps: np.ndarray) -> list[Spell]:
    """The spells of a worker: its slow levels, where those that follow one another are one."""
    spells = []
    for is_slow, group in itertools.groupby(levels, lambda level: level.is_slow and level.ratio >= SLOW_LEVEL):
        if is_slow:
            parts = list(group)
            first, last = parts[0].first, parts[-1].last
            lengths = [part.last + 1 - part.first for part in parts]
            spells.append(
                Spell(
                    worker=worker,
                    first=int(steps[first]),
                    last=int(steps[last]),
                    num_steps=last + 1 - first,
                    ratio=float(np.average([part.ratio for part in parts], weights=lengths)),
                    from_start=parts[0] is levels[0],
                    to_end=parts[-1] is levels[-1],
                )
            )
    return spells
