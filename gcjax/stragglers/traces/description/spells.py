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
      first_step: the number of the first step.
      last_step: that of the last step.
      num_steps: of the trace, from the first to the last.
      mean_ratio: the mean over these steps of its level.
      peak_ratio: its largest level in them.
      peak_step: the number of the first step of that level.
      is_slow_from_start: whether it is slow from its first step on.
      is_slow_to_end: whether it is slow up to its last step, and has not left for longer than that since.
    """

    worker: int
    first_step: int
    last_step: int
    num_steps: int
    mean_ratio: float
    peak_ratio: float
    peak_step: int
    is_slow_from_start: bool
    is_slow_to_end: bool


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


def are_together(spells: Sequence[Spell], workers: Sequence[int], steps: np.ndarray) -> bool:
    """Whether several workers are slow in the same steps: all at once in half of those in which any of them is.

    Args:
      spells: of all workers.
      workers: some of them; one alone is not together with anybody.
      steps: int64[T], the numbers of the steps.
    """
    is_slow = np.array([are_in_spells(steps, [spell for spell in spells if spell.worker == w]) for w in workers])
    return len(workers) > 1 and bool(2 * is_slow.all(axis=0).sum() >= is_slow.any(axis=0).sum())


def are_in_spells(steps: np.ndarray, spells: Sequence[Spell]) -> np.ndarray:
    """bool[T]: whether each of the steps, by its number int64[T], is in one of the spells."""
    is_in_spell = np.zeros(len(steps), bool)
    for spell in spells:
        is_in_spell |= (steps >= spell.first_step) & (steps <= spell.last_step)
    return is_in_spell


def _spells_of_worker(worker: int, levels: Sequence[Level], steps: np.ndarray) -> list[Spell]:
    """The spells of a worker: its slow levels, where those that follow one another are one.

    A level is slow if that is no chance (`is_slow`), and by `SLOW_LEVEL` at least; `steps int64[T]` are the numbers of
    the rows.
    """
    runs_of_one_kind = itertools.groupby(levels, lambda level: level.is_slow and level.median_ratio >= SLOW_LEVEL)
    slow_runs = [list(run) for is_slow, run in runs_of_one_kind if is_slow]
    first_level, last_level = levels[0], levels[-1]
    num_steps_since = len(steps) - 1 - last_level.last_row  # since its last step
    spells_of_worker = [(run, _spell_of_levels(worker, run, steps)) for run in slow_runs]
    return [
        spell._replace(
            is_slow_from_start=run[0] is first_level,
            is_slow_to_end=run[-1] is last_level and num_steps_since <= spell.num_steps,
        )
        for run, spell in spells_of_worker
    ]


def _spell_of_levels(worker: int, levels: Sequence[Level], steps: np.ndarray) -> Spell:
    """The spell of a worker's slow levels, which follow one another; `steps int64[T]` are the numbers of the rows.

    Whether it is slow from its first step on, or up to its last, is not seen from these levels: both are False here.
    """
    peak_level = max(levels, key=lambda level: level.median_ratio)
    num_steps_of_level = [level.last_row + 1 - level.first_row for level in levels]
    first_index, last_index = levels[0].first_row, levels[-1].last_row
    return Spell(
        worker=worker,
        first_step=int(steps[first_index]),
        last_step=int(steps[last_index]),
        num_steps=last_index + 1 - first_index,
        mean_ratio=float(np.average([level.median_ratio for level in levels], weights=num_steps_of_level)),
        peak_ratio=peak_level.median_ratio,
        peak_step=int(steps[peak_level.first_row]),
        is_slow_from_start=False,
        is_slow_to_end=False,
    )
