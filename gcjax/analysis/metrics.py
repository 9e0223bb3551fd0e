"""What a schedule costs: time, chunks, messages and staleness, up to any moment of a run.

Everything here is numpy, for one seed. Letters: T units sampled per worker, W workers, E commits,
C contributions to a commit, V moments.

The time of a worker up to a moment is split in three, which add up to one:

- computing: from `compute_start` to `compute_end`, whether or not the unit was cut off or used in the end;
  redundant chunks of a code are computing like any other;
- communicating: receiving parameters (`start` to `compute_start`) and sending (`send_start` to `finish`), as far as
  the worker does not compute at the same time;
- waiting: everything else. A worker that has failed waits for as long as its unit would never have ended.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes.base import GradientCode
from gcjax.protocols.base import Schedule


class Costs(NamedTuple):
    """What has been spent up to each of V moments.

    Attributes:
      computing: float[V], share of the workers' time; NaN at time 0, as the other shares.
      communicating: float[V], share of the workers' time.
      waiting: float[V], share of the workers' time.
      chunks: float[V], chunks computed to the end, per worker. A chunk that was cut off counts as time only.
      messages: float[V], what a worker has sent on average, in full gradients: d/L numbers are 1/L of one. It
        counts when it has arrived; a code's, when the commit that it belongs to happens.
      mean_staleness: float[V], over all contributions to the commits so far; NaN before the first.
      max_staleness: float[V], over all contributions to the commits so far; NaN before the first.
    """

    computing: np.ndarray
    communicating: np.ndarray
    waiting: np.ndarray
    chunks: np.ndarray
    messages: np.ndarray
    mean_staleness: np.ndarray
    max_staleness: np.ndarray


def costs(schedule: Schedule, durations: np.ndarray, moments: np.ndarray, code: GradientCode | None = None) -> Costs:
    """What a run has spent up to each moment.

    Args:
      schedule: of one seed.
      durations: float[T, W], those that the schedule was made of; inf marks the units of failed workers.
      moments: float[V] seconds, finite.
      code: the code of the protocol, if it has one.
    """
    times: Any = jax.tree.map(np.asarray, schedule)
    moments = np.asarray(moments, np.float64)
    num_workers = times.start.shape[1]
    whole = moments * num_workers
    lost = np.isinf(np.asarray(durations))
    computing = _spent(times.compute_start, np.where(lost, times.compute_start, times.compute_end), moments)
    communicating = _spent(times.start, times.compute_start, moments)
    sent = np.where(np.isfinite(times.send_start), times.finish, np.inf)
    communicating += _spent(times.send_start, sent, moments) - _hidden(times, moments)
    completed = np.where(np.isfinite(times.finish), times.compute_end, np.inf)
    mean, largest = _staleness(times, moments)
    with np.errstate(invalid="ignore"):
        computing, communicating = computing / whole, communicating / whole
    return Costs(
        computing=computing,
        communicating=communicating,
        waiting=1.0 - computing - communicating,
        chunks=_count(completed, moments) / num_workers,
        messages=_messages(times, moments, code) / num_workers,
        mean_staleness=mean,
        max_staleness=largest,
    )


def time_to_target(times: np.ndarray, values: np.ndarray, target: float, *, higher_is_better: bool) -> float:
    """The first time at which a metric is at least as good as the target; inf if it never is.

    Args:
      times: float[V] seconds, increasing.
      values: float[V], the metric; NaN where there is none.
      target: the value to reach.
      higher_is_better: whether the metric is to rise (accuracy) or to fall (loss).
    """
    reached = values >= target if higher_is_better else values <= target
    return float(times[np.argmax(reached)]) if reached.any() else float("inf")


def is_stalled(schedule: Schedule) -> bool:
    """Whether a run of one seed came to a halt over a worker that never ends a unit, not because units ran out."""
    return bool(np.isinf(schedule.horizon))


def _spent(begin: np.ndarray, end: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """float[V]: the length of all intervals up to each moment; one without an end has no length."""
    end = np.where(np.isfinite(end), end, begin)
    return _ramp(begin, moments) - _ramp(end, moments)


def _hidden(times: Any, moments: np.ndarray) -> np.ndarray:
    """float[V]: the time of all workers in which they send and compute at once."""
    total = np.zeros(moments.size)
    columns = times.compute_start.T, times.compute_end.T, times.send_start.T, times.finish.T
    for start, end, send, finish in zip(*columns, strict=True):
        computes, sends = np.isfinite(start) & np.isfinite(end), np.isfinite(send) & np.isfinite(finish)
        if not (finish[:-1][sends[:-1]] > start[1:][sends[:-1]]).any():
            continue
        length = np.cumsum(end[computes] - start[computes], dtype=np.float64)
        at = np.stack([start[computes], end[computes]], axis=1).ravel()
        computed = np.stack([np.append(0, length[:-1]), length], axis=1).ravel()
        begin, stop = (np.minimum(x[sends][None], moments[:, None]) for x in (send, finish))
        total += (np.interp(stop, at, computed) - np.interp(begin, at, computed)).sum(axis=1)
    return total


def _ramp(times: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """float[V]: the sum over all finite times of max(0, moment - time)."""
    ordered = np.sort(times[np.isfinite(times)].astype(np.float64))
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    count = np.searchsorted(ordered, moments, side="right")
    return moments * count - sums[count]


def _count(times: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """int[V]: how many of the times have passed."""
    return np.searchsorted(np.sort(times, axis=None), moments, side="right")


def _messages(times: Any, moments: np.ndarray, code: GradientCode | None) -> np.ndarray:
    """float[V]: full gradients sent in all."""
    if code is None:
        return _count(times.finish[np.isfinite(times.send_start)], moments).astype(np.float64)
    sent = np.asarray(jax.vmap(code.sent)(jnp.asarray(times.work.clip(0))))
    size = (times.worker >= 0) * sent.sum(axis=2) / code.num_blocks
    total = np.concatenate([[0.0], np.cumsum(size.sum(axis=1))])
    return total[_count(times.time, moments)]


def _staleness(times: Any, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float[V] each: the mean and the largest staleness of the contributions so far."""
    used = times.worker >= 0
    staleness = np.where(used, np.arange(times.time.size)[:, None] - times.version, 0)
    commits = _count(times.time, moments)
    number, total = (np.concatenate([[0], np.cumsum(x.sum(axis=1))])[commits] for x in (used, staleness))
    largest = np.concatenate([[0], np.maximum.accumulate(staleness.max(axis=1))])[commits]
    seen = number > 0
    return np.where(seen, total / np.maximum(number, 1), np.nan), np.where(seen, largest, np.nan)
