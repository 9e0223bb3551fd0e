"""Streaming DiLoCo in plain Python: step by step, every commit and what comes of it when its messages say so."""

import math

from tests.protocols.event_queue import TIMES, Expected


def streaming(num_steps, num_fragments, overlap, durations, links, shares=None):
    """All push a fragment every H/P steps, and merge what came of it τ steps after they have pushed it.

    Args:
      num_steps: H.
      num_fragments: P.
      overlap: τ.
      durations: float[T, W].
      links: the time of messages, of each worker; messages of one worker pass its link one after the other.
      shares: of the fragments in the parameters, P numbers; equal ones if None.
    """
    num_units, num_workers = durations.shape
    length, workers = num_steps // num_fragments, range(num_workers)
    shares = shares or [1 / num_fragments] * num_fragments
    times = {name: [] for name in TIMES}
    end, up, down = [0.0] * num_workers, [0.0] * num_workers, [0.0] * num_workers
    commit_times, received = [], []
    for t in range(num_units + 1):
        if t and t % length == 0:  # all push, and the commit is there when all pushes are
            share = shares[len(commit_times) % num_fragments]
            send = [max(end[w], up[w]) for w in workers]
            up = [send[w] + share * links.upload[w] for w in workers]
            times["send_start"][-1], times["finish"][-1] = send, [up[w] + links.latency[w] for w in workers]
            commit_times.append(max(times["finish"][-1]))
            down = [max(commit_times[-1], down[w]) + share * links.download[w] for w in workers]
            received.append([down[w] + links.latency[w] for w in workers])
        start, begin = list(end), list(end)
        if t == 0:
            begin = [links.latency[w] + links.download[w] for w in workers]
        if t - overlap > 0 and (t - overlap) % length == 0:
            merged = (t - overlap) // length - 1
            start = [max(end[w], commit_times[merged]) for w in workers]
            begin = [max(end[w], received[merged][w]) for w in workers]
        if t == num_units:
            return Expected(_commits(commit_times, min(start), length, overlap, num_workers), min(start), times)
        end = [begin[w] + float(durations[t, w]) for w in workers]
        sends = [math.inf] * num_workers
        for name, values in zip(TIMES, (start, begin, list(end), sends, list(end)), strict=True):
            times[name].append(values)


def _commits(commit_times, horizon, length, overlap, num_workers):
    """The commits up to the horizon: of each worker the units on one version are a part."""
    commits = []
    for e, time in enumerate(commit_times):
        if math.isinf(time) or time > horizon:
            break
        version_of = {t: max(0, (t - overlap) // length) for t in range(e * length, (e + 1) * length)}
        parts = []
        for version in sorted(set(version_of.values())):
            units = [t for t in version_of if version_of[t] == version]
            parts += [(w, units[0], version, len(units)) for w in range(num_workers)]
        commits.append((time, parts))
    return commits
