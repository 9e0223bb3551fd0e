"""Pipelined gradient coding in plain Python loops: one chunk a round, and a message with the last gradient on each."""

import math

from tests.protocols.event_queue import TIMES, Expected


def pipeline(load, enough, durations, links):
    """Rounds of one chunk, after a first one of all.

    Args:
      load: the chunks of a worker.
      enough: `(workers) -> bool`, whether the messages of a set of workers make a commit.
      durations: float[T, W].
      links: the time of messages, of each worker.
    """
    num_units, num_workers = durations.shape
    times = {name: [[math.inf] * num_workers for _ in range(num_units)] for name in TIMES}
    now, free, commits = 0.0, [0.0] * num_workers, []
    last_committed = [-1] * num_workers  # the last unit of each in a commit
    for first in range(num_units - load + 1):
        last = first + load - 1
        for w in range(num_workers):
            free[w] = turn(range(last + 1) if first == 0 else [last], w, max(now, free[w]), durations, links, times)
        moments = sorted(time for time in free if math.isfinite(time))
        now = next((t for t in moments if enough({w for w in range(num_workers) if free[w] <= t})), math.inf)
        if math.isinf(now):
            break
        parts = []
        for w in (w for w in range(num_workers) if free[w] <= now):
            parts += [
                (w, unit, max(0, unit - load + 1), 1) for unit in range(max(first, last_committed[w] + 1), last + 1)
            ]
            last_committed[w] = last
        commits.append((now, parts))
    return Expected(commits, now, times)


def turn(units, w, start, durations, links, times):
    """When the message has arrived; notes the times of the units, one after the other."""
    at = start + links.latency[w] + links.download[w]
    for unit in units:
        of_unit = {"start": start if unit == units[0] else at, "compute_start": at}
        at += float(durations[unit, w])
        of_unit |= {"compute_end": at, "finish": at}
        if unit == units[-1]:
            of_unit |= {"send_start": at, "finish": at + links.latency[w] + links.upload[w]}
        for name, time in of_unit.items():
            times[name][unit][w] = time
    return times["finish"][units[-1]][w]
