"""What a schedule costs: time, chunks, messages and staleness, up to any moment of a run.

Everything here is numpy, also the schedule that private functions take, for one seed; moments are float[V] seconds.
Letters: T units sampled per worker, W workers, E commits, C contributions to a commit, V moments.

The time of a worker up to a moment is split in three, which add up to one:

- computing: from `compute_start` to `compute_end`, whether or not the unit was cut off or used in the end;
  redundant chunks of a code are computing like any other;
- communicating: receiving parameters (`start` to `compute_start`, or until the unit is cut off) and sending
  (`send_start` to `finish`), several at once counted once, and as far as the worker does not compute at the same time;
- waiting: everything else. A worker that has failed waits for as long as its unit would never have ended.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.base import GradientCode
from gcjax.protocols.base import Mixing, Schedule


class Costs(NamedTuple):
    """What has been spent up to each of V moments.

    Attributes:
      computing: float[V], share of the workers' time; NaN at time 0, as the other shares.
      communicating: float[V], share of the workers' time.
      waiting: float[V], share of the workers' time.
      chunks: float[V], chunks that were not cut off, neither computing nor sending, per worker, by the end of
        computing. One that was counts as time only.
      messages: float[V], what a worker has sent on average, in full gradients: d/L numbers are 1/L of one, and a
        compressed message its share of the bytes. It counts when it has arrived; a code's, when the commit that it
        belongs to happens, as its `sent` says of the progress. A live server asks only for those of the workers that
        are needed: what it has got are the pushes in `LiveRun.messages`.
      server_messages: float[V], what the servers of groups have sent to the central one, in full gradients, per worker:
        one for each commit of such a protocol, 0 for the others. Answers are not counted, as in `messages`.
      mean_staleness: float[V], over all contributions to the commits so far; NaN before the first.
      max_staleness: float[V], over all contributions to the commits so far; NaN before the first.
    """

    computing: np.ndarray
    communicating: np.ndarray
    waiting: np.ndarray
    chunks: np.ndarray
    messages: np.ndarray
    server_messages: np.ndarray
    mean_staleness: np.ndarray
    max_staleness: np.ndarray


def costs(
    schedule: Schedule,
    durations: np.ndarray,
    moments: np.ndarray,
    code: GradientCode | None = None,
    mixing: Mixing | None = None,
    num_fragments: int = 1,
    has_group_servers: bool = False,
    message_size: Any = 1.0,
) -> Costs:
    """What a run has spent up to each moment.

    Args:
      schedule: of one seed.
      durations: float[T, W], those that the schedule was made of; inf marks the units of failed workers.
      moments: float[V] seconds, finite; V is their number.
      code: the code of the protocol, if it has one.
      mixing: how its workers average their parameters, if they do; it says how many copies they send.
      num_fragments: P, where a message is one of so many fragments; each counts as 1/P, their mean size.
      has_group_servers: whether each commit is a message of the server of a group.
      message_size: of what a worker sends, as a share of a message that is not compressed; a number or float[W].
    """
    host_schedule: Any = jax.tree.map(np.asarray, schedule)
    moments = np.asarray(moments, np.float64)
    num_workers = host_schedule.start.shape[1]
    time_of_all_workers = moments * num_workers
    is_failed = np.isinf(np.asarray(durations))
    # A failed worker waits from then on, and does not compute. Sums of seconds over all workers are float[V].
    compute_end = np.where(is_failed, host_schedule.compute_start, host_schedule.compute_end)
    computing_time = _time_within(host_schedule.compute_start, compute_end, moments)
    send_end = np.where(np.isfinite(host_schedule.send_start), host_schedule.finish, np.inf)  # inf: nothing is sent
    receive_end = np.minimum(host_schedule.compute_start, host_schedule.compute_end)  # the latter if it was cut off
    busy_begin, busy_end = _disjoint_intervals(
        np.concatenate([host_schedule.compute_start, host_schedule.start, host_schedule.send_start]),
        np.concatenate([compute_end, receive_end, send_end]),
    )
    communicating_time = _time_within(busy_begin, busy_end, moments) - computing_time
    is_cut_off = ~np.isfinite(host_schedule.finish)
    completion = np.where(is_cut_off, np.inf, host_schedule.compute_end)
    mean_staleness, max_staleness = _staleness_so_far(host_schedule, moments)
    with np.errstate(invalid="ignore"):  # 0 / 0 at time 0
        computing_share = computing_time / time_of_all_workers
        communicating_share = communicating_time / time_of_all_workers
    return Costs(
        computing=computing_share,
        communicating=communicating_share,
        waiting=1.0 - computing_share - communicating_share,
        chunks=_num_times_until(completion, moments) / num_workers,
        messages=_num_gradients_sent(host_schedule, moments, code, mixing, message_size) / num_workers / num_fragments,
        server_messages=has_group_servers * _num_times_until(host_schedule.time, moments) / num_workers,
        mean_staleness=mean_staleness,
        max_staleness=max_staleness,
    )


def time_to_target(times: np.ndarray, values: np.ndarray, target: float, *, higher_is_better: bool) -> float:
    """The first time at which a metric is at least as good as the target; inf if it never is.

    Args:
      times: float[V] seconds, none below the one before.
      values: float[V], the metric; NaN where there is none, which reaches nothing.
      target: the value to reach.
      higher_is_better: whether the metric is to rise (accuracy) or to fall (loss).

    Raises:
      ValueError: if the times and values are not of one run, times decrease, or the target is no number.
    """
    times, values = np.asarray(times), np.asarray(values)
    _validate.single_number("target", target, minimum=-np.inf)
    if times.ndim != 1 or times.shape != values.shape:
        raise ValueError(
            f"times and values must be [V] each, of one run; got shapes {times.shape} and {values.shape}. Of several "
            "runs take one after the other."
        )
    if (times[1:] < times[:-1]).any():
        raise ValueError(f"times must not decrease; got {_validate.shorten(times)}.")
    is_reached = values >= target if higher_is_better else values <= target
    return float(times[np.argmax(is_reached)]) if is_reached.any() else float("inf")  # argmax: the first


def is_stalled(schedule: Schedule, seconds: float = np.inf) -> bool:
    """Whether a run of one seed came to a halt over a worker that never ends a unit, not because units ran out.

    Args:
      schedule: as long as the durations last.
      seconds: when the run ended; it did not come to a halt if there would have been commits later.
    """
    times = np.asarray(schedule.time)
    has_later_commits = (np.isfinite(times) & (times > seconds)).any()
    return bool(np.isinf(schedule.horizon) and not has_later_commits)  # the horizon is when sampled units run out


def num_unused_workers(schedule: Schedule, durations: Any) -> int:
    """How many workers are in no commit of a run of one seed, though they compute again and again, and never fail.

    So it is where commits take the first K, and the same workers are the first each time: also where times are equal,
    of which that of the lower number counts as earlier. Counted are those of whom two messages or more have arrived, or
    were cut off, by the last commit.

    Args:
      schedule: until the run ended; nobody is away in it.
      durations: float[T, W] seconds.
    """
    num_workers, is_commit = schedule.start.shape[1], np.isfinite(schedule.time)
    if not is_commit.any():
        return 0
    end = schedule.time[is_commit].max()
    has_arrived = np.isfinite(schedule.send_start) & (schedule.finish <= end)
    begins_next = np.concatenate([np.asarray(schedule.start)[1:] <= end, np.zeros((1, num_workers), bool)])
    num_messages = (has_arrived | (np.isinf(schedule.finish) & begins_next)).sum(axis=0)
    never_fails = np.isfinite(durations).all(axis=0)
    is_used = np.isin(np.arange(num_workers), schedule.worker[is_commit])
    return int(((num_messages > 1) & never_fails & ~is_used).sum())


def _time_within(begin: np.ndarray, end: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """float[V] seconds: the length of all intervals [begin, end] together that lies before each of the V moments.

    `begin` and `end` are arrays of one shape; an interval without a begin or an end (inf) has no length.
    """
    has_length = np.isfinite(begin) & np.isfinite(end)
    return _sum_of_times_since(begin[has_length], moments) - _sum_of_times_since(end[has_length], moments)


def _disjoint_intervals(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Intervals float64[n, W] of each worker without overlaps, which cover the same time: begins and ends.

    An interval without a begin or an end (inf) has no length. Each begins where all that began before it have ended.
    """
    has_length = np.isfinite(begin) & np.isfinite(end)
    begin, end = (np.where(has_length, times, np.inf).astype(np.float64) for times in (begin, end))
    order = np.argsort(begin, axis=0, kind="stable")
    begin, end = (np.take_along_axis(times, order, axis=0) for times in (begin, end))
    latest_end_before = np.maximum.accumulate(np.concatenate([np.full_like(end[:1], -np.inf), end[:-1]]))
    return np.maximum(begin, latest_end_before), np.maximum(end, latest_end_before)


def _sum_of_times_since(times: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """float[V]: for each of the V moments, the sum over all times [n] of max(0, moment - time), all in seconds."""
    sorted_times = np.sort(times.astype(np.float64))
    cumulative_times = np.concatenate([[0.0], np.cumsum(sorted_times)])  # entry n: the sum of the first n
    num_times_until = np.searchsorted(sorted_times, moments, side="right")  # int[V]
    return moments * num_times_until - cumulative_times[num_times_until]


def _num_times_until(times: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """int[V]: how many of the times are at or before each moment."""
    return np.searchsorted(np.sort(times, axis=None), moments, side="right")


def _num_gradients_sent(
    schedule: Any, moments: np.ndarray, code: GradientCode | None, mixing: Mixing | None, message_size: Any
) -> np.ndarray:
    """float[V]: what all workers together have sent up to each of the V moments, in full gradients.

    A message of a code is one of L blocks of a gradient, and counts when its commit happens. Another one is a gradient,
    and counts when it has arrived; copies of parameters that workers send each other (`mixing`) are as large. All are
    `message_size` times that, a number or float[W].
    """
    if code is None:
        if mixing is not None:
            num_copies = np.asarray(mixing.copies(jax.tree.map(jnp.asarray, schedule)))  # [T, W]
        else:
            num_copies = np.isfinite(schedule.send_start)  # inf: nothing is sent
        arrival_order = np.argsort(schedule.finish, axis=None)
        sizes_in_arrival_order = (num_copies * message_size).ravel()[arrival_order]
        cumulative_sent = np.concatenate([[0.0], np.cumsum(sizes_in_arrival_order)])  # entry n: by n arrivals
        return cumulative_sent[_num_times_until(schedule.finish, moments)]
    is_contribution, progress = schedule.worker >= 0, schedule.work.clip(0)  # [E, W]: here C = W
    is_block_sent = np.asarray(jax.vmap(code.sent)(jnp.asarray(progress)))  # bool[E, W, M], M messages a worker
    gradients_sent = is_contribution * is_block_sent.sum(axis=2) * message_size / code.num_blocks  # [E, W]
    cumulative_sent = np.concatenate([[0.0], np.cumsum(gradients_sent.sum(axis=1))])  # entry n: by n commits
    return cumulative_sent[_num_times_until(schedule.time, moments)]


def _staleness_so_far(schedule: Any, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float[V] each: mean and largest staleness of the contributions up to each of V moments; NaN before the first.

    Staleness is in commits. Where there is no contribution the worker is -1, and where no commit, the time inf.
    """
    is_contribution = schedule.worker >= 0  # [E, C]
    staleness = np.where(is_contribution, schedule.staleness, 0)
    cumulative_contributions = np.concatenate([[0], np.cumsum(is_contribution.sum(axis=1))])  # entry n: of n commits
    cumulative_staleness = np.concatenate([[0], np.cumsum(staleness.sum(axis=1))])
    max_staleness_so_far = np.concatenate([[0], np.maximum.accumulate(staleness.max(axis=1))])
    num_commits = _num_times_until(schedule.time, moments)
    num_contributions = cumulative_contributions[num_commits]
    mean_staleness = cumulative_staleness[num_commits] / np.maximum(num_contributions, 1)
    max_staleness = max_staleness_so_far[num_commits]
    has_contribution = num_contributions > 0
    return np.where(has_contribution, mean_staleness, np.nan), np.where(has_contribution, max_staleness, np.nan)
