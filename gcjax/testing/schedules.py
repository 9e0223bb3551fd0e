"""What must hold of a schedule exactly: more than what is cheap enough to be checked in every run.

Letters: T units sampled per worker, W workers, E commits, C contributions to a commit.
"""

import itertools
from typing import Any

import numpy as np

from gcjax.protocols import Protocol, Schedule
from gcjax.protocols.conformance.structure import INDICES
from gcjax.testing.contract import require

ROUNDING = 1e-9  # sums of the same numbers in another order


def check_every_rule(
    schedule: Schedule, protocol: Protocol, durations: np.ndarray, message_seconds: np.ndarray
) -> None:
    """Raises a `ContractError` with the rule that a schedule in float64 breaks, and where.

    Args:
      schedule: of numpy arrays.
      protocol: that it is of.
      durations: float[T, W] seconds.
      message_seconds: float[3, W]: latency, upload, download.
    """
    local = protocol.local  # what workers do with parameters of their own; None where they push gradients
    has_group_servers = local is not None and local.servers is not None
    _check_padding(schedule, weight_can_be_0=has_group_servers)
    sends_while_computing = local is not None and (local.overlaps_pull or local.fragments is not None)
    _check_times(schedule, may_begin_while_sending=sends_while_computing)
    _check_versions(schedule, protocol)
    _check_order(schedule, protocol)
    _check_seconds(schedule, protocol, durations)
    _check_messages(schedule, protocol, message_seconds)


def _check_padding(schedule: Schedule, *, weight_can_be_0: bool) -> None:
    """Checks that empty slots and commits that do not happen are -1, with weight 0; contributions have one above 0.

    With `weight_can_be_0` each commit has one such contribution at least. What is -1: worker, first unit and work.
    """
    is_commit, is_contribution = np.isfinite(schedule.time), schedule.worker >= 0
    for name in INDICES:
        indices = getattr(schedule, name)
        require((indices[~is_commit] == -1).all(), f"{name} must be -1 in commits that do not happen")
        is_consistent = (indices >= 0) == is_contribution
        commit, contribution = np.argwhere(~is_consistent)[0] if not is_consistent.all() else (0, 0)
        rule = f"{name} must be -1 where the worker is"
        wrong_index = indices[commit, contribution]
        require(is_consistent.all(), f"{rule}; commit {commit}, contribution {contribution} has {wrong_index}")
    require((schedule.weight[~is_contribution] == 0).all(), "the weight must be 0 where there is no contribution")
    is_unweighted: Any = is_contribution & ~(schedule.weight > 0)
    rule = "every contribution must have a weight above 0"
    if weight_can_be_0:
        rule = "every commit must have a contribution with a weight above 0"
        is_unweighted = is_commit & ~(schedule.weight > 0).any(axis=1)
    require(not is_unweighted.any(), f"{rule}; commit {_first_commit(is_unweighted)} has one without")


def _first_commit(is_bad: Any) -> int:
    """The first index along the first axis at which something is bad; -1 if nothing is."""
    return int(np.argwhere(is_bad)[0][0]) if is_bad.any() else -1


def _check_versions(schedule: Schedule, protocol: Protocol) -> None:
    """Checks that staleness is within the protocol's bound, and no version is read before it is committed."""
    is_contribution = schedule.worker >= 0
    staleness = np.where(is_contribution, schedule.staleness, 0)
    if protocol.max_staleness is not None:
        num_workers = schedule.start.shape[1]
        max_staleness = protocol.max_staleness(num_workers)
        rule = f"staleness must not be above the protocol's max_staleness, {max_staleness}"
        stale_commit, largest_staleness = _first_commit(staleness > max_staleness), staleness.max(initial=0)
        require(largest_staleness <= max_staleness, f"{rule}; commit {stale_commit} has {largest_staleness}")
    newest_version = np.where(is_contribution, schedule.version, -1).max(axis=1, keepdims=True, initial=-1)  # [E, 1]
    reads_older_version = is_contribution & (schedule.version != newest_version)
    rule = "contributions to one commit must read one version if the protocol says one_version"
    require(
        not (protocol.one_version and reads_older_version.any()),
        f"{rule}; commit {_first_commit(reads_older_version)} reads several",
    )
    for commit, contribution in zip(*np.nonzero(is_contribution & (schedule.version > 0)), strict=True):
        version = schedule.version[commit, contribution]
        commit_of_version = version - 1  # version 0 is that of the initial parameters
        version_time = schedule.time[commit_of_version]
        latest_read_time = _latest_read_time(schedule, protocol, commit, contribution)
        require(
            version_time <= latest_read_time * (1 + ROUNDING),
            f"a version must be there when it is read; commit {commit}, contribution {contribution} has read version "
            f"{version}, which is made at {version_time:g} s, by {latest_read_time:g} s",
        )


def _latest_read_time(schedule: Schedule, protocol: Protocol, commit: int, contribution: int) -> Any:
    """The last second at which a worker can have read the version that its contribution to a commit says.

    That is the begin of its first unit; with local steps it may read as late as when it begins to send the message of
    these units. Units that have no message have inf there.
    """
    worker, unit = schedule.worker[commit, contribution], schedule.unit[commit, contribution]
    start_time = schedule.start[unit, worker]
    can_read_between_own_steps = protocol.local is not None
    if not can_read_between_own_steps:
        return start_time
    most_units_of_a_contribution = schedule.work[commit].max()
    maybe_own_units = slice(unit, unit + most_units_of_a_contribution)
    first_send_start = schedule.send_start[maybe_own_units, worker].min(initial=np.inf)
    return max(start_time, first_send_start)


def _check_order(schedule: Schedule, protocol: Protocol) -> None:
    """Checks that a worker's units are used in their order, once they are computed to the end and have arrived.

    A contribution has `work` units from `unit` on; in the schedule times are inf for what never is.
    """
    if protocol.code is not None:  # `work` is what a round has come to, also by units of other rounds
        return
    num_workers = schedule.start.shape[1]
    last_used_unit = np.full(num_workers, -1)
    for commit in np.flatnonzero(np.isfinite(schedule.time)):
        fields = zip(schedule.worker[commit], schedule.unit[commit], schedule.work[commit], strict=True)
        contributions = [(worker, unit, work) for worker, unit, work in fields if worker >= 0]
        for worker, unit, work in sorted(contributions):
            last_unit = unit + work - 1
            contribution_text = f"commit {commit} has unit {unit} of worker {worker}"
            rule = "units of a worker must be used in order"
            is_in_order = unit > last_used_unit[worker]
            require(is_in_order, f"{rule}; {contribution_text} after unit {last_used_unit[worker]}")
            is_computed = np.isfinite(schedule.compute_end[unit : unit + work, worker])
            require(is_computed.all(), f"only units that are computed to the end can be used; {contribution_text}")
            arrival = schedule.finish[last_unit, worker]
            rule = f"a unit must have arrived when it is used; {contribution_text} at {schedule.time[commit]:g} s"
            require(arrival <= schedule.time[commit] * (1 + ROUNDING), f"{rule}, and it has arrived at {arrival:g} s")
            last_used_unit[worker] = last_unit


def _check_times(schedule: Schedule, *, may_begin_while_sending: bool) -> None:
    """Checks that no unit starts before its worker is free, nor while it sends, unless that is allowed."""
    for name, later_name in itertools.pairwise(("start", "compute_start", "compute_end", "finish")):
        times, later_times = getattr(schedule, name), getattr(schedule, later_name)
        is_finite = np.isfinite(times) & np.isfinite(later_times)
        require((times <= later_times + ROUNDING)[is_finite].all(), f"{name} must not come after {later_name}")
    num_workers = schedule.start.shape[1]
    for worker in range(num_workers):
        _check_begins_after_previous_unit(schedule, worker)
        if not may_begin_while_sending:
            _check_begins_not_while_sending(schedule, worker)


def _check_begins_after_previous_unit(schedule: Schedule, worker: int) -> None:
    """Checks that no unit of a worker starts before the one before it is computed."""
    units = np.flatnonzero(np.isfinite(schedule.start[:, worker]))
    start_times, compute_ends = schedule.start[units, worker], schedule.compute_end[units, worker]
    for unit, start, previous_end in zip(units[1:], start_times[1:], compute_ends[:-1], strict=True):
        is_early = start < previous_end - ROUNDING
        rule = "no unit must start before its worker has computed the one before"
        example = f"unit {unit} of worker {worker} starts at {start:g} s, the one before ends at {previous_end:g} s"
        require(not is_early, f"{rule}; {example}")


def _check_begins_not_while_sending(schedule: Schedule, worker: int) -> None:
    """Checks that no unit of a worker starts between the time when a message is sent and that when it has arrived."""
    start_times = schedule.start[np.isfinite(schedule.start[:, worker]), worker]
    is_sent = np.isfinite(schedule.send_start[:, worker])
    send_starts, arrivals = schedule.send_start[is_sent, worker], schedule.finish[is_sent, worker]
    for send_start, arrival in zip(send_starts, arrivals, strict=True):
        begins_while_sending = (start_times > send_start + ROUNDING) & (start_times < arrival - ROUNDING)
        rule = f"nobody must begin a unit while sending; worker {worker} does between {send_start:g} and {arrival:g} s"
        require(not begins_while_sending.any(), rule)


def _check_seconds(schedule: Schedule, protocol: Protocol, durations: np.ndarray) -> None:
    """Checks that computing a unit takes as long as it was sampled to take, or less if it is cut off."""
    finite_starts = np.where(np.isfinite(schedule.compute_start), schedule.compute_start, 0)
    seconds = schedule.compute_end - finite_starts  # [T, W]; only those count that begin and end
    is_computed = np.isfinite(schedule.compute_start) & np.isfinite(schedule.compute_end)
    is_too_long = is_computed & (seconds > durations * (1 + ROUNDING) + ROUNDING)
    _require_no_unit(is_too_long, seconds, durations, "computing a unit must not take longer than its duration")
    if protocol.code is not None:
        return
    is_too_short = np.zeros_like(is_too_long)
    for commit, contribution in np.argwhere(schedule.worker >= 0):
        fields = schedule.worker, schedule.unit, schedule.work
        worker, unit, work = (values[commit, contribution] for values in fields)
        units = slice(unit, unit + work)
        is_too_short[units, worker] |= seconds[units, worker] < durations[units, worker] * (1 - ROUNDING) - ROUNDING
    _require_no_unit(is_too_short, seconds, durations, "a unit that is used must have taken as long as its duration")


def _check_messages(schedule: Schedule, protocol: Protocol, message_seconds: np.ndarray) -> None:
    """Checks that messages take as long as the network says, at least; not of workers that average with each other.

    That is of gradients and parameters to the server, of fragments the latency only; and of parameters from the server
    where workers have none of their own: for each unit that reads another version than the one before it.
    `message_seconds` are latency, upload and download, [W] each.
    """
    if protocol.local is not None and protocol.local.mixing is not None:
        return
    latency, upload, download = message_seconds
    has_fragments = protocol.local is not None and protocol.local.fragments is not None
    sending, receiving = (
        np.where(np.isfinite(begin) & np.isfinite(end), end, np.inf) - np.where(np.isfinite(begin), begin, 0)
        for begin, end in ((schedule.send_start, schedule.finish), (schedule.start, schedule.compute_start))
    )  # [T, W] seconds each; inf if there is no such message
    least_sending = np.broadcast_to(latency + (0 if has_fragments else upload), sending.shape)
    is_too_short = sending < least_sending * (1 - ROUNDING) - ROUNDING
    rule = "sending a message must take the latency and the upload of the network"
    _require_no_unit(is_too_short, sending, least_sending, rule)
    if protocol.local is not None:
        return
    previous_read = np.concatenate([np.full_like(schedule.read[:1], -1), schedule.read[:-1]])
    least_receiving = np.where(schedule.read != previous_read, latency + download, 0)
    is_too_short = receiving < least_receiving * (1 - ROUNDING) - ROUNDING
    rule = "receiving parameters must take the latency and the download of the network"
    _require_no_unit(is_too_short, receiving, least_receiving, rule)


def _require_no_unit(is_bad: np.ndarray, seconds: Any, right_seconds: np.ndarray, rule: str) -> None:
    """Raises a `ContractError` with the rule and the first unit for which `is_bad bool[T, W]` holds."""
    if is_bad.any():
        unit, worker = np.argwhere(is_bad)[0]
        wrong, right = seconds[unit, worker], right_seconds[unit, worker]
        example = f"unit {unit} of worker {worker} takes {wrong:g} s instead of {right:g} s"
        require(False, f"{rule}; {example}")
