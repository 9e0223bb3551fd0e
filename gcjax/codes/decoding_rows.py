"""The rows with which the server multiplies the messages of a partial-straggler code, for L blocks.

A chunk decodes from any L finished holders if any L of their rows are independent, and rounding errors grow with the
condition of those L rows. Random rows are independent, but some are nearly parallel. Harmonic rows (ours for this code)
are evenly spread: points on the circle, in the L functions cos and sin of which no combination vanishes at L points.
Workers that share a chunk have different points; others may have the same one, so that there are few points, far apart.
"""

import jax
import numpy as np

from gcjax._generators import generator_of_key
from gcjax.codes.base import Assignment, Holders


def random_rows(num_workers: int, num_blocks: int, rng_key: jax.Array) -> np.ndarray:
    """float64[W, L]: independent normal numbers, scaled to rows of length one."""
    rows = generator_of_key(rng_key).normal(size=(num_workers, num_blocks))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def harmonic_rows(assignment: Assignment, chunk_holders: Holders, num_blocks: int) -> np.ndarray:
    """float64[W, L]: rows of length one, of which those of any L holders of a chunk are independent.

    With p points, point j has the row `sqrt(2/L) cos(f t)`, `sqrt(2/L) sin(f t)` at `t = 2 pi j / p`, for the L/2
    frequencies f = 1/2, 3/2, ... if L is even; if it is odd, for f = 1, 2, ..., and the constant `sqrt(1/L)`. Workers
    that share a chunk are at different points: a worker's point is its number by `worker_colours`.
    """
    points = worker_colours(assignment, chunk_holders)  # int[W], 0, ..., p - 1
    angles = 2 * np.pi * points / (points.max() + 1)
    is_odd = num_blocks % 2
    frequencies = np.arange(num_blocks // 2) + (1 if is_odd else 0.5)
    phases = angles[:, None] * frequencies[None]  # [W, floor(L / 2)]
    constant = np.full((points.size, is_odd), np.sqrt(0.5))  # times sqrt(2/L): sqrt(1/L); no column if L is even
    return np.sqrt(2 / num_blocks) * np.concatenate([constant, np.cos(phases), np.sin(phases)], axis=1)


def worker_colours(assignment: Assignment, chunk_holders: Holders) -> np.ndarray:
    """int[W]: a number for each worker, so that workers that share a chunk have different ones.

    Positions in runs of about equal length, at least R, the most holders of a chunk, where that suffices and takes no
    more numbers, as for cyclic assignments and repetition; otherwise greedily, worker by worker, each time the least
    number that fits.
    """
    num_workers, most_holders = assignment.num_workers, chunk_holders.workers.shape[1]
    runs = np.array_split(np.arange(num_workers), max(num_workers // most_holders, 1))
    positions_in_runs = np.concatenate([run - run[0] for run in runs])
    greedy_colours = _greedy_colours(assignment, chunk_holders)
    runs_suffice = _differ_within_chunks(positions_in_runs, chunk_holders)
    return positions_in_runs if runs_suffice and positions_in_runs.max() <= greedy_colours.max() else greedy_colours


def _greedy_colours(assignment: Assignment, chunk_holders: Holders) -> np.ndarray:
    """int[W]: for each worker the least number that no worker before it has with whom it shares a chunk."""
    colours = np.full(assignment.num_workers, -1)  # none yet
    for worker, chunks in enumerate(assignment.chunks):
        sharing_workers = chunk_holders.workers[chunks[chunks >= 0]].ravel()
        colours_of_neighbours = colours[sharing_workers[sharing_workers >= 0]]
        colours[worker] = np.setdiff1d(np.arange(colours_of_neighbours.size + 1), colours_of_neighbours)[0]
    return colours


def _differ_within_chunks(colours: np.ndarray, chunk_holders: Holders) -> bool:
    """Whether the holders of every chunk have different colours int[W]."""
    colours_of_padding = -1 - np.arange(chunk_holders.workers.shape[1])  # different from each other and all colours
    colours_of_holders = np.where(chunk_holders.workers >= 0, colours[chunk_holders.workers], colours_of_padding[None])
    return bool((np.diff(np.sort(colours_of_holders, axis=1), axis=1) > 0).all())
