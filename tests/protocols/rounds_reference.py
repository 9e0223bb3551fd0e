"""Rounds and groups in plain Python loops: local work until a moment that a rule names, then all push."""

import math

import numpy as np

from tests.protocols.event_queue import Expected


def rounds(stop_of, durations, links):
    """Rounds that all begin with the same version.

    Args:
      stop_of: `(begin, received, ends) -> list of W`, when each worker stops computing; `ends[w]` lists when its coming
        units would end. None if there are too few of them.
      durations: float[T, W].
      links: the time of messages, of each worker.
    """
    num_units, num_workers = durations.shape
    used, now, commits = [0] * num_workers, 0.0, []
    while True:
        received = [now + links.latency[w] + links.download[w] for w in range(num_workers)]
        ends = [(received[w] + np.cumsum(durations[used[w] :, w])).tolist() for w in range(num_workers)]
        stops = stop_of(now, received, ends)
        if stops is None:
            return Expected(commits, now)
        if math.inf in stops:
            return Expected(commits, math.inf)
        parts, end = [], now
        for w, stop in enumerate(stops):
            done = sum(e <= stop for e in ends[w] if math.isfinite(e))
            last = ends[w][done - 1] if done else received[w]
            begun = done + (last < stop)
            if used[w] + begun > num_units:
                return Expected(commits, now)
            if done:
                parts.append((w, used[w], len(commits), done))
            used[w] += begun
            end = max(end, stop + (links.latency[w] + links.upload[w] if done else 0.0))
        now = end
        commits.append((now, parts))


def steps(number):
    """Everybody does `number(begin)` units."""

    def stop_of(begin, received, ends):
        count = number(begin)
        return None if min(map(len, ends)) < count else [e[count - 1] for e in ends]

    return stop_of


def first_to_finish(num_steps, num_waited):
    """All stop when so many workers have done so many steps."""

    def stop_of(begin, received, ends):
        finished = sorted(e[num_steps - 1] if len(e) >= num_steps else math.inf for e in ends)
        stop = finished[num_waited - 1]
        lost = sum(math.inf in e[:num_steps] for e in ends)
        return None if math.isinf(stop) and lost <= len(ends) - num_waited else [stop] * len(ends)

    return stop_of


def for_seconds(seconds):
    """Everybody computes for the same time."""
    return lambda begin, received, ends: [r + seconds for r in received]


def grouped(groups, durations, links, local_rounds=1, receive=(0.0, 0.0), send=(0.0, 0.0)):
    """Groups that wait within, and not for each other; the lower of two groups comes first.

    `receive` and `send` are the seconds of each group's messages from the central server and to it.
    """
    num_units = durations.shape[0]
    pushes, begins, out = [], [], math.inf
    for g, group in enumerate(groups):
        now = 0.0
        for first in range(0, num_units - local_rounds + 1, local_rounds):
            begin, now = now, now + receive[g]
            for unit in range(first, first + local_rounds):
                messages = [2 * links.latency[w] + links.download[w] + links.upload[w] for w in group]
                now += max(m + durations[unit, w] for m, w in zip(messages, group, strict=True))
            now += send[g]
            pushes.append((now, g, first))
            begins.append(begin)
        out = min(out, now)
    order = sorted(range(len(pushes)), key=lambda i: pushes[i])
    times = [pushes[i][0] for i in order]
    commits = []
    for i in order:
        time, g, first = pushes[i]
        if math.isinf(time) or time > out:
            break
        version = min(sum(t <= begins[i] for t in times), len(commits))
        commits.append((time, [(w, first, version, local_rounds) for w in groups[g]]))
    return Expected(commits, out)


def tree(num_children, num_layers, num_needed, load, durations, links):
    """Rounds whose messages go up a tree: a node takes one after the other, and decodes from any so many."""
    sizes = [num_children**layer for layer in range(1, num_layers + 1)]
    first_of_layer = [sum(sizes[:layer]) for layer in range(num_layers)]
    now, commits = 0.0, []
    for first in range(0, durations.shape[0] - load + 1, load):
        done = [
            links.latency[w] + links.download[w] + float(np.sum(durations[first : first + load, w]))
            for w in range(sum(sizes))
        ]
        arrivals = {}

        def decoded(layer, number, done=done, arrivals=arrivals):
            """When node number so much above a layer can decode; notes when the messages for it arrive."""
            below = [first_of_layer[layer] + number * num_children + j for j in range(num_children)]
            ready = []
            for w in below:
                own = number * num_children + w - below[0]
                ready.append((max(done[w], decoded(layer + 1, own) if layer + 1 < num_layers else 0.0), w))
            free = 0.0
            for at, w in sorted(ready):
                free = max(free, at) + links.upload[w]
                arrivals[w] = free + links.latency[w], number, layer
            return sorted(arrivals[w][0] for w in below)[num_needed - 1]

        end = decoded(0, 0)
        parts = []
        for w in range(sum(sizes)):
            arrival, number, layer = arrivals[w]
            above = None if layer == 0 else first_of_layer[layer - 1] + number
            limit = end if above is None else min(end, max(done[above], decoded(layer, number)))
            in_time = math.isfinite(arrival) and arrival <= limit
            parts.append((w, first, len(commits), load if in_time else 0))
        if math.isinf(end):
            return Expected(commits, math.inf)
        now += end
        commits.append((now, parts))
    return Expected(commits, now)


def coded_groups(groups, codes, durations, links, receive=(0.0, 0.0), send=(0.0, 0.0)):
    """Groups with codes: each stops when what its members have done covers all chunks, and waits for no other group."""
    num_units = durations.shape[0]
    load = max(code.assignment.load for code in codes)
    pushes, out = [], math.inf
    for g, (group, code) in enumerate(zip(groups, codes, strict=True)):
        now = 0.0
        for first in range(0, num_units - load + 1, load):
            received = [links.latency[w] + links.download[w] for w in group]
            orders = [[c for c in row if c >= 0] for row in code.assignment.chunks.tolist()]
            ends = [
                (received[j] + np.cumsum(durations[first : first + len(order), w])).tolist()
                for j, (w, order) in enumerate(zip(group, orders, strict=True))
            ]
            stop, done = math.inf, [0] * len(group)
            for at in sorted(end for of_worker in ends for end in of_worker if math.isfinite(end)):
                reached = [sum(end <= at for end in of_worker) for of_worker in ends]
                covered = {c for order, n in zip(orders, reached, strict=True) for c in order[:n]}
                if len(covered) == code.assignment.num_chunks:
                    stop, done = at, reached
                    break
            messages = [links.latency[w] + links.upload[w] for w, n in zip(group, done, strict=True) if n]
            end = now + receive[g] + (stop + max(messages, default=0.0)) + send[g]
            pushes.append((end, g, first, now, done))
            now = end
        out = min(out, now)
    pushes.sort(key=lambda push: push[:3])
    times = [push[0] for push in pushes]
    commits = []
    for time, g, first, begin, done in pushes:
        if math.isinf(time) or time > out:
            break
        version = min(sum(t <= begin for t in times), len(commits))
        commits.append((time, [(w, first, version, n) for w, n in zip(groups[g], done, strict=True)]))
    return Expected(commits, out)
