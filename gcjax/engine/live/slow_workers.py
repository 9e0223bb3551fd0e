"""Who was slow, how much, and since when, from the recorded chunk times.

Letters: E rounds, K chunks a worker holds, W workers.
"""

import warnings
from typing import NamedTuple

import numpy as np


class SlowSpell(NamedTuple):
    """Rounds in a row in which a worker was slow.

    Attributes:
      worker: its number, which is also that of its process.
      slowdown: the median over these rounds of its median chunk time over that of the others.
      first_round: the first slow round.
      last_round: the last slow round; None if it was still slow at the end.
    """

    worker: int
    slowdown: float
    first_round: int
    last_round: int | None


def slow_spells(chunk_seconds: np.ndarray, *, threshold: float = 1.5) -> list[SlowSpell]:
    """The spells, rounds in a row, in which workers were slow.

    A worker is slow in a round if its median chunk takes over `threshold` times the median of the others' median
    chunks. A single round that differs from the ones before and after it does not count: by a running median of three.

    Args:
      chunk_seconds: float[E, K, W], NaN where a chunk was not finished: `rounds.chunk_seconds` of a live run.
      threshold: above 1.

    Returns:
      The earliest first.
    """
    single_ratios = slowdowns(chunk_seconds)  # [E, W]
    ratios = _median_of_three(single_ratios)  # NaN, where it is unknown, is not above the threshold
    spells = []
    for worker, worker_ratios in enumerate(ratios.T):
        # False before the first round and after the last, so that every spell has a beginning and an end.
        not_slow_outside = [False]
        is_slow = np.concatenate([not_slow_outside, worker_ratios > threshold, not_slow_outside])
        # [spells, 2]: the changes from not slow to slow and back, by the number of the round that they come before.
        first_and_end_rounds = np.flatnonzero(is_slow[1:] != is_slow[:-1]).reshape(-1, 2)
        for first_round, end_round in first_and_end_rounds.tolist():  # the end is the round after the last one
            is_still_slow = end_round == len(worker_ratios)
            last_round = None if is_still_slow else end_round - 1
            slowdown = float(np.median(single_ratios[first_round:end_round, worker]))
            spells.append(SlowSpell(worker=worker, slowdown=slowdown, first_round=first_round, last_round=last_round))
    return sorted(spells, key=lambda spell: (spell.first_round, spell.worker))


def slowdowns(chunk_seconds: np.ndarray) -> np.ndarray:
    """float[E, W]: each worker's median chunk time over the median of the others' in that round; NaN if unknown.

    Args:
      chunk_seconds: float[E, K, W], NaN where a chunk was not finished.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice|Mean of empty slice", RuntimeWarning)
        worker_medians = np.nanmedian(np.asarray(chunk_seconds, np.float64), axis=1)  # [E, W]
        num_workers = worker_medians.shape[1]
        medians_of_others = [  # W times [E]
            np.nanmedian(np.delete(worker_medians, worker, axis=1), axis=1) for worker in range(num_workers)
        ]
    return worker_medians / np.stack(medians_of_others, axis=1)


def slow_text(spells: list[SlowSpell]) -> str:
    """The spells for a person, one a line."""
    lines = []
    for spell in spells:
        rounds_text = (
            f"since round {spell.first_round}"
            if spell.last_round is None
            else f"in rounds {spell.first_round} to {spell.last_round}"
        )
        lines.append(f"\n  worker {spell.worker}: {spell.slowdown:.1f} times slower {rounds_text}")
    return "slow workers:" + ("".join(lines) or " none")


def _median_of_three(values: np.ndarray) -> np.ndarray:
    """The running median of three along the first axis; the first and last entry, with one neighbour, count twice.

    values: float[E, W]; so is the result.
    """
    padded_values = np.pad(values, ((1, 1), (0, 0)), mode="edge")
    before, at, after = padded_values[:-2], padded_values[1:-1], padded_values[2:]
    return np.median(np.stack([before, at, after]), axis=0)
