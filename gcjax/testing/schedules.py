"""What must hold of a schedule exactly: more than what is cheap enough to be checked in every run.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit.
"""

import itertools
from typing import Any

import numpy as np

from gcjax.protocols import Protocol, Schedule
from gcjax.protocols.validation.structure import INDICES
from gcjax.testing.contract import require

EPS = 1e-9  # sums of the same numbers in another order


def check_exactly(schedule: Schedule, protocol: Protocol, durations: np.ndarray) -> None:
    """Raises a `ContractError` with the rule that a schedule in float64 breaks, and where.

    Args:
      schedule: of numpy arrays.
      protocol: that it is of.
      durations: float[T, W] seconds.
    """
    _check_padding(schedule)
    _check_times(schedule, overlaps=protocol.local is not None and protocol.local.overlaps_pull)
    _check_versions(schedule, protocol)
    _check_order(schedule, protocol)
    _check_seconds(schedule, protocol, durations)


def _check_padding(s: Schedule) -> None:
    """What is not there is -1 everywhere, and has no weight; what is there has one."""
    happens, filled = np.isfinite(s.time), s.worker >= 0
    for name in INDICES:
        values = getattr(s, name)
        require((values[~happens] == -1).all(), f"{name} must be -1 in commits that do not happen")
        fits = (values >= 0) == filled
        e, c = np.argwhere(~fits)[0] if not fits.all() else (0, 0)
        require(fits.all(), f"{name} must be -1 where the worker is; commit {e}, contribution {c} has {values[e, c]}")
    require((s.weight[~filled] == 0).all(), "the weight must be 0 where there is no contribution")
    bad = filled & ~(s.weight > 0)
    require(not bad.any(), f"every contribution must have a weight above 0; commit {_first(bad)} has one without")


def _first(bad: Any) -> int:
    return int(np.argwhere(bad)[0][0]) if bad.any() else -1


def _check_versions(s: Schedule, protocol: Protocol) -> None:
    """Staleness is within the bound, and no version is read before it is there."""
    filled = s.worker >= 0
    stale = np.where(filled, np.arange(s.time.size)[:, None] - s.version, 0)
    if protocol.max_staleness is not None:
        bound = protocol.max_staleness(s.start.shape[1])
        rule = f"staleness must not be above the protocol's max_staleness, {bound}"
        require(stale.max(initial=0) <= bound, f"{rule}; commit {_first(stale > bound)} has {stale.max(initial=0)}")
    newest = np.where(filled, s.version, -1).max(axis=1, keepdims=True, initial=-1)
    mixed = filled & (s.version != newest)
    rule = "contributions to one commit must read one version if the protocol says one_version"
    require(not (protocol.one_version and mixed.any()), f"{rule}; commit {_first(mixed)} reads several")
    for e, c in zip(*np.nonzero(filled & (s.version > 0)), strict=True):
        w, unit, version = s.worker[e, c], s.unit[e, c], s.version[e, c]
        deadline = s.start[unit, w]
        if protocol.local is not None:  # parameters can come in while a worker takes steps of its own
            deadline = max(deadline, s.send_start[unit : unit + s.work[e].max(), w].min(initial=np.inf))
        require(
            s.time[version - 1] <= deadline * (1 + EPS),
            f"a version must be there when it is read; commit {e}, contribution {c} has read version {version}, which "
            f"is made at {s.time[version - 1]:g} s, by {deadline:g} s",
        )


def _check_order(s: Schedule, protocol: Protocol) -> None:
    """The units of a worker are used in their order, once they have been computed to the end and have arrived."""
    if protocol.code is not None:  # `work` is what a round has come to, also by units of other rounds
        return
    last = np.full(s.start.shape[1], -1)
    for e in np.flatnonzero(np.isfinite(s.time)):
        parts = zip(s.worker[e], s.unit[e], s.work[e], strict=True)
        for w, unit, work in sorted(part for part in parts if part[0] >= 0):
            where = f"commit {e} has unit {unit} of worker {w}"
            require(unit > last[w], f"units of a worker must be used in order; {where} after unit {last[w]}")
            end = s.compute_end[unit : unit + work, w]
            require(np.isfinite(end).all(), f"only units that are computed to the end can be used; {where}")
            arrival = s.finish[unit + work - 1, w]
            rule = f"a unit must have arrived when it is used; {where} at {s.time[e]:g} s"
            require(arrival <= s.time[e] * (1 + EPS), f"{rule}, and it has arrived at {arrival:g} s")
            last[w] = unit + work - 1


def _check_times(s: Schedule, *, overlaps: bool) -> None:
    """No unit starts before its worker is free, nobody computes while sending."""
    for name, after in itertools.pairwise(("start", "compute_start", "compute_end", "finish")):
        early, late = getattr(s, name), getattr(s, after)
        is_finite = np.isfinite(early) & np.isfinite(late)
        require((early <= late + EPS)[is_finite].all(), f"{name} must not come after {after}")
    for w in range(s.start.shape[1]):
        units = np.flatnonzero(np.isfinite(s.start[:, w]))
        starts, ends = s.start[units, w], s.compute_end[units, w]
        overlapping = np.flatnonzero(starts[1:] < ends[:-1] - EPS)
        if overlapping.size:
            n = units[1:][overlapping[0]]
            rule = "no unit must start before its worker has computed the one before"
            end = ends[overlapping[0]]
            value = f"unit {n} of worker {w} starts at {s.start[n, w]:g} s, the one before ends at {end:g} s"
            require(False, f"{rule}; {value}")
        sent = np.isfinite(s.send_start[:, w])
        for begin, arrived in zip(s.send_start[sent, w], s.finish[sent, w], strict=True):
            within = (starts > begin + EPS) & (starts < arrived - EPS)
            rule = f"nobody must begin a unit while sending; worker {w} does between {begin:g} and {arrived:g} s"
            require(overlaps or not within.any(), rule)


def _check_seconds(s: Schedule, protocol: Protocol, durations: np.ndarray) -> None:
    """Computing a unit takes as long as it was sampled to take, or less if it is cut off."""
    seconds = s.compute_end - np.where(np.isfinite(s.compute_start), s.compute_start, 0)
    long = np.isfinite(s.compute_start) & np.isfinite(s.compute_end) & (seconds > durations * (1 + EPS) + EPS)
    if long.any():
        n, w = np.argwhere(long)[0]
        rule = "computing a unit must not take longer than its duration"
        require(False, f"{rule}; unit {n} of worker {w} takes {seconds[n, w]:g} s instead of {durations[n, w]:g} s")
    if protocol.code is not None:
        return
    short = np.zeros_like(long)
    for e, c in np.argwhere(s.worker >= 0):
        w, units = s.worker[e, c], slice(s.unit[e, c], s.unit[e, c] + s.work[e, c])
        short[units, w] |= seconds[units, w] < durations[units, w] * (1 - EPS) - EPS
    if short.any():
        n, w = np.argwhere(short)[0]
        rule = "a unit that is used must have taken as long as its duration"
        require(False, f"{rule}; unit {n} of worker {w} takes {seconds[n, w]:g} s instead of {durations[n, w]:g} s")
