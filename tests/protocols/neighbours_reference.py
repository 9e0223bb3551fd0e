"""Workers that wait for their neighbours, iteration by iteration, in plain Python."""

import itertools
import math

import jax
import numpy as np

from tests.protocols.event_queue import TIMES, Expected, Links, Server


def iterations(heard_by, durations, links, copies=None):
    """Everybody waits for those whom it hears.

    Args:
      heard_by: `(iteration, worker, num_workers) -> set`, whom a worker hears after an iteration.
      durations: float[T, W].
      links: the time of messages, of each worker.
      copies: `(iteration, worker, num_workers) -> number` of parameters that it sends, and receives; one for each who
        hears it, or whom it hears, if None.
    """
    num_units, num_workers = durations.shape
    workers = range(num_workers)
    start, receiving, ends = [0.0] * num_workers, [0.0] * num_workers, []
    times = {name: [] for name in TIMES}
    for t in range(num_units):
        hears = [heard_by(t, w, num_workers) - {w} for w in workers]
        sent = [sum(w in others for others in hears) if copies is None else copies(t, w, num_workers) for w in workers]
        received = [len(hears[w]) if copies is None else copies(t, w, num_workers) for w in workers]
        begin = [start[w] + receiving[w] for w in workers]
        end = [begin[w] + float(durations[t, w]) for w in workers]
        there = [end[w] + (links.latency[w] + sent[w] * links.upload[w] if sent[w] else 0.0) for w in workers]
        for name, values in zip(TIMES, (start, begin, end, end, there), strict=True):
            times[name].append(values)
        ends.append(max(there))
        start = [max(there[v] for v in hears[w] | {w}) for w in workers]
        receiving = [links.latency[w] + received[w] * links.download[w] if received[w] else 0.0 for w in workers]
    return _commits(times, ends, min(start))


def _commits(times, ends, horizon):
    """An iteration is a commit when all have sent; whoever begins has read what is committed by then."""
    commits = []
    for t, end in enumerate(ends):
        if math.isinf(end) or end > horizon:
            break
        begun = [min(t, sum(other <= start for other in ends)) for start in times["start"][t]]
        commits.append((end, [(w, t, version, 1) for w, version in enumerate(begun)]))
    return Expected(commits, horizon, times)


def with_backup(heard_by, num_backup, max_gap, durations, links):
    """Everybody waits for all but so many of those whom it hears, and for those who are too far behind."""
    num_units, num_workers = durations.shape
    workers, times, ends = range(num_workers), {name: [] for name in TIMES}, []
    start, receiving = [0.0] * num_workers, [0.0] * num_workers
    for t in range(num_units):
        hears = [heard_by(t, w, num_workers) - {w} for w in workers]
        begin = [start[w] + receiving[w] for w in workers]
        end = [begin[w] + float(durations[t, w]) for w in workers]
        there = [end[w] + (links.latency[w] + len(hears[w]) * links.upload[w] if hears[w] else 0.0) for w in workers]
        for name, values in zip(TIMES, (start, begin, end, end, there), strict=True):
            times[name].append(values)
        ends.append(max(there))
        start = []
        for w in workers:
            needed = sorted(there[v] for v in hears[w])[: max(len(hears[w]) - num_backup, 0)]
            behind = [times["start"][t + 1 - max_gap][v] for v in hears[w]] if t + 1 >= max_gap else []
            start.append(max([there[w], *needed, *behind]))
        come = [sum(there[v] <= start[w] for v in hears[w]) for w in workers]
        receiving = [links.latency[w] + come[w] * links.download[w] if come[w] else 0.0 for w in workers]
    return _commits(times, ends, min(start))


def path(t, w, num_workers):
    """Workers in a row."""
    return {w - 1, w + 1} & set(range(num_workers))


def ring(t, w, num_workers):
    return {(w - 1) % num_workers, (w + 1) % num_workers}


def one_before(t, w, num_workers):
    """1, 2, 4, ... before it, by turns."""
    distances = [1]
    while 2 * distances[-1] < num_workers:
        distances.append(2 * distances[-1])
    return {(w - distances[t % len(distances)]) % num_workers}


def group(key, size):
    """A random group: the workers are put in order, and the order is cut."""

    def members(t, w, num_workers):
        place = np.asarray(jax.random.permutation(jax.random.fold_in(key, t), num_workers)).tolist()
        mine = next(part for part in cut(num_workers, size) if place[w] in part)
        return {v for v in range(num_workers) if place[v] in mine}

    return members


def cut(num_workers, size):
    """Places in order, in as few parts of at most so many as there can be, the smaller ones first."""
    number = math.ceil(num_workers / size)
    bounds = [g * num_workers // number for g in range(number + 1)]
    return [range(begin, end) for begin, end in itertools.pairwise(bounds)]


def all_reduce(key, size):
    """What a ring of the members carries: all but one g-th of the parameters, twice."""

    def copies(t, w, num_workers):
        number = len(group(key, size)(t, w, num_workers))
        return 2 * (number - 1) / number

    return copies


def exchange(rule, durations, links):
    """Nobody waits; a worker sends its parameters to another one, and receives its."""
    seconds = [2 * a + b + c for a, b, c in zip(links.latency, links.upload, links.download, strict=True)]
    nothing = [0.0] * len(seconds)
    return Server(rule, durations, Links(nothing, seconds, nothing)).run()
