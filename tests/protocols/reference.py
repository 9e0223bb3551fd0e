"""Event-queue simulations in plain Python, written from the waiting rules alone."""

import heapq
import math

import numpy as np


def arrivals(durations, staleness, receive=0.0, send=0.0):
    """Commits (time, worker, unit, version) of a bounded-staleness run, one event at a time.

    All events of one moment come before anybody starts at that moment, so that a start sees all of them.
    """
    num_units, num_workers = durations.shape
    clock = [0] * num_workers
    version = [0] * num_workers
    waiting = set(range(num_workers))
    queue, commits, ran_out, now = [], [], math.inf, durations.dtype.type(0)
    while True:
        for w in sorted(waiting):
            if clock[w] - min(clock) > staleness:
                continue
            waiting.discard(w)
            if clock[w] == num_units:
                ran_out = min(ran_out, now)
                continue
            version[w] = len(commits)
            arrival = now + durations.dtype.type(receive) + durations[clock[w], w] + durations.dtype.type(send)
            if np.isfinite(arrival):
                heapq.heappush(queue, (arrival, w))
        if not queue or queue[0][0] > ran_out:
            return commits
        now = queue[0][0]
        while queue and queue[0][0] == now:
            _, w = heapq.heappop(queue)
            commits.append((now, w, clock[w], version[w]))
            clock[w] += 1
            waiting.add(w)


def rounds(durations):
    """Times of the rounds in which everybody waits for everybody."""
    now, times = durations.dtype.type(0), []
    for row in durations:
        now = max(now + d for d in row)
        if not np.isfinite(now):
            break
        times.append(now)
    return times


def coded_rounds(code, durations, stop, receive=0.0, send=0.0):
    """(time, progress) of coded rounds; `stop(progress) -> bool` is asked after every finished chunk."""
    load, loads = code.assignment.load, code.assignment.loads
    now, result = 0.0, []
    for first in range(0, durations.shape[0] - load + 1, load):
        finish = []
        for w in range(durations.shape[1]):
            at = receive
            for k in range(loads[w]):
                at += durations[first + k, w]
                finish.append((at, w))
        progress = np.zeros(durations.shape[1], np.int32)
        events, index, seconds = sorted(finish), 0, math.inf
        while index < len(events) and np.isfinite(events[index][0]):
            at = events[index][0]
            while index < len(events) and events[index][0] == at:
                progress[events[index][1]] += 1
                index += 1
            if stop(progress):
                seconds = at
                break
        if not np.isfinite(seconds):
            return result
        sends = np.asarray(code.sent(progress))
        now += seconds + (send if sends.any() else 0.0)
        result.append((now, progress.copy()))
    return result


def is_decodable(code):
    """A stopping condition that asks the plan itself."""
    import jax
    import jax.numpy as jnp

    plan = jax.jit(code.plan)
    return lambda progress: float(plan(jnp.asarray(progress)).residual) < 1e-6


def count_finished(code, count):
    return lambda progress: int((progress >= code.assignment.loads).sum()) >= count
